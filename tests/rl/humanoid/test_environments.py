"""Whole environments on the CPU: against plain MuJoCo, and mjlab's step against the fast one."""

import math

import mujoco
import numpy as np
import pytest
import torch

pytest.importorskip("mjlab")

from body_transformer.rl.envs.cpu import scene_model
from body_transformer.rl.envs.mjlab import task_of, terms_of
from body_transformer.rl.humanoid import terms
from body_transformer.rl.humanoid.model import BODIES, JOINTS
from body_transformer.rl.humanoid.task import on_height_field

from ..environments import check_no_host_traffic

TASKS = ("humanoid-mod", "humanoid-hill", "humanoid-board")
WITH_OPTIONS = [
    *(pytest.param(name, (), id=name) for name in TASKS),
    pytest.param("humanoid-board", ("privileged_critic",), id="humanoid-board, privileged critic"),
]


def random_actions(steps: int, num_envs: int = 8, seed: int = 1) -> torch.Tensor:
    return torch.randn(steps, num_envs, 21, generator=torch.Generator().manual_seed(seed))


# -- against plain MuJoCo ----------------------------------------------------------------------------------------------


def contact_forces(model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    """[16, 3]: net contact force on each body of the robot, world frame."""
    net, wrench = np.zeros((model.nbody, 3)), np.zeros(6)
    for k, contact in enumerate(data.contact):
        mujoco.mj_contactForce(model, data, k, wrench)
        force = contact.frame.reshape(3, 3).T @ wrench[:3]  # of the first geom on the second
        net[model.geom_bodyid[contact.geom[1]]] += force
        net[model.geom_bodyid[contact.geom[0]]] -= force
    return net[[model.body(f"robot/{body}").id for body in BODIES]]


def plain_observation(model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    """[100], from MuJoCo's data alone."""
    joints = [model.joint(f"robot/{name}") for name in JOINTS]
    rotation = np.zeros(9)
    mujoco.mju_quat2Mat(rotation, data.qpos[3:7])
    rotation = rotation.reshape(3, 3)
    angles = [
        math.atan2(rotation[2, 1], rotation[2, 2]),
        -math.asin(rotation[2, 0]),
        math.atan2(rotation[1, 0], rotation[0, 0]),
    ]
    pos = [2 * (data.qpos[j.qposadr[0]] - j.range[0]) / (j.range[1] - j.range[0]) - 1 for j in joints]
    vel = [0.1 * data.qvel[j.dofadr[0]] for j in joints]
    root = [data.qpos[2], *data.qvel[:3], *angles, *(rotation @ data.qvel[3:6])]
    return np.concatenate([root, pos, vel, contact_forces(model, data).ravel()])


def against_plain_mujoco(made, scale: float) -> np.ndarray:
    """[steps, 3]: difference of the state, difference of contact forces, largest contact force."""
    cfg = made.cfg if task_of(made.cfg).ground is None else on_height_field(made.cfg)
    world, model = terms_of(made).world, scene_model(cfg)
    found = []
    for step, action in enumerate(scale * random_actions(48)):
        before = [array.numpy().astype(float) for array in (world.qpos, world.qvel, world.warmstart)]
        obs, _, died, *_ = made.step(action)
        for k in [k for k in range(8) if (k + step) % 3 == 0 and not died[k]]:
            data = mujoco.MjData(model)
            data.qpos, data.qvel, data.qacc_warmstart = (array[k] for array in before)
            data.ctrl = np.clip(action[k].numpy(), -1, 1)
            mujoco.mj_step(model, data, nstep=2)
            expected = plain_observation(model, data)
            differs = np.abs(obs["actor"][k].numpy() - expected)
            found.append((differs[:52].max(), differs[52:].max(), np.abs(expected[52:]).max()))
    return np.array(found)


@pytest.mark.parametrize("name", TASKS)
def test_a_step_is_that_of_plain_mujoco(env, name):
    state, force, largest = against_plain_mujoco(env(name), scale=0.3).T
    flying, standing = largest == 0, largest > 50
    assert flying.sum() >= 5
    assert standing.sum() >= 20
    assert np.quantile(state[flying], 0.9) < 1e-3
    if name == "humanoid-hill":  # planes under a foot's four feelers here, a height field there
        assert np.median(state[standing]) < 0.05
        assert np.median(force[standing]) < 20
    else:
        assert np.quantile(state[standing], 0.9) < 1e-3
        assert np.quantile(force[standing], 0.9) < 0.5  # N, of hundreds


def test_the_ground_pushes_feet_up_and_carries_the_robots_weight(env):
    made = env("humanoid-mod")
    lifts, feet = [], [BODIES.index("right_foot"), BODIES.index("left_foot")]
    for _ in range(20):
        made.step(torch.zeros(8, 21))
        lifts.append(terms_of(made).robots.state.contact_force[:, feet, 2])
    lifts = torch.stack(lifts)
    assert (lifts >= 0).all()
    assert 100 < lifts[10:].sum(-1).mean() < 800  # 40.84 kg x 9.81 = 401 N


def test_the_model_has_the_papers_physics(env):
    model = env("humanoid-mod").sim.mj_model
    assert model.opt.timestep == pytest.approx(1 / 120)
    assert sum(model.body(f"robot/{body}").mass[0] for body in BODIES) == pytest.approx(40.84, abs=0.01)
    gears = dict(zip(JOINTS, model.actuator_gear[:, 0], strict=True))
    assert gears["right_hip_y"] == 135
    assert gears["left_ankle_x"] == 22.5
    assert env("humanoid-mod").step_dt == pytest.approx(1 / 60)


# -- actions and rewards -----------------------------------------------------------------------------------------------


def test_torques_are_clamped_actions_times_gears(env):
    made = env("humanoid-mod")
    action = torch.zeros(8, 21)
    action[:, JOINTS.index("right_knee")] = -3.0
    action[:, JOINTS.index("left_hip_y")] = 0.5
    made.step(action)
    torques = made.sim.data.actuator_force[0] * torch.tensor(made.sim.mj_model.actuator_gear[:, 0])
    assert torques[JOINTS.index("right_knee")] == pytest.approx(-90)
    assert torques[JOINTS.index("left_hip_y")] == pytest.approx(67.5)
    assert torques.abs().sum() == pytest.approx(157.5)


def test_the_reward_is_the_papers_sum_and_minus_one_in_death(env):
    made = env("humanoid-mod")
    robots = terms_of(made).robots
    deaths = 0
    for action in random_actions(40):
        x = robots.state.torso_pos[:, 0].clone()
        _, reward, died, *_ = made.step(action)
        a, s = action.clamp(-1, 1), robots.state
        living = ~died
        q = terms.joint_pos(s)
        gear = torch.tensor(made.sim.mj_model.actuator_gear[:, 0]).float() / 135
        up = 1 - 2 * (s.torso_quat[:, 1] ** 2 + s.torso_quat[:, 2] ** 2)
        h = 1 - 2 * (s.torso_quat[:, 2] ** 2 + s.torso_quat[:, 3] ** 2)  # the target is straight ahead, far away
        expected = (
            (s.torso_pos[:, 0] - x) * 60
            + 2
            + 0.1 * (up > 0.93)
            + torch.where(h > 0.8, 0.5, 0.5 * h / 0.8)
            - 0.01 * (a * a).sum(1)
            - 0.05 * ((a * 0.1 * s.joint_vel).abs() * gear).sum(1)
            - ((q.abs() > 0.98) * 0.25 * (q.abs() - 0.98) / 0.02 * gear).sum(1)
        )
        torch.testing.assert_close(reward[living], expected[living], atol=5e-3, rtol=1e-3)
        assert (reward[died] == -1).all()
        deaths += int(died.sum())
    assert deaths > 0


# -- the fast step -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "options"), WITH_OPTIONS)
def test_the_fast_step_is_mjlabs_step(env, name, options):
    fast, stock = env(name, options=options), env(name, fast=False, options=options)
    groups = ["actor", "critic"] if options else ["actor"]
    torch.testing.assert_close(fast.get_observations(), stock.get_observations())
    ends = torch.zeros(2)
    for k, action in enumerate(random_actions(50)):
        if k == 20:
            for made in (fast, stock):
                made.episode_length_buf[3] = 998
        got, expected = fast.step(action), stock.step(action)
        assert list(got[0]) == list(expected[0]) == groups
        torch.testing.assert_close(got[0], expected[0], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(got[1], expected[1], atol=1e-4, rtol=1e-4)
        assert torch.equal(got[2], expected[2])
        assert torch.equal(got[3], expected[3])
        assert torch.equal(fast.episode_length_buf, stock.episode_length_buf)
        ends += torch.tensor([got[2].sum(), got[3].sum()])
    assert ends[0] >= 5  # so there were resets to compare
    for group in groups:
        assert torch.equal(fast.get_observations()[group], got[0][group])


@pytest.mark.parametrize(("name", "options"), WITH_OPTIONS)
def test_a_fast_step_brings_no_number_to_the_host_and_none_from_it(env, name, options):
    check_no_host_traffic(env(name, options=options), random_actions(3))


def test_weights_of_the_configuration_scale_the_fast_reward(new_env):
    from body_transformer.rl.envs.fast import FastEnv
    from body_transformer.rl.registry import make_env_cfg

    cfg = make_env_cfg("humanoid-mod", 8, 0)
    for term in cfg.rewards.values():
        term.weight *= 0.01
    scaled, plain = FastEnv(cfg, "cpu"), new_env("humanoid-mod")
    for made in (scaled, plain):
        made.reset()
    for action in random_actions(15):
        torch.testing.assert_close(scaled.step(action)[1], 0.01 * plain.step(action)[1])


# -- ends of episodes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fast", [True, False])
def test_an_episode_ends_by_time_out_after_exactly_1000_steps(env, fast, monkeypatch):
    made = env("humanoid-mod", fast)
    assert made.max_episode_length == 1000
    for physics in ("step", "forward"):
        monkeypatch.setattr(made.sim, physics, lambda: None)  # robots hang in the air: they live, and it is quick
    made.episode_length_buf[:] = 990
    still = torch.zeros(8, 21)
    for _ in range(9):
        _, _, died, timed_out, _ = made.step(still)
        assert not (died | timed_out).any()
    _, reward, died, timed_out, _ = made.step(still)
    assert timed_out.all()
    assert not died.any()
    assert (reward > 2).all()
    assert (made.episode_length_buf == 0).all()


@pytest.mark.parametrize("fast", [True, False])
def test_a_death_in_the_last_step_is_not_a_time_out(env, fast):
    made = env("humanoid-mod", fast)
    state = terms_of(made).robots.state
    made.episode_length_buf[:] = 999
    state.torso_pos[0, 2] = 0.1  # in the ground
    _, reward, died, timed_out, _ = made.step(torch.zeros(8, 21))
    assert died.tolist() == [True] + [False] * 7
    assert timed_out.tolist() == [False] + [True] * 7
    assert reward[0] == -1
    assert (reward[1:] > 1).all()


@pytest.mark.parametrize("name", TASKS)
def test_a_fresh_episode_has_no_contact_forces_or_velocities_of_the_previous_one(env, name):
    made = env(name)
    state = terms_of(made).robots.state
    made.episode_length_buf[:] = 999
    state.torso_pos[:4, 2] = 0.1
    obs, _, died, timed_out, _ = made.step(torch.zeros(8, 21))
    assert (died | timed_out).all()
    assert (obs["actor"][:, 52:] == 0).all()
    assert (obs["actor"][:, 1:4] == 0).all()
    _, _, died, _, _ = made.step(torch.zeros(8, 21))
    assert not died.any()


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("name", TASKS)
def test_a_broken_simulation_is_death_and_the_next_episode_is_whole(env, name, fast):
    made = env(name, fast)
    world, state = terms_of(made).world, terms_of(made).robots.state
    world.qvel[0] = torch.nan
    world.qpos[1, 0] = torch.inf
    state.joint_vel[2, 4] = 1000.0
    state.torso_vel[3, 0] = 90.0
    obs, reward, died, timed_out, _ = made.step(torch.zeros(8, 21))
    assert died.tolist() == [True] * 4 + [False] * 4
    assert not timed_out.any()
    assert (reward[:4] == -1).all()
    for _ in range(4):
        assert obs["actor"].isfinite().all()
        assert reward.isfinite().all()
        obs, reward, died, _, _ = made.step(torch.zeros(8, 21))
        assert not died.any()
        assert (reward > 1).all()
    if fast:
        assert made.broken == 4
        assert made.forward_speed.isfinite().all()
        made.broken.zero_()


@pytest.mark.parametrize("name", ["humanoid-mod", "humanoid-board"])  # the hill: see test_ground.py
def test_nothing_is_nan_over_300_random_steps(env, name):
    made = env(name)
    ends = 0
    for action in random_actions(300, seed=2):
        obs, reward, died, timed_out, _ = made.step(action)
        assert obs["actor"].isfinite().all()
        assert reward.isfinite().all()
        ends += int((died | timed_out).sum())
    assert ends > 8
    assert not made.sim.wp_data.overflow.numpy().any()  # all contacts had room
