"""The simulated A1's body, and a summary of its motion.

MuJoCo on the CPU computes the shipped robot `a1` on a flat floor, with motor controllers at every physics step.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from ... import robots
from ..robot import Command, State
from .sim_options import Outcome, SimOptions

STAND_KP, STAND_KD = 100.0, 2.0
"""Gains with which the robot stands by itself before the first command."""
LYING_POSE = (0.0, 1.25, -2.65) * 4
"""Legs folded, trunk on the floor."""
LYING_HEIGHT_M = 0.09
HANGING_HEIGHT_M = 0.55
NOISE = {"joint_pos": 0.01, "joint_vel": 1.5, "angular_velocity": 0.2, "tilt": 0.05}
"""Bounds of uniform noise: the noise of the paper's training, before its scales."""
MAX_ROLL_RAD, MAX_PITCH_RAD, MIN_HEIGHT_M = 0.8, 1.6, 0.15
"""A robot beyond these has fallen: the terminations of the paper's training."""


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
    """Joints, motors and inertial measurement unit, in Unitree's order: FR, FL, RR, RL; each hip, thigh, calf."""

    def __init__(self, options: SimOptions) -> None:
        self.options = options
        self.model = _model(options)
        self.data = mujoco.MjData(self.model)
        self.joints = tuple(self.model.actuator(i).name for i in range(self.model.nu))
        self._qpos = np.array([self.model.joint(name).qposadr[0] for name in self.joints])
        self._qvel = np.array([self.model.joint(name).dofadr[0] for name in self.joints])
        self._limit = self.model.actuator_forcerange[:, 1].copy()
        self._floor = self.model.geom("floor").id
        self._trunk = [self.model.geom(name).id for name in ("trunk", "sensor_module")]
        if len(options.start_joints) not in (0, len(self.joints)):
            raise ValueError(f"start_joints has {len(options.start_joints)} angles; the robot has {len(self.joints)}")
        self.reset()

    def reset(self) -> None:
        """Return to the start pose, at time 0."""
        mujoco.mj_resetDataKeyframe(self.model, self.data, self.model.key("home").id)
        qpos = self.data.qpos
        if self.options.start == "lying":
            qpos[2], qpos[self._qpos] = LYING_HEIGHT_M, LYING_POSE
        elif self.options.start == "hanging":
            qpos[2] = HANGING_HEIGHT_M
        if self.options.start_joints:
            qpos[self._qpos] = self.options.start_joints
        self.start_joints = qpos[self._qpos].copy()
        self.torque = np.zeros(len(self.joints))
        mujoco.mj_forward(self.model, self.data)

    @property
    def time_s(self) -> float:
        """Time since the start."""
        return float(self.data.time)

    def idle(self) -> Command:
        """Return the motors' command before the first one is received: stand, or damp if lying."""
        if self.options.start == "lying":
            return self.damping()
        zeros, ones = np.zeros(len(self.joints)), np.ones(len(self.joints))
        return Command(self.start_joints, zeros, STAND_KP * ones, STAND_KD * ones, zeros)

    def damping(self) -> Command:
        """Return the motors' command when commands stop."""
        return Command.damping(len(self.joints))

    def step(self, command: Command) -> None:
        """Advance by one physics step under this command: PD with limited torque, as in the motor controllers."""
        q, dq = self.data.qpos[self._qpos], self.data.qvel[self._qvel]
        torque = command.torque + command.kp * (command.position - q) + command.kd * (command.velocity - dq)
        self.torque = np.clip(torque, -self._limit, self._limit)
        self.data.ctrl[:] = self.torque
        mujoco.mj_step(self.model, self.data)

    def measure(self, sequence: int, rng: np.random.Generator) -> State:
        """Return a measurement of the encoders and the inertial measurement unit, with noise."""
        scale, num = self.options.noise, len(self.joints)
        quaternion = self.data.qpos[3:7].copy()
        state = State(
            sequence,
            self.time_s,
            0.0,
            joint_pos=self.data.qpos[self._qpos],
            joint_vel=self.data.qvel[self._qvel],
            joint_torque=self.torque,
            angular_velocity=self.data.qvel[3:6].copy(),  # a free joint's rotation is in the body's frame
            quaternion=quaternion,
        )
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
        w, x, y, z = self.data.qpos[3:7]
        heading = float(np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)))
        forward = float(np.cos(heading) * self.data.qvel[0] + np.sin(heading) * self.data.qvel[1])
        roll = float(np.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y)))
        pitch = float(np.arcsin(np.clip(2 * (w * y - z * x), -1.0, 1.0)))
        return Pose(self.data.qpos[:3].copy(), heading, roll, pitch, forward)

    def trunk_touches_floor(self) -> bool:
        """Return whether the trunk touches the floor."""
        pairs = self.data.contact.geom  # [C, 2]
        return bool(((pairs == self._floor).any(1) & np.isin(pairs, self._trunk).any(1)).any())


def _model(options: SimOptions) -> mujoco.MjModel:
    """Build the A1 on a flat floor, with the payload, on a stand if it hangs."""
    spec = mujoco.MjSpec.from_file(str(robots.path("a1")))
    spec.option.timestep = 1.0 / options.physics_hz
    spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET  # no jump back to the start when unstable
    spec.worldbody.add_geom(name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0.0, 0.0, 1.0])
    if options.start == "hanging":
        spec.add_equality(
            name="stand",
            type=mujoco.mjtEq.mjEQ_WELD,
            objtype=mujoco.mjtObj.mjOBJ_BODY,
            name1="trunk",
            name2="world",
            data=[0, 0, 0, 0, 0, -HANGING_HEIGHT_M, 1, 0, 0, 0, 1],  # the world, seen from the trunk
        )
    model = spec.compile()
    trunk = model.body("trunk").id
    scale = 1.0 + options.payload_kg / model.body_mass[trunk]
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
        if self._fell_after_s < 0 and self._has_fallen(pose):
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

    def _has_fallen(self, pose: Pose) -> bool:
        return (
            abs(pose.roll_rad) > MAX_ROLL_RAD
            or abs(pose.pitch_rad) > MAX_PITCH_RAD
            or pose.position[2] < MIN_HEIGHT_M
            or self._body.trunk_touches_floor()
        )
