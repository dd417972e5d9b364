"""Training and deployment of a1-walk agree, although their packages may not import each other."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("mjlab")

from body_transformer import robots
from body_transformer.deploy.config import contract_sections
from body_transformer.deploy.contract import Environment
from body_transformer.deploy.controller import Controller
from body_transformer.deploy.observation import Measured, Observation, gravity_direction
from body_transformer.deploy.robots import sim_body
from body_transformer.deploy.robots.sim_model import sim_model
from body_transformer.deploy.runtime_config import Phase, RuntimeConfig
from body_transformer.deploy.safety import SafetyConfig
from body_transformer.experiment import load_experiment
from body_transformer.rl.a1 import model, terms
from body_transformer.rl.a1.state import A1State
from body_transformer.rl.envs.cpu import CpuEnv

from ..environments import task_cfg
from .states import TASK, make_state, observe

EXPERIMENT = load_experiment("a1-walk")
LAYOUT = EXPERIMENT.layout()
ABOUT = (EXPERIMENT.deploy, robots.path(EXPERIMENT.robot.file), LAYOUT)
SECTIONS = contract_sections(*ABOUT)
CONTROL, OBS = SECTIONS.control, SECTIONS.obs


def random_state(rng: np.random.Generator) -> A1State:
    quaternion = rng.normal(size=4)
    values = {
        "vel": rng.normal(size=3),
        "quat": quaternion / np.linalg.norm(quaternion),
        "spin": 3 * rng.normal(size=3),
        "joint_pos": rng.normal(size=12),
        "joint_vel": 10 * rng.normal(size=12),
        "action": rng.normal(size=12),
        "command": rng.normal(size=3),
    }
    return make_state(torch.float64, **{name: value.tolist() for name, value in values.items()})


def test_the_robots_observation_is_that_of_the_training():
    """Without noise, from the same state: order, signs, scales and offsets of all 48 entries."""
    contract = SimpleNamespace(obs=OBS, obs_dim=sum(term.width for term in OBS))
    rng = np.random.default_rng(0)
    for _ in range(20):
        state = random_state(rng)
        measured = Measured(12)
        measured.angular_velocity[:] = state.root.spin[0].numpy()
        measured.joint_pos[:], measured.joint_vel[:] = state.joint_pos[0].numpy(), state.joint_vel[0].numpy()
        gravity_direction(state.root.quat[0].numpy(), measured.gravity)
        found = Observation(contract, measured, state.action[0].numpy(), state.command[0].numpy()).update()
        trained = observe(state)[0].numpy()
        assert [term.name for term in OBS] == [term.name for term in TASK.obs["actor"]]
        np.testing.assert_allclose(found, trained, rtol=1e-6, atol=1e-6)


def test_actions_mean_the_same_joints_and_targets():
    assert CONTROL.joints == model.JOINTS
    assert CONTROL.kind == "position"
    assert CONTROL.default_pose == CONTROL.offset == model.DEFAULT_POSE
    assert CONTROL.scale == (model.ACTION_SCALE,) * 12
    assert 1 / CONTROL.hz == model.CONTROL_DT


def test_the_robots_targets_are_those_of_the_training():
    """From the same state and action, before filter and limits; many targets exceed the torque limit."""
    env = CpuEnv(task_cfg("a1-walk", num_envs=1), num_threads=1)
    env.close()
    world, robots = env.world, env.robots
    joints = [world.model.joint(f"robot/{name}") for name in model.JOINTS]
    q, v = [int(joint.qposadr[0]) for joint in joints], [int(joint.dofadr[0]) for joint in joints]
    contract = SimpleNamespace(control=CONTROL, obs=OBS, obs_dim=48, environment=Environment())
    rng = np.random.default_rng(0)
    is_cut = []
    for _ in range(100):
        action = rng.normal(0, 1.5, 12)
        controller = Controller(contract, lambda obs: action, model.JOINTS[::-1], RuntimeConfig(), SafetyConfig())  # noqa: B023
        controller.phase = Phase.POLICY
        measured = controller.measured
        measured.joint_pos[:] = np.add(model.DEFAULT_POSE, rng.normal(0, 0.3, 12))
        measured.joint_vel[:] = rng.normal(0, 10, 12)
        world.qpos[0, q], world.qvel[0, v] = torch.tensor(measured.joint_pos), torch.tensor(measured.joint_vel)
        robots.act(torch.tensor(action)[None])
        controller._act(0)
        trained = robots.motors.targets[0, 0].numpy()
        np.testing.assert_allclose(controller.target, trained, rtol=0, atol=1e-6)
        is_cut.append(np.abs(trained - (robots.joints.default.numpy() + model.ACTION_SCALE * action)) > 1e-9)
    assert 0.2 < np.mean(is_cut) < 0.8


def test_the_contract_has_the_gains_of_the_training():
    assert (SECTIONS.training_kp, SECTIONS.training_kd) == ((model.KP,) * 12, (model.KD,) * 12)


def test_the_simulated_robot_falls_where_the_training_ends():
    simulated = sim_model()
    assert simulated.max_tilt_rad == (terms.MAX_ROLL, terms.MAX_PITCH)
    assert simulated.min_height_m == terms.HEIGHTS[0]


def test_the_simulated_robots_noise_is_that_of_the_training():
    scales = {"base_angular_velocity": terms.SPIN_SCALE, "joint_vel": terms.JOINT_VEL_SCALE}
    names = {"base_angular_velocity": "angular_velocity", "projected_gravity": "tilt"}
    trained = {names.get(name, name): most / scales.get(name, 1.0) for name, most in terms.NOISE.items()}
    assert pytest.approx(trained) == sim_body.NOISE
