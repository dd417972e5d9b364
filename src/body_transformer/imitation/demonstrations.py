"""The demonstrations of a run, and the mean and variance of their observations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from ..body.layout import Layout
from ..errors import listing
from ..model.normalizer import RunningStatistics
from .config import ImitationConfig
from .episodes import Episodes, Floats
from .on_device import OnDevice
from .readers import READERS, open_episodes
from .tasks import TASKS

SPLITTING = ("clips", "train_clips", "validation_clips", "num_clips", "clip_seed")
"""Options that define the training motions. Reader and task must agree on them: motions that the evaluation reports as
unseen must not be in the training data."""


def demonstrations(config: ImitationConfig, layout: Layout, seed: int, device: str = "cpu") -> Episodes:
    """Open the training split; with `num_demos`, draw that many demonstrations by the seed.

    A reader with the option `device` makes the demonstrations in the memory of this device.
    """
    options = dict(config.options)
    if "device" in READERS.options(config.reader):
        options.setdefault("device", device)
    episodes = open_episodes(config.reader, config.data, layout, **options).split("train")
    return episodes if config.num_demos is None else episodes.draw(config.num_demos, seed)


def share_split_options(config: ImitationConfig) -> ImitationConfig:
    """Copy options that define the split to both reader and task; raise if their values differ."""
    given = (config.options, config.task_options)
    shared: dict[str, object] = {}
    for name in SPLITTING:
        if config.task and name in READERS.options(config.reader) and name in TASKS.options(config.task):
            values = [options[name] for options in given if name in options]
            if len({str(value) for value in values}) > 1:
                raise ValueError(
                    f"reader and task must split the data alike: {name} is {values[0]!r} in options and "
                    f"{values[1]!r} in task_options; give it once"
                )
            if values:
                shared[name] = values[0]
    return replace(config, options={**config.options, **shared}, task_options={**config.task_options, **shared})


# -- statistics of the observations ------------------------------------------------------------------------------------


def obs_mean_and_var(
    episodes: Episodes,
    accelerator: Accelerator | None = None,
    on_done: Callable[[int, int], object] = lambda done, total: None,
) -> tuple[Tensor, Tensor]:
    """Compute mean and variance of the observations over all steps, [O] each; several processes share the work.

    Unused entries have mean 0 and variance 1. This reads every step once before training and raises if a value is not
    finite. `on_done` is called with the number of episodes that were read and their total.
    """
    if isinstance(episodes, OnDevice):
        statistics = episodes.statistics()
    else:
        statistics = _read_statistics(episodes, accelerator, on_done)
    mean = torch.zeros(episodes.layout.obs_dim, dtype=torch.float64)
    var = torch.ones(episodes.layout.obs_dim, dtype=torch.float64)
    mean[episodes.obs_ids], var[episodes.obs_ids] = statistics.mean, statistics.var
    return mean, var


def _read_statistics(
    episodes: Episodes, accelerator: Accelerator | None, on_done: Callable[[int, int], object]
) -> RunningStatistics:
    """Return the statistics of the used entries, each episode read by one of the processes."""
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
    return _of_all_processes(statistics, accelerator) if accelerator and num_ranks > 1 else statistics


def _of_all_processes(mine: RunningStatistics, accelerator: Accelerator) -> RunningStatistics:
    numbers = torch.stack([torch.full_like(mine.mean, mine.count), mine.mean, mine.var])  # [3, O]
    gathered = accelerator.gather(numbers[None].to(accelerator.device)).cpu()  # [ranks, 3, O]
    whole = RunningStatistics(len(mine.mean))
    for count, mean, var in gathered:
        whole.add(int(count[0]), mean, var)
    return whole


def _check_finite(episodes: Episodes, index: int, kind: str, values: Floats, names: list[str]) -> None:
    finite = np.isfinite(values)
    if finite.all():
        return
    clip, origin = episodes.infos[index].clip, episodes.origin(index)
    known = ", ".join(filter(None, (f"clip {clip!r}" if clip else "", origin)))
    where = listing(names[entry] for entry in np.flatnonzero(~finite.all(0)).tolist())
    raise ValueError(f"episode {index}{f' ({known})' if known else ''} has {kind} that are not finite: {where}")
