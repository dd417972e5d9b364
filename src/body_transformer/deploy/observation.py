"""From a robot's state to the policy's observation: joints matched by name, terms as in the contract."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import listing, repeated
from .robot import BODY, State, split_body

if TYPE_CHECKING:
    from .contract import Contract

Vector = NDArray[np.float64]


class JointOrder:
    """Conversion between the robot's joint order and the contract's, matched by name."""

    def __init__(self, contract_joints: Sequence[str], robot_joints: Sequence[str]) -> None:
        problems = [
            f"{problem}: {listing(names)}"
            for problem, names in (
                ("the robot has no", [name for name in contract_joints if name not in robot_joints]),
                ("the contract has no", [name for name in robot_joints if name not in contract_joints]),
                ("twice in the robot", repeated(robot_joints)),
                ("twice in the contract", repeated(contract_joints)),
            )
            if names
        ]
        if problems:
            raise ValueError(f"the robot's joints are not the contract's: {'; '.join(problems)}")
        self.contract_joints, self.robot_joints = tuple(contract_joints), tuple(robot_joints)
        self._in_robot = np.array([robot_joints.index(name) for name in contract_joints])
        self._in_contract = np.array([contract_joints.index(name) for name in robot_joints])
        places = np.arange(3 * len(contract_joints) + BODY)
        self._state_in_robot = np.concatenate([*places[:-BODY].reshape(3, -1)[:, self._in_robot], places[-BODY:]])

    def from_robot(self, values: Vector) -> Vector:
        """Return [..., J] in the contract's order, given the robot's."""
        return values.take(self._in_robot, axis=-1)

    def to_robot(self, values: Vector) -> Vector:
        """Return [..., J] in the robot's order, given the contract's."""
        return values.take(self._in_contract, axis=-1)

    def state_from_robot(self, state: State) -> Vector:
        """Return the concatenated parts [3 J + 10] of a state of the right shape, in the contract's order."""
        return np.concatenate(state.parts).take(self._state_in_robot)


class Measured:
    """The last good state, in the contract's joint order."""

    def __init__(self, num_joints: int) -> None:
        self.sequence = -1
        self.stamp_s = -math.inf
        self.values = np.zeros(3 * num_joints + BODY)
        """All arrays below except gravity, concatenated."""
        self.joint_pos, self.joint_vel, self.joint_torque = self.values[:-BODY].reshape(3, num_joints)
        self.angular_velocity, self.quaternion, self.linear_velocity = split_body(self.values)
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


class Observation:
    """The contract's observation [O], from the last good state, the previous action and the command."""

    def __init__(self, contract: Contract, measured: Measured, previous_action: Vector, command: Vector) -> None:
        unmeasured = [term.name for term in contract.obs if not term.source]
        if unmeasured:
            raise ValueError(f"no robot measures {listing(unmeasured)}: only the training's simulator knows them")
        self._measured = measured
        self._linear_velocity = np.zeros(3)
        """[3], of the IMU."""
        self._lever: Vector | None = None
        """[3, 3], maps an angular velocity to the linear velocity that it gives the IMU; None if no term needs it."""
        if any(term.source == "linear_velocity" for term in contract.obs):
            self._lever = np.cross(np.eye(3), contract.environment.imu)
        sources = {
            "linear_velocity": self._linear_velocity,
            "angular_velocity": measured.angular_velocity,
            "projected_gravity": measured.gravity,
            "command": command,
            "joint_pos": measured.joint_pos,
            "joint_vel": measured.joint_vel,
            "previous_action": previous_action,
        }
        self._obs = np.zeros(contract.obs_dim, np.float32)
        # all terms at once: the cost of a step depends on the number of operations, hardly on their size
        terms = contract.obs
        self._sources = [sources.get(term.source, np.zeros(term.size)) for term in terms]
        for term, source in zip(terms, self._sources, strict=True):
            if source.shape != (term.size,):
                raise ValueError(f"obs term {term.name!r} has {term.size} entries; {term.source} has {len(source)}")
        self._offset = np.concatenate([np.array(term.offset, np.float64) for term in terms])
        self._scale = np.concatenate([np.array(term.scale, np.float64) for term in terms])
        bounds = np.array([term.bounds for term in terms])  # [terms, 2]
        self._low, self._high = np.repeat(bounds, [term.size for term in terms], axis=0).T
        length = max(term.history for term in terms)
        self._history = np.zeros((length, len(self._scale)))
        """Scaled measurements of all terms, the oldest first."""
        places = np.arange(self._history.size).reshape(self._history.shape)
        stops = np.cumsum([term.size for term in terms])
        self._places = np.concatenate(
            [places[-term.history :, end - term.size : end].ravel() for term, end in zip(terms, stops, strict=True)]
        )
        self._first = True

    def reset(self) -> None:
        """Start a new history with the next measurement."""
        self._first = True

    def update(self) -> NDArray[np.float32]:
        """Return the observation [O]; the array changes with the next call."""
        if self._lever is not None:
            np.matmul(self._measured.angular_velocity, self._lever, out=self._linear_velocity)
            self._linear_velocity += self._measured.linear_velocity
        newest = (np.concatenate(self._sources) - self._offset) * self._scale
        newest = np.maximum(np.minimum(newest, self._high), self._low)
        self._history[:-1] = self._history[1:]
        # the first measurement fills the whole history
        self._history[0 if self._first else -1 :] = newest
        self._first = False
        self._obs[:] = self._history.take(self._places)
        return self._obs
