"""How episodes begin: start states that are drawn beforehand, and who takes which."""

from __future__ import annotations

from collections.abc import Callable

import mujoco
import numpy as np
import torch
from numpy.typing import NDArray

from ..starts import Starts
from ..world import World
from .model import JOINTS

Place = Callable[[np.random.Generator, int], NDArray[np.float64]]
"""Draws so many torso positions, [n, 3]."""

JOINT_POS_RAD = 0.2
JOINT_VEL_RAD_S = 0.1
NUM_STARTS = 8192


def draw_starts(
    model: mujoco.MjModel, place: Place, rng: np.random.Generator, count: int, start_noise_curriculum: bool = False
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Start states qpos [count, nq] and qvel [count, nv] of a whole scene.

    Joint angles U(-0.2, 0.2), within the joints' ranges, joint velocities U(-0.1, 0.1); the torso upright where `place`
    says, at rest; other bodies as the scene's keyframe says. States that are `entangled` are drawn again. With
    `start_noise_curriculum`, every start has a share of these angles and velocities, from none to all of them.
    """
    data, own = mujoco.MjData(model), robot_geoms(model)
    joints = [model.joint(f"robot/{name}") for name in JOINTS]
    low, high = np.array([joint.range for joint in joints]).T
    q_ids, v_ids = ([int(getattr(joint, name)[0]) for joint in joints] for name in ("qposadr", "dofadr"))
    torso = int(model.joint("robot/root").qposadr[0])
    qpos = np.tile(model.key_qpos[0], (count, 1))  # all entities; mjlab's sim.reset() does not know of it
    qvel = np.zeros((count, model.nv))
    qpos[:, torso : torso + 3] = place(rng, count)
    qvel[:, v_ids] = rng.uniform(-JOINT_VEL_RAD_S, JOINT_VEL_RAD_S, (count, len(joints)))
    shares = rng.uniform(0, 1, count) if start_noise_curriculum else np.ones(count)
    qvel *= shares[:, None]
    for start, share in zip(qpos, shares, strict=True):
        data.qpos = start
        while True:
            data.qpos[q_ids] = np.clip(share * rng.uniform(-JOINT_POS_RAD, JOINT_POS_RAD, len(joints)), low, high)
            if not entangled(model, data, own):
                break
        start[:] = data.qpos
    return qpos, qvel


def robot_geoms(model: mujoco.MjModel) -> NDArray[np.bool_]:
    """[geoms]: which belong to the robot."""
    bodies = [model.body(k).name.startswith("robot/") for k in range(model.nbody)]
    own: NDArray[np.bool_] = np.array(bodies)[model.geom_bodyid]
    return own


def entangled(model: mujoco.MjModel, data: mujoco.MjData, own: NDArray[np.bool_]) -> bool:
    """Whether the robot touches itself, or is so deep in something that it would be pushed out sideways or below.

    Of plain draws 23 % have crossed legs: pushed apart with hundreds of newtons, such a robot would be dead before its
    first action. Where it stands on a board, 1 % have a foot that comes out under the board.
    """
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    mujoco.mj_collision(model, data)
    first, second = own[data.contact.geom].T
    normal_z = data.contact.frame[:, 2]  # of the normal from the first geom to the second
    pushed_up = np.where(second, normal_z, -normal_z)
    return bool(((first & second) | ((first | second) & (pushed_up < 0.5))).any())


def starts(world: World, place: Place, seed: int, start_noise_curriculum: bool) -> Starts:
    """In single precision in every simulator, so that they are the same ones."""
    drawn = draw_starts(world.model, place, np.random.default_rng(seed), NUM_STARTS, start_noise_curriculum)
    return Starts(world, drawn, seed, torch.float32)
