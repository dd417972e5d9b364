"""A stand-in for `robot_interface`, as pybind11 makes it from unitree_legged_sdk v3.3.x; a test controls the robot.

It has those names, constructors and overloads of the module that the driver needs. Numbers are converted to the types
of the C++ fields (float, uint8_t). Every access to an array returns a new list, of references to motors and of copies
of numbers. Unknown attributes and wrong types are errors. SetSend and GetRecv copy; Send and Recv move datagrams. The
robot sends a state only in answer to a command. Position limits are those of `a1_const.h`. Unitree does not publish how
PowerProtect counts: here it compares the power of the last state with a tenth of `WATT_LIMIT` per level.
"""

from __future__ import annotations

import copy
import enum
from collections import deque
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

WATT_LIMIT = 1000.0
POS_STOP, VEL_STOP = 2.146e9, 16000.0
LIMITS = {"hip": (-0.802, 0.802), "thigh": (-1.05, 4.19), "calf": (-2.7, -0.916)}
RANGES = [LIMITS[part] for _ in range(4) for part in ("hip", "thigh", "calf")]


LeggedType = enum.Enum("LeggedType", "Aliengo A1")
HighLevelType = enum.Enum("HighLevelType", "Basic Sport")


def _float(value: object) -> float:
    if not isinstance(value, float | int | np.floating):
        raise TypeError(f"incompatible function arguments: float, not {type(value).__name__}")
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _uint8(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value < 256:
        raise TypeError(f"incompatible function arguments: uint8, not {value!r}")
    return value


class _Struct:
    """A C struct, with typed fields and no other attributes."""

    _fields: ClassVar[dict] = {}

    def __init__(self) -> None:
        for name, (_, default) in self._fields.items():
            object.__setattr__(self, name, default() if callable(default) else default)

    def __setattr__(self, name: str, value: object) -> None:
        if name not in self._fields:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        object.__setattr__(self, name, self._fields[name][0](value))

    def __getattribute__(self, name: str) -> object:
        value = object.__getattribute__(self, name)
        return list(value) if isinstance(value, list) else value  # pybind11/stl.h: a new list at every access


def _list(value: object) -> list:
    return list(value)


class MotorCmd(_Struct):
    _fields: ClassVar[dict] = {"mode": (_uint8, 0), **dict.fromkeys(("q", "dq", "tau", "Kp", "Kd"), (_float, 0.0))}


class MotorState(_Struct):
    _fields: ClassVar[dict] = {"mode": (_uint8, 0), **dict.fromkeys(("q", "dq", "tauEst"), (_float, 0.0))}


class IMU(_Struct):
    _fields: ClassVar[dict] = {"quaternion": (_list, lambda: [0.0] * 4), "gyroscope": (_list, lambda: [0.0] * 3)}


class LowCmd(_Struct):
    _fields: ClassVar[dict] = {
        "levelFlag": (_uint8, 0),
        "motorCmd": (_list, lambda: [MotorCmd() for _ in range(20)]),
    }


class LowState(_Struct):
    _fields: ClassVar[dict] = {
        "imu": (lambda value: value, IMU),
        "motorState": (_list, lambda: [MotorState() for _ in range(20)]),
        "tick": (int, 0),
        "wirelessRemote": (_list, lambda: [0] * 40),
    }


class Machine:
    """The robot behind the module, for tests to control."""

    def __init__(self) -> None:
        self.commands: list[LowCmd] = []
        self.waiting: deque[LowState] = deque()
        self.state = LowState()
        self.state.tick = 1000
        self.state.imu.quaternion = [1.0, 0.0, 0.0, 0.0]
        self.answers = True

    def take(self, cmd: LowCmd) -> None:
        self.commands.append(cmd)
        if self.answers:
            self.measure()

    def measure(self, ms: int = 2) -> None:
        self.state.tick = (self.state.tick + ms) % 2**32
        self.waiting.append(copy.deepcopy(self.state))


class Servos(Machine):
    """Joints that reach their targets before the next command, and a clock that advances by one period per command."""

    def __init__(self, pose: Sequence[float], period_ms: int = 5) -> None:
        super().__init__()
        self.period_ms = period_ms
        for motor, angle in zip(self.state.motorState, pose, strict=False):
            motor.q = angle

    def take(self, cmd: LowCmd) -> None:
        for motor, target in zip(self.state.motorState, cmd.motorCmd, strict=True):
            before, motor.q = motor.q, target.q if target.Kp else motor.q
            motor.dq = 1000 * (motor.q - before) / self.period_ms
        self.commands.append(cmd)
        self.measure(self.period_ms)


machine = Machine()


class UDP:
    def __init__(self, level: int, highControl: HighLevelType = HighLevelType.Basic) -> None:  # noqa: N803
        if not isinstance(highControl, HighLevelType):
            raise TypeError("__init__(): incompatible constructor arguments")
        self.level = _uint8(level)
        self._out, self._in = LowCmd(), LowState()

    def InitCmdData(self, cmd: LowCmd) -> None:  # noqa: N802
        cmd.levelFlag = self.level
        for motor in cmd.motorCmd:
            motor.q, motor.dq, motor.Kp, motor.Kd, motor.tau = POS_STOP, VEL_STOP, 0, 0, 0

    def SetSend(self, cmd: LowCmd) -> int:  # noqa: N802
        if not isinstance(cmd, LowCmd):
            raise TypeError("SetSend(): incompatible function arguments")
        self._out = copy.deepcopy(cmd)
        return 0

    def Send(self) -> int:  # noqa: N802
        machine.take(copy.deepcopy(self._out))
        return 0

    def Recv(self) -> int:  # noqa: N802
        if not machine.waiting:
            return -1
        self._in = machine.waiting.popleft()
        return 0

    def GetRecv(self, state: LowState) -> None:  # noqa: N802
        received = copy.deepcopy(self._in)
        for name in LowState._fields:
            object.__setattr__(state, name, object.__getattribute__(received, name))


class Safety:
    def __init__(self, type: LeggedType) -> None:
        if not isinstance(type, LeggedType):
            raise TypeError("__init__(): incompatible constructor arguments")

    def PositionLimit(self, cmd: LowCmd) -> None:  # noqa: N802
        for motor, (low, high) in zip(cmd.motorCmd, RANGES, strict=False):
            if abs(motor.q) < 1e9:
                motor.q = min(max(motor.q, low), high)

    def PowerProtect(self, cmd: LowCmd, state: LowState, factor: int) -> int:  # noqa: N802
        if not isinstance(factor, int) or not isinstance(state, LowState):
            raise TypeError("PowerProtect(): incompatible function arguments")
        watt = sum(abs(motor.tauEst * motor.dq) for motor in state.motorState)
        return -1 if watt > WATT_LIMIT * factor / 10 else 0

    def PositionProtect(self, cmd: LowCmd, state: LowState, limit: float) -> int:  # noqa: N802
        near = [
            not low + limit < motor.q < high - limit
            for motor, (low, high) in zip(state.motorState, RANGES, strict=False)
        ]
        return -1 if any(near) else 0
