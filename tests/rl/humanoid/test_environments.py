"""Humanoids on the CPU: comparison with plain MuJoCo, rewards and ends of episodes."""

import math

import mujoco
import numpy as np
import pytest
import torch

pytest.importorskip("mjlab")

from body_transformer.rl.envs.cpu import scene_model
from body_transformer.rl.envs.mjlab import task_of, terms_of
from body_transformer.rl.humanoid import terms
from body_transformer.rl.humanoid.hill import on_height_field
from body_transformer.rl.humanoid.model import BODIES, JOINTS

from ..environments import random_actions

TASKS = ("humanoid-mod", "humanoid-hill", "humanoid-board")


# -- against plain MuJoCo ----------------------------------------------------------------------------------------------


def contact_forces(model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    """Return the net contact force on each body of the robot, world frame, [16, 3]."""
    net, wrench = np.zeros((model.nbody, 3)), np.zeros(6)
    for k, contact in enumerate(data.contact):
        mujoco.mj_contactForce(model, data, k, wrench)
        force = contact.frame.reshape(3, 3).T @ wrench[:3]  # of the first geom on the second
        net[model.geom_bodyid[contact.geom[1]]] += force
        net[model.geom_bodyid[contact.geom[0]]] -= force
    return net[[model.body(f"robot/{body}").id for body in BODIES]]


def plain_observation(model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    """Return the observation [100] from MuJoCo's data alone."""
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


def test_the_observation_of_any_pose_follows_from_mujocos_data(env):
    """Torsos have random rotations, joints random angles, and nothing touches."""
    made = env("humanoid-mod")
    world, rng = terms_of(made).world, np.random.default_rng(0)
    qpos = rng.normal(size=world.qpos.shape)
    qpos[:, 3:7] /= np.linalg.norm(qpos[:, 3:7], axis=1, keepdims=True)
    world.qpos.copy_(torch.tensor(qpos))
    world.qvel.copy_(torch.tensor(rng.normal(size=world.qvel.shape)))
    data = mujoco.MjData(world.model)
    for k, seen in enumerate(terms_of(made).observations()["actor"][:, :52]):
        data.qpos, data.qvel = world.qpos[k].numpy(), world.qvel[k].numpy()
        assert seen.tolist() == pytest.approx(plain_observation(world.model, data)[:52], abs=1e-5)


def against_plain_mujoco(made, scale: float) -> np.ndarray:
    """Return the differences of state and contact forces, and the largest contact force, [steps, 3]."""
    cfg = made.cfg if task_of(made.cfg).ground is None else on_height_field(made.cfg)
    world, model = terms_of(made).world, scene_model(cfg)
    found = []
    for step, action in enumerate(scale * random_actions(48)):
        before = [array.numpy().astype(float) for array in (world.qpos, world.qvel, world.qacc_warmstart)]
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
        x = robots.state.root.pos[:, 0].clone()
        _, reward, died, *_ = made.step(action)
        a, s = action.clamp(-1, 1), robots.state
        living = ~died
        q = terms.joint_pos(s)
        gear = torch.tensor(made.sim.mj_model.actuator_gear[:, 0]).float() / 135
        up = 1 - 2 * (s.root.quat[:, 1] ** 2 + s.root.quat[:, 2] ** 2)
        h = 1 - 2 * (s.root.quat[:, 2] ** 2 + s.root.quat[:, 3] ** 2)  # the target is straight ahead, far away
        expected = (
            (s.root.pos[:, 0] - x) * 60
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
def test_a_death_in_the_last_step_is_not_a_time_out(env, fast):
    made = env("humanoid-mod", fast)
    state = terms_of(made).robots.state
    made.episode_length_buf[:] = 999
    state.root.pos[0, 2] = 0.1  # in the ground
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
    state.root.pos[:4, 2] = 0.1
    obs, _, died, timed_out, _ = made.step(torch.zeros(8, 21))
    assert (died | timed_out).all()
    assert (obs["actor"][:, 52:] == 0).all()
    assert (obs["actor"][:, 1:4] == 0).all()
    _, _, died, _, _ = made.step(torch.zeros(8, 21))
    assert not died.any()
