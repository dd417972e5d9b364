"""Evaluations: one episode per robot with the mean action, and the metrics of episodes in either simulator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from tensordict import TensorDict
from torch import Tensor

from ..model.policy import Policy
from ..training.cuda_graphs import CudaGraphed
from ..training.evaluation import Estimate, summarize
from .registry import quiet

if TYPE_CHECKING:
    from mjlab.envs import ManagerBasedRlEnv

METRICS = ("total_reward", "length", "survived")
OPTIONAL_METRICS = ("forward_speed", "speed_error")
"""Metrics of environments that report a speed or a commanded speed."""
CHECK_EVERY = 50
"""Steps between checks for the end of all episodes; in each the host waits for the device."""

Act = Callable[[TensorDict], Tensor]
"""Observations -> actions [B, A]."""


# -- metrics -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EpisodeMetrics:
    """Metrics of one episode."""

    length: int
    """Steps until the end."""
    total_reward: float
    """The return, not scaled."""
    survived: float
    """1, or 0 if the episode ended in death."""
    forward_speed: float | None = None
    """Mean forward speed in m/s, along the world's x axis, or along the robot's heading if a speed is commanded."""
    speed_error: float | None = None
    """Absolute difference from the commanded speed."""


def results(
    lengths: Tensor, returns: Tensor, died: Tensor, speeds: Tensor | None = None, commanded: Tensor | None = None
) -> list[EpisodeMetrics]:
    """Return the results of B episodes from their columns, [B] each."""
    errors = None if speeds is None or commanded is None else (speeds - commanded).abs()
    columns: Iterable[list[float | None]] = (
        [None] * len(lengths) if column is None else column.tolist()
        for column in (returns, (~died).float(), speeds, errors)
    )
    return [EpisodeMetrics(int(length), *rest) for length, *rest in zip(lengths.tolist(), *columns, strict=True)]


def means(found: Sequence[EpisodeMetrics]) -> dict[str, Estimate]:
    """Return the mean of each metric over the episodes."""
    return summarize(found, [*METRICS, *(name for name in OPTIONAL_METRICS if getattr(found[0], name) is not None)])


# -- mjlab's simulator -------------------------------------------------------------------------------------------------


def rollouts(act: Act, env: ManagerBasedRlEnv, seed: int) -> list[EpisodeMetrics]:
    """Run the first episode of every robot; the same seed gives the same initial states."""
    with torch.inference_mode():
        with quiet():  # mjlab prints its seed
            env.reset(seed=seed)  # draws the ground of mjlab's tasks, on which the next reset places the robots
            obs, _ = env.reset(seed=seed)
        env.episode_length_buf.zero_()
        running = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
        died = torch.zeros_like(running)
        returns, lengths, distances = (torch.zeros(env.num_envs, device=env.device) for _ in range(3))
        commanded: Tensor | None = getattr(env, "commanded_speed", None)
        if commanded is not None:
            commanded = commanded.clone()  # the next episode may have another command
        for step in range(int(env.max_episode_length)):
            obs, rewards, dies, times_out, _ = env.step(act(TensorDict(dict(obs), batch_size=[env.num_envs])))
            returns += rewards * running
            lengths += running
            distances += getattr(env, "forward_speed", 0.0) * running
            died |= dies & running
            running &= ~(dies | times_out)
            if step % CHECK_EVERY == CHECK_EVERY - 1 and not bool(running.any()):
                break
    speeds = distances / lengths if hasattr(env, "forward_speed") else None
    return results(lengths, returns, died, speeds, commanded)


def evaluate(act: Act, env: ManagerBasedRlEnv, seed: int) -> dict[str, Estimate]:
    """Return the mean of each metric over one episode per robot."""
    return means(rollouts(act, env, seed))


def mean_action(policy: Policy, group: str = "actor") -> Act:
    """Return the policy's mean action as a function of an environment's observations."""

    def act(obs: TensorDict) -> Tensor:
        actions: Tensor = policy(obs[group])
        return actions

    return act


def cuda_graphed(act: Act, groups: Sequence[str], device: str) -> Act:
    """Record a function of these observation groups as a CUDA graph; on a CPU return it unchanged."""
    if torch.device(device).type != "cuda":
        return act

    def on_tensors(*tensors: Tensor) -> Tensor:
        return act(TensorDict(dict(zip(groups, tensors, strict=True)), batch_size=[len(tensors[0])]))

    graphed = CudaGraphed(on_tensors)
    return lambda obs: graphed(*(obs[group] for group in groups))
