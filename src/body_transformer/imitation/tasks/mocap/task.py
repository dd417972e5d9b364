"""MocapTask: a policy tracks motion clips in dm_control."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from ....body.layout import Layout
from ....video import Frame, opengl
from ...vector_env import EnvSpec, VectorEnv, allowed_processes, film
from ..base import Act, ImitationTask, OnDone, Rollout, ignore
from .clips import DT_S, clip_lengths
from .snippets import Snippet, available, read_splits

MAX_PROCESSES = 32


class MocapTask(ImitationTask):
    """Track clips from start to end, as long as the walker stays near them.

    Metrics are return and length, both divided by the number of steps of the clip.
    """

    metrics = ("normalized_return", "normalized_length")
    frames_hz = 1.0 / DT_S

    def __init__(
        self,
        layout: Layout,
        clips: str,
        train_clips: str | None = None,
        validation_clips: str | None = None,
        allow_missing: bool = False,
        num_processes: int | None = None,
    ) -> None:
        """Make the task; simulators are started by the first rollout.

        `clips` is a file that `tasks.mocap.clips` has written. `train_clips` and `validation_clips` are text files with
        one name per line, as MoCapAct publishes its split. With `allow_missing`, listed clips that are not in the file
        are skipped. `num_processes` episodes run at a time, by default one per core.
        """
        self.layout = layout
        self.clips_file = clips
        lengths = clip_lengths(clips)
        split_of = read_splits(train_clips, validation_clips)
        if split_of is None:
            raise ValueError("give train_clips, validation_clips or both; got neither")
        self.clips: dict[str, tuple[Snippet, ...]] = {}
        """Split -> its clips, each as one snippet."""
        for split in dict.fromkeys(split_of.values()):
            names = [name for name in split_of if split_of[name] == split]
            found = available(names, lengths, repr(self.clips_file), allow_missing)
            self.clips[split] = tuple(Snippet(name, 0, lengths[name]) for name in found)
        self.splits = tuple(self.clips)
        num_lanes = allowed_processes(num_processes, MAX_PROCESSES)
        make = partial(make_env, self.clips_file, layout)
        # Even a single simulator has its own process, which turns OpenGL off: a film needs it in this process.
        spec = EnvSpec(make, layout.action_dim, ("max_steps",), own_process=True)
        self._envs = VectorEnv(spec, num_lanes, num_lanes)

    def draw(self, num_episodes: int, seed: int, split: str) -> list[Snippet]:
        """Draw a clip per episode, all with equal probability."""
        clips = self.clips[split]
        return [clips[index] for index in np.random.default_rng(seed).integers(len(clips), size=num_episodes)]

    def rollouts(self, act: Act, num_episodes: int, seed: int, split: str, on_done: OnDone = ignore) -> list[Rollout]:
        snippets = self.draw(num_episodes, seed, split)
        lengths = np.zeros(num_episodes, dtype=int)
        returns, longest = np.zeros(num_episodes), np.ones(num_episodes)
        num_done = 0
        starts = [{"options": {"snippet": snippet}} for snippet in snippets]
        for step in self._envs.play(starts, act):
            lengths[step.episodes] += 1
            returns[step.episodes] += step.rewards
            longest[step.episodes] = step.infos["max_steps"]
            for _ in range(int(step.over.sum())):
                num_done += 1
                on_done(num_done)
        return [
            Rollout(snippet.clip, length, total, length / most, total / most)
            for snippet, length, total, most in zip(
                snippets, lengths.tolist(), returns.tolist(), longest.tolist(), strict=True
            )
        ]

    def film(self, act: Act, seed: int, split: str) -> list[Frame]:
        """Return frames of the walker, with the reference as a grey figure beside it."""
        start = {"options": {"snippet": self.draw(1, seed, split)[0]}}
        with opengl():
            return film(self._envs.spec, partial(make_env, self.clips_file, self.layout, filmed=True), start, act)

    def close(self) -> None:
        self._envs.close()


def make_env(clips_file: str, layout: Layout, filmed: bool = False) -> Any:
    """Make the environment of a simulator process; only a filmed one needs OpenGL."""
    if not filmed:
        os.environ["MUJOCO_GL"] = "disabled"
    import gymnasium

    from .environment import MocapEnv

    env = MocapEnv(clips_file, ghost=filmed)
    check_layout(layout, env.obs_sizes, env.action_dim)
    return gymnasium.wrappers.RenderCollection(env) if filmed else env


def check_layout(layout: Layout, obs_sizes: Mapping[str, int], action_dim: int) -> None:
    """Check that the layout has the environment's terms in their order, and its number of actions."""
    terms = {term.name: term.size for term in layout.obs}
    if list(terms.items()) != list(obs_sizes.items()) or layout.action_dim != action_dim:
        different = [name for name in {**terms, **obs_sizes} if terms.get(name) != obs_sizes.get(name)]
        raise ValueError(
            f"the mocap task has {sum(obs_sizes.values())} observation entries, in alphabetical order of terms, and "
            f"{action_dim} actions; the layout has {layout.obs_dim} and {layout.action_dim}; "
            f"terms that differ: {', '.join(different) or 'only their order'}"
        )
