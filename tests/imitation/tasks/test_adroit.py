"""Adroit: the observation's order, seeds and processes, successes, errors."""

import os
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from body_transformer.experiment import load_experiment
from body_transformer.imitation.tasks.adroit import ENVIRONMENTS, AdroitTask
from body_transformer.imitation.tasks.base import Act, Trajectory
from body_transformer.imitation.tasks.gym import STREAMS, episode_seed
from body_transformer.imitation.tasks.gym_env import FlatEnv

STEPS = 200


def swaying(action_dim: int) -> Act:
    """Return a policy that computes each action from one entry; its result does not depend on the batch."""
    return lambda obs: np.sin(3.0 * np.resize(obs[:, :20].T, (action_dim, len(obs))).T).astype(np.float32)


def linear(obs_dim: int, action_dim: int) -> Act:
    """Return a policy with a matrix product, whose rounding may depend on the size of the batch."""
    weights = np.random.default_rng(0).standard_normal((obs_dim, action_dim)).astype(np.float32)
    return lambda obs: np.sin(obs @ weights)


def adroit(name: str, num_processes: int | None = None) -> AdroitTask:
    return AdroitTask(load_experiment(f"adroit-{name}").layout(), name, num_processes)


@pytest.fixture(scope="module")
def door() -> Iterator[AdroitTask]:
    with closing(adroit("door", 1)) as task:
        yield task


# -- the flat observation and action -----------------------------------------------------------------------------------


def truth(env: Any, name: str) -> dict[str, Any]:
    """Return term -> its value, read from the simulator by name; `joint_pos` is left out."""
    data = env.data
    palm = data.site("S_grasp").xpos
    if name == "door":
        handle = data.site("S_handle").xpos
        angle = data.joint("door_hinge").qpos[0]
        return {
            "latch_pos": data.joint("latch").qpos,
            "door_pos": angle,
            "palm_pos": palm,
            "handle_pos": handle,
            "palm_minus_handle": palm - handle,
            "door_open": 1.0 if angle > 1 else -1.0,
        }
    thing, target = data.body("Object").xpos, data.site("target" if name == "relocate" else "S_target").xpos
    if name == "relocate":
        return {
            "palm_minus_ball": palm - thing,
            "palm_minus_target": palm - target,
            "ball_minus_target": thing - target,
        }
    speeds = [data.joint(joint).qvel[0] for joint in ("OBJTx", "OBJTy", "OBJTz", "OBJRx", "OBJRy", "OBJRz")]
    return {
        "nail_pos": data.joint("nail_dir").qpos,
        "hammer_vel": np.clip(speeds, -1, 1),
        "palm_pos": palm,
        "hammer_pos": thing,
        "target_pos": target,
        "nail_impact": np.clip(data.sensor("S_nail").data, -1, 1),
    }


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_observation_and_the_action_are_in_the_layouts_order(name: str) -> None:
    layout = load_experiment(f"adroit-{name}").layout()
    env = FlatEnv(ENVIRONMENTS[name], {}).env
    env.reset(seed=1)
    random = np.random.default_rng(0)
    for _ in range(40):  # until the objects have moved
        obs = env.step(random.uniform(-1, 1, layout.action_dim).astype(np.float32))[0]
    inner = env.unwrapped
    expected = truth(inner, name)
    (joints,) = [term for term in layout.obs if term.name == "joint_pos"]
    expected["joint_pos"] = [inner.data.joint(joint).qpos[0] for joint in joints.of]
    assert set(layout.obs_slices) - set(expected) <= {"hammer_rot"}  # Euler angles of gymnasium-robotics' own
    for term, value in expected.items():
        np.testing.assert_allclose(obs[layout.obs_slices[term]], np.ravel(value), atol=1e-12, err_msg=term)
    assert (len(obs), layout.action_dim) == (layout.obs_dim, inner.model.nu)
    names = [inner.model.actuator(k).name for k in range(inner.model.nu)]
    assert [f"ctrl[{actuator}]" for actuator in names] == layout.action_names()


# -- seeds and processes -----------------------------------------------------------------------------------------------


def test_the_number_of_processes_changes_nothing() -> None:
    results = []
    for num_processes in (1, 2):
        with closing(adroit("relocate", num_processes)) as task:
            results.append(task.rollouts(linear(39, 30), 3, seed=7, split="validation"))
            assert len(task._envs.processes) == (num_processes if num_processes > 1 else 0)
    assert results[0] == results[1]
    assert len({result.total_reward for result in results[0]}) == 3


def test_an_episode_does_not_depend_on_parallel_episodes(door: AdroitTask) -> None:
    several = door.rollouts(swaying(28), 3, seed=0, split="validation")
    assert door.rollouts(swaying(28), 1, seed=0, split="validation") == several[:1]
    (third,) = door.record(swaying(28), range(2, 3), seed=0)
    (again,) = list(door.record(swaying(28), range(3), seed=0))[2:]
    assert third.seed == again.seed == episode_seed(0, 2, "train")
    assert np.array_equal(third.obs, again.obs)


def test_more_episodes_than_lanes_are_played_in_rounds(door: AdroitTask, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = door.rollouts(swaying(28), 5, seed=0, split="validation")
    monkeypatch.setattr("body_transformer.imitation.tasks.gym.MAX_LANES", 2)
    sizes: list[int] = []

    def act(obs: Any) -> Any:
        sizes.append(len(obs))
        return swaying(28)(obs)

    done: list[int] = []
    assert door.rollouts(act, 5, 0, "validation", done.append) == whole
    assert sizes == [2] * STEPS + [2] * STEPS + [1] * STEPS
    assert done == [1, 2, 3, 4, 5]


def test_seeds_differ_between_episodes_splits_and_seeds() -> None:
    seeds = {episode_seed(seed, k, split) for seed in (0, 1) for k in range(50) for split in STREAMS}
    assert len(seeds) == 200
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_the_number_of_processes_is_limited_by_cores_and_omp_num_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    all_of_them = adroit("door")._envs.num_processes
    for threads, expected in (("1", 1), ("100000", all_of_them), ("0", 1), ("4,2", all_of_them), ("", all_of_them)):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        assert adroit("door")._envs.num_processes == expected


# -- rollouts ----------------------------------------------------------------------------------------------------------


def test_a_rollout_lasts_200_steps_and_actions_are_clipped(door: AdroitTask) -> None:
    (wild,) = door.rollouts(lambda obs: np.full((len(obs), 28), -7, np.float32), 1, 3, "train")
    (mild,) = door.rollouts(lambda obs: np.full((len(obs), 28), -1, np.float32), 1, 3, "train")
    assert wild == mild
    assert (wild.length, wild.success, wild.success_any) == (STEPS, False, False)


def test_the_policy_gets_float32_and_the_recording_keeps_float64(door: AdroitTask) -> None:
    seen: list[Any] = []

    def act(obs: Any) -> Any:
        seen.append(obs)
        return swaying(28)(obs)

    (recording,) = door.record(act, range(1), seed=0)
    assert all(obs.dtype == np.float32 for obs in seen)
    assert recording.obs.shape == (STEPS + 1, 39)
    assert recording.obs.dtype == np.float64
    assert np.array_equal(recording.obs[:-1].astype(np.float32), np.concatenate(seen))
    assert recording.executed.shape == (STEPS, 28)
    assert not recording.terminated


@pytest.mark.parametrize(
    ("success", "at_last", "at_any"),
    [([False, True, False], False, True), ([False, False, True], True, True), ([False] * 3, False, False)],
)
def test_success_is_that_of_the_last_step(
    monkeypatch: pytest.MonkeyPatch, success: list[bool], at_last: bool, at_any: bool
) -> None:
    task = adroit("door")
    actions, rewards = np.zeros((3, 28), np.float32), np.array([1.0, 2.0, 4.0])
    played = Trajectory(0, "", np.zeros((4, 39)), actions, actions, rewards, np.array(success), False)
    monkeypatch.setattr(task, "_play", lambda *args: iter([played]))
    (result,) = task.rollouts(swaying(28), 1, 0, "validation")
    assert (result.success, result.success_any) == (at_last, at_any)
    assert (result.length, result.total_reward) == (3, 7.0)


def test_executed_actions_are_clean_actions_plus_noise(door: AdroitTask) -> None:
    std = np.linspace(0.0, 0.3, 28)

    def act(obs: Any) -> Any:
        return np.zeros((len(obs), 28), np.float32)

    first, second = door.record(act, range(2), 0, std)
    assert not first.clean.any()
    assert np.allclose(first.executed.std(axis=0), std, atol=0.06)
    assert not np.array_equal(first.executed, second.executed)
    (again,) = door.record(act, range(1, 2), 0, std)
    assert np.array_equal(again.executed, second.executed)


# -- errors ------------------------------------------------------------------------------------------------------------


def test_unknown_names_and_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown Adroit task 'pen'; have: 'door', 'hammer', 'relocate'"):
        AdroitTask(load_experiment("demo").layout(), "pen")
    with pytest.raises(
        ValueError, match="'AdroitHandHammer-v1' has 46 observation entries and 26 actions; the layout has 39 and 28"
    ):
        AdroitTask(load_experiment("adroit-door").layout(), "hammer")
    with pytest.raises(ValueError, match="number of processes must be 1 or more; got 0"):
        adroit("door", 0)


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gymnasium.registry", {})
    monkeypatch.setitem(sys.modules, "gymnasium_robotics", None)
    with pytest.raises(ValueError, match=r"pip install -c constraints.txt -e '\.\[imitation\]'"):
        adroit("door")


# -- films -------------------------------------------------------------------------------------------------------------


def test_a_film_has_a_picture_every_fourth_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr("body_transformer.imitation.tasks.adroit.NUM_STEPS", 40)  # drawing without a GPU is slow
    door = adroit("door")
    try:
        frames = door.film(swaying(28), 0, "validation")
    except ValueError as error:
        pytest.skip(str(error))
    assert len(frames) == 1 + 40 // 4
    assert frames[0].dtype == np.uint8
    assert frames[0].shape == frames[-1].shape == (480, 480, 3)
    assert (frames[0] != frames[-1]).any()
    assert door.frames_hz == 25
    assert "MUJOCO_GL" not in os.environ
