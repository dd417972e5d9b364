"""How episodes begin: start states that are drawn beforehand, and who takes which."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .model import DEFAULT_POSE, JOINTS
from .state import World
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


class Starts:
    """Start states of a world, drawn once; environment e begins its episode k in number first[e] + k.

    So a reset draws no random number: it can be part of a captured graph, and both steps, mjlab's and the lean one,
    begin the same episodes from the same states.
    """

    def __init__(self, world: World, place: Place, command: Ranges, seed: int):
        begin = draw_starts(world.model, place, command, np.random.default_rng(seed), NUM_STARTS)
        self.qpos, self.qvel, self.command = (
            torch.tensor(array, dtype=world.qpos.dtype, device=world.device)
            for array in (begin.qpos, begin.qvel, begin.command)
        )
        self.episodes = torch.full((world.num_envs,), -1, device=world.device)
        """[B]: number of each environment's present episode."""
        self.first = torch.zeros_like(self.episodes)
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Every environment is to begin anew, at a start that follows from the seed."""
        generator = torch.Generator().manual_seed(seed)
        self.first.copy_(torch.randint(NUM_STARTS, self.first.shape, generator=generator))
        self.episodes.fill_(-1)

    def next(self, fresh: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Counts an episode more where `fresh` [B, bool]; qpos [B, nq], qvel [B, nv], command [B, 3] at its start."""
        self.episodes.add_(fresh)
        number = (self.first + self.episodes) % NUM_STARTS
        return self.qpos[number], self.qvel[number], self.command[number]
