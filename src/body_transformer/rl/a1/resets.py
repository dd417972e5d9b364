"""How episodes begin: start states that are drawn beforehand, and who takes which."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from ..starts import Starts
from ..world import World
from .model import DEFAULT_POSE, JOINTS
from .terrain import Place

NUM_STARTS = 8192
POSE_FACTOR = (0.5, 1.5)
"""Of the default pose's angles, each drawn for itself."""
JOINT_VEL = 3.0
"""rad/s"""
BASE_VEL = 0.5
"""m/s and rad/s."""

Ranges = tuple[tuple[float, float], tuple[float, float], tuple[float, float]]
"""Of m/s ahead, m/s to the left, rad/s to the left."""


@dataclass(frozen=True)
class Begin:
    """So many starts of a scene."""

    qpos: NDArray[np.float64]
    """[count, nq]"""
    qvel: NDArray[np.float64]
    """[count, nv]"""
    command: NDArray[np.float64]
    """[count, 3]"""


def draw_starts(model: mujoco.MjModel, place: Place, command: Ranges, rng: np.random.Generator, count: int) -> Begin:
    """Joint angles are the default pose's times U(0.5, 1.5), within the joints' ranges; all velocities are random."""
    joints = [model.joint(f"robot/{name}") for name in JOINTS]
    q_ids, v_ids = ([int(getattr(joint, name)[0]) for joint in joints] for name in ("qposadr", "dofadr"))
    low, high = np.array([joint.range for joint in joints]).T
    root = model.joint("robot/root")
    q, v = int(root.qposadr[0]), int(root.dofadr[0])
    qpos = np.tile(model.key_qpos[0] if model.nkey else model.qpos0, (count, 1))
    qvel = np.zeros((count, model.nv))
    qpos[:, q : q + 3] = place(rng, count)
    qpos[:, q + 3 : q + 7] = 1.0, 0.0, 0.0, 0.0
    factors = rng.uniform(*POSE_FACTOR, (count, len(joints)))
    qpos[:, q_ids] = np.clip(np.array(DEFAULT_POSE) * factors, low, high)
    qvel[:, v_ids] = rng.uniform(-JOINT_VEL, JOINT_VEL, (count, len(joints)))
    qvel[:, v : v + 6] = rng.uniform(-BASE_VEL, BASE_VEL, (count, 6))
    slowest, fastest = np.array(command).T
    return Begin(qpos, qvel, rng.uniform(slowest, fastest, (count, 3)))


def starts(world: World, place: Place, command: Ranges, seed: int) -> Starts:
    """With a command each."""
    begin = draw_starts(world.model, place, command, np.random.default_rng(seed), NUM_STARTS)
    return Starts(world, (begin.qpos, begin.qvel, begin.command), seed, world.qpos.dtype)
