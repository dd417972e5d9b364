"""A Unitree A1, through `robot_interface`, the Python binding of Unitree's unitree_legged_sdk (v3.3.x for the A1).

Joint i is motor i of Unitree's `quadruped.h`; the names are those of Unitree's description of the A1:

     0 FR_0  FR_hip_joint      3 FL_0  FL_hip_joint      6 RR_0  RR_hip_joint      9 RL_0  RL_hip_joint
     1 FR_1  FR_thigh_joint    4 FL_1  FL_thigh_joint    7 RR_1  RR_thigh_joint   10 RL_1  RL_thigh_joint
     2 FR_2  FR_calf_joint     5 FL_2  FL_calf_joint     8 RR_2  RR_calf_joint    11 RL_2  RL_calf_joint

Angles, speeds and torques have the description's signs and units: no offset, no scale. `imu.quaternion` is w, x, y, z,
body to world; `imu.gyroscope` is rad/s in the body's frame. `tick` is the robot's clock in ms and wraps at 2^32; the
header says µs, but the robots count ms. There is no sequence number, so every new tick counts as one measurement.

The robot sends a state only in answer to a command, so `__enter__` sends a first command, damping. This takes the robot
out of its own gaits: a standing robot sinks down. In `listen_only` mode, states are requested by commands without
torque, and a standing robot falls. B on Unitree's remote is an emergency stop, whichever other key is held. Unitree's
examples send a command every 2 ms and allow 1 to 10. No thread repeats commands, because it would keep the robot moving
after its controller has hung.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...schema import build
from ..limits import A1, CommandBounds
from ..robot import DAMPING_KD, Command, Robot, State

JOINTS = tuple(A1.joints)
LOW_LEVEL = 0xFF
"""Level at which joints are commanded, not gaits."""
SERVO = 0x0A
"""Motor mode: the motor controller follows q, dq, Kp, Kd and tau."""
NO_POSITION, NO_VELOCITY = 2.146e9, 16000.0
"""PosStopF and VelStopF of the SDK: no target for the motor."""
TICK_S = 1e-3
KEYS, KEY_B = 3, 0x02
"""Byte of the key B among the remote's 40, and its bit there (`unitree_joystick.h`)."""
MAX_WAITING = 64
"""Most states that one read takes."""

HOW_TO_GET_IT = (
    "Unitree's Python module 'robot_interface' is not installed; the A1 needs it. "
    "(1) Get unitree_legged_sdk v3.3.1, the release for the A1: "
    "https://github.com/unitreerobotics/unitree_legged_sdk/releases/tag/v3.3.1 "
    "(2) Build the module for this Python with pybind11 from docs/robot_interface.cpp against that SDK, as in "
    "docs/a1.md. (3) Put robot_interface*.so into a folder of PYTHONPATH, and try: "
    "python -c 'import robot_interface'"
)


@dataclass(frozen=True)
class A1Options:
    """Options of the A1: Unitree's own protections, and damping."""

    power_level: int = 1
    """PowerProtect of the SDK, 1 to 10: 10 to 100 % of the power. Unitree advises 1 at first; walking needs more."""
    position_limit: bool = True
    """PositionLimit of the SDK: joint targets are cut to the A1's range."""
    position_margin_rad: float | None = None
    """PositionProtect of the SDK: stops when a joint is this close to the end of its range (its own default is 0.087).
    Off unless given: an A1 that lies on the floor has its calves at the end of their range."""
    damping_kd: float = DAMPING_KD
    """Gain of damping (Nm s/rad), at the end and after a protection has tripped."""
    damping_s: float = 0.5
    """Time for which damping is sent at the end."""
    listen_only: bool = False
    """Send only commands without torque, one per read to request a state; `send` is an error."""

    def __post_init__(self) -> None:
        if isinstance(self.power_level, bool) or self.power_level not in range(1, 11):
            raise ValueError(f"power_level must be a whole number from 1 to 10; got {self.power_level!r}")
        if self.position_margin_rad is not None and not 0 < self.position_margin_rad < 0.5:
            raise ValueError(f"position_margin_rad must be between 0 and 0.5; got {self.position_margin_rad}")
        if not 0 < self.damping_kd <= 20:
            raise ValueError(f"damping_kd must be above 0, and at most 20; got {self.damping_kd}")
        if not 0 <= self.damping_s <= 10:
            raise ValueError(f"damping_s must be from 0 to 10; got {self.damping_s}")


class A1Robot(Robot):
    """The A1, over Unitree's low-level interface."""

    joints = JOINTS
    loop_hz = 200.0
    rates_hz = (100.0, 1000.0)
    """One command every 1 to 10 ms."""

    def __init__(self, options: A1Options | None = None, expected: Sequence[str] = ()) -> None:
        """Prepare a connection; `expected` are joint names that the robot must have, in any order."""
        if expected and set(expected) != set(JOINTS):
            raise ValueError(f"the A1's joints are {', '.join(JOINTS)}; expected {', '.join(expected)}")
        self.options = options or A1Options()
        self.tripped = ""
        """The protection of the SDK that stopped the robot, or the remote; from then on only damping is sent."""
        self._bounds = CommandBounds(A1, JOINTS)
        self._sdk = _sdk()
        self._tick: int | None = None
        self._sequence, self._stamp_s = 0, 0.0
        self._entered = False

    @classmethod
    def create(cls, options: Mapping[str, Any], expected: Sequence[str] = ()) -> Self:
        """Make the A1; options are those of `A1Options`."""
        return cls(build(A1Options, options, what="option of the A1"), expected)

    def __enter__(self) -> Self:
        sdk = self._sdk
        self._udp = sdk.UDP(LOW_LEVEL, sdk.HighLevelType.Basic)
        self._safety = sdk.Safety(sdk.LeggedType.A1)
        self._cmd, self._state = sdk.LowCmd(), sdk.LowState()
        self._udp.InitCmdData(self._cmd)
        self._motors = list(self._cmd.motorCmd)[: len(JOINTS)]
        for motor in self._motors:
            motor.mode = SERVO
        if any(motor.mode != SERVO for motor in list(self._cmd.motorCmd)[: len(JOINTS)]):
            raise ValueError("this robot_interface hands out copies of motorCmd: commands would not reach the robot")
        if not hasattr(self._state, "wirelessRemote"):
            raise ValueError("this robot_interface has no wirelessRemote: the remote could not stop the robot")
        self._entered = True
        self._ask()
        return self

    def __exit__(self, *exc: object) -> None:
        if not self._entered or self.options.listen_only:
            self._entered = False
            return
        damping = Command.damping(len(JOINTS), self.options.damping_kd)
        until_s = time.monotonic() + self.options.damping_s
        try:
            self.send(damping)
            while time.monotonic() < until_s:
                time.sleep(0.002)
                self.send(damping)
        finally:
            self._entered = False

    def read(self) -> State | None:
        """Return the newest measurement since the last call; never block."""
        self._check_entered()
        if self.options.listen_only:
            self._ask()
        newest: State | None = None
        for _ in range(MAX_WAITING):
            self._udp.Recv()
            self._udp.GetRecv(self._state)
            if not self._advance(int(self._state.tick)):
                break
            newest = self._measurement()
            if list(self._state.wirelessRemote)[KEYS] & KEY_B:
                self.tripped = self.tripped or "B on the remote"
        return newest

    def send(self, command: Command) -> Command:
        """Send a command as far as the hardware's bounds and the SDK's protections let it through, and return that."""
        self._check_entered()
        if self.options.listen_only:
            raise ValueError("listen_only: no command is sent to this A1")
        command.check(len(JOINTS))
        command = self._bounds(command)
        self._fill(command)
        if not (self.tripped or _is_damping(command)):  # damping is sent regardless of the protections
            self._protect(command)
        if self.tripped:
            command = Command.damping(len(JOINTS), self.options.damping_kd)
            self._fill(command)
        self._transmit()
        return self._sent(command)

    # -- measurements --------------------------------------------------------------------------------------------------

    def _advance(self, tick: int) -> bool:
        """Return whether this tick is newer than the last; the clock wraps, and is 0 before the first state."""
        if self._tick is None:
            if tick == 0:
                return False
            elapsed = 0
        else:
            elapsed = (tick - self._tick) % 2**32
            if elapsed == 0 or elapsed >= 2**31:
                return False
        self._tick = tick
        self._sequence += 1
        self._stamp_s += elapsed * TICK_S
        return True

    def _measurement(self) -> State:
        state = self._state
        motors = list(state.motorState)[: len(JOINTS)]
        return State(
            self._sequence,
            self._stamp_s,
            time.monotonic(),
            joint_pos=np.array([motor.q for motor in motors], np.float64),
            joint_vel=np.array([motor.dq for motor in motors], np.float64),
            joint_torque=np.array([motor.tauEst for motor in motors], np.float64),
            angular_velocity=np.array(state.imu.gyroscope, np.float64),
            quaternion=np.array(state.imu.quaternion, np.float64),
        )

    # -- commands ------------------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Send a command that moves nothing; the robot answers with its state."""
        self._fill(Command.damping(len(JOINTS), 0.0 if self.options.listen_only else self.options.damping_kd))
        self._transmit()

    def _transmit(self) -> None:
        self._udp.SetSend(self._cmd)
        self._udp.Send()

    def _fill(self, command: Command) -> None:
        """Fill the SDK's command; a target without a gain becomes "no target", which the SDK's limits leave alone."""
        for i, motor in enumerate(self._motors):
            kp, kd = float(command.kp[i]), float(command.kd[i])
            motor.mode = SERVO
            motor.q = float(command.position[i]) if kp else NO_POSITION
            motor.dq = float(command.velocity[i]) if kd else NO_VELOCITY
            motor.Kp, motor.Kd, motor.tau = kp, kd, float(command.torque[i])

    def _protect(self, command: Command) -> None:
        """Apply the SDK's protections, which change the command and return a negative number when they stop the robot.

        In releases in which they return nothing, a weakened motor shows the stop. An exception in a protection also
        counts as a stop.
        """
        options, name = self.options, "PositionLimit"
        bounds = (
            ("PowerProtect", options.power_level, f"level {options.power_level}"),
            ("PositionProtect", options.position_margin_rad, f"{options.position_margin_rad} rad"),
        )
        try:
            if options.position_limit:
                self._safety.PositionLimit(self._cmd)
            if self._tick is None:  # the other protections need a state
                return
            for name, bound, shown in bounds:
                if bound is None:
                    continue
                answer = getattr(self._safety, name)(self._cmd, self._state, bound)
                if (isinstance(answer, int) and answer < 0) or self._weakened(command):
                    self.tripped = f"{name} at {shown}"
                    return
        except Exception as error:
            self.tripped = f"{name} failed: {error}"

    def _weakened(self, command: Command) -> bool:
        """Return whether a motor is no longer a servo, or has lost its gain."""
        asked = zip(self._motors, command.kp.tolist(), strict=True)
        return any(motor.mode != SERVO or (kp > 0 and not motor.Kp > 0) for motor, kp in asked)

    def _sent(self, command: Command) -> Command:
        """Return the command read back from the SDK; targets without a gain are as requested."""
        kp, kd, torque = (self._column(name) for name in ("Kp", "Kd", "tau"))
        position = np.where(kp > 0, self._column("q"), command.position)
        velocity = np.where(kd > 0, self._column("dq"), command.velocity)
        return Command(position, velocity, kp, kd, torque)

    def _column(self, name: str) -> NDArray[np.float64]:
        return np.array([getattr(motor, name) for motor in self._motors], np.float64)

    def _check_entered(self) -> None:
        if not self._entered:
            raise ValueError("the A1 is not connected: use it in a with statement")


def _sdk() -> ModuleType:
    """Import Unitree's module; refuse another package's module of the same name."""
    try:
        sdk = import_module("robot_interface")
    except ImportError as error:
        raise ValueError(f"{HOW_TO_GET_IT} ({error})") from None
    needed = ("UDP", "Safety", "LowCmd", "LowState", "LeggedType", "HighLevelType")
    missing = [name for name in needed if not hasattr(sdk, name)]
    if missing:
        where = getattr(sdk, "__file__", "?")
        raise ValueError(
            f"the 'robot_interface' at {where} lacks {', '.join(missing)}: is it of SDK v3.3.x, for the A1?"
        )
    return sdk


def _is_damping(command: Command) -> bool:
    """Return whether a command drives no joint."""
    return not (command.kp.any() or command.torque.any() or command.velocity.any())
