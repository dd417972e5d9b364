"""RlEnv: the interface of an environment that training and evaluation use, with any simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from ...errors import listing
from ..episode_metrics import PlannedEpisode
from ..walking import Motion
from .terms import TaskTerms

if TYPE_CHECKING:
    from mjlab.envs.types import VecEnvObs, VecEnvStepReturn


class RlEnv(Protocol):
    """B environments with one robot each.

    `fast.FastEnv` and `mjlab.MjlabEnv` are for training and evaluation, `cpu.CpuEnv` is for evaluation alone. The first
    two are also mjlab's ManagerBasedRlEnv, and training reads names and sizes from its managers. Everything implemented
    here is derived from the terms of the task, or is the default of an environment without our terms.
    """

    terms: TaskTerms[Any] | None = None
    """The terms of one of our tasks; None for other tasks."""

    @property
    def num_envs(self) -> int: ...

    @property
    def device(self) -> torch.device | str: ...

    @property
    def step_dt(self) -> float:
        """Seconds of a control step."""
        ...

    @property
    def max_episode_length(self) -> int:
        """Steps until time-out."""
        ...

    def reset(self, *, seed: int | None = None) -> tuple[VecEnvObs, dict[str, Any]]:
        """Begin an episode in every environment; return group -> observations [B, O], and extras.

        A seed chooses the starts of all further episodes.
        """
        ...

    def step(self, action: Tensor) -> VecEnvStepReturn:
        """Take a step: action [B, A] -> observations, rewards [B], died [B], timed out [B], extras."""
        ...

    def close(self) -> None:
        """Free the simulator's resources."""
        ...

    # -- for evaluations -----------------------------------------------------------------------------------------------

    forward_speed: Tensor | None = None
    """[B], m/s ahead in the last step; None for a task that does not report it."""

    @property
    def commanded_speed(self) -> Tensor | None:
        """[B], commanded m/s ahead; None for a task without commands."""
        return None if self.terms is None else self.terms.commanded_speed()

    @property
    def motion(self) -> Motion | None:
        """The motion of walking robots in the last step; None for tasks without commanded velocities."""
        return None if self.terms is None else self.terms.motion()

    @property
    def plan(self) -> Sequence[PlannedEpisode]:
        """The episodes of an evaluation with fixed starts; empty where the seed chooses the starts."""
        return () if self.terms is None else self.terms.robots.plan

    # -- for training --------------------------------------------------------------------------------------------------

    is_finite_horizon: bool = False
    """Whether a time-out is an end like any other, after which no rewards would have followed."""
    broken: Tensor | None = None
    """[]: number of episodes that ended because the simulation broke, reset to 0 by its reader; None if not counted."""
    non_finite: Tensor | None = None
    """[B, bool]: whether a state was not finite in any step since this tensor was cleared. None where observations and
    rewards show it."""

    def final_state(self) -> dict[str, Tensor]:
        """Return qpos [B, nq] and qvel [B, nv], where possible from before the resets of the last step."""
        return {}

    def episode_state(self) -> dict[str, Tensor]:
        """Return the tensors that running episodes continue from, by name."""
        return {}

    def continue_episodes(self, tensors: Mapping[str, Tensor]) -> str:
        """Continue from the tensors that `episode_state` returned; return why that is impossible, or nothing."""
        own = self.episode_state()
        if why := misfit(own, tensors):
            return why
        for name, value in own.items():
            value.copy_(tensors[name])
        return ""

    def training_state(self) -> dict[str, Tensor]:
        """Return the tensors that a checkpoint of a training holds beside the policy's, by name."""
        return {} if self.terms is None else self.terms.robots.training_state()

    def restore(self, tensors: Mapping[str, Tensor]) -> bool:
        """Continue from the tensors of a checkpoint that `training_state` wrote; return whether to reset now."""
        names = self.training_state().keys()
        if self.terms is None or not names:
            return False
        if missing := sorted(names - tensors.keys()):
            raise ValueError(f"the checkpoint's training state lacks {listing(missing)}")
        self.terms.robots.restore(tensors)
        return True


def misfit(own: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> str:
    """Return why an environment with the tensors `own` cannot take over saved ones; empty if it can."""
    if not own or not saved:
        return "it has no states of episodes"
    differing = [name for name in own if name not in saved or saved[name].shape != own[name].shape]
    return f"its states of episodes do not fit this run ({listing(differing)})" if differing else ""
