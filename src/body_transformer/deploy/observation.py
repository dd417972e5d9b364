"""From a robot's state to the policy's observation: joints matched by name, terms as in the contract."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import listing
from .robot import COMMAND, Command, State

if TYPE_CHECKING:
    from .contract import Contract
    from .control import ContractTerm

Vector = NDArray[np.float64]


class JointOrder:
    """Conversion between the robot's joint order and the contract's, matched by name."""

    def __init__(self, contract_joints: Sequence[str], robot_joints: Sequence[str]) -> None:
        problems = [
            f"{problem}: {listing(names)}"
            for problem, names in (
                ("the robot has no", [name for name in contract_joints if name not in robot_joints]),
                ("the contract has no", [name for name in robot_joints if name not in contract_joints]),
                ("twice in the robot", _repeated(robot_joints)),
                ("twice in the contract", _repeated(contract_joints)),
            )
            if names
        ]
        if problems:
            raise ValueError(f"the robot's joints are not the contract's: {'; '.join(problems)}")
        self.contract_joints, self.robot_joints = tuple(contract_joints), tuple(robot_joints)
        self._in_robot = np.array([robot_joints.index(name) for name in contract_joints])
        self._in_contract = np.array([contract_joints.index(name) for name in robot_joints])
        size = len(contract_joints)
        self._state, self._command = np.zeros(3 * size + 7), np.zeros(len(COMMAND) * size)
        self._command_rows = self._command.reshape(-1, size)
        rest = 3 * size + np.arange(7)
        self._state_in_robot = np.concatenate([self._in_robot + k * size for k in range(3)] + [rest])

    def from_robot(self, values: Vector, out: Vector) -> None:
        """Copy [J] from the robot's order into the contract's."""
        values.take(self._in_robot, out=out, mode="clip")  # the other modes make a copy first

    def to_robot(self, values: Vector, out: Vector) -> None:
        """Copy [J] from the contract's order into the robot's."""
        values.take(self._in_contract, out=out, mode="clip")

    def state_from_robot(self, state: State, out: Vector) -> None:
        """Copy the parts of a state that fits, one after the other [3 J + 7], into the contract's order."""
        np.concatenate(state.parts, out=self._state)
        self._state.take(self._state_in_robot, out=out, mode="clip")

    def command_from_robot(self, command: Command, out: Vector) -> None:
        """Copy the parts of a command, as rows [5, J], into the contract's order."""
        np.concatenate(command.parts, out=self._command)
        self._command_rows.take(self._in_robot, axis=1, out=out, mode="clip")

    def command_to_robot(self, values: Vector, out: Vector) -> None:
        """Copy [5, J] from the contract's order into the robot's."""
        values.take(self._in_contract, axis=1, out=out, mode="clip")


def _repeated(names: Sequence[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


class Measured:
    """The last good state, in the contract's joint order."""

    def __init__(self, num_joints: int) -> None:
        self.sequence = -1
        self.stamp_s = -math.inf
        self.values = np.zeros(3 * num_joints + 7)
        """The arrays below but gravity, one after the other."""
        self.joint_pos, self.joint_vel, self.joint_torque = self.values[:-7].reshape(3, num_joints)
        self.angular_velocity, self.quaternion = self.values[-7:-4], self.values[-4:]
        self.quaternion[0] = 1
        self.gravity = np.array([0.0, 0.0, -1.0])
        """[3], gravity's direction in the body's frame."""

    @property
    def known(self) -> bool:
        """Whether there has been a good state."""
        return self.sequence >= 0


def gravity_direction(quaternion: Vector, out: Vector) -> None:
    """Compute gravity's direction, a unit vector [3], in a body's frame; attitude w x y z, body to world."""
    w, x, y, z = quaternion.tolist()
    scale = 2 / (w * w + x * x + y * y + z * z)
    out[0] = -scale * (x * z - w * y)
    out[1] = -scale * (y * z + w * x)
    out[2] = scale * (x * x + y * y) - 1


def _source(term: ContractTerm, sources: dict[str, Vector]) -> Vector:
    source = np.zeros(term.size) if term.source == "zeros" else sources[term.source]
    if source.shape != (term.size,):
        raise ValueError(f"obs term {term.name!r} has {term.size} entries; {term.source} has {len(source)}")
    return source


class _History:
    """Entries of a term that has earlier measurements besides the newest."""

    def __init__(self, length: int, newest: Vector, out: NDArray[np.float32]) -> None:
        self._newest, self._out = newest, out
        self._all = np.zeros((length, len(newest)))  # the oldest first

    def update(self, first: bool) -> None:
        if first:  # as if the first measurement had always been there
            self._all[:] = self._newest
        else:
            self._all[:-1] = self._all[1:]
            self._all[-1] = self._newest
        self._out[:] = self._all.reshape(-1)


class Observation:
    """The contract's observation [O], from the last good state, the previous action and the command."""

    def __init__(self, contract: Contract, measured: Measured, previous_action: Vector, command: Vector) -> None:
        unmeasured = [term.name for term in contract.obs if not term.source]
        if unmeasured:
            raise ValueError(f"no robot measures {listing(unmeasured)}: only the training's simulator knows them")
        sources = {
            "angular_velocity": measured.angular_velocity,
            "projected_gravity": measured.gravity,
            "command": command,
            "joint_pos": measured.joint_pos,
            "joint_vel": measured.joint_vel,
            "previous_action": previous_action,
        }
        self._obs = np.zeros(contract.obs_dim, np.float32)
        # computed for all terms at once: a step's cost is the number of operations, hardly their size
        terms = contract.obs
        self._sources = [_source(term, sources) for term in terms]
        self._offset = np.concatenate([np.array(term.offset, np.float64) for term in terms])
        self._scale = np.concatenate([np.array(term.scale, np.float64) for term in terms])
        bounds = [math.inf if term.clip is None else term.clip for term in terms]
        self._bound = np.repeat(bounds, [term.size for term in terms])
        self._bounded = bool(np.isfinite(self._bound).any())
        self._newest = np.zeros_like(self._scale)
        self._histories = self._shares(terms) if any(term.history > 1 for term in terms) else []
        self._first = True

    def _shares(self, terms: Sequence[ContractTerm]) -> list[_History]:
        shares = []
        start = out = 0
        for term in terms:
            stop, end = start + term.size, out + term.size * term.history
            shares.append(_History(term.history, self._newest[start:stop], self._obs[out:end]))
            start, out = stop, end
        return shares

    def reset(self) -> None:
        """Forget the history."""
        self._first = True

    def update(self) -> NDArray[np.float32]:
        """Return the observation [O]; the array changes with the next call."""
        newest = self._newest
        np.concatenate(self._sources, out=newest)
        newest -= self._offset
        newest *= self._scale
        if self._bounded:
            np.minimum(newest, self._bound, out=newest)
            np.maximum(newest, -self._bound, out=newest)
        if not self._histories:
            self._obs[:] = newest
        for history in self._histories:
            history.update(self._first)
        self._first = False
        return self._obs
