"""The model that travels with a policy has the physics of the robot's own file."""

import mujoco
import numpy as np
import pytest

from body_transformer import robots
from body_transformer.deploy.robot_model import driven_joints, model_name, portable, robot_limits

TETRAHEDRON = "0 0 0  0.2 0 0  0 0.2 0  0 0 0.2"
INSIDE = "0.03 0.03 0.03"
"""A vertex inside of the hull of the others."""
MESHES = f"""
<mujoco model="lever">
  <default><default class="part"><geom material="paint" density="300"/></default></default>
  <asset>
    <texture name="wood" type="2d" builtin="checker" width="4" height="4"/> <material name="paint" texture="wood"/>
    <mesh name="stone" vertex="{TETRAHEDRON}" scale="1 2 1"/>
  </asset>
  <worldbody>
    <light pos="0 0 3"/>
    <geom name="floor" type="plane" size="0 0 1" material="paint"/>
    <body name="base" pos="0 0 0.1">
      <freejoint/> <site name="imu" pos="0.1 0 0"/>
      <geom class="part" type="mesh" mesh="stone" pos="0 0 0.1" euler="20 0 40"/>
      <geom class="part" type="box" size="0.1 0.1 0.1" contype="0" conaffinity="0" density="2000"/>
      <body name="arm" pos="0.2 0 0"> <joint name="elbow" axis="0 1 0" armature="0.01"/>
        <geom class="part" type="mesh" mesh="stone"/> </body>
    </body>
  </worldbody>
  <actuator><position name="servo" joint="elbow" kp="5"/></actuator>
  <sensor><gyro site="imu"/></sensor>
  <keyframe><key name="home" qpos="0 0 1 1 0 0 0 0.3"/></keyframe>
</mujoco>
"""


def accelerations(model: mujoco.MjModel, qpos: np.ndarray, qvel: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the accelerations without motors, and the number of contacts."""
    model.actuator_gainprm[:] = model.actuator_biasprm[:] = 0
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = qpos, qvel
    mujoco.mj_forward(model, data)
    return data.qacc.copy(), data.ncon


def mjlab_spec(name: str) -> mujoco.MjSpec:
    zoo = pytest.importorskip("mjlab.asset_zoo.robots", reason="needs the extra 'rl'")
    from mjlab.entity import Entity

    return Entity(getattr(zoo, f"get_{name}_robot_cfg")()).spec


SPECS = {
    "meshes": lambda: mujoco.MjSpec.from_string(MESHES),
    "a1": lambda: mujoco.MjSpec.from_file(str(robots.path("a1"))),
    "humanoid": lambda: mujoco.MjSpec.from_file(str(robots.path("humanoid"))),
    "go1": lambda: mjlab_spec("go1"),
    "g1": lambda: mjlab_spec("g1"),
    "arm": lambda: mjlab_spec("yam"),
}


@pytest.mark.parametrize("name", SPECS)
def test_accelerations_in_the_air_and_in_contact_are_those_of_the_original(name):
    spec = SPECS[name]()
    model, travelled = spec.compile(), mujoco.MjModel.from_xml_string(portable(spec))
    rng = np.random.default_rng(0)
    touched = 0
    for _ in range(10):
        qpos, qvel = model.qpos0 + rng.normal(0, 0.2, model.nq), rng.normal(0, 0.5, model.nv)
        mujoco.mj_normalizeQuat(model, qpos)
        (wanted, contacts), (found, same) = (accelerations(one, qpos, qvel) for one in (model, travelled))
        assert same == contacts
        touched += contacts
        np.testing.assert_allclose(found, wanted, atol=1e-4 * np.abs(wanted).max())
    assert touched or name not in ("meshes", "g1")


def test_the_file_needs_no_other_file_and_has_no_motors_or_decoration():
    xml = portable(mujoco.MjSpec.from_string(MESHES.replace(TETRAHEDRON, f"{TETRAHEDRON} {INSIDE}")))
    assert model_name(xml) == "lever"
    found = mujoco.MjModel.from_xml_string(xml)
    assert (found.nu, found.nsensor, found.nmat, found.ntex, found.nkey, found.nlight) == (0,) * 6
    assert (found.ngeom, found.nmesh, found.nmeshvert) == (3, 1, 4)  # the box cannot collide, one vertex is inside
    assert found.body("base").mass > 2000 * 0.2**3  # with the box


def test_the_original_specification_does_not_change():
    spec = mujoco.MjSpec.from_string(MESHES)
    before = spec.to_xml()
    portable(spec)
    assert spec.to_xml() == before


LIMITS = """
<mujoco>
  <worldbody>
    <body> <joint name="motor" range="-60 60"/> <geom size="0.1"/>
      <body> <joint name="servo"/> <geom size="0.1"/>
        <body> <joint name="weak" actuatorfrcrange="-2 2"/> <geom size="0.1"/> </body> </body> </body>
  </worldbody>
  <actuator>
    <general joint="motor" gainprm="3" gear="2" ctrlrange="-1.5 1.5"/>
    <position joint="servo" kp="9" ctrlrange="-1 1" forcerange="-4 4"/>
    <position joint="weak" kp="9" ctrlrange="-1 1"/>
  </actuator>
</mujoco>
"""


def test_torque_limits_are_those_of_motors_servos_and_joints(tmp_path):
    (tmp_path / "robot.xml").write_text(LIMITS)
    positions, torques = robot_limits(tmp_path / "robot.xml", ["motor", "servo", "weak"])
    assert torques == (9.0, 4.0, 2.0)
    assert positions[0] == pytest.approx((-np.pi / 3, np.pi / 3))
    assert positions[1] == (-np.inf, np.inf)


def test_actuators_drive_joints_in_any_order_and_those_of_tendons_do_not():
    text = """<mujoco><worldbody><body name="a"><joint name="x"/><geom size="1"/><body name="b"><joint name="y"/>
    <geom size="1"/></body></body></worldbody><tendon><fixed name="t"><joint joint="x" coef="1"/></fixed></tendon>
    <actuator><motor name="first" joint="y"/><motor joint="x"/><motor name="pull" tendon="t"/></actuator></mujoco>"""
    spec = mujoco.MjSpec.from_string(text)
    assert driven_joints(spec, ["first", "actuator_1"]) == {"first": "y", "actuator_1": "x"}
    with pytest.raises(ValueError, match="needs a joint for every action; 'pull' has none"):
        driven_joints(spec, ["first", "pull"])


HOPPER = """
<robot name="hopper">
  <link name="base"> <inertial><mass value="4"/><inertia ixx="1" iyy="2" izz="2" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><geometry><box size="0.2 0.2 0.1"/></geometry></collision> </link>
  <link name="leg"> <inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
    <visual><geometry><mesh filename="package://hopper/leg.dae"/></geometry>
      <material name="red"><color rgba="1 0 0 1"/></material> <material name="grey"/></visual> </link>
  <link name="foot"> <inertial><mass value="0.1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><geometry><sphere radius="0.02"/></geometry></collision> </link>
  <joint name="hip" type="revolute"> <parent link="base"/> <child link="leg"/> <axis xyz="0 1 0"/>
    <limit lower="-1" upper="1" effort="30" velocity="20"/> </joint>
  <joint name="ankle" type="fixed"> <parent link="leg"/> <child link="foot"/> <origin xyz="0 0 -0.3"/> </joint>
</robot>
"""


def test_the_base_of_a_urdf_moves_freely_and_its_fixed_links_keep_their_places(tmp_path):
    file = tmp_path / "hopper.urdf"
    file.write_text(HOPPER)
    model = mujoco.MjModel.from_xml_string(portable(file))
    assert model.joint(0).type[0] == mujoco.mjtJoint.mjJNT_FREE
    assert model.body("base").mass[0] == 4.0
    assert model.body("foot").pos.tolist() == [0.0, 0.0, -0.3]
    assert robot_limits(file, ["hip"]) == (((-1.0, 1.0),), (30.0,))


def test_a_urdf_with_a_link_named_world_stays_fixed(tmp_path):
    file = tmp_path / "hopper.urdf"
    mount = '<link name="world"/><joint name="mount" type="fixed"><parent link="world"/><child link="base"/></joint>'
    file.write_text(HOPPER.replace('<joint name="hip"', f'{mount}<joint name="hip"'))
    model = mujoco.MjModel.from_xml_string(portable(file))
    assert model.njnt == 1
    assert model.body("foot").pos.tolist() == [0.0, 0.0, -0.3]
