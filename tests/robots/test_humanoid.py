from pathlib import Path

import mujoco
import numpy as np
import pytest

from body_transformer import robots

BODIES = ["torso", "head", "lower_waist", "pelvis"]
BODIES += [f"{side}_{part}" for side in ("right", "left") for part in ("thigh", "shin", "foot")]
BODIES += [f"{side}_{part}" for side in ("right", "left") for part in ("upper_arm", "lower_arm", "hand")]

#              range in degrees, stiffness, damping, armature, gear
ABDOMEN = {
    "abdomen_z": (-45, 45, 20, 5, 0.02, 67.5),
    "abdomen_y": (-75, 30, 20, 5, 0.01, 67.5),
    "abdomen_x": (-35, 35, 10, 5, 0.01, 67.5),
}
LEG = {
    "hip_x": (-45, 15, 10, 5, 0.01, 45),
    "hip_z": (-60, 35, 10, 5, 0.01, 45),
    "hip_y": (-120, 45, 20, 5, 0.01, 135),
    "knee": (-160, 2, 5, 0.1, 0.007, 90),
    "ankle_y": (-50, 50, 2, 1, 0.006, 22.5),
    "ankle_x": (-50, 50, 2, 1, 0.006, 22.5),
}
ARM = {
    "shoulder1": (-90, 70, 10, 5, 0.01, 67.5),
    "shoulder2": (-90, 70, 10, 5, 0.01, 67.5),
    "elbow": (-90, 50, 2, 1, 0.006, 45),
}
JOINTS = ABDOMEN | {f"{side}_{j}": v for limb in (LEG, ARM) for side in ("right", "left") for j, v in limb.items()}

CHANGED_AXES = {"left_shoulder1": (-2, 1, -1), "left_shoulder2": (0, -1, -1)}
CHANGED_ANCHORS = {"right_ankle_x": (0, 0, 0.08), "left_ankle_x": (0, 0, 0.08)}


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_path(str(robots.path("humanoid")))


@pytest.fixture(scope="module")
def suite() -> mujoco.MjModel:
    dm_control = pytest.importorskip("dm_control")
    return mujoco.MjModel.from_xml_path(str(Path(dm_control.__path__[0]) / "suite" / "humanoid.xml"))


def inertias_in_body_frame(model: mujoco.MjModel) -> np.ndarray:
    """Return inertias [bodies, 3, 3] in the body's own frame, because principal axes are not unique."""
    rotation = np.zeros((model.nbody, 9))
    for k in range(model.nbody):
        mujoco.mju_quat2Mat(rotation[k], model.body_iquat[k])
    rotation = rotation.reshape(-1, 3, 3)
    return np.einsum("bij,bj,bkj->bik", rotation, model.body_inertia, rotation)


def names(model: mujoco.MjModel, kind: str, count: int) -> list[str]:
    return [getattr(model, kind)(k).name for k in range(count)]


def test_the_humanoid_has_the_papers_bodies_in_tree_order(model):
    assert names(model, "body", model.nbody) == ["world", *BODIES]


def test_the_joints_are_a_free_root_and_21_hinges_in_order(model):
    assert names(model, "joint", model.njnt) == ["root", *JOINTS]
    assert model.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE
    assert (model.jnt_type[1:] == mujoco.mjtJoint.mjJNT_HINGE).all()
    assert model.nv == 27


@pytest.mark.parametrize("name", JOINTS)
def test_a_joint_has_nvidias_range_stiffness_damping_armature_and_gear(model, name):
    low, high, stiffness, damping, armature, gear = JOINTS[name]
    joint, motor = model.joint(name), model.actuator(name)
    np.testing.assert_allclose(np.degrees(joint.range), (low, high), atol=1e-9)
    assert np.ravel(joint.stiffness)[0] == stiffness
    assert np.ravel(joint.damping)[0] == damping
    assert joint.armature[0] == armature
    assert motor.gear[0] == gear


def test_the_motors_follow_the_joints_and_carry_their_names(model):
    assert names(model, "actuator", model.nu) == list(JOINTS)
    assert [model.joint(j).name for j in model.actuator_trnid[:, 0]] == list(JOINTS)
    assert model.jnt_limited[1:].all()
    assert model.actuator_ctrllimited.all()
    assert (model.actuator_ctrlrange == (-1, 1)).all()


def test_the_humanoid_weighs_40_84_kg(model):
    assert model.body_mass.sum() == pytest.approx(40.84, abs=0.005)


def test_each_body_has_the_mass_and_inertia_of_dm_control(model, suite):
    assert names(suite, "body", suite.nbody) == names(model, "body", model.nbody)
    np.testing.assert_allclose(model.body_mass, suite.body_mass, atol=1e-6)
    np.testing.assert_allclose(model.body_ipos, suite.body_ipos, atol=1e-6)
    np.testing.assert_allclose(inertias_in_body_frame(model), inertias_in_body_frame(suite), atol=1e-6)


def test_the_bodies_have_the_positions_and_orientations_of_dm_control(model, suite):
    ours, theirs = mujoco.MjData(model), mujoco.MjData(suite)
    mujoco.mj_forward(model, ours)
    mujoco.mj_forward(suite, theirs)
    np.testing.assert_allclose(ours.xpos, theirs.xpos, atol=1e-6)
    np.testing.assert_allclose(ours.xmat, theirs.xmat, atol=1e-6)


def test_only_the_axes_of_the_left_shoulder_and_the_anchors_of_ankle_x_differ_from_dm_control(model, suite):
    for name in JOINTS:
        axis = np.array(CHANGED_AXES.get(name, suite.joint(name).axis), dtype=float)
        anchor = CHANGED_ANCHORS.get(name, suite.joint(name).pos)
        np.testing.assert_allclose(model.joint(name).axis, axis / np.linalg.norm(axis), atol=1e-9, err_msg=name)
        np.testing.assert_allclose(model.joint(name).pos, anchor, atol=1e-9, err_msg=name)


def test_the_shapes_and_contacts_except_friction_are_those_of_dm_control(model, suite):
    theirs = suite.geom_bodyid > 0  # without the floor
    np.testing.assert_allclose(model.geom_size, suite.geom_size[theirs], atol=1e-9)
    np.testing.assert_allclose(model.geom_pos, suite.geom_pos[theirs], atol=1e-9)
    np.testing.assert_array_equal(model.geom_type, suite.geom_type[theirs])
    np.testing.assert_array_equal(model.geom_bodyid, suite.geom_bodyid[theirs])
    np.testing.assert_array_equal(model.geom_solref, suite.geom_solref[theirs])
    np.testing.assert_array_equal(model.geom_solimp, suite.geom_solimp[theirs])
    np.testing.assert_array_equal(model.jnt_solimp, suite.jnt_solimp)
    assert model.nexclude == suite.nexclude == 0


def test_all_bodies_collide_without_friction_among_themselves(model):
    assert (model.geom_condim == 1).all()
    assert (model.geom_friction[:, 0] == 1).all()
    assert (model.geom_contype & model.geom_conaffinity).all()
    primitives = {mujoco.mjtGeom.mjGEOM_CAPSULE, mujoco.mjtGeom.mjGEOM_SPHERE}
    assert set(model.geom_type) <= {int(kind) for kind in primitives}


def test_no_limbs_touch_in_the_rest_pose(model):
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    assert data.ncon == 0


def test_the_humanoid_survives_a_thousand_steps_of_random_controls():
    spec = mujoco.MjSpec.from_file(str(robots.path("humanoid")))
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1])
    for model in (mujoco.MjModel.from_xml_path(str(robots.path("humanoid"))), spec.compile()):
        data = mujoco.MjData(model)
        rng = np.random.default_rng(0)
        for _ in range(1000):
            data.ctrl = rng.uniform(-1, 1, model.nu)
            mujoco.mj_step(model, data)
        assert np.isfinite(data.qpos).all()
        assert np.isfinite(data.qvel).all()
        assert not data.warning[mujoco.mjtWarning.mjWARN_BADQACC].number
