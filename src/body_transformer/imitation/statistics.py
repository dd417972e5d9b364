"""The observations' mean and variance, an episode at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from ..body.layout import UNUSED, Layout
from ..errors import listing
from ..model.normalizer import RunningStatistics
from .episodes import Episodes, Floats


def obs_statistics(
    episodes: Episodes,
    accelerator: Accelerator | None = None,
    on_done: Callable[[int, int], object] = lambda done, total: None,
) -> RunningStatistics:
    """Over all steps, of the used entries; several processes share the work.

    Every step passes here once before training, so that values that are not finite are found here. `on_done` hears how
    many episodes are read, and of how many.
    """
    statistics = RunningStatistics(len(episodes.obs_ids))
    obs_names = episodes.layout.obs_names()
    names = [obs_names[entry] for entry in episodes.obs_ids]
    rank, num_ranks = (accelerator.process_index, accelerator.num_processes) if accelerator else (0, 1)
    mine = range(rank, len(episodes), num_ranks)
    for done, index in enumerate(mine, 1):
        steps = episodes.read(index)
        _check_finite(episodes, index, "observations", steps.obs, names)
        _check_finite(episodes, index, "actions", steps.actions, episodes.layout.action_names())
        statistics.update(torch.from_numpy(steps.obs))
        on_done(done, len(mine))
    return _together(statistics, accelerator) if accelerator and num_ranks > 1 else statistics


def _together(mine: RunningStatistics, accelerator: Accelerator) -> RunningStatistics:
    """Of all processes."""
    numbers = torch.stack([torch.full_like(mine.mean, mine.count), mine.mean, mine.var])  # [3, O]
    gathered = accelerator.gather(numbers[None].to(accelerator.device)).cpu()  # [ranks, 3, O]
    whole = RunningStatistics(len(mine.mean))
    for count, mean, var in gathered:
        whole.add(int(count[0]), mean, var)
    return whole


def mean_and_var(layout: Layout, statistics: RunningStatistics) -> tuple[Tensor, Tensor]:
    """[O] each, for `Normalizer.set_statistics`; entries that nobody reads have mean 0 and variance 1."""
    used = torch.from_numpy(layout.obs_node_ids != UNUSED)
    if int(used.sum()) != len(statistics.mean):
        raise ValueError(f"the layout uses {int(used.sum())} entries; the statistics are of {len(statistics.mean)}")
    mean = torch.zeros(layout.obs_dim, dtype=torch.float64)
    var = torch.ones(layout.obs_dim, dtype=torch.float64)
    mean[used], var[used] = statistics.mean, statistics.var
    return mean, var


def _check_finite(episodes: Episodes, index: int, what: str, values: Floats, names: list[str]) -> None:
    finite = np.isfinite(values)
    if finite.all():
        return
    clip, origin = episodes.infos[index].clip, episodes.origin(index)
    known = ", ".join(filter(None, (f"clip {clip!r}" if clip else "", origin)))
    where = listing(names[entry] for entry in np.flatnonzero(~finite.all(0)).tolist())
    raise ValueError(f"episode {index}{f' ({known})' if known else ''} has {what} that are not finite: {where}")
