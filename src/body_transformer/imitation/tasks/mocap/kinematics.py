"""Features of each frame of a motion that dm_control's tracking task needs, by forward kinematics on its walker."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt
from dm_control import mjcf
from dm_control.locomotion.arenas import floors
from dm_control.locomotion.tasks.reference_pose import utils as reference_pose
from dm_control.locomotion.walkers import cmu_humanoid

Array = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]


def pose_ids(walker: Any, physics: Any) -> tuple[Ids, Ids]:
    """Return the indices of a pose [63] in MuJoCo's `qpos`, and of its velocity [62] in `qvel`."""
    model, bind = physics.model.ptr, physics.bind
    free = bind(mjcf.get_frame_freejoint(walker.mjcf_model)).element_id
    hinges = np.array(bind(walker.mocap_joints).element_id)
    return (
        np.concatenate([np.arange(7) + model.jnt_qposadr[free], model.jnt_qposadr[hinges]]),
        np.concatenate([np.arange(6) + model.jnt_dofadr[free], model.jnt_dofadr[hinges]]),
    )


class Kinematics:
    """The V2020 CMU humanoid, as the tracking task builds it."""

    def __init__(self) -> None:
        arena = floors.Floor()
        walker: Any = reference_pose.add_walker(cmu_humanoid.CMUHumanoidPositionControlledV2020, arena)
        self.physics: Any = mjcf.Physics.from_mjcf_model(arena.mjcf_model)
        self.walker = walker
        self.joint_names: tuple[str, ...] = tuple(joint.name for joint in walker.mocap_joints)
        """The 56 hinges in the order of motion files."""
        self.joint_range: Array = np.array(self.physics.bind(walker.mocap_joints).range).T  # [2, 56]
        self._qpos_ids, self._dof_ids = pose_ids(walker, self.physics)

    def clipped(self, qpos: Array) -> tuple[Array, float]:
        """Return the closest motion that the walker can make, and the fraction of angles that changed.

        Quaternions have unit length and no jumps of sign; every angle is within its joint's range.
        """
        qpos = np.array(qpos, dtype=np.float64)
        quats = qpos[:, 3:7] / np.linalg.norm(qpos[:, 3:7], axis=1, keepdims=True)
        flips = np.einsum("ti,ti->t", quats[1:], quats[:-1]) < 0
        qpos[:, 3:7] = quats * np.concatenate([[1.0], np.where(np.cumsum(flips) % 2, -1.0, 1.0)])[:, None]
        inside = np.clip(qpos[:, 7:], *self.joint_range)
        changed = float(np.mean(inside != qpos[:, 7:]))
        qpos[:, 7:] = inside
        return qpos, changed

    def features(self, qpos: Array, dt: float) -> dict[str, Array]:
        """Return name -> [T, size], the fields of dm_control's `WalkerPose`, for `qpos` [T, 63]."""
        model, data = self.physics.model.ptr, self.physics.data.ptr
        frames = []
        for pose, velocity in zip(qpos, self._velocities(qpos, dt), strict=True):
            reference_pose.set_walker(self.physics, self.walker, pose, velocity)
            mujoco.mj_kinematics(model, data)  # enough for all features, and much faster than a whole forward step
            mujoco.mj_comPos(model, data)
            frames.append(reference_pose.get_features(self.physics, self.walker))
        return {name: np.stack([frame[name].ravel() for frame in frames]) for name in frames[0]}

    def _velocities(self, qpos: Array, dt: float) -> Array:
        """Return central differences [T, 62], one-sided at both ends; rotation is in the root's frame."""
        model = self.physics.model.ptr
        before, after, difference = np.zeros(model.nq), np.zeros(model.nq), np.zeros(model.nv)
        steps = np.empty((len(qpos) - 1, len(self._dof_ids)))
        for index in range(len(steps)):
            before[self._qpos_ids], after[self._qpos_ids] = qpos[index], qpos[index + 1]
            mujoco.mj_differentiatePos(model, difference, dt, before, after)
            steps[index] = difference[self._dof_ids]
        # A rotation does not change its own axis, so a difference has the same coordinates in both of its frames. The
        # mean of two neighbours is therefore in the frame that they share.
        return np.concatenate([steps[:1], 0.5 * (steps[:-1] + steps[1:]), steps[-1:]])
