from dataclasses import asdict

import mujoco
import numpy as np
import pytest

from body_transformer.deploy.robot import Command
from body_transformer.deploy.robots.sim_body import MotionRecorder, SimBody
from body_transformer.deploy.robots.sim_options import SimOptions, SimReport

RNG = np.random.default_rng(0)


def after(body: SimBody, command: Command, seconds: float) -> SimBody:
    for _ in range(round(seconds * body.options.physics_hz)):
        body.step(command)
    return body


def hold(position: np.ndarray, kp: float = 100.0, kd: float = 1.0) -> Command:
    zeros, ones = np.zeros(12), np.ones(12)
    return Command(np.asarray(position, float), zeros, kp * ones, kd * ones, zeros)


def test_the_time_step_follows_from_physics_hz():
    assert SimBody(SimOptions()).model.opt.timestep == 1e-3
    assert SimBody(SimOptions(physics_hz=500)).model.opt.timestep == 2e-3


@pytest.mark.parametrize("payload_kg", [-2.0, 0.0, 2.0])
def test_the_robot_stands_by_itself_before_the_first_command(payload_kg):
    body = SimBody(SimOptions(payload_kg=payload_kg))
    after(body, body.idle(), 2.0)
    assert 0.27 < body.pose().position[2] < 0.31
    assert not body.trunk_touches_floor()


def test_a_payload_is_on_the_trunk():
    masses = [SimBody(SimOptions(payload_kg=kg)).model.body_mass for kg in (0.0, 2.0, -2.0)]
    assert masses[0].sum() == pytest.approx(12.454)
    assert masses[1].sum() == pytest.approx(14.454)
    assert masses[2].sum() == pytest.approx(10.454)
    np.testing.assert_array_equal(masses[0][2:], masses[1][2:])


def test_a_lying_robot_is_limp_and_can_stand_up():
    body = SimBody(SimOptions(start="lying"))
    after(body, body.idle(), 0.5)
    assert body.pose().position[2] < 0.12
    home, folded = SimBody(SimOptions()).start_joints, body.data.qpos[7:].copy()
    for step in range(2000):
        body.step(hold(folded + (home - folded) * step / 2000))
    after(body, hold(home), 0.5)
    assert body.pose().position[2] > 0.27


def test_a_hanging_robots_trunk_does_not_move_whatever_the_legs_do():
    body = SimBody(SimOptions(start="hanging"))
    after(body, hold(body.start_joints + 0.5), 1.0)
    pose = body.pose()
    assert pose.position[2] == pytest.approx(0.55, abs=0.01)
    assert abs(pose.roll_rad) + abs(pose.pitch_rad) < 0.05


def test_the_robot_starts_with_the_given_joint_angles():
    angles = tuple(np.linspace(-0.5, 0.5, 12).tolist())
    np.testing.assert_allclose(SimBody(SimOptions(start_joints=angles)).measure(1, RNG).joint_pos, angles)
    with pytest.raises(ValueError, match="start_joints has 3 angles; the robot has 12"):
        SimBody(SimOptions(start_joints=(0.0, 0.0, 0.0)))


def test_every_joint_follows_its_own_target():
    body = SimBody(SimOptions(start="hanging"))
    for joint in range(12):
        body.reset()
        target = body.start_joints.copy()
        target[joint] += 0.2
        after(body, hold(target, kd=3.0), 1.0)
        np.testing.assert_allclose(body.measure(1, RNG).joint_pos, target, atol=0.06)


def test_the_motors_apply_the_torque_of_the_command():
    body = SimBody(SimOptions(start="hanging"))
    state = body.measure(1, RNG)
    rng = np.random.default_rng(1)
    command = Command(*(rng.uniform(0, 1, 12) for _ in range(5)))
    body.step(command)
    pd = command.torque + command.kp * (command.position - state.joint_pos)
    pd += command.kd * (command.velocity - state.joint_vel)
    np.testing.assert_allclose(body.torque, pd)
    np.testing.assert_allclose(body.measure(2, RNG).joint_torque, pd)


def test_torques_stop_at_the_motors_limits():
    body = SimBody(SimOptions(start="hanging"))
    body.step(hold(np.full(12, 100.0)))
    np.testing.assert_array_equal(body.torque, 33.5)


def test_damping_brings_the_robot_to_rest():
    body = SimBody(SimOptions())
    after(body, body.damping(), 3.0)
    assert np.abs(body.measure(1, RNG).joint_vel).max() < 0.5
    assert body.pose().position[2] < 0.15


def test_the_quaternion_is_w_x_y_z_and_the_gyroscope_in_the_bodys_frame():
    body = SimBody(SimOptions())
    body.data.qpos[3:7] = np.sqrt(0.5), 0, 0, np.sqrt(0.5)  # turned left by 90 degrees
    body.data.qvel[3:6] = 1.0, 0.0, 0.0  # MuJoCo: of a free joint, in the body's frame
    state = body.measure(1, RNG)
    np.testing.assert_allclose(state.quaternion, [np.sqrt(0.5), 0, 0, np.sqrt(0.5)])
    np.testing.assert_array_equal(state.angular_velocity, [1.0, 0.0, 0.0])
    mujoco.mj_forward(body.model, body.data)
    velocity = np.zeros(6)
    mujoco.mj_objectVelocity(body.model, body.data, mujoco.mjtObj.mjOBJ_BODY, body.model.body("trunk").id, velocity, 0)
    np.testing.assert_allclose(velocity[:3], [0.0, 1.0, 0.0], atol=1e-9)  # about the world's y
    assert body.pose().heading_rad == pytest.approx(np.pi / 2)


def test_noise_is_bounded_as_in_training_and_does_not_change_the_physics():
    quiet, noisy = SimBody(SimOptions()), SimBody(SimOptions(noise=1.0))
    rng = np.random.default_rng(0)
    true = quiet.measure(1, rng)
    measured = [noisy.measure(n, rng) for n in range(500)]
    for name, bound in {"joint_pos": 0.01, "joint_vel": 1.5, "angular_velocity": 0.2}.items():
        errors = np.abs([getattr(state, name) - getattr(true, name) for state in measured])
        assert 0.95 * bound < errors.max() <= bound
    tilts = [2 * np.arccos(min(1.0, state.quaternion[0])) for state in measured]
    assert 0.05 < max(tilts) < 0.0708
    np.testing.assert_array_equal(noisy.data.qpos, quiet.data.qpos)


# -- the summary of the motion -----------------------------------------------------------------------------------------


def test_standing_is_not_a_fall_and_lying_is():
    body = SimBody(SimOptions())
    rollout = MotionRecorder(body)
    after(body, body.idle(), 0.5)
    rollout.watch()
    assert not rollout.outcome().fell
    for _ in range(1000):
        body.step(body.damping())
        rollout.watch()
    outcome = rollout.outcome()
    assert outcome.fell
    assert 0.5 < outcome.fell_after_s < 1.5
    assert outcome.duration_s == pytest.approx(1.5)


def test_motion_after_the_end_does_not_count():
    body = SimBody(SimOptions())
    rollout = MotionRecorder(body)
    rollout.watch()
    rollout.end()
    after(body, body.damping(), 1.0)
    rollout.watch()
    assert not rollout.outcome().fell
    rollout.begin()
    rollout.watch()
    assert rollout.outcome().fell


@pytest.mark.parametrize(("axis", "angle"), [(1, 0.9), (1, -0.9), (2, 1.65), (2, np.pi)])
def test_rolled_or_pitched_too_far_is_a_fall(axis, angle):
    body = SimBody(SimOptions())
    body.data.qpos[2] = 1.0
    body.data.qpos[3:7] = 0.0
    body.data.qpos[3], body.data.qpos[3 + axis] = np.cos(angle / 2), np.sin(angle / 2)
    mujoco.mj_forward(body.model, body.data)
    rollout = MotionRecorder(body)
    rollout.watch()
    assert rollout.outcome().fell


def test_distance_is_along_the_first_heading_and_speed_along_the_present_one():
    body = SimBody(SimOptions())
    body.data.qpos[3:7] = np.sqrt(0.5), 0, 0, np.sqrt(0.5)  # looks along y
    body.data.qvel[:2] = 0.0, 0.5
    rollout = MotionRecorder(body)
    body.data.qpos[:2] = -0.25, 2.0
    rollout.watch()
    outcome = rollout.outcome()
    assert (outcome.distance_m, outcome.sideways_m, outcome.mean_speed_mps) == pytest.approx((2.0, 0.25, 0.5))


def test_a_report_survives_packing():
    report = SimReport(True, 1.5, 10.0, 4.9, -0.1, 0.49, 0.2, 33.5, 500, 2, 7, 0.001)
    assert SimReport.unpack(report.pack()) == report
    assert SimReport.from_dict(asdict(report)) == report
    with pytest.raises(ValueError, match="payload length"):
        SimReport.unpack(report.pack()[:-1])


# -- options -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"latency_ms": -1.0}, "latency_ms must be 0 or above; got -1.0"),
        ({"loss_percent": 101.0}, "loss_percent must be from 0 to 100; got 101"),
        ({"jitter_ms": float("nan")}, "jitter_ms must be a finite number"),
        ({"real_time_factor": 0.0}, "real_time_factor must be above 0"),
        ({"physics_hz": 200.0}, "physics_hz must be 500 or more; got 200"),
        ({"physics_hz": 700.0}, "not a multiple of state_hz"),
        ({"payload_kg": -5.0}, "payload_kg must be -4 or more; got -5"),
        ({"start": "homme"}, "start: unknown value 'homme'; did you mean 'home'"),
        ({"fault": "nam"}, "fault: unknown value 'nam'; did you mean 'nan'"),
        ({"latncy_ms": 1.0}, "unknown option of the simulated robot 'latncy_ms'; did you mean 'latency_ms'"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SimOptions.from_dict(options)


def test_start_joints_may_be_text_as_a_command_line_has_it():
    given = SimOptions.from_dict({"start_joints": ",".join(["0.1", "0.8", "-1.5"] * 4)})
    assert given == SimOptions(start_joints=(0.1, 0.8, -1.5) * 4)
    with pytest.raises(ValueError, match=r"start_joints must be numbers separated by commas; got '0\.1,leg'"):
        SimOptions.from_dict({"start_joints": "0.1,leg"})
    with pytest.raises(ValueError, match=r"start_joints\[1\] must be a finite number"):
        SimOptions.from_dict({"start_joints": "0.1,nan"})


def test_the_option_friction_is_that_of_robot_and_floor():
    slippery = SimBody(SimOptions(friction=0.5)).model
    assert (slippery.geom_friction[:, 0] == 0.5).all()
    usual = SimBody(SimOptions()).model
    assert (usual.geom_friction[:, 0] != 0.5).any()
    with pytest.raises(ValueError, match="friction must be 0 or above; got -1"):
        SimOptions(friction=-1.0)
