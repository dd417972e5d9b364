"""Training and contract of a1-command agree."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("mjlab")

from body_transformer import robots
from body_transformer.deploy.config import contract_sections
from body_transformer.deploy.observation import Measured, Observation, gravity_direction
from body_transformer.experiment import load_experiment
from body_transformer.rl.a1 import command, model
from body_transformer.rl.a1.options import CommandOptions
from body_transformer.rl.a1.terrain import Terrain

from .states import make_state

EXPERIMENT = load_experiment("a1-command")
SECTIONS = contract_sections(EXPERIMENT.deploy, robots.path(EXPERIMENT.robot.file), EXPERIMENT.layout())
TASK = command.task(Terrain(0, num_tracks=(2, 2)), CommandOptions())


def test_the_robots_observation_is_that_of_the_training():
    contract = SimpleNamespace(obs=SECTIONS.obs, obs_dim=45)
    rng = np.random.default_rng(0)
    quaternion = rng.normal(size=4)
    values = {
        "quat": quaternion / np.linalg.norm(quaternion),
        "spin": rng.normal(size=3),
        "command": rng.normal(size=3),
    }
    values |= {name: rng.normal(size=12) for name in ("joint_pos", "joint_vel", "action")}
    state = make_state(torch.float64, **{name: value.tolist() for name, value in values.items()})
    measured = Measured(12)
    measured.angular_velocity[:] = values["spin"]
    measured.joint_pos[:], measured.joint_vel[:] = values["joint_pos"], values["joint_vel"]
    gravity_direction(values["quat"], measured.gravity)
    found = Observation(contract, measured, values["action"], values["command"]).update()
    trained = torch.cat([term.value(state) for term in TASK.obs["actor"]], -1)[0]
    np.testing.assert_allclose(found, trained.numpy(), rtol=1e-6, atol=1e-6)


def test_the_contract_has_the_motors_the_filter_and_the_commands_of_the_training():
    control, options = SECTIONS.control, CommandOptions()
    low, high = (model.KP * factor for factor in options.stiffness)
    assert all(low < kp < high for kp in control.kp)
    assert low < 50 < 100 < high
    assert control.filter == TASK.low_pass
    assert control.torque_clip is None  # targets are not bounded in the training either
    assert not options.bound_targets
    assert SECTIONS.environment.command_range == options.command
    assert 1 / control.hz == model.CONTROL_DT


def test_a_command_beyond_the_trained_range_is_refused():
    SECTIONS.environment.check_command((0.5, 0.0, 0.8))
    with pytest.raises(ValueError, match=r"trained with commands of -0.5 to 1, -0.4 to 0.4, -1 to 1; got 1.2, 0, 0"):
        SECTIONS.environment.check_command((1.2, 0.0, 0.0))
