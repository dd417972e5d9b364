import re
import xml.etree.ElementTree as ET

import mujoco
import numpy as np
import pytest

from body_transformer import robots

LEGS = ("FR", "FL", "RR", "RL")
PARTS = ("hip", "thigh", "calf")
BODIES = ["trunk", *(f"{leg}_{part}" for leg in LEGS for part in PARTS)]
JOINTS = [f"{leg}_{part}_joint" for leg in LEGS for part in PARTS]


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_path(str(robots.path("a1")))


@pytest.fixture(scope="module")
def urdf(a1_urdf) -> mujoco.MjModel:
    """Return the published description, compiled with its fixed links merged."""
    text = a1_urdf.read_text()
    text = re.sub(r"<visual>.*?</visual>", "", text, flags=re.DOTALL)  # the mesh files are not here
    text = text.replace('<joint name="floating_base" type="fixed">', '<joint name="floating_base" type="floating">')
    text = text.replace("</robot>", '<mujoco><compiler fusestatic="true"/></mujoco></robot>')
    return mujoco.MjModel.from_xml_string(text)


def merged_inertial(robot: ET.Element, body: str) -> tuple[float, np.ndarray, np.ndarray]:
    """Return mass, centre and inertia about it of a link with the links fixed to it, none of which is rotated."""
    offsets = {body: np.zeros(3)}
    for joint in robot.iterfind("joint[@type='fixed']"):
        if joint.find("parent").get("link") == body:
            offsets[joint.find("child").get("link")] = np.fromstring(joint.find("origin").get("xyz"), sep=" ")
    masses, centres, inertias = [], [], []
    for link, offset in offsets.items():
        inertial = robot.find(f"link[@name='{link}']/inertial")
        if inertial is None:
            continue
        origin = inertial.find("origin")
        masses.append(float(inertial.find("mass").get("value")))
        centres.append(offset + (0 if origin is None else np.fromstring(origin.get("xyz"), sep=" ")))
        xx, xy, xz, yy, yz, zz = (
            float(inertial.find("inertia").get(k)) for k in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")
        )
        inertias.append(np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]))
    mass = sum(masses)
    centre = sum(m * c for m, c in zip(masses, centres, strict=True)) / mass
    arms = [c - centre for c in centres]  # parallel axes: I + m (r.r 1 - r r^T)
    shifted = [i + m * (r @ r * np.eye(3) - np.outer(r, r)) for m, r, i in zip(masses, arms, inertias, strict=True)]
    return mass, centre, sum(shifted)


def tilt(data: mujoco.MjData) -> float:
    """Return the angle between the trunk's vertical axis and the world's, in degrees."""
    return float(np.degrees(np.arccos(np.clip(data.body("trunk").xmat[8], -1, 1))))


def test_the_a1_has_the_descriptions_bodies_joints_and_motors_in_order(model):
    assert [model.body(k).name for k in range(model.nbody)] == ["world", *BODIES]
    assert [model.joint(k).name for k in range(model.njnt)] == ["root", *JOINTS]
    assert [model.actuator(k).name for k in range(model.nu)] == JOINTS
    assert [model.joint(j).name for j in model.actuator_trnid[:, 0]] == JOINTS
    assert model.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE


def test_the_motors_give_their_command_as_torque_up_to_33_5_nm(model):
    assert (model.actuator_gear[:, 0] == 1).all()
    assert (model.actuator_ctrlrange == (-33.5, 33.5)).all()
    assert (model.actuator_forcerange == (-33.5, 33.5)).all()
    assert model.actuator_ctrllimited.all()
    assert model.actuator_forcelimited.all()


def test_the_a1_weighs_12_454_kg(model):
    assert model.body_mass.sum() == pytest.approx(12.454, abs=1e-9)


@pytest.mark.parametrize("body", BODIES[1:])
def test_a_body_is_where_its_description_puts_it(model, urdf, body):
    np.testing.assert_allclose(model.body(body).pos, urdf.body(body).pos, atol=1e-12)


@pytest.mark.parametrize("body", BODIES)
def test_a_body_has_exactly_the_mass_centre_and_inertia_of_its_merged_links(a1_urdf, body):
    mass, centre, inertia = merged_inertial(ET.parse(a1_urdf).getroot(), body)
    ours = mujoco.MjSpec.from_file(str(robots.path("a1"))).body(body)
    xx, yy, zz, xy, xz, yz = ours.fullinertia
    assert ours.mass == pytest.approx(mass, rel=1e-9)
    np.testing.assert_allclose(ours.ipos, centre, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]], inertia, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("name", JOINTS)
def test_a_joint_turns_as_the_description_says(model, urdf, name):
    ours, theirs = model.joint(name), urdf.joint(name)
    np.testing.assert_allclose(ours.range, theirs.range, rtol=1e-12)
    np.testing.assert_array_equal(ours.axis, theirs.axis)
    assert not np.any(ours.damping)
    assert not np.any(ours.armature)


def test_the_collision_shapes_are_those_of_the_description(model, urdf):
    """Compared with their sides sorted, since the two files turn their boxes differently."""

    def shapes(model: mujoco.MjModel) -> list[tuple]:
        bodies = [model.body(k).name for k in model.geom_bodyid]
        boxes = np.sort(np.round(model.geom_size, 9), axis=1).tolist()
        return sorted(zip(bodies, model.geom_type.tolist(), boxes, np.round(model.geom_pos, 9).tolist(), strict=True))

    assert shapes(model) == shapes(urdf)


@pytest.mark.parametrize("leg", LEGS)
def test_a_foot_is_a_sphere_of_2_cm_with_a_site_in_its_middle(model, leg):
    foot = model.geom(f"{leg}_foot")
    assert foot.type[0] == mujoco.mjtGeom.mjGEOM_SPHERE
    assert foot.size[0] == 0.02
    np.testing.assert_array_equal(foot.pos, model.site(f"{leg}_foot").pos)


def test_the_imu_sits_in_the_middle_of_the_trunk(model):
    assert model.body(model.site("imu").bodyid[0]).name == "trunk"
    np.testing.assert_array_equal(model.site("imu").pos, 0)


def test_the_home_pose_is_the_papers_and_stands_on_the_ground(model):
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, model.key("home").id)
    mujoco.mj_forward(model, data)
    for leg in LEGS:
        hip, thigh = (0.1 if leg.endswith("L") else -0.1), (0.8 if leg.startswith("F") else 1.0)
        assert [data.joint(f"{leg}_{part}_joint").qpos[0] for part in PARTS] == [hip, thigh, -1.5]
    lowest = min(data.geom(f"{leg}_foot").xpos[2] for leg in LEGS) - 0.02
    assert lowest == pytest.approx(0, abs=1e-6)
    assert data.ncon == 0  # no part of the body touches another


def test_pd_control_to_the_home_pose_keeps_the_a1_standing():
    spec = mujoco.MjSpec.from_file(str(robots.path("a1")))
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1])
    model = spec.compile()
    model.opt.timestep = 0.005
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    home = model.key_qpos[0, 7:]
    for _ in range(400):
        data.ctrl = 50 * (home - data.qpos[7:]) - 1 * data.qvel[6:]
        mujoco.mj_step(model, data)
        assert data.body("trunk").xpos[2] > 0.2
        assert tilt(data) < 10
    assert np.abs(data.qvel).max() < 0.1  # it stands still
