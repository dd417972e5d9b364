"""Rollouts of an expert in the simulator of its training, thousands of worlds at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from functools import partial
from typing import cast
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from ...imitation.tasks.mocap.generate import RolloutSettings
from ...imitation.tasks.mocap.snippets import MAX_SNIPPET_STEPS, Snippet, cut, random_start
from ..envs.fast import FastEnv
from ..envs.mjlab import env_cfg
from ..envs.terms import ACTOR
from ..envs.world import World
from ..evaluate import CHECK_EVERY, cuda_graphed, mean_action
from ..registry import quiet
from ..rollout import grouped
from . import terms
from .expert import task as training_task
from .motions import ClipFile
from .options import TERMINATION_ERROR
from .robots import ExpertTask, Walkers
from .trained import Expert


@dataclass(frozen=True)
class PlannedRollout:
    """A rollout before it is made."""

    snippet: Snippet
    start_step: int
    """Frame of the clip at which it starts."""


def planned(clips: ClipFile, split: str, settings: RolloutSettings) -> list[PlannedRollout]:
    """Return the rollouts of a split in the order of the reader of MoCapAct's files.

    Every clip has its own random stream, so other clips do not change its start frames.
    """
    plan = []
    for clip in sorted(name for name, own in clips.splits.items() if own == split):
        rng = np.random.default_rng([settings.seed, crc32(clip.encode())])
        for snippet in sorted(cut(clip, clips.lengths[clip], settings.max_steps), key=lambda one: one.name):
            starts = [snippet.start] * settings.start_rollouts
            starts += [random_start(snippet, rng) for _ in range(settings.random_rollouts)]
            plan += [PlannedRollout(snippet, start) for start in starts]
    return plan


@dataclass(frozen=True, kw_only=True)
class RecordedTask(ExpertTask):
    """The task of a recording: MoCapAct's episodes, with noise on the controls."""

    @classmethod
    def of(cls, expert: Expert) -> RecordedTask:
        trained = training_task(0, expert.options)
        kept = {field.name: getattr(trained, field.name) for field in fields(trained)}
        changed = {
            "obs": {ACTOR: trained.obs[ACTOR]},
            "rewards": {"comic": trained.rewards["comic"]},
            "failures": (partial(terms.lost, max_error=TERMINATION_ERROR),),
            "max_steps": MAX_SNIPPET_STEPS,
        }
        return cls(**{**kept, **changed})

    def make_robots(self, world: World, seed: int) -> RecordedWalkers:
        return RecordedWalkers(world, self)


class RecordedWalkers(Walkers):
    """Walkers whose episodes have given starts and ends, and whose controls have noise."""

    spans: Tensor

    def __init__(self, world: World, task: ExpertTask) -> None:
        super().__init__(world, task)
        self.spans = torch.zeros(2, world.num_envs, dtype=torch.long, device=world.device)
        self.mean_control, self.noise = torch.zeros_like(self.state.control), torch.zeros_like(self.state.control)
        """[B, 56] each: the expert's control in the last step, and the noise that the next step adds to it."""

    def executed(self, control: Tensor) -> Tensor:
        self.mean_control.copy_(control)
        return (control + self.noise).clamp(-1.0, 1.0)


@dataclass(frozen=True)
class Wave:
    """Rollouts that were simulated together: B rollouts of at most T steps."""

    obs: Tensor
    """[T, B, 1294], before each step."""
    actions: Tensor
    """[T, B, 56], executed controls or the expert's mean controls."""
    lengths: Tensor
    """[B]"""
    failed: Tensor
    """[B, bool]: whether the rollout ended before its snippet."""

    def complete(self) -> tuple[Tensor, Tensor]:
        """Return the steps of the complete rollouts, one rollout after the other: [S, 1294] and [S, 56]."""
        steps = torch.arange(len(self.obs), device=self.obs.device)
        kept = (steps < self.lengths[:, None]) & ~self.failed[:, None]  # [B, T]
        return self.obs.transpose(0, 1)[kept], self.actions.transpose(0, 1)[kept]


class Recorder:
    """Simulated worlds in which an expert's rollouts are recorded."""

    def __init__(self, expert: Expert, num_worlds: int, device: str, seed: int, dtype: torch.dtype) -> None:
        self.device, self.seed, self.dtype, self.num_worlds = device, seed, dtype, num_worlds
        with quiet():
            self.env = FastEnv(env_cfg(RecordedTask.of(expert), num_worlds, 0), device)
            self.env.reset()
        self.walkers = cast(RecordedWalkers, self.env.robots)
        self.act = cuda_graphed(mean_action(expert.policy().to(device)), [ACTOR], device)

    def waves(self, plan: Sequence[PlannedRollout], noise_std: float, mean_actions: bool) -> Iterator[Wave]:
        """Simulate the planned rollouts in their order, `num_worlds` at a time."""
        with closing(self.env):
            for number, first in enumerate(range(0, len(plan), self.num_worlds)):
                generator = torch.Generator(self.device).manual_seed(self.seed + (number << 32))
                yield self._wave(plan[first : first + self.num_worlds], noise_std, mean_actions, generator)

    @torch.no_grad()  # not inference_mode: the tensors are used in a training
    def _wave(
        self, part: Sequence[PlannedRollout], noise_std: float, mean_actions: bool, generator: torch.Generator
    ) -> Wave:
        walkers, spans = self.walkers, [self._span(rollout) for rollout in part]
        walkers.spans.copy_(torch.tensor(spans + spans[-1:] * (self.num_worlds - len(spans))).T)
        obs = grouped(self.env.reset()[0])
        num_steps = max(last - first for first, last in spans)
        sizes = (obs[ACTOR].shape[1], walkers.noise.shape[1])
        seen, done = (
            torch.zeros(num_steps, self.num_worlds, size, dtype=self.dtype, device=self.device) for size in sizes
        )
        running = torch.ones(self.num_worlds, dtype=torch.bool, device=self.device)
        lengths, failed = torch.zeros_like(running, dtype=torch.long), torch.zeros_like(running)
        for step in range(num_steps):
            walkers.noise.normal_(std=noise_std, generator=generator)
            seen[step] = obs[ACTOR]
            found, _, died, timed_out, _ = self.env.step(self.act(obs))
            obs = grouped(found)
            done[step] = walkers.mean_control if mean_actions else walkers.state.control
            lengths += running
            failed |= died & running
            running &= ~(died | timed_out)
            if step % CHECK_EVERY == 0 and not bool(running.any()):
                break
        count = len(part)
        return Wave(seen[:, :count], done[:, :count], lengths[:count], failed[:count])

    def _span(self, rollout: PlannedRollout) -> tuple[int, int]:
        first, last = self.walkers.state.motions.frames(rollout.snippet)
        return first + rollout.start_step - rollout.snippet.start, last
