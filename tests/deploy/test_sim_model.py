"""The simulated robot of an export that is not an A1: an arm on a fixed base."""

import mujoco
import numpy as np
import pytest
import torch

pytest.importorskip("onnxruntime", reason="needs the extra 'deploy'")

from body_transformer import BodyGraph, Layout, Policy, PolicyConfig, Term
from body_transformer.deploy.config import DeployConfig, ObsSource, contract_sections
from body_transformer.deploy.export import Trained, export
from body_transformer.deploy.robot import Command
from body_transformer.deploy.robots.sim_body import MotionRecorder, SimBody
from body_transformer.deploy.robots.sim_model import FLOOR, sim_model
from body_transformer.deploy.robots.sim_options import SimOptions

JOINTS = ("shoulder", "elbow")
ARM = """
<mujoco model="arm">
  <worldbody>
    <geom name="table" type="plane" size="0 0 1"/>
    <body name="base" pos="0.1 0.2 0.5" quat="0.7071068 0 0 0.7071068"> <geom type="box" size="0.05 0.05 0.05"/>
      <body name="upper"> <joint name="shoulder" axis="0 1 0" range="-90 90"/>
        <geom type="capsule" fromto="0 0 0 0 0 0.2" size="0.02"/>
        <body name="lower" pos="0 0 0.2"> <joint name="elbow" axis="0 1 0" range="-90 90"/>
          <geom type="capsule" fromto="0 0 0 0 0 0.2" size="0.02"/> </body> </body> </body>
  </worldbody>
  <actuator>
    <motor name="shoulder" joint="shoulder" ctrlrange="-20 20"/> <motor name="elbow" joint="elbow" ctrlrange="-10 10"/>
  </actuator>
</mujoco>
"""


@pytest.fixture(scope="module")
def arm(tmp_path_factory):
    """Return the export of a policy of an arm."""
    folder = tmp_path_factory.mktemp("arm")
    (folder / "arm.xml").write_text(ARM)
    layout = Layout(
        BodyGraph.from_file(folder / "arm.xml"), [Term.joints("pos", JOINTS)], Term.joints("target", JOINTS)
    )
    sources = {"pos": ObsSource("joint_pos")}
    deploy = DeployConfig("position", 50.0, sources, kp=40.0, kd=2.0, velocity_limits=5.0, default_pose={"*": 0.2})
    torch.manual_seed(0)
    policy = Policy(layout, PolicyConfig(embed_dim=4, num_layers=1, ff_dim=4))
    sections = contract_sections(deploy, folder / "arm.xml", layout)
    return export(Trained(policy, "my-arm", sections=sections), folder / "export").folder


def test_the_arm_stands_on_its_base_with_its_own_numbers(arm):
    robot = sim_model(arm)
    assert (robot.joints, robot.pose, robot.torque) == (JOINTS, (0.2, 0.2), (20.0, 10.0))
    assert (robot.is_free, robot.height_m, robot.trunk) == (False, 0.0, "base")
    assert FLOOR not in {geom.name for geom in robot.spec.geoms}, "its file has a plane"


@pytest.mark.parametrize("start", ["home", "held", "hanging", "lying"])
def test_it_follows_its_targets_and_cannot_fall(arm, start):
    body = SimBody(SimOptions(start=start), sim_model(arm))
    recorder, zeros = MotionRecorder(body), np.zeros(2)
    body.release()
    for _ in range(2000):
        body.step(Command(np.array([0.5, -0.3]), zeros, np.full(2, 40.0), np.full(2, 2.0), zeros))
        recorder.watch()
    state = body.measure(1, np.random.default_rng(0))
    np.testing.assert_allclose(state.joint_pos, [0.5, -0.3], atol=0.2)
    assert state.angular_velocity.tolist() == state.linear_velocity.tolist() == [0.0, 0.0, 0.0]
    np.testing.assert_allclose(state.quaternion, [np.sqrt(0.5), 0, 0, np.sqrt(0.5)], atol=1e-6)
    assert not recorder.outcome().fell
    assert recorder.outcome().distance_m == 0.0


def test_the_motors_limits_are_those_of_the_contract(arm):
    body = SimBody(SimOptions(), sim_model(arm))
    zeros = np.zeros(2)
    body.step(Command(np.full(2, 9.0), zeros, np.full(2, 100.0), zeros, zeros))
    assert body.torque.tolist() == [20.0, 10.0]
    assert isinstance(body.model, mujoco.MjModel)
