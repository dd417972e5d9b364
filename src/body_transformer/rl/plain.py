"""Rollouts in plain MuJoCo, where a policy must work too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from ..training.summary import Estimate
from .results import Result, means, results

Act = Callable[[Tensor], Tensor]
"""Observations [B, O] -> actions [B, A]; a Policy is one."""


class PlainRobots(Protocol):
    """B robots, each in an episode of its own; who is at its end stays there."""

    going: Tensor
    """[B, bool]: whose episode is not over."""
    steps: Tensor
    """[B]"""
    max_steps: int
    control_dt: float

    def reset(self, seed: int) -> Tensor: ...

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...

    def x(self) -> Tensor:
        """[B], m: how far ahead they are."""
        ...

    def commanded_speed(self) -> Tensor | None:
        """[B], m/s ahead, if they are told."""
        ...

    def no_action(self) -> Tensor:
        """[B, A] zeros."""
        ...


def rollouts(act: Act, env: PlainRobots, seed: int, watch: Callable[[], object] = lambda: None) -> list[Result]:
    """One episode of every robot; `watch` is called at the start and after each step."""
    with torch.inference_mode(), torch.random.fork_rng([]):
        torch.manual_seed(seed)  # of noise
        obs = env.reset(seed)
        start_x, actions = env.x().clone(), env.no_action()
        returns, fallen = torch.zeros_like(start_x), torch.zeros_like(env.going)
        watch()
        for _ in range(env.max_steps):
            going = env.going.clone()
            actions[going] = act(obs[going]).to(actions)
            obs, rewards, died, _ = env.step(actions)
            returns += rewards * going
            fallen |= died & going
            watch()
            if not env.going.any():
                break
        speeds = (env.x() - start_x) / (env.steps * env.control_dt)
        return results(env.steps, returns, fallen, speeds, env.commanded_speed())


def evaluate(act: Act, env: PlainRobots, seed: int, watch: Callable[[], object] = lambda: None) -> dict[str, Estimate]:
    """Metric -> its mean over the robots."""
    return means(rollouts(act, env, seed, watch))
