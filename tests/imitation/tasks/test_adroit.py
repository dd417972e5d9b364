"""Adroit: the observation's order, the length of an episode, errors, films."""

import os
import sys
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from body_transformer.experiment import load_experiment
from body_transformer.imitation.tasks.adroit import ENVIRONMENTS, AdroitTask
from body_transformer.imitation.tasks.gym_env import FlatEnv

STEPS = 200


def swaying(obs: Any) -> Any:
    """Return an action of the door task."""
    return np.sin(3.0 * np.resize(obs[:, :20], (len(obs), 28))).astype(np.float32)


def adroit(name: str, num_processes: int | None = None) -> AdroitTask:
    return AdroitTask(load_experiment(f"adroit-{name}").layout(), name, num_processes)


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


# -- rollouts ----------------------------------------------------------------------------------------------------------


def test_a_rollout_lasts_200_steps_and_actions_are_clipped() -> None:
    with closing(adroit("door", 1)) as door:
        (wild,) = door.rollouts(lambda obs: np.full((len(obs), 28), -7, np.float32), 1, 3, "train")
        (mild,) = door.rollouts(lambda obs: np.full((len(obs), 28), -1, np.float32), 1, 3, "train")
    assert wild == mild
    assert (wild.length, wild.success, wild.success_any) == (STEPS, False, False)


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
        frames = door.film(swaying, 0, "validation")
    except ValueError as error:
        pytest.skip(str(error))
    assert len(frames) == 1 + 40 // 4
    assert frames[0].dtype == np.uint8
    assert frames[0].shape == frames[-1].shape == (480, 480, 3)
    assert (frames[0] != frames[-1]).any()
    assert door.frames_hz == 25
    assert "MUJOCO_GL" not in os.environ
