"""A robot's state becomes the policy's observation: joints by name, terms as the contract says."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..body.messages import listing

if TYPE_CHECKING:
    from .contract import Contract, ObsTerm

Vector = NDArray[np.float64]


class JointOrder:
    """The robot's joint order and the contract's, matched by name."""

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

    def from_robot(self, values: Vector, out: Vector) -> None:
        """[J] in the robot's order -> [J] in the contract's."""
        values.take(self._in_robot, out=out, mode="clip")  # the other modes make a copy first

    def to_robot(self, values: Vector, out: Vector) -> None:
        """[J] in the contract's order -> [J] in the robot's."""
        values.take(self._in_contract, out=out, mode="clip")


def _repeated(names: Sequence[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


class Measured:
    """The last good state, in the contract's joint order."""

    def __init__(self, num_joints: int) -> None:
        self.sequence = -1
        self.stamp_s = -math.inf
        self.joint_pos, self.joint_vel, self.joint_torque = np.zeros((3, num_joints))
        self.angular_velocity, self.quaternion = np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0])
        self.gravity = np.array([0.0, 0.0, -1.0])
        """[3], gravity's direction as the body sees it."""

    @property
    def known(self) -> bool:
        return self.sequence >= 0


def gravity_direction(quaternion: Vector, out: Vector) -> None:
    """Where down is for a body with this attitude (w x y z, body to world), as a unit vector [3]."""
    w, x, y, z = quaternion.tolist()
    scale = 2 / (w * w + x * x + y * y + z * z)
    out[0] = -scale * (x * z - w * y)
    out[1] = -scale * (y * z + w * x)
    out[2] = scale * (x * x + y * y) - 1


class _Entries:
    """One term's share of the observation."""

    def __init__(self, term: ObsTerm, source: Vector, out: NDArray[np.float32]) -> None:
        if source.shape != (term.size,):
            raise ValueError(f"obs term {term.name!r} has {term.size} entries; {term.source} has {len(source)}")
        self._source, self._out = source, out
        self._offset, self._scale = np.array(term.offset, np.float64), np.array(term.scale, np.float64)
        self._clip = term.clip
        self._history = np.zeros((term.history, term.size))  # the oldest first
        self._first = True

    def reset(self) -> None:
        self._first = True

    def update(self) -> None:
        newest = self._history[-1]
        if len(self._history) > 1:
            self._history[:-1] = self._history[1:]
        np.subtract(self._source, self._offset, out=newest)
        newest *= self._scale
        if self._clip is not None:
            np.minimum(newest, self._clip, out=newest)
            np.maximum(newest, -self._clip, out=newest)
        if self._first:  # nothing came before: as if it had always been so
            self._history[:] = newest
            self._first = False
        self._out[:] = self._history.reshape(-1)


class Observation:
    """The contract's observation [O] from the last good state, the previous action and the command."""

    def __init__(self, contract: Contract, measured: Measured, previous_action: Vector, command: Vector) -> None:
        unmeasured = [term.name for term in contract.obs if not term.source]
        if unmeasured:
            raise ValueError(f"no robot measures {listing(unmeasured)}: only the training's simulator knows it")
        sources = {
            "angular_velocity": measured.angular_velocity,
            "projected_gravity": measured.gravity,
            "command": command,
            "joint_pos": measured.joint_pos,
            "joint_vel": measured.joint_vel,
            "previous_action": previous_action,
        }
        self._obs = np.zeros(contract.obs_dim, np.float32)
        self._terms: list[_Entries] = []
        start = 0
        for term in contract.obs:
            source = np.zeros(term.size) if term.source == "zeros" else sources[term.source]
            stop = start + term.size * term.history
            self._terms.append(_Entries(term, source, self._obs[start:stop]))
            start = stop

    def reset(self) -> None:
        """Forgets the history."""
        for term in self._terms:
            term.reset()

    def update(self) -> NDArray[np.float32]:
        """[O]; the array is the observation's own and changes with the next call."""
        for term in self._terms:
            term.update()
        return self._obs
