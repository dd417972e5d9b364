"""The walkers in their simulators: the frozen model, the servos, starts and ends of episodes."""

from contextlib import closing

import numpy as np
import pytest
import torch

from body_transformer.imitation.tasks.mocap.clips import MotionSource, convert
from body_transformer.rl.mocap import terms
from body_transformer.rl.mocap.model import is_finger, walker_spec
from body_transformer.rl.mocap.robots import task_bodies
from body_transformer.rl.mocap.servo import Servo
from body_transformer.rl.registry import make_env, make_env_cfg, quiet

from ..environments import check_no_host_traffic
from .conftest import CMU, STANDING_M, moving


def plain(options, num_envs: int = 10, **changes: str):
    """Return the walkers of an evaluation in plain MuJoCo."""
    from body_transformer.rl.envs.cpu import CpuEnv

    return CpuEnv(make_env_cfg("mocap-expert", num_envs, 0, play=True, options=options | changes), num_threads=1)


@pytest.fixture(scope="module")
def frozen(options):
    with closing(plain(options)) as env:
        yield env


def rolled(env, actions) -> list[torch.Tensor]:
    """Return the places of all bodies after each step, [B, 31, 3]."""
    env.reset(seed=0)
    places = []
    for action in actions:
        env.step(action)
        places.append(env.robots.state.body_pos.clone())
    return places


# -- the model ---------------------------------------------------------------------------------------------------------


def test_the_frozen_walker_has_the_joints_for_a_dense_solver():
    frozen, full = (walker_spec(freeze).compile() for freeze in (True, False))
    assert (frozen.nv, frozen.nu, frozen.na) == (56, 50, 50)
    assert (full.nv, full.nu, full.na) == (62, 56, 56)
    assert frozen.nbody == full.nbody
    assert frozen.body_subtreemass[0] == pytest.approx(70.0, abs=1e-3)
    assert not any(is_finger(frozen.joint(k).name) for k in range(frozen.njnt))


def test_frozen_fingers_change_little_in_ten_steps(frozen, options):
    """From the same starts with the same controls; where the thumb touches the wrist, arms differ more."""
    actions = 0.3 * torch.randn(10, frozen.num_envs, 56)
    with closing(plain(options, freeze_fingers="false")) as full:
        both = zip(rolled(frozen, actions), rolled(full, actions), strict=True)
        apart = [(one - other).norm(dim=-1) for one, other in both]
        torch.testing.assert_close(frozen.robots.state.activation, full.robots.state.activation, atol=1e-9, rtol=0)
        assert full.robots.state.joint_pos[:, full.robots.servo.is_finger].abs().max() < 0.1
    worst = apart[-1].max(1).values
    assert 0 < worst.median() < 2e-3
    assert (worst < 0.01).double().mean() >= 0.8


def test_warp_and_plain_mujoco_give_the_same_observations(options):
    """With a solver that converges; with four iterations the two solvers stop at different places."""
    many = {"iterations": "100", "ls_iterations": "50"}
    with (
        closing(make_env("mocap-expert", 10, 0, "cpu", play=True, options=options | many)) as warp,
        closing(plain(options, **many)) as cpu,
    ):
        mine, theirs = (env.reset(seed=0)[0]["critic"] for env in (warp, cpu))
        for _ in range(4):
            torch.testing.assert_close(mine, theirs, atol=2e-3, rtol=1e-4)
            action = 0.3 * torch.randn(cpu.num_envs, 56)
            mine, theirs = (env.step(action)[0]["critic"] for env in (warp, cpu))


def test_mjlabs_environment_has_the_results_of_fast_env(options):
    from mjlab.envs import ManagerBasedRlEnv

    from body_transformer.rl.envs.fast import FastEnv

    with quiet():
        cfg = make_env_cfg("mocap-expert", 1, 0, play=True, options=options)
        envs = [kind(cfg, "cpu") for kind in (FastEnv, ManagerBasedRlEnv)]
    for env in envs:
        env.reset(seed=0)
    for _ in range(3):
        action = torch.randn(2, 56)
        fast, slow = (env.step(action) for env in envs)
        torch.testing.assert_close(fast[1], slow[1], atol=1e-5, rtol=0)
        torch.testing.assert_close(fast[0]["actor"], slow[0]["actor"], atol=1e-3, rtol=1e-4)
    for env in envs:
        env.close()


def test_a_step_copies_nothing_between_host_and_device(env):
    env.reset()
    check_no_host_traffic(env, torch.zeros(3, 4, 56))


# -- servos ------------------------------------------------------------------------------------------------------------


def test_servos_hold_a_pose_against_springs():
    """Clavicles and back have springs of up to 2.5 times the servo's stiffness: a plain target undershoots."""
    servo = Servo.of_walker("cpu", torch.float64)
    angles = torch.full((1, 56), 0.2, dtype=torch.float64)
    held = servo.control(angles, torch.zeros_like(angles))
    force = servo.gain * held + servo.offset - servo.stiffness * angles
    inside = held.abs() < 1
    spring = servo.spring * servo.stiffness * (angles - servo.spring_rest)
    torch.testing.assert_close(force[inside], spring[inside])
    assert inside.double().mean() > 0.8
    assert servo.spring.max() == pytest.approx(2.5, abs=0.01)
    dm_control = pytest.importorskip("dm_control.locomotion.walkers.cmu_humanoid")
    walker = dm_control.CMUHumanoidPositionControlledV2020()
    target = np.random.default_rng(0).uniform(-0.3, 0.3, 56)
    expected = np.clip(walker.cmu_pose_to_actuation(target), -1, 1)
    mine = servo.uncompensated(torch.from_numpy(target[list(servo.file_order)]))
    np.testing.assert_allclose(mine, expected, atol=1e-9)


def followed(env, compensated: bool, monkeypatch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the steps of each episode without corrections, and the mean error of joints after 30 steps, rad."""
    if not compensated:
        monkeypatch.setattr(Servo, "control", lambda servo, pos, vel, lead_s=0.0: servo.uncompensated(pos))
    env.reset(seed=0)
    for step in range(env.max_episode_length):
        env.step(torch.zeros(env.num_envs, 56))
        if step == 29:
            state = env.robots.state
            error = (state.joint_pos - state.motions.joint_pos[state.frame]).abs().mean(1)
        if not env.going.any():
            break
    monkeypatch.undo()
    return env.steps.clone(), error


def swinging_walkers(folder, height_m: float):
    """Return five walkers that follow slow swings of all joints with their root at this height."""
    motions = {f"CMU_910_{k:02}": moving(90, k, swing_rad=0.1) for k in range(5)}
    for motion in motions.values():
        motion[:, 2] += height_m - STANDING_M
    np.savez(folder / "swings.npz", **motions)
    convert(MotionSource.open(folder / "swings.npz"), folder / "swings.hdf5", scale=1.0)
    return plain({"clips": str(folder / "swings.hdf5")})


def test_compensated_controls_hold_longer_than_the_plain_reference(tmp_path, monkeypatch):
    """Without balance control all fall within a second or two; with compensated targets they fall later."""
    with closing(swinging_walkers(tmp_path, STANDING_M)) as env:
        (held, _), (lost, _) = (followed(env, compensated, monkeypatch) for compensated in (True, False))
    assert (held >= lost - 1).all()
    assert held.sum() > lost.sum()


def test_compensated_controls_follow_more_closely_where_nothing_can_fall(tmp_path, monkeypatch):
    with closing(swinging_walkers(tmp_path, height_m=3.0)) as env:
        env._models[0].opt.gravity[:] = 0.0
        (_, error), (_, plain_error) = (followed(env, compensated, monkeypatch) for compensated in (True, False))
    assert (error < 0.8 * plain_error).all()


# -- episodes ----------------------------------------------------------------------------------------------------------


def test_an_action_changes_the_control_by_its_scale_except_of_fingers(frozen):
    frozen.reset(seed=0)
    robots, state = frozen.robots, frozen.robots.state
    actions = torch.zeros(frozen.num_envs, 56)
    frozen.step(actions)
    follow, frame = state.control.clone(), state.frame.clone()
    frozen.reset(seed=0)
    frozen.step(actions + 0.5)
    moved, fingers = state.control - follow, robots.servo.is_finger
    assert torch.equal(state.frame, frame)
    assert not moved[:, fingers].any()
    expected = (follow + 0.5 * 0.33).clamp(max=1.0) - follow
    torch.testing.assert_close(moved[:, ~fingers], expected[:, ~fingers])


def test_training_episodes_begin_near_the_reference_and_some_at_rest(env):
    env.reset()
    robots, state = env.robots, env.robots.state
    motions, fresh = state.motions, torch.ones(4, dtype=torch.bool)
    at_rest, apart = [], []
    for _ in range(40):
        robots.restart(fresh)
        robots.locate()
        at_rest.append((state.activation == 0).all(1))
        apart.append((state.joint_pos - motions.joint_pos[state.frame])[:, ~robots.servo.is_finger])
        assert (state.end == motions.last[motions.clip[state.frame]]).all()
        assert (state.end - state.frame >= 9).all()
        assert (terms.tracking_error(state) < 0.05).all()
    assert 0.3 < torch.stack(at_rest).double().mean() < 0.7
    assert torch.cat(apart).std().item() == pytest.approx(0.02, rel=0.1)


def test_a_restart_leaves_other_walkers_alone(env):
    env.reset()
    env.step(torch.zeros(4, 56))
    robots, state, world = env.robots, env.robots.state, env.terms.world
    columns = {name: getattr(world, name) for name in ("qpos", "qvel", "act")}
    columns |= {
        name: getattr(state, name) for name in ("frame", "end", "activation", "touch", "previous_quat", "joint_pos")
    }
    before = {name: column.clone() for name, column in columns.items()}
    robots.restart(torch.tensor([False, True, False, False]))
    for name, column in columns.items():
        assert torch.equal(column[[0, 2, 3]], before[name][[0, 2, 3]]), name
    assert not torch.equal(world.qpos[1], before["qpos"][1])
    assert not state.touch[1].any()


def test_episodes_end_with_the_clip_or_with_the_error(env):
    """Ends by error are deaths, ends of clips are not; two walkers have little time to fall."""
    env.reset()
    state, ends = env.robots.state, {"died": 0, "late": 0}
    for _ in range(60):
        state.end[:2] = torch.minimum(state.end, state.frame + 3)[:2]
        before = state.frame.clone()
        _, _, died, late, _ = env.step(torch.full((4, 56), 3.0))
        assert not (died & late).any()
        ends["died"] += int(died.sum())
        ends["late"] += int(late.sum())
        assert ((before + 1 == state.frame) | died | late).all()
    assert min(ends.values()) > 0, ends


def test_the_bodies_are_those_of_clip_files(frozen):
    walker = pytest.importorskip("dm_control.locomotion.walkers.cmu_humanoid")
    expected = [body.name for body in walker.CMUHumanoidPositionControlledV2020().mocap_tracking_bodies]
    assert list(task_bodies(frozen.task)) == expected


def test_real_clips_are_followed_for_a_second(tmp_path):
    """The base controls alone, on two clips of walking people, where they are beside the repository."""
    if not (CMU / "clips.npz").is_file():
        pytest.skip("the CMU clips are not beside the repository")
    source = MotionSource.open(CMU / "clips.npz", CMU / "meta_all_clips.json")
    convert(source, tmp_path / "cmu.hdf5", ["CMU_002_03", "CMU_016_22"])
    with closing(plain({"clips": str(tmp_path / "cmu.hdf5")})) as env:
        env.reset(seed=0)
        for _ in range(33):
            env.step(torch.zeros(env.num_envs, 56))
    assert (env.steps > 15).all()
