"""A model-based controller that tracks motions by inverse dynamics of the whole body."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
from scipy.optimize import nnls

from .clips import DT_S
from .environment import MocapEnv
from .kinematics import Array, pose_ids

# Constants of the controller, tuned manually on twelve clips.
STIFFNESS, DAMPING = 300.0, 35.0
"""Acceleration per position error (1/s²) and per velocity error (1/s)."""
LEAD = 1.3
"""Overshoot of the control beyond the desired activation: the actuators follow with a lag of 30 ms."""
NEAR_M = 0.05
"""Height below which points of the body may push against the ground."""
FRICTION = 0.8
"""Ratio of sideways to upward force."""
SLIP_DAMPING = 10.0
"""Rate at which points on the ground should come to rest (1/s)."""
BALANCE = 30.0
"""Weight of the root's equations of motion: only the ground can push the root."""
EASE = 1e-3
"""Weight of the term that keeps ground forces small."""
CONE = np.array([[FRICTION, 0, 1], [-FRICTION, 0, 1], [0, FRICTION, 1], [0, -FRICTION, 1]])
"""Edges of a friction cone: [4, 3] forces."""


class BalanceController:
    """Position targets with torques that make the whole body, root included, follow the reference.

    Desired accelerations are the reference's plus feedback. The ground can only push, within its friction, and nothing
    else moves the root. Accelerations and ground forces are the least-squares solution of these conditions. They
    determine the joint torques, and the torques determine the actuators' position targets.
    """

    def __init__(self, env: MocapEnv) -> None:
        self.env = env
        walker, physics = env.task.walker, env.env.physics
        model = physics.model.ptr
        self._qpos_ids, self._dof_ids = pose_ids(walker, physics)
        self._root_ids = self._dof_ids[:6]
        self._actuator_ids = np.array(physics.bind(walker.actuators).element_id)
        driven = model.actuator_trnid[self._actuator_ids, 0]
        self._driven_qpos_ids, self._driven_dof_ids = model.jnt_qposadr[driven], model.jnt_dofadr[driven]
        kinds = (mujoco.mjtGeom.mjGEOM_SPHERE, mujoco.mjtGeom.mjGEOM_CAPSULE)
        may_touch = (model.geom_bodyid > 0) & (model.geom_contype > 0) & np.isin(model.geom_type, kinds)
        self._geom_ids = np.flatnonzero(may_touch).tolist()

    def __call__(self) -> Array:
        """Return the control [56] for the environment's current state."""
        physics = self.env.env.physics
        model, data = physics.model.ptr, physics.data.ptr
        torques = self._torques(model, data)[self._driven_dof_ids]
        ids = self._actuator_ids
        torques = np.clip(torques, *model.actuator_forcerange[ids].T)
        # force = gain * activation + offset + slope * angle, with the angle in half a step
        angles = data.qpos[self._driven_qpos_ids] + 0.5 * DT_S * data.qvel[self._driven_dof_ids]
        gain, bias = model.actuator_gainprm[ids, 0], model.actuator_biasprm[ids]
        wanted = (torques - bias[:, 0] - bias[:, 1] * angles) / gain
        activation = data.act[model.actuator_actadr[ids]]
        control: Array = np.clip(activation + LEAD * (wanted - activation), -1.0, 1.0)
        return control

    def _torques(self, model: Any, data: Any) -> Array:
        """Return the forces of the joints, [nv]."""
        root = self._root_ids
        mass = np.zeros((model.nv, model.nv))
        for row, unit in zip(mass, np.eye(model.nv), strict=True):
            mujoco.mj_mulM(model, data, row, unit)
        bias = data.qfrc_bias - data.qfrc_passive
        points = self._ground_points(model, data)  # [K, 3, nv]
        push = np.einsum("ci,kin->nkc", CONE, points).reshape(model.nv, -1)  # a force along each edge of each cone
        slip = points.reshape(-1, model.nv)
        num_forces = push.shape[1]
        # least squares: left @ accelerations + right @ forces = target
        conditions = [
            (np.eye(model.nv), np.zeros_like(push), self._acceleration(model, data)),  # follow the reference
            (BALANCE * mass[root], -BALANCE * push[root], -BALANCE * bias[root]),  # the root's equations of motion
            (slip, np.zeros((len(slip), num_forces)), -SLIP_DAMPING * slip @ data.qvel),  # no slipping
            (np.zeros((num_forces, model.nv)), EASE * np.eye(num_forces), np.zeros(num_forces)),  # small forces
        ]
        left, right, target = (np.concatenate(parts) for parts in zip(*conditions, strict=True))
        # accelerations are unconstrained, so the residual alone determines the forces
        basis, triangle = np.linalg.qr(left)
        forces = np.zeros(num_forces)
        if num_forces:
            rest = right - basis @ (basis.T @ right)
            forces, _ = nnls(rest, target - basis @ (basis.T @ target), maxiter=50 * num_forces)
        acceleration = np.linalg.solve(triangle, basis.T @ (target - right @ forces))
        torques: Array = mass @ acceleration + bias - push @ forces
        return torques

    def _acceleration(self, model: Any, data: Any) -> Array:
        """Return the desired acceleration [nv]: the reference's plus feedback on the error."""
        qpos, now, soon = np.zeros(model.nq), np.zeros(model.nv), np.zeros(model.nv)
        reference = self.env.task.reference
        qpos[self._qpos_ids] = np.concatenate([reference(name) for name in ("position", "quaternion", "joints")])
        velocities = ("velocity", "angular_velocity", "joints_velocity")
        now[self._dof_ids] = np.concatenate([reference(name) for name in velocities])
        soon[self._dof_ids] = np.concatenate([reference(name, 1) for name in velocities])
        error = np.zeros(model.nv)
        mujoco.mj_differentiatePos(model, error, 1.0, data.qpos, qpos)
        feedback = STIFFNESS * error + DAMPING * (now - data.qvel)
        wanted: Array = (soon - now) / DT_S + feedback
        return wanted

    def _ground_points(self, model: Any, data: Any) -> Array:
        """Return the Jacobians [K, 3, nv] of the points that may push against the ground."""
        found = []
        for geom in self._geom_ids:
            radius, half_length = model.geom_size[geom, :2]
            is_capsule = model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_CAPSULE
            axis = data.geom_xmat[geom].reshape(3, 3)[:, 2]
            for side in (half_length, -half_length) if is_capsule else (0.0,):
                point = data.geom_xpos[geom] + side * axis - [0.0, 0.0, radius]
                if point[2] < NEAR_M:
                    jacobian = np.zeros((3, model.nv))
                    mujoco.mj_jac(model, data, jacobian, None, point, model.geom_bodyid[geom])
                    found.append(jacobian)
        return np.array(found).reshape(-1, 3, model.nv)
