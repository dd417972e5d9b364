"""Observation, reward and end of an episode, compared with dm_control's own task in the same physics."""

from contextlib import closing

import numpy as np
import pytest
import torch

from body_transformer.experiment import load_experiment
from body_transformer.rl.mocap import terms
from body_transformer.rl.mocap.motions import Motions
from body_transformer.rl.registry import make_env_cfg

OLDER = ("sensors_torque", "sensors_touch")
"""Observations that are older than dm_control's; see rl/mocap/expert.py."""
LIKE_DM_CONTROL = {"freeze_fingers": "false", "cone": "elliptic", "iterations": "100", "ls_iterations": "50"}


@pytest.fixture(scope="module")
def layouts():
    return load_experiment("mocap-expert").layout(), load_experiment("mocapact").layout()


@pytest.fixture(scope="module")
def theirs(clips_file):
    from body_transformer.imitation.tasks.mocap.environment import MocapEnv

    return MocapEnv(clips_file)


@pytest.fixture(scope="module")
def ours(options):
    """The walkers of an evaluation in plain MuJoCo with dm_control's model and solver, each on a snippet of its own."""
    from body_transformer.rl.envs.cpu import CpuEnv

    cfg = make_env_cfg("mocap-expert", 10, 0, play=True, options=options | LIKE_DM_CONTROL)
    with closing(CpuEnv(cfg, num_threads=1)) as env:
        env._models[0].opt.noslip_iterations, env._models[0].opt.noslip_tolerance = 5, 0
        yield env


def test_the_observation_has_the_entries_that_the_papers_allocation_uses(layouts):
    own, mocapact = layouts
    assert own.obs == tuple(term for term in mocapact.obs if term.kind != "unused")
    assert own.actions == mocapact.actions
    assert own.graph.to_dict() == mocapact.graph.to_dict()


def test_each_snippet_has_the_steps_that_dm_control_gives_it(ours, theirs):
    names = [snippet.name for snippet in ours.task.snippets]
    assert {"CMU_900_04-0-141", "CMU_900_04-108-250"} < set(names)
    for snippet, episode in zip(ours.task.snippets, ours.plan, strict=True):
        assert theirs.reset(options={"snippet": snippet})[1]["max_steps"] == episode.max_steps, snippet


@pytest.mark.parametrize("number", [0, 2, 4])
def test_observations_rewards_and_ends_are_those_of_dm_control(ours, theirs, layouts, number):
    """From the first step to the last, in the same physics, with controls that leave the reference.

    After each step, our walker continues from dm_control's state: the two would drift apart by rounding.
    """
    own, mocapact = layouts
    obs = ours.reset(seed=0)[0]["actor"][number]
    expected, _ = theirs.reset(options={"snippet": ours.task.snippets[number]})
    rng = np.random.default_rng(number)
    seen = []
    for step in range(ours.plan[number].max_steps):
        for term in own.obs:
            there = torch.from_numpy(expected[mocapact.obs_slices[term.name]])
            if term.name not in OLDER:
                torch.testing.assert_close(obs[own.obs_slices[term.name]], there, rtol=1e-5, atol=1e-4)
        actions = torch.from_numpy(rng.normal(0, 0.3, (ours.num_envs, 56)))
        found, rewards, died, late, _ = ours.step(actions)
        expected, reward, terminated, truncated, _ = theirs.step(ours.robots.state.control[number].numpy())
        obs = found["actor"][number]
        assert rewards[number].item() == pytest.approx(reward, abs=1e-6), step
        error = terms.tracking_error(ours.robots.state)[number].item()
        assert error == pytest.approx(theirs.task._termination_error, abs=1e-6)
        assert (bool(died[number]), bool(late[number])) == (terminated, truncated)
        seen.append((reward, error))
        data, world = theirs.env.physics.data, ours.world
        for column, state in ((world.qpos, data.qpos), (world.qvel, data.qvel), (world.act, data.act)):
            column[number] = torch.from_numpy(np.array(state))
        if terminated or truncated:
            break
    assert np.ptp(np.array(seen), axis=0).min() > 0.1, "rewards and errors that vary"


@pytest.mark.parametrize("number", [0, 1])
def test_touch_and_torque_are_those_of_dm_control_5_ms_earlier(ours, theirs, layouts, number):
    own, mocapact = layouts
    ours.reset(seed=0)
    theirs.reset(options={"snippet": ours.task.snippets[number]})
    same, differences = [], []
    for _ in range(15):
        obs = ours.step(torch.zeros(ours.num_envs, 56))[0]["actor"][number].numpy()
        expected = theirs.step(ours.robots.state.control[number].numpy())[0]
        touch, torque = (
            (obs[own.obs_slices[name]], expected[mocapact.obs_slices[name]])
            for name in ("sensors_touch", "sensors_torque")
        )
        same.append(np.mean(touch[0] == touch[1]))
        differences.append(np.abs(torque[0] - torque[1]))
    assert np.mean(same) > 0.95
    assert np.median(differences) < 0.05 < np.abs(torque[1]).max()


def test_half_angles_are_those_in_dm_controls_rewards():
    from dm_control.locomotion.tasks.reference_pose.rewards import bounded_quat_dist

    first, second = (torch.nn.functional.normalize(torch.randn(50, 4, dtype=torch.float64), dim=-1) for _ in range(2))
    expected = bounded_quat_dist(first.numpy().copy(), second.numpy().copy())[:, 0]
    np.testing.assert_allclose(terms.half_angle(first, second), expected, atol=1e-7)


def test_kernels_are_1_at_the_reference_and_fall_with_the_distance(ours):
    ours.reset(seed=0)
    state = ours.robots.state
    kernels = (terms.joints, terms.joint_velocities, terms.body_rotations)
    for kernel in kernels:
        torch.testing.assert_close(kernel(state), torch.ones(ours.num_envs, dtype=torch.float64), atol=1e-6, rtol=0)
    torch.testing.assert_close(
        terms.comic(state), torch.full((ours.num_envs,), 1.45, dtype=torch.float64), atol=1e-4, rtol=0
    )
    for _ in range(5):
        ours.step(torch.ones(ours.num_envs, 56))
    assert all((kernel(state) < 0.97).all() for kernel in kernels)


def test_the_critic_sees_the_next_frame_from_the_root(ours, layouts):
    """A snippet starts with the walker at the reference, so the next frame differs by one frame of motion."""
    obs = ours.reset(seed=0)[0]["critic"]
    assert obs.shape[1] == load_experiment("mocap-expert").critic_layout().obs_dim
    torch.testing.assert_close(obs[:, :1294], ours.reset(seed=0)[0]["actor"])
    state, motions = ours.robots.state, ours.robots.state.motions
    assert isinstance(motions, Motions)
    pos = terms.reference_root_pos(state)
    torch.testing.assert_close(
        pos.norm(dim=1), (motions.root_pos[state.frame + 1] - motions.root_pos[state.frame]).norm(dim=1)
    )
    quat = terms.CRITIC_OBSERVATIONS["reference_root_quat"](state)
    torch.testing.assert_close(quat, torch.eye(4, dtype=quat.dtype)[:1].expand_as(quat), atol=1e-6, rtol=0)
