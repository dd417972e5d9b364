"""The reader `rollouts`: demonstrations that are simulated at the start of a training, on its device.

They are those of `bot collect mocapact`, with two exceptions. They are simulated in MuJoCo Warp, with the model on
which the expert was trained (see expert.py), and they are held in bf16. A seed gives the same start frames and noise
again. On a CPU the rollouts are then the same, too. Physics on a GPU may not be repeatable to the last bit.
`transitions` then fixes the number of steps, and `keep` the steps themselves.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...body.layout import Layout
from ...errors import unknown
from ...files import digest
from ...imitation.episodes import EpisodeInfo
from ...imitation.on_device import OnDevice
from ...imitation.readers.mocapact import ACTIONS
from ...imitation.tasks.mocap.clip_table import ClipRow, as_csv, clip_row
from ...imitation.tasks.mocap.generate import RolloutSettings
from ...schema import plain
from ...training.ranks import Ranks
from .kept import kept
from .motions import TRAIN
from .recorder import PlannedRollout, Recorder, planned
from .trained import CLIPS, Expert, used_entries

NUM_WORLDS = 8192


TABLE = "rollouts.csv"
"""Table of the clips in the folder of a run: all rollouts, before some are drawn."""


def open_episodes(
    data: str,
    layout: Layout,
    actions: str = "sampled",
    clips: str | None = None,
    train_clips: str | None = None,
    validation_clips: str | None = None,
    start_rollouts: int = 10,
    random_rollouts: int = 10,
    noise: float = 0.1,
    seed: int = 0,
    transitions: int | None = None,
    num_worlds: int = NUM_WORLDS,
    keep: str | None = None,
    device: str = "cpu",
) -> OnDevice:
    """Roll the expert `data`, a run or `pretrained:NAME`, out on all snippets of the training clips.

    The other options are those of `bot collect mocapact`, except for these:

    Args:
        actions: `sampled`, the executed controls, or `mean`, the expert's.
        transitions: number of steps to keep, of complete rollouts that are drawn at random; None = all.
        num_worlds: rollouts that are simulated at a time. The noise depends on it.
        keep: folder in which the rollouts are kept for other trainings with the same settings; None = nowhere.
        device: memory of the demonstrations; by default that of the training.
    """
    if actions not in ACTIONS:
        raise ValueError(unknown("kind of actions", actions, ACTIONS))
    if num_worlds < 1 or (transitions is not None and transitions < 1):
        raise ValueError(f"num_worlds and transitions must be 1 or more; got {num_worlds} and {transitions}")
    settings = RolloutSettings(start_rollouts, random_rollouts, noise_std=noise, seed=seed)
    expert = Expert.load(data, dict(zip(CLIPS, (clips, train_clips, validation_clips), strict=True)))
    used_entries(layout)
    device = Ranks.from_environment().device(device)

    def make() -> OnDevice:
        made = recorded(expert, layout, settings, device, num_worlds, actions == "mean")
        return made if transitions is None else trimmed(made, transitions, seed)

    if keep is None:
        return make()
    made_with = {
        "weights": expert.weights,
        "options": plain(expert.options),
        "clips": [digest(Path(expert.options.clips)), dict(expert.options.clip_file().splits)],
        "settings": plain(settings),
        "num_worlds": num_worlds,
        "actions": actions,
        "transitions": transitions,
    }
    return kept(Path(keep).expanduser(), made_with, layout, device, make)


def recorded(
    expert: Expert, layout: Layout, settings: RolloutSettings, device: str, num_worlds: int, mean_actions: bool
) -> OnDevice:
    """Return all complete rollouts on the training clips."""
    plan = planned(expert.options.clip_file(), TRAIN, settings)
    on_gpu = torch.device(device).type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        obs, actions, lengths, failed = _simulated(expert, plan, settings, device, num_worlds, mean_actions)
    if on_gpu:  # the simulator's memory, which the training may need
        gc.collect()
        torch.cuda.empty_cache()
    infos = [
        EpisodeInfo(length, rollout.snippet.clip)
        for rollout, length, early in zip(plan, lengths, failed, strict=True)
        if not early
    ]
    if not infos:
        raise ValueError(f"the expert reached the end of none of {len(plan)} rollouts: train it for longer")
    episodes = OnDevice(layout, infos, obs, actions)
    episodes.files = {TABLE: as_csv(table(plan, lengths, failed))}
    return episodes


def _simulated(
    expert: Expert,
    plan: Sequence[PlannedRollout],
    settings: RolloutSettings,
    device: str,
    num_worlds: int,
    mean_actions: bool,
) -> tuple[Tensor, Tensor, list[int], list[bool]]:
    """Return the steps of the complete rollouts, [S, 1294] and [S, 56], and length and failure of every rollout."""
    recorder = Recorder(expert, min(num_worlds, len(plan)), device, settings.seed, torch.bfloat16)
    parts: list[tuple[Tensor, Tensor]] = []
    lengths: list[int] = []
    failed: list[bool] = []
    for wave in recorder.waves(plan, settings.noise_std, mean_actions):
        parts.append(wave.complete())
        lengths += wave.lengths.tolist()
        failed += wave.failed.tolist()
    obs, actions = (torch.cat(column) for column in zip(*parts, strict=True))
    return obs, actions, lengths, failed


def table(plan: Sequence[PlannedRollout], lengths: Sequence[int], failed: Sequence[bool]) -> tuple[ClipRow, ...]:
    """Return the table of the clips."""
    rows = []
    found = zip(plan, lengths, failed, strict=True)
    for clip, group in groupby(found, key=lambda one: one[0].snippet.clip):
        own = list(group)
        snippets = {rollout.snippet.name for rollout, _, _ in own}
        _, own_lengths, own_failed = zip(*own, strict=True)
        rows.append(clip_row(clip, TRAIN, len(snippets), own_lengths, own_failed))
    return tuple(rows)


def trimmed(episodes: OnDevice, num_steps: int, seed: int) -> OnDevice:
    """Return exactly this many steps, of episodes that are drawn at random; the last one drawn is cut."""
    if num_steps > episodes.num_steps:
        raise ValueError(
            f"transitions is {num_steps}, but the complete rollouts have {episodes.num_steps} steps: raise "
            "start_rollouts or random_rollouts"
        )
    lengths = np.array([info.num_steps for info in episodes.infos])
    starts = np.cumsum(lengths) - lengths
    order = np.random.default_rng(seed).permutation(len(lengths))
    before = np.zeros_like(lengths)
    before[order] = np.cumsum(lengths[order]) - lengths[order]
    kept = np.clip(num_steps - before, 0, lengths)
    rows = np.concatenate([np.arange(start, start + count) for start, count in zip(starts, kept, strict=True)])
    chosen = torch.from_numpy(rows).to(episodes.obs.device)
    infos = [EpisodeInfo(int(count), info.clip) for info, count in zip(episodes.infos, kept, strict=True) if count]
    parts = (values.index_select(0, chosen) for values in (episodes.obs, episodes.actions))
    drawn = OnDevice(episodes.layout, infos, *parts)
    drawn.files = episodes.files
    return drawn
