"""The simulated A1's body: MuJoCo on the CPU, our `a1` on a flat floor, motor controllers at every physics step."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from ... import robots
from ..robot import Command, State
from .sim_options import SimOptions

STAND_KP, STAND_KD = 100.0, 2.0
"""With these the robot stands by itself, before the first command."""
LYING_POSE = (0.0, 1.25, -2.65) * 4
"""Legs folded, trunk on the floor."""
LYING_HEIGHT_M = 0.09
HANGING_HEIGHT_M = 0.55
NOISE = {"joint_pos": 0.01, "joint_vel": 1.5, "angular_velocity": 0.2, "tilt": 0.05}
"""Uniform, plus or minus; what the paper's training has, before its scales."""


@dataclass(frozen=True)
class Pose:
    """Where the trunk is."""

    position: NDArray[np.float64]
    """[3], world."""
    heading_rad: float
    roll_rad: float
    pitch_rad: float
    forward_mps: float
    """In the direction of the heading."""


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
        """Back to the start pose; the clock starts at 0 again."""
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
        """Since the start."""
        return float(self.data.time)

    def idle(self) -> Command:
        """What the motors do before the first command: stand, or nothing but resist."""
        if self.options.start == "lying":
            return self.damping()
        zeros, ones = np.zeros(len(self.joints)), np.ones(len(self.joints))
        return Command(self.start_joints, zeros, STAND_KP * ones, STAND_KD * ones, zeros)

    def damping(self) -> Command:
        """What the motors do when commands stop."""
        return Command.damping(len(self.joints))

    def step(self, command: Command) -> None:
        """One physics step under this command, as the motor controllers see it: PD at every step, torque limited."""
        q, dq = self.data.qpos[self._qpos], self.data.qvel[self._qvel]
        torque = command.torque + command.kp * (command.position - q) + command.kd * (command.velocity - dq)
        self.torque = np.clip(torque, -self._limit, self._limit)
        self.data.ctrl[:] = self.torque
        mujoco.mj_step(self.model, self.data)

    def measure(self, sequence: int, rng: np.random.Generator) -> State:
        """What the encoders and the inertial measurement unit say, with noise."""
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
        """Where the trunk really is; the robot's sensors do not know it."""
        w, x, y, z = self.data.qpos[3:7]
        heading = float(np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)))
        forward = float(np.cos(heading) * self.data.qvel[0] + np.sin(heading) * self.data.qvel[1])
        roll = float(np.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y)))
        pitch = float(np.arcsin(np.clip(2 * (w * y - z * x), -1.0, 1.0)))
        return Pose(self.data.qpos[:3].copy(), heading, roll, pitch, forward)

    def trunk_touches_floor(self) -> bool:
        """Whether the trunk lies on the floor."""
        pairs = self.data.contact.geom  # [C, 2]
        return bool(((pairs == self._floor).any(1) & np.isin(pairs, self._trunk).any(1)).any())


def _model(options: SimOptions) -> mujoco.MjModel:
    """Our A1 on a flat floor, with the payload, on a stand if it hangs."""
    spec = mujoco.MjSpec.from_file(str(robots.path("a1")))
    spec.option.timestep = 1.0 / options.physics_hz
    spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET  # a robot does not jump back to its start
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
    model.body_mass[trunk] *= scale  # spread as the trunk's own mass
    model.body_inertia[trunk] *= scale
    mujoco.mj_setConst(model, mujoco.MjData(model))
    return model
