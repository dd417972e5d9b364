"""The pinned humanoid, its clips, starts and expert."""

import mujoco
import numpy as np
import pytest

from body_transformer.imitation.tasks.tracking.bodies import Bodies
from body_transformer.imitation.tasks.tracking.model import MAX_ACTION, actuator_joint_ids, joint_names, pinned_model
from body_transformer.imitation.tasks.tracking.model import torque_scale as scale
from body_transformer.imitation.tasks.tracking.motions import (
    MAX_PAYLOAD_KG,
    NUM_FRAMES,
    NUM_STEPS,
    SPLITS,
    TrackingStart,
    clip,
    draw_start,
)


def start(
    tilt_deg: float = 0, heading_deg: float = 0, payloads: tuple[float, float] = (0, 0), index: int = 0
) -> TrackingStart:
    return TrackingStart(clip("train", 0, index), np.deg2rad(tilt_deg), np.deg2rad(heading_deg), payloads)


# -- the model ---------------------------------------------------------------------------------------------------------


def test_only_the_torsos_free_joint_is_removed():
    model = pinned_model()
    assert (model.nbody, model.nq, model.nv, model.nu) == (17, 21, 21, 21)
    assert "root" not in joint_names()


def test_an_action_is_a_torque_in_its_own_joint():
    model, data = pinned_model(), mujoco.MjData(pinned_model())
    for joint in range(model.nv):
        action = np.zeros(model.nv)
        action[joint] = 0.5
        data.ctrl[:] = action[actuator_joint_ids()]
        mujoco.mj_forward(model, data)
        np.testing.assert_allclose(data.qfrc_actuator, scale() * action)


def test_actions_are_clipped():
    strong, limit = Bodies([start()]), Bodies([start()])
    strong.step(np.full((1, 21), 100.0))
    limit.step(np.full((1, 21), MAX_ACTION))
    np.testing.assert_array_equal(strong.pos, limit.pos)


# -- clips -------------------------------------------------------------------------------------------------------------


def test_a_clip_stays_within_the_joints_ranges_and_moves():
    low, high = pinned_model().jnt_range.T
    for index in range(32):
        pos = clip("train", 0, index).pos
        assert pos.shape == (NUM_FRAMES, 21)
        assert ((pos >= low) & (pos <= high)).all()
        assert (np.ptp(pos, axis=0) > 0.02 * (high - low)).all()


def test_velocity_and_acceleration_are_the_positions_derivatives():
    one, step_s = clip("train", 0, 3), 0.02
    np.testing.assert_allclose(np.gradient(one.pos, step_s, axis=0)[1:-1], one.vel[1:-1], atol=0.05)
    np.testing.assert_allclose(np.gradient(one.vel, step_s, axis=0)[1:-1], one.acc[1:-1], atol=0.3)


def test_a_clip_is_a_function_of_its_seed():
    before = clip("train", 0, 1)
    clip.cache_clear()
    np.testing.assert_array_equal(clip("train", 0, 1).pos, before.pos)
    for other in (clip("train", 0, 2), clip("train", 1, 1), clip("validation", 0, 1)):
        assert np.abs(other.pos - before.pos).max() > 0.1


def test_a_shared_clip_is_read_only():
    with pytest.raises(ValueError, match="read-only"):
        clip("train", 0, 0).pos[0] = 0


# -- starts ------------------------------------------------------------------------------------------------------------


def test_gravity_points_down_in_the_torsos_frame():
    np.testing.assert_allclose(start().gravity, [0, 0, -1])
    np.testing.assert_allclose(start(90).gravity, [1, 0, 0], atol=1e-12)  # face down: gravity points forward
    np.testing.assert_allclose(start(30, 90).gravity, [0, 0.5, -np.sqrt(0.75)], atol=1e-12)  # to its left
    for one in (start(40, 200), start(75, 310)):
        turned = np.zeros(3)
        mujoco.mju_rotVecQuat(turned, one.gravity, one.torso_quat)
        np.testing.assert_allclose(turned, [0, 0, -1], atol=1e-12)  # equal to the tilt in the simulator


@pytest.mark.parametrize(("split", "low", "high"), [("train", 0, 60), ("validation", 0, 60), ("unseen-tilt", 60, 90)])
def test_tilts_and_payloads_are_those_of_the_split(split, low, high):
    starts = [draw_start(split, 0, 32, (7,), index) for index in range(300)]
    tilts = np.rad2deg([one.tilt_rad for one in starts])
    assert low <= tilts.min() < low + 10
    assert high - 3 < tilts.max() <= high
    payloads = np.array([one.payloads_kg for one in starts])
    assert payloads.min() >= 0
    assert 0.95 * MAX_PAYLOAD_KG < payloads.max() <= MAX_PAYLOAD_KG
    clips = {one.clip.name for one in starts}
    assert clips == {f"{SPLITS[split][0]}-{k}" for k in range(128 if split == "validation" else 32)}


# -- the expert --------------------------------------------------------------------------------------------------------


def test_the_expert_tracks_at_every_tilt_and_payload():
    extremes = [(0, 0), (2, 0), (0, 2), (2, 2), (1, 1)]
    starts = [start(tilt, 45 * k, extremes[k % 5], k % 32) for k, tilt in enumerate(np.linspace(0, 90, 40))]
    bodies = Bodies(starts)
    errors, largest = [], 0.0
    for _ in range(NUM_STEPS):
        actions = bodies.expert()
        largest = max(largest, np.abs(actions).max())
        bodies.step(actions)
        errors.append(np.abs(bodies.errors()).mean(1))
    assert np.mean(errors) < 0.02
    assert np.max(errors) < 0.05
    assert largest < MAX_ACTION  # no torque was clipped


def test_the_experts_torque_gives_the_desired_acceleration():
    bodies = Bodies([start(50, 70, (2, 0.5))])
    one = bodies.starts[0].clip
    model, data = bodies._models[0], mujoco.MjData(pinned_model())
    data.qpos[:], data.qvel[:] = bodies.pos[0], bodies.vel[0]
    data.ctrl[:] = bodies.expert()[0, actuator_joint_ids()]
    mujoco.mj_forward(model, data)
    np.testing.assert_allclose(data.qacc, (one.acc[0] + one.acc[1]) / 2, atol=1e-9)  # it is on the reference


def test_a_payload_changes_the_torques_of_its_arm_alone():
    empty, right, left = (Bodies([start(30, 0, load)]).expert()[0] for load in ((0, 0), (2, 0), (0, 2)))
    names = joint_names()
    assert {names[k] for k in np.flatnonzero(np.abs(right - empty) > 1e-9)} == {
        "right_shoulder1", "right_shoulder2", "right_elbow",
    }  # fmt: skip
    assert {names[k].split("_")[0] for k in np.flatnonzero(np.abs(left - empty) > 1e-9)} == {"left"}
    assert np.abs(right - empty).max() > 0.3


def test_a_tilt_changes_the_torques_of_the_whole_body():
    upright, tilted = (Bodies([start(tilt)]).expert()[0] for tilt in (0, 60))
    assert (np.abs(upright - tilted) > 1e-3).all()


def test_a_body_does_not_depend_on_the_other_bodies():
    starts = [draw_start("train", 0, 32, (3,), index) for index in range(5)]
    together, alone = Bodies(starts), [Bodies([one]) for one in starts]
    for _ in range(10):
        together.step(0.5 * together.expert())
        for one in alone:
            one.step(0.5 * one.expert())
    np.testing.assert_array_equal(together.pos, np.concatenate([one.pos for one in alone]))
