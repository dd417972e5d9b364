"""How episodes begin: start states that are drawn beforehand, and who takes which."""

from __future__ import annotations

from collections.abc import Callable

import mujoco
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .model import JOINTS
from .state import World

Place = Callable[[np.random.Generator, int], NDArray[np.float64]]
"""Draws so many torso positions, [n, 3]."""

JOINT_POS_RAD = 0.2
JOINT_VEL_RAD_S = 0.1
NUM_STARTS = 8192


def draw_starts(
    model: mujoco.MjModel, place: Place, rng: np.random.Generator, count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Start states qpos [count, nq] and qvel [count, nv] of a whole scene.

    Joint angles U(-0.2, 0.2), within the joints' ranges, joint velocities U(-0.1, 0.1); the torso upright where `place`
    says, at rest; other bodies as the scene's keyframe says. States that are `entangled` are drawn again.
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
    for start in qpos:
        data.qpos = start
        while True:
            data.qpos[q_ids] = np.clip(rng.uniform(-JOINT_POS_RAD, JOINT_POS_RAD, len(joints)), low, high)
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


class Starts:
    """Start states of a world, drawn once; environment e begins its episode k in number first[e] + k.

    So a reset draws no random number: it can be part of a captured graph, and both steps, mjlab's and the lean one,
    begin the same episodes from the same states.
    """

    def __init__(self, world: World, place: Place, seed: int):
        qpos, qvel = draw_starts(world.model, place, np.random.default_rng(seed), NUM_STARTS)
        self.qpos = torch.tensor(qpos, dtype=torch.float32, device=world.device)  # [starts, nq]
        self.qvel = torch.tensor(qvel, dtype=torch.float32, device=world.device)  # [starts, nv]
        self.episodes = torch.full((world.num_envs,), -1, device=world.device)
        """[B]: number of each environment's present episode."""
        self.first = torch.zeros_like(self.episodes)
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Every environment is to begin anew, at a start that follows from the seed."""
        generator = torch.Generator().manual_seed(seed)
        self.first.copy_(torch.randint(NUM_STARTS, self.first.shape, generator=generator))
        self.episodes.fill_(-1)

    def next(self, fresh: Tensor) -> tuple[Tensor, Tensor]:
        """Counts an episode more where `fresh` [B, bool]; qpos [B, nq] and qvel [B, nv] at the start of that."""
        self.episodes.add_(fresh)
        number = (self.first + self.episodes) % NUM_STARTS
        return self.qpos[number], self.qvel[number]
