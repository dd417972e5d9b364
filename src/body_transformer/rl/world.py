"""What our tasks know of a simulator, and what the steps that we have of our own know of a task's robots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import mujoco
import torch
from torch import Tensor

if TYPE_CHECKING:
    from mjlab.envs import ManagerBasedRlEnv

    from .starts import Starts

MAX_SPEED, MAX_TURN = 50.0, 200.0
"""m/s and rad/s; beyond, the simulation has broken. Humanoids that throw themselves about reach 17 and 81."""


@dataclass(frozen=True)
class World:
    """A simulator of B environments: MuJoCo Warp's in mjlab, or plain MuJoCo."""

    model: mujoco.MjModel
    qpos: Tensor
    """[B, nq]; this and what follows is the simulator's own memory."""
    qvel: Tensor
    """[B, nv]"""
    warmstart: Tensor
    """[B, nv], accelerations that the solver begins with."""
    ctrl: Tensor
    """[B, nu], in the model's order."""
    sensordata: Tensor
    """[B, nsensordata]"""
    steps: Callable[[], Tensor]
    """[B]: steps of each present episode."""
    geom_xpos: Tensor | None = None
    """[B, ngeom, 3], m, world; this and the next only where the ground is laid under the robots (see ground.py)."""
    geom_xmat: Tensor | None = None
    """[B, ngeom, 3, 3]"""
    fastest: Tensor = field(init=False)
    """[nv]: MAX_SPEED where free bodies move, MAX_TURN everywhere else."""

    def __post_init__(self) -> None:
        fastest = self.qvel.new_full((self.model.nv,), MAX_TURN)
        for joint in map(self.model.joint, range(self.model.njnt)):
            if joint.type[0] == mujoco.mjtJoint.mjJNT_FREE:
                fastest[int(joint.dofadr[0]) : int(joint.dofadr[0]) + 3] = MAX_SPEED
        object.__setattr__(self, "fastest", fastest)

    @classmethod
    def of(cls, env: ManagerBasedRlEnv) -> World:
        """mjlab's arrays as tensors without its wrapping."""
        data: Any = env.sim.data
        return cls(
            env.sim.mj_model,
            qpos=data.qpos._tensor,
            qvel=data.qvel._tensor,
            warmstart=data.qacc_warmstart._tensor,
            ctrl=data.ctrl._tensor,
            sensordata=data.sensordata._tensor,
            steps=lambda: env.episode_length_buf,
            geom_xpos=data.geom_xpos._tensor,
            geom_xmat=data.geom_xmat._tensor,
        )

    @property
    def num_envs(self) -> int:
        return len(self.qpos)

    @property
    def device(self) -> torch.device:
        return self.qpos.device

    def broken(self) -> Tensor:
        """[B, bool]: no body moves like that, or the state is no number."""
        return ~((self.qvel.abs() <= self.fastest).all(1) & self.qpos.isfinite().all(1))

    def lost(self) -> Tensor:
        """[B, bool]: the state is no number."""
        return ~(self.qpos.isfinite().all(1) & self.qvel.isfinite().all(1))

    def put(self, fresh: Tensor, qpos: Tensor, qvel: Tensor) -> None:
        """Environments of `fresh` [B, bool] take up qpos [B, nq] and qvel [B, nv]; the others stay as they are."""
        chosen = fresh[:, None]
        self.qpos.copy_(torch.where(chosen, qpos, self.qpos))
        self.qvel.copy_(torch.where(chosen, qvel, self.qvel))
        self.warmstart.masked_fill_(chosen, 0.0)


class Robots(Protocol):
    """The robots of a world, and the terms of their task for them; [B] each."""

    @property
    def world(self) -> World: ...

    @property
    def starts(self) -> Starts: ...

    def feel(self) -> None:
        """After the physics of a step, before anything else writes the simulator's memory."""

    def died(self) -> Tensor: ...

    def timed_out(self, died: Tensor) -> Tensor: ...

    def reward(self, died: Tensor, weights: dict[str, float]) -> Tensor: ...

    def disturb(self) -> None:
        """What happens to them between two steps."""

    def restart(self, fresh: Tensor) -> None:
        """Where `fresh` [B, bool] an episode begins."""

    def observation(self) -> Tensor:
        """[B, O]: the actor's."""
        ...

    def observations(self) -> dict[str, Tensor]:
        """Group -> its observation."""
        ...

    def forward_speed(self) -> Tensor:
        """m/s ahead in the last step: along the world's x axis, or where they look if they are told a speed."""
        ...

    def commanded_speed(self) -> Tensor | None:
        """m/s, if they are told one."""
        ...
