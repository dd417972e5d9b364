"""A policy is tried out in an environment: one episode a robot, with the mean action."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from mjlab.envs import ManagerBasedRlEnv
from tensordict import TensorDict
from torch import Tensor

from ..model.policy import Policy
from ..training.replay import Replayed
from ..training.summary import Estimate
from .registry import quiet
from .results import Result, means, results


def rollouts(act: Callable[[TensorDict], Tensor], env: ManagerBasedRlEnv, seed: int) -> list[Result]:
    """The first episode of every robot; the same seed gives the same starts."""
    with torch.inference_mode():
        with quiet():  # mjlab announces its seed
            env.reset(seed=seed)  # draws the ground that the next reset puts robots on, in mjlab's play
            obs, _ = env.reset(seed=seed)
        env.episode_length_buf.zero_()
        goes_on = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
        fallen = torch.zeros_like(goes_on)
        returns, lengths, distances = (torch.zeros(env.num_envs, device=env.device) for _ in range(3))
        commanded: Tensor | None = getattr(env, "commanded_speed", None)
        if commanded is not None:
            commanded = commanded.clone()  # the next episode may have another
        for step in range(int(env.max_episode_length)):
            obs, rewards, died, late, _ = env.step(act(TensorDict(dict(obs), batch_size=[env.num_envs])))
            returns += rewards * goes_on
            lengths += goes_on
            distances += getattr(env, "forward_speed", 0.0) * goes_on
            fallen |= died & goes_on
            goes_on &= ~(died | late)
            if step % 50 == 49 and not bool(goes_on.any()):  # asking makes the host wait
                break
    return results(lengths, returns, fallen, distances / lengths if hasattr(env, "forward_speed") else None, commanded)


def recorded(act: Callable[[TensorDict], Tensor], groups: Sequence[str], device: str) -> Callable[[TensorDict], Tensor]:
    """The same function of these groups of observations; on a GPU it is recorded and replayed."""
    if torch.device(device).type != "cuda":
        return act

    def on_tensors(*tensors: Tensor) -> Tensor:
        return act(TensorDict(dict(zip(groups, tensors, strict=True)), batch_size=[len(tensors[0])]))

    replayed = Replayed(on_tensors)
    return lambda obs: replayed(*(obs[group] for group in groups))


def acting(policy: Policy, group: str = "actor") -> Callable[[TensorDict], Tensor]:
    """The policy's mean action, for an environment's observations."""

    def act(obs: TensorDict) -> Tensor:
        actions: Tensor = policy(obs[group])
        return actions

    return act


def evaluate(act: Callable[[TensorDict], Tensor], env: ManagerBasedRlEnv, seed: int) -> dict[str, Estimate]:
    """Metric -> its mean over the robots."""
    return means(rollouts(act, env, seed))
