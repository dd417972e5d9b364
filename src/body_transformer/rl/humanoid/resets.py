"""How episodes begin: start states that are drawn beforehand, and who takes which."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import mujoco
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .model import JOINTS, robot_spec

if TYPE_CHECKING:
    from mjlab.envs import ManagerBasedRlEnv

    from .state import Memory

Place = Callable[[np.random.Generator, int], NDArray[np.float64]]
"""Draws so many torso positions, [n, 3]."""

JOINT_POS_RAD = 0.2
JOINT_VEL_RAD_S = 0.1
NUM_STARTS = 8192


def free_poses(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """[count, 21]: joint angles U(-0.2, 0.2), within the joints' ranges, in which the robot does not touch itself.

    Of the plain draws an eighth has crossed legs: pushed apart with hundreds of newtons, such a robot would be dead
    before its first action.
    """
    model = robot_spec().compile()
    data = mujoco.MjData(model)
    low, high = np.array([model.joint(name).range for name in JOINTS]).T
    first = int(model.joint(JOINTS[0]).qposadr[0])
    kept: list[NDArray[np.float64]] = []
    while len(kept) < count:
        pose = np.clip(rng.uniform(-JOINT_POS_RAD, JOINT_POS_RAD, len(JOINTS)), low, high)
        data.qpos[first : first + len(JOINTS)] = pose
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_collision(model, data)
        if data.ncon == 0:
            kept.append(pose)
    return np.stack(kept)


class Starts:
    """Start states of an environment, drawn once; environment e begins its episode k in number first[e] + k.

    So a reset draws no random number: it can be part of a captured graph, and both steps, mjlab's and the lean one,
    begin the same episodes from the same states.
    """

    def __init__(self, env: ManagerBasedRlEnv, memory: Memory, place: Place, seed: int):
        rng = np.random.default_rng(seed)
        keyframe = env.sim.mj_model.key_qpos[0]  # all entities of the scene; sim.reset() does not know of it
        qpos = np.tile(keyframe, (NUM_STARTS, 1))
        qvel = np.zeros((NUM_STARTS, env.sim.mj_model.nv))
        qpos[:, memory.torso_q] = place(rng, NUM_STARTS)
        qpos[:, memory.joint_q] = free_poses(rng, NUM_STARTS)
        qvel[:, memory.joint_v] = rng.uniform(-JOINT_VEL_RAD_S, JOINT_VEL_RAD_S, (NUM_STARTS, len(JOINTS)))
        self.qpos = torch.tensor(qpos, dtype=torch.float32, device=env.device)  # [starts, nq]
        self.qvel = torch.tensor(qvel, dtype=torch.float32, device=env.device)  # [starts, nv]
        self.episodes = torch.full((env.num_envs,), -1, device=env.device)
        """[B]: number of each environment's present episode."""
        self.first = torch.zeros_like(self.episodes)
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Every environment is to begin anew, at a start that follows from the seed."""
        generator = torch.Generator().manual_seed(seed)
        self.first.copy_(torch.randint(NUM_STARTS, self.first.shape, generator=generator))
        self.episodes.fill_(-1)

    def next(self, fresh: Tensor) -> tuple[Tensor, Tensor]:
        """Counts an episode more where `fresh` [B, bool]; qpos [B, nq] and qvel [B, nv] at the start of the present one."""
        self.episodes.add_(fresh)
        number = (self.first + self.episodes) % NUM_STARTS
        return self.qpos[number], self.qvel[number]
