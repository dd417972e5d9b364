"""The memory of a simulator, and the start states of its episodes."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from mjlab.envs import ManagerBasedRlEnv
    from mjlab.sim import Simulation

MAX_SPEED, MAX_TURN = 50.0, 200.0
"""Speeds above which a simulation counts as broken, m/s and rad/s. Humanoids with random actions reach 17 and 81."""
STATE = ("qpos", "qvel", "act", "qacc_warmstart")
"""Fields of MjData from which a physics step continues."""
POSES = ("xpos", "xquat", "subtree_com")
"""Fields of MjData that follow from qpos."""
DATA = (*STATE, *POSES, "ctrl", "sensordata", "geom_xpos", "geom_xmat")


@dataclass(frozen=True)
class World:
    """A simulator of B environments: MuJoCo Warp in mjlab, or plain MuJoCo.

    All tensors are the simulator's own memory, under the names of MjData: reading gives its state, writing changes it.
    """

    model: mujoco.MjModel
    locate_bodies: Callable[[], None]
    """Computes POSES from `qpos`. A CUDA graph of PyTorch cannot record it."""
    steps: Callable[[], Tensor]
    """Returns the steps so far of each current episode, [B]."""
    qpos: Tensor
    """[B, nq]"""
    qvel: Tensor
    """[B, nv]"""
    act: Tensor
    """[B, na], activations of actuators that have a state."""
    qacc_warmstart: Tensor
    """[B, nv], accelerations from which the solver starts."""
    ctrl: Tensor
    """[B, nu], in the order of the model."""
    sensordata: Tensor
    """[B, nsensordata]"""
    geom_xpos: Tensor
    """[B, ngeom, 3], m, world. Planes under feelers are written here (see rl/ground.py)."""
    geom_xmat: Tensor
    """[B, ngeom, 3, 3] or [B, ngeom, 9]"""
    xpos: Tensor
    """[B, nbody, 3], m, world. After a physics step, the positions before it, until `locate_bodies` is called."""
    xquat: Tensor
    """[B, nbody, 4], body to world; as `xpos`."""
    subtree_com: Tensor
    """[B, nbody, 3], m, centre of mass of each body with everything below it; as `xpos`."""
    fastest: Tensor = field(init=False)
    """[nv]: MAX_SPEED for the translation of free bodies, MAX_TURN for everything else."""

    def __post_init__(self) -> None:
        fastest = self.qvel.new_full((self.model.nv,), MAX_TURN)
        for joint in map(self.model.joint, range(self.model.njnt)):
            if joint.type[0] == mujoco.mjtJoint.mjJNT_FREE:
                fastest[int(joint.dofadr[0]) : int(joint.dofadr[0]) + 3] = MAX_SPEED
        object.__setattr__(self, "fastest", fastest)

    @classmethod
    def of(cls, env: ManagerBasedRlEnv) -> World:
        """Return mjlab's arrays as tensors, without its wrappers."""
        model = env.sim.mj_model
        names = [name for name in DATA if name != "act" or model.na]
        tensors: dict[str, Tensor] = {name: getattr(env.sim.data, name)._tensor for name in names}
        if not model.na:  # some versions of PyTorch raise an error for an empty array on a GPU
            tensors["act"] = tensors["qpos"].new_zeros(len(tensors["qpos"]), 0)
        return cls(model, WarpKinematics(env.sim), lambda: env.episode_length_buf, **tensors)

    @property
    def num_envs(self) -> int:
        return len(self.qpos)

    @property
    def device(self) -> torch.device:
        return self.qpos.device

    def broken(self) -> Tensor:
        """Return where a speed is above `fastest` or the state is not finite, [B, bool]."""
        return ~((self.qvel.abs() <= self.fastest).all(1) & self.qpos.isfinite().all(1))

    def non_finite(self) -> Tensor:
        """Return where the state is not finite, [B, bool]."""
        return ~(self.qpos.isfinite().all(1) & self.qvel.isfinite().all(1))

    def set_state(self, fresh: Tensor, qpos: Tensor, qvel: Tensor) -> None:
        """Write qpos [B, nq] and qvel [B, nv] into the environments of `fresh` [B, bool]; leave the others alone."""
        chosen = fresh[:, None]
        self.qpos.copy_(torch.where(chosen, qpos, self.qpos))
        self.qvel.copy_(torch.where(chosen, qvel, self.qvel))
        self.qacc_warmstart.masked_fill_(chosen, 0.0)


class WarpKinematics:
    """Forward kinematics of all bodies in MuJoCo Warp; on a GPU later calls replay a CUDA graph."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._graph: Any = None

    def __call__(self) -> None:
        """Compute the poses of the bodies from `qpos`."""
        import warp

        with warp.ScopedDevice(self._sim.wp_device):
            if self._graph is not None:
                warp.capture_launch(self._graph)
                return
            self._compute()  # compiles the kernels
            if self._sim.use_cuda_graph:
                self._graph = self._recorded()

    def _compute(self) -> None:
        import mujoco_warp

        mujoco_warp.kinematics(self._sim.wp_model, self._sim.wp_data)
        mujoco_warp.com_pos(self._sim.wp_model, self._sim.wp_data)

    def _recorded(self) -> Any:
        import warp

        was_enabled = gc.isenabled()
        gc.disable()  # the deletion of another graph would be recorded as a part of this one
        try:
            with warp.ScopedCapture() as capture:
                self._compute()
        finally:
            if was_enabled:
                gc.enable()
        return capture.graph


class Starts:
    """Start states of a world, drawn once; environment e begins its episode k in state number first[e] + k.

    A reset draws no random number, so a CUDA graph can record it, and every executor begins the same episodes in the
    same states.
    """

    def __init__(self, world: World, drawn: Sequence[NDArray[np.float64]], seed: int, dtype: torch.dtype) -> None:
        """Take the states `drawn`: qpos [starts, nq], qvel [starts, nv], and the task's arrays, such as commands."""
        self.drawn = [torch.tensor(array, dtype=dtype, device=world.device) for array in drawn]
        self.qpos, self.qvel = self.drawn[:2]
        self.episodes = torch.full((world.num_envs,), -1, device=world.device)
        """[B]: number of the current episode of each environment."""
        self.first = torch.zeros_like(self.episodes)
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Choose the starts of all further episodes by the seed."""
        generator = torch.Generator().manual_seed(seed)
        self.first.copy_(torch.randint(len(self.qpos), self.first.shape, generator=generator))
        self.episodes.fill_(-1)

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that say which start comes next in each environment."""
        return {"first_start": self.first, "episode": self.episodes}

    def next(self, fresh: Tensor) -> tuple[Tensor, ...]:
        """Count a new episode where `fresh` [B, bool] and return the start of each current episode, [B, …] each."""
        self.episodes.add_(fresh)
        number = (self.first + self.episodes) % len(self.qpos)
        return tuple(column[number] for column in self.drawn)


NUM_STARTS = 8192
"""Number of start states that a task draws."""
Place = Callable[[np.random.Generator, int], NDArray[np.float64]]
"""Draws this number of positions of the robot's root, [n, 3], m."""


# -- parts of a robot in the simulator's memory ------------------------------------------------------------------------


def joint_ids(model: mujoco.MjModel, names: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return the addresses of the robot's hinge joints in qpos and in qvel."""
    joints = [model.joint(f"robot/{name}") for name in names]
    return [int(joint.qposadr[0]) for joint in joints], [int(joint.dofadr[0]) for joint in joints]


def joint_ranges(model: mujoco.MjModel, names: Sequence[str]) -> NDArray[np.float64]:
    """Return the lower and upper limits of these joints of the robot, [2, joints], rad."""
    return np.array([model.joint(f"robot/{name}").range for name in names]).T


def adjacent(addresses: Sequence[int], width: int = 1) -> slice:
    """Return one slice for entries of this width that are adjacent in the simulator's memory."""
    first = addresses[0]
    if list(addresses) != list(range(first, first + width * len(addresses), width)):
        raise ValueError(f"entries are not adjacent in the simulator's memory: {addresses}")
    return slice(first, first + width * len(addresses))


@dataclass(frozen=True)
class FreeBody:
    """A free body in all environments: views of the simulator's memory."""

    pos: Tensor
    """[B, 3], m, world."""
    quat: Tensor
    """[B, 4], w x y z, body to world."""
    vel: Tensor
    """[B, 3], m/s, world."""
    spin: Tensor
    """[B, 3], rad/s, in the body's own frame."""

    @classmethod
    def of(cls, world: World, joint: str) -> FreeBody:
        """Return the body that this free joint moves."""
        found = world.model.joint(joint)
        q, v = int(found.qposadr[0]), int(found.dofadr[0])
        qpos, qvel = world.qpos, world.qvel
        return cls(qpos[:, q : q + 3], qpos[:, q + 3 : q + 7], qvel[:, v : v + 3], qvel[:, v + 3 : v + 6])
