import numpy as np
import pytest
from dm_control.locomotion.tasks.reference_pose import tracking

from body_transformer.experiment import load_experiment
from body_transformer.imitation.tasks.mocap.clips import SCALE
from body_transformer.imitation.tasks.mocap.environment import TERMINATION_ERROR, SnippetTracking
from body_transformer.imitation.tasks.mocap.snippets import REF_STEPS, Snippet
from body_transformer.imitation.tasks.mocap.task import check_layout

from .conftest import whole


def begin(env, snippet, start_step=None):
    """Start an episode and return the first observation."""
    options = {"snippet": snippet} if start_step is None else {"snippet": snippet, "start_step": start_step}
    return env.reset(options=options)[0]


def test_every_term_of_the_experiments_layout_is_in_the_environment(env):
    layout = load_experiment("mocapact").layout()
    assert [(term.name, term.size) for term in layout.obs] == list(env.obs_sizes.items())
    assert (env.obs_dim, env.action_dim) == (2868, 56)
    actuators = [actuator.name for actuator in env.task.walker.actuators]
    assert [f"ctrl[{name}]" for name in actuators] == layout.action_names()
    check_layout(layout, env.obs_sizes, env.action_dim)


def test_another_layout_is_refused(env):
    with pytest.raises(ValueError, match=r"the mocap task has 2868 .* 56 actions; the layout has 39 and 28"):
        check_layout(load_experiment("adroit-door").layout(), env.obs_sizes, env.action_dim)


def test_the_flat_observation_has_dm_controls_values_term_by_term(env):
    obs = begin(env, whole(env, "CMU_900_01"))
    physics, walker = env.env.physics, env.task.walker
    places = load_experiment("mocapact").layout().obs_slices
    assert obs.shape == (2868,)
    np.testing.assert_allclose(obs[places["joints_pos"]], physics.bind(walker.observable_joints).qpos, atol=1e-6)
    np.testing.assert_allclose(obs[places["body_height"]], physics.bind(walker.root_body).xpos[2], atol=1e-6)
    np.testing.assert_allclose(obs[places["time_in_clip"]], 0)


@pytest.mark.parametrize(("name", "start"), [("CMU_900_01", 0), ("CMU_900_02", 0), ("CMU_900_02", 23)])
def test_an_episode_starts_in_the_pose_of_its_motion(env, motions, name, start):
    begin(env, whole(env, name), start)
    walker = env.task.walker
    low, high = np.array(env.env.physics.bind(walker.mocap_joints).range).T
    pose = motions[name][start]
    np.testing.assert_allclose(env.env.physics.bind(walker.mocap_joints).qpos, np.clip(pose[7:], low, high), atol=1e-5)
    position, quaternion = walker.get_pose(env.env.physics)
    np.testing.assert_allclose(position, SCALE * pose[:3], atol=1e-5)
    assert abs(quaternion @ pose[3:7]) == pytest.approx(1, abs=1e-5)


def test_an_episode_starts_in_the_pose_of_a_real_clip(cmu_clips_file):
    from body_transformer.imitation.tasks.mocap.environment import MocapEnv

    env = MocapEnv(cmu_clips_file)
    for clip in env.lengths:
        begin(env, whole(env, clip))  # dm_control compares all bodies and raises if one differs
        assert env.env.physics.bind(env.task.walker.ground_contact_geoms).xpos[:, 2].min() > -0.01


def test_the_observed_reference_is_that_of_the_next_five_steps(env, motions):
    obs = begin(env, whole(env, "CMU_900_02"), 10)
    place = load_experiment("mocapact").layout().obs_slices["reference_rel_joints"]
    walker = env.task.walker
    low, high = np.array(env.env.physics.bind(walker.mocap_joints).range).T
    angles = np.clip(motions["CMU_900_02"][:, 7:], low, high)
    ahead = angles[10 + np.array(REF_STEPS)] - angles[10]
    np.testing.assert_allclose(obs[place].reshape(5, 56), ahead[:, walker.mocap_to_observable_joint_order], atol=1e-5)


def test_quaternions_equal_those_that_dm_control_computes_one_by_one(env):
    begin(env, whole(env, "CMU_900_02"), 10)
    for _ in range(3):
        env.step(np.full(56, 0.3))
    physics = env.env.physics
    for name in ("get_reference_rel_bodies_quats", "get_reference_ego_bodies_quats"):
        ours, theirs = getattr(SnippetTracking, name), getattr(tracking.MultiClipMocapTracking, name)
        np.testing.assert_allclose(ours(env.task, physics), theirs(env.task, physics), atol=1e-12)
    env.task._reference_ego_bodies_quats.clear()


def test_the_same_actions_lead_to_the_same_episode(env):
    actions = np.random.default_rng(0).uniform(-0.3, 0.3, size=(6, 56))

    def episode() -> list[np.ndarray]:
        return [begin(env, whole(env, "CMU_900_01")), *(env.step(action)[0] for action in actions)]

    first = episode()
    begin(env, whole(env, "CMU_900_02"), 20)
    np.testing.assert_array_equal(first, episode())


def test_an_episode_ends_with_its_snippet(env):
    controls = env.task.walker.cmu_pose_to_actuation
    begin(env, Snippet("CMU_900_02", 10, 30))
    steps = env.task.steps_left
    assert steps == 30 - 10 - REF_STEPS[-1]
    for step in range(steps):
        _, reward, terminated, truncated, info = env.step(controls(env.task.reference("joints", 1)))
        assert truncated == (step == steps - 1)
        assert 0 < reward < 1.5
        assert not terminated
        assert info == {"max_steps": steps}


def test_an_episode_ends_when_the_walker_is_too_far_from_the_reference_and_takes_no_more_steps(env):
    begin(env, whole(env, "CMU_900_02"))
    terminated = truncated = False
    while not (terminated or truncated):
        assert env.task._termination_error <= TERMINATION_ERROR == 0.3
        *_, terminated, truncated, _ = env.step(np.ones(56))
    assert terminated
    assert not truncated
    assert env.task.steps_left > 0
    assert env.task._termination_error > TERMINATION_ERROR
    with pytest.raises(RuntimeError, match="the episode is over"):
        env.step(np.ones(56))


@pytest.mark.parametrize(
    ("clip", "frames", "start", "message"),
    [
        ("CMU_900_01", (0, 40), 34, "cannot be tracked from frame 34"),
        ("CMU_900_01", (5, 40), 4, "cannot be tracked from frame 4"),
        ("CMU_900_01", (0, 50), 0, "cannot be tracked from frame 0"),
        ("CMU_000_00", (0, 40), 0, "'CMU_000_00'"),
    ],
)
def test_a_start_outside_a_clip_is_refused(env, clip, frames, start, message):
    with pytest.raises(ValueError, match=message):
        begin(env, Snippet(clip, *frames), start)
