"""The state of running episodes in a checkpoint, from which a training continues as if it had never stopped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from .envs.interface import misfit
from .ppo import Collector
from .rollout import grouped

COLLECTOR, ENV, OBS = "episode.", "env.", "obs."
"""Prefixes of names in a checkpoint: of the collector's tensors, of the environment's, and of the observations."""


def episode_state(collector: Collector) -> dict[str, Tensor]:
    """Return the tensors of the environments, their current observations and the sums of their episodes."""
    found = {f"{COLLECTOR}{name}": value for name, value in _own(collector).items()}
    found |= {f"{ENV}{name}": value for name, value in collector.env.episode_state().items()}
    return {name: value.clone() for name, value in found.items()}  # some are views of the same memory


def continue_episodes(collector: Collector, tensors: Mapping[str, Tensor]) -> str:
    """Continue the episodes of a checkpoint; return why that is impossible, empty if it is done."""
    found, of_env = (_under(prefix, tensors) for prefix in (COLLECTOR, ENV))
    own = _own(collector)
    why = misfit(own, found) or collector.env.continue_episodes(of_env)
    if why:
        return why
    for sums, name in ((collector.episodes.returns, "return"), (collector.episodes.lengths, "length")):
        sums.copy_(found[name])
    groups = [name for name in own if name.startswith(OBS)]
    collector.obs = grouped({name.removeprefix(OBS): found[name].to(own[name]) for name in groups})
    return ""


def _own(collector: Collector) -> dict[str, Tensor]:
    observed: Any = collector.obs.items()
    sums = {"return": collector.episodes.returns, "length": collector.episodes.lengths}
    return sums | {f"{OBS}{group}": value for group, value in observed}


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
