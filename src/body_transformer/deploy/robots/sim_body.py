"""The simulated robot's body, and a summary of its motion.

MuJoCo on the CPU computes a robot on a flat floor, with motor controllers at every physics step.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from ..robot import Command, State
from .sim_model import SimModel, sim_model
from .sim_options import Outcome, SimOptions

LIFT_M = 0.25
"""Height of a hanging robot above its standing height."""
STAND = "sim_stand"
SETTLE_S = 2.0
"""Time in which a robot with damped joints comes to lie."""
NOISE = {"joint_pos": 0.01, "joint_vel": 1.5, "angular_velocity": 0.2, "tilt": 0.05}
"""Bounds of uniform noise: the noise of the paper's training, before its scales."""


@dataclass(frozen=True)
class Pose:
    """Position and attitude of the trunk."""

    position: NDArray[np.float64]
    """[3], world."""
    heading_rad: float
    roll_rad: float
    pitch_rad: float
    forward_mps: float
    """Speed in the direction of the heading."""


class SimBody:
    """Joints, motors and inertial measurement unit; without `robot`, those of the A1."""

    def __init__(self, options: SimOptions, robot: SimModel | None = None) -> None:
        self.options, self.robot = options, robot or sim_model()
        self.model = _model(options, self.robot)
        self.data = mujoco.MjData(self.model)
        self.joints = self.robot.joints
        self._qpos = np.array([self.model.joint(name).qposadr[0] for name in self.joints])
        self._qvel = np.array([self.model.joint(name).dofadr[0] for name in self.joints])
        self._limit = np.array(self.robot.torque)
        self._floor = np.flatnonzero(self.model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE)
        trunk = self.model.body(self.robot.trunk)
        self._trunk = np.flatnonzero(self.model.geom_bodyid == trunk.id)
        self._root, self._root_vel = np.concatenate([trunk.pos, trunk.quat]), np.zeros(6)
        """Position and quaternion [7], velocity in the world's frame and spin in the body's [6]."""
        if self.robot.is_free:
            free = trunk.jntadr[0]
            self._root = self.data.qpos[self.model.jnt_qposadr[free] :][:7]  # a view
            self._root_vel = self.data.qvel[self.model.jnt_dofadr[free] :][:6]
        if len(options.start_joints) not in (0, len(self.joints)):
            raise ValueError(f"start_joints has {len(options.start_joints)} angles; the robot has {len(self.joints)}")
        self.reset()

    def reset(self) -> None:
        """Return to the start pose, at time 0."""
        mujoco.mj_resetData(self.model, self.data)
        start, lying = self.options.start, self.robot.lying
        height, *pose = lying if start == "lying" and lying else (self.robot.height_m, *self.robot.pose)
        if self.robot.is_free:
            self._root[:] = 0.0, 0.0, height + LIFT_M * (start == "hanging"), 1.0, 0.0, 0.0, 0.0
        self.data.qpos[self._qpos] = pose
        if start == "lying" and not lying:
            self._sink()
        if self.options.start_joints:
            self.data.qpos[self._qpos] = self.options.start_joints
        self.start_joints = self.data.qpos[self._qpos].copy()
        self.torque = np.zeros(len(self.joints))
        mujoco.mj_forward(self.model, self.data)

    def _sink(self) -> None:
        """Let the robot come to rest with damped joints."""
        for _ in range(round(SETTLE_S * self.options.physics_hz)):
            self.step(self.damping())
        self.data.time, self.data.qvel[:] = 0.0, 0.0

    def release(self) -> None:
        """Open the stand of a held robot."""
        if self.options.start == "held" and self.robot.is_free:
            self.data.eq_active[self.model.equality(STAND).id] = 0

    @property
    def time_s(self) -> float:
        """Time since the start."""
        return float(self.data.time)

    def idle(self) -> Command:
        """Return the motors' command before the first one is received: stand, or damp if lying."""
        if self.options.start == "lying":
            return self.damping()
        zeros = np.zeros(len(self.joints))
        return Command(self.start_joints, zeros, np.array(self.robot.kp), np.array(self.robot.kd), zeros)

    def damping(self) -> Command:
        """Return the motors' command when commands stop."""
        return Command.damping(len(self.joints))

    def step(self, command: Command) -> None:
        """Advance by one physics step under this command: PD with limited torque, as in the motor controllers."""
        q, dq = self.data.qpos[self._qpos], self.data.qvel[self._qvel]
        torque = command.torque + command.kp * (command.position - q) + command.kd * (command.velocity - dq)
        self.torque = np.clip(torque, -self._limit, self._limit)
        self.data.qfrc_applied[self._qvel] = self.torque
        mujoco.mj_step(self.model, self.data)

    def measure(self, sequence: int, rng: np.random.Generator) -> State:
        """Return a measurement of the encoders and the inertial measurement unit, with noise.

        The linear velocity has none.
        """
        scale, num = self.options.noise, len(self.joints)
        quaternion = self._root[3:].copy()
        state = State(
            sequence,
            self.time_s,
            0.0,
            joint_pos=self.data.qpos[self._qpos],
            joint_vel=self.data.qvel[self._qvel],
            joint_torque=self.torque,
            angular_velocity=self._root_vel[3:].copy(),  # a free joint's rotation is in the body's frame
            quaternion=quaternion,
        )
        turned = np.zeros(4)
        mujoco.mju_negQuat(turned, quaternion)
        mujoco.mju_rotVecQuat(state.linear_velocity, self._root_vel[:3], turned)
        if not scale:
            return state
        tilt = np.append(rng.uniform(-1.0, 1.0, 2) * scale * NOISE["tilt"], 0.0)
        mujoco.mju_quatIntegrate(quaternion, tilt, 1.0)
        state.joint_pos[:] += rng.uniform(-1.0, 1.0, num) * scale * NOISE["joint_pos"]
        state.joint_vel[:] += rng.uniform(-1.0, 1.0, num) * scale * NOISE["joint_vel"]
        state.angular_velocity[:] += rng.uniform(-1.0, 1.0, 3) * scale * NOISE["angular_velocity"]
        return state

    def pose(self) -> Pose:
        """Return the trunk's true pose, which the robot's sensors do not measure."""
        w, x, y, z = self._root[3:]
        heading = float(np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)))
        forward = float(np.cos(heading) * self._root_vel[0] + np.sin(heading) * self._root_vel[1])
        roll = float(np.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y)))
        pitch = float(np.arcsin(np.clip(2 * (w * y - z * x), -1.0, 1.0)))
        return Pose(self._root[:3].copy(), heading, roll, pitch, forward)

    def trunk_touches_floor(self) -> bool:
        """Return whether the trunk touches the floor."""
        pairs = self.data.contact.geom  # [C, 2]
        return bool((np.isin(pairs, self._floor).any(1) & np.isin(pairs, self._trunk).any(1)).any())

    def has_fallen(self, pose: Pose) -> bool:
        """Return whether the robot has fallen; one on a fixed base cannot."""
        max_roll, max_pitch = self.robot.max_tilt_rad
        return self.robot.is_free and (
            abs(pose.roll_rad) > max_roll
            or abs(pose.pitch_rad) > max_pitch
            or pose.position[2] < self.robot.min_height_m
            or self.trunk_touches_floor()
        )


def _model(options: SimOptions, robot: SimModel) -> mujoco.MjModel:
    """Build the robot on a flat floor, with the payload, and on a stand if it hangs or is held."""
    spec = robot.spec.copy()
    spec.option.timestep = 1.0 / options.physics_hz
    spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET  # no jump back to the start when unstable
    if options.start in ("hanging", "held") and robot.is_free:
        height = robot.height_m + LIFT_M * (options.start == "hanging")
        spec.add_equality(
            name=STAND,
            type=mujoco.mjtEq.mjEQ_WELD,
            objtype=mujoco.mjtObj.mjOBJ_BODY,
            name1=robot.trunk,
            name2="world",
            data=[0, 0, 0, 0, 0, -height, 1, 0, 0, 0, 1],  # the world, seen from the trunk
        )
    model = spec.compile()
    if options.friction:
        model.geom_friction[:, 0] = options.friction  # of robot and floor: MuJoCo uses the larger
    trunk = model.body(robot.trunk).id
    scale = 1.0 + options.payload_kg / model.body_mass[trunk]
    if scale <= 0:
        raise ValueError(f"payload_kg must be above {-model.body_mass[trunk]:.3g}; got {options.payload_kg:g}")
    model.body_mass[trunk] *= scale  # distributed as the trunk's own mass
    model.body_inertia[trunk] *= scale
    mujoco.mj_setConst(model, mujoco.MjData(model))
    return model


class MotionRecorder:
    """Summary of the body's motion from `begin` to `end`."""

    def __init__(self, body: SimBody) -> None:
        self._body = body
        self.begin()

    def begin(self) -> None:
        """Begin a new rollout now."""
        self._start_s = self._now_s = self._body.time_s
        self._from = self._to = self._body.pose()
        self._fell_after_s = -1.0
        self._speeds, self._count = 0.0, 0
        self._max_tilt_rad = self._max_torque_nm = 0.0
        self._running = True

    def end(self) -> None:
        """End the rollout."""
        self._running = False

    def watch(self) -> None:
        """Take the present pose into account; called after every few physics steps."""
        if not self._running:
            return
        pose = self._to = self._body.pose()
        self._now_s = self._body.time_s
        self._speeds, self._count = self._speeds + pose.forward_mps, self._count + 1
        self._max_tilt_rad = max(self._max_tilt_rad, abs(pose.roll_rad), abs(pose.pitch_rad))
        self._max_torque_nm = max(self._max_torque_nm, float(np.abs(self._body.torque).max()))
        if self._fell_after_s < 0 and self._body.has_fallen(pose):
            self._fell_after_s = self._now_s - self._start_s

    def outcome(self) -> Outcome:
        """Return the summary so far."""
        moved, heading = self._to.position - self._from.position, self._from.heading_rad
        return Outcome(
            fell=self._fell_after_s >= 0,
            fell_after_s=self._fell_after_s,
            duration_s=self._now_s - self._start_s,
            distance_m=float(moved[0] * np.cos(heading) + moved[1] * np.sin(heading)),
            sideways_m=float(moved[1] * np.cos(heading) - moved[0] * np.sin(heading)),
            mean_speed_mps=self._speeds / max(self._count, 1),
            max_tilt_rad=self._max_tilt_rad,
            max_torque_nm=self._max_torque_nm,
        )
