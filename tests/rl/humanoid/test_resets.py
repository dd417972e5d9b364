"""Start states of episodes: their distribution and their assignment to environments."""

from functools import cache

import mujoco
import numpy as np
import pytest
import torch

pytest.importorskip("mjlab")

from body_transformer.rl.envs.cpu import scene_model
from body_transformer.rl.envs.mjlab import task_of, terms_of
from body_transformer.rl.envs.world import NUM_STARTS
from body_transformer.rl.humanoid.model import JOINTS
from body_transformer.rl.humanoid.robots import draw_starts, entangled, robot_geoms
from body_transformer.rl.registry import make_env_cfg

TASKS = ("humanoid-mod", "humanoid-hill", "humanoid-board")


@cache
def starts(name: str, count: int = 300, seed: int = 3, **options: bool):
    cfg = make_env_cfg(name, 1, 0)
    model = scene_model(cfg)
    qpos, qvel = draw_starts(model, task_of(cfg).place, np.random.default_rng(seed), count, **options)
    return model, qpos, qvel


@pytest.mark.parametrize("name", TASKS)
def test_joints_start_near_zero_and_the_root_upright_at_rest(name):
    model, qpos, qvel = starts(name)
    low, high = np.array([model.joint(f"robot/{joint}").range for joint in JOINTS]).T
    pose, speed = qpos[:, 7:28], qvel[:, 6:27]
    assert (pose >= np.maximum(low, -0.2)).all()
    assert (pose <= np.minimum(high, 0.2)).all()
    assert (pose.max(0) > np.minimum(high, 0.2) - 0.02).all()
    assert (pose.min(0) < -0.17).all()
    assert np.abs(speed).max() <= 0.1
    assert np.abs(speed).max(0).min() > 0.09
    assert (qpos[:, 3:7] == [1, 0, 0, 0]).all()
    assert (qvel[:, :6] == 0).all()
    assert (qvel[:, 27:] == 0).all()


@pytest.mark.parametrize(("name", "height"), [("humanoid-mod", 1.34), ("humanoid-board", 1.532)])
def test_the_torso_starts_above_the_origin(name, height):
    _, qpos, _ = starts(name)
    assert (qpos[:, :3] == [0, 0, height]).all()


def test_feet_start_above_flat_ground_and_in_the_board_as_the_authors_have_it():
    model, _, _ = starts("humanoid-mod")
    data = mujoco.MjData(model)
    data.qpos[:] = model.key_qpos[0]
    mujoco.mj_forward(model, data)
    foot = data.geom("robot/right_foot_inner").xpos[2] - 0.027
    assert foot == pytest.approx(0.054, abs=2e-3)
    assert foot + (1.532 - 1.34) == pytest.approx(0.25 - 0.0035, abs=2e-3)


@pytest.mark.parametrize("name", TASKS)
def test_no_start_is_entangled(name):
    model, qpos, _ = starts(name)
    data = mujoco.MjData(model)
    for start in qpos:
        data.qpos = start
        assert not entangled(model, data, robot_geoms(model))


def test_crossed_legs_and_a_foot_through_the_board_are_entangled():
    model, _, _ = starts("humanoid-board")
    data = mujoco.MjData(model)
    data.qpos = model.key_qpos[0]
    assert not entangled(model, data, robot_geoms(model))
    for side in ("right", "left"):
        data.joint(f"robot/{side}_hip_x").qpos = 0.2
    assert entangled(model, data, robot_geoms(model))
    data.qpos = model.key_qpos[0]
    data.joint("robot/root").qpos[2] -= 0.06
    assert entangled(model, data, robot_geoms(model))


def test_deaths_in_the_first_step_are_rare(env):
    """If starts could have crossed legs, one robot in four would die in its first step."""
    made = env("humanoid-mod")
    robots = terms_of(made).robots
    deaths = 0
    for k in range(25):  # 200 starts
        robots.starts.first.copy_(torch.arange(8) + 8 * k)
        robots.starts.episodes.fill_(-1)
        made.reset()
        deaths += int(made.step(torch.zeros(8, 21))[2].sum())
    assert deaths <= 2


def test_the_same_seed_gives_the_same_starts_and_another_seed_others(new_env):
    def first(seed):
        return new_env("humanoid-mod", num_envs=2, seed=seed).reset()[0]["actor"]

    assert torch.equal(first(5), first(5))
    assert not torch.equal(first(5), first(6))


def test_the_seed_of_a_reset_determines_all_further_starts(env):
    made = env("humanoid-mod")

    def rollout(seed):
        seen = [made.reset(seed=seed)[0]["actor"]]
        for k in range(2):
            made.episode_length_buf[k::2] = 999
            seen.append(made.step(torch.zeros(8, 21))[0]["actor"].clone())
        return torch.stack(seen)

    assert torch.equal(rollout(4), rollout(4))
    assert not torch.equal(rollout(4), rollout(5))


def test_episodes_and_environments_begin_differently(env):
    made = env("humanoid-mod")
    first = made.reset()[0]["actor"]
    assert len(first.unique(dim=0)) == 8
    made.episode_length_buf[2] = 999
    second = made.step(torch.zeros(8, 21))[0]["actor"]
    robots = terms_of(made).robots
    number = (robots.starts.first[2] + robots.starts.episodes[2]) % NUM_STARTS
    assert torch.equal(robots.world.qpos[2], robots.starts.qpos[number])
    assert not torch.equal(second[2], first[2])


# -- curriculum of the start noise -------------------------------------------------------------------------------------


def test_with_the_curriculum_a_start_has_a_share_of_angles_and_velocities_from_none_to_all():
    _, qpos, qvel = starts("humanoid-board", start_noise_curriculum=True)
    reach = {"pose": np.abs(qpos[:, 7:28]).max(1) / 0.2, "speed": np.abs(qvel[:, 6:27]).max(1) / 0.1}
    for found in reach.values():
        assert found.min() < 0.02
        assert found.max() > 0.95
        assert np.histogram(found, 5, (0, 1))[0].min() > 30  # of 300: as many with little as with much
    assert np.corrcoef(*reach.values())[0, 1] > 0.9  # one share for both
    _, whole, fast = starts("humanoid-board")
    assert np.abs(whole[:, 7:28]).max(1).min() > 0.6 * 0.2
    assert np.abs(fast[:, 6:27]).max(1).min() > 0.6 * 0.1
    assert (qpos[:, [*range(7), *range(28, 42)]] == whole[:, [*range(7), *range(28, 42)]]).all()  # torso, board, …


def test_evaluations_start_with_full_noise_in_spite_of_the_curriculum(new_env):
    made = new_env("humanoid-board", num_envs=1, start_noise_curriculum=True)
    reach = terms_of(made).robots.starts.qpos[:, 7:28].abs().amax(1) / 0.2
    assert reach.quantile(0.25) < 0.3
    task = task_of(
        make_env_cfg(
            "humanoid-board", 1, 0, play=True, options={"start_noise_curriculum": "true", "privileged_critic": "true"}
        )
    )
    assert not task.start_noise_curriculum
