"""MocapTask: a policy tracks motion clips in dm_control."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...body.layout import Layout
from ...errors import unknown
from ...video import Frame, no_opengl, opengl
from ..clip_lists import read_clip_list
from ..cores import num_cores
from ..task import Act, Result, Task
from .clips import DT_S, clip_lengths
from .snippets import Snippet, among
from .workers import Workers, checked, track

if TYPE_CHECKING:
    from .environment import TrackingEnvironment

MAX_WORKERS = 32


class MocapTask(Task):
    """Track clips, from their start to their end, as long as the walker stays near them.

    What counts is the return and the length, both over the steps of the clip that was tracked.
    """

    metrics = ("normalized_return", "normalized_length")
    frames_hz = 1.0 / DT_S

    def __init__(
        self,
        layout: Layout,
        clips_file: str | os.PathLike[str],
        train: str | os.PathLike[str] | Sequence[str] | None = None,
        validation: str | os.PathLike[str] | Sequence[str] | None = None,
        allow_missing: bool = False,
        num_workers: int | None = None,
    ) -> None:
        """`train` and `validation` are clip names, or text files with one a line, as MoCapAct publishes its split;
        with `allow_missing`, clips that are listed and not in the file are passed over. `num_workers` episodes run
        at a time: as many as there are cores, unless told."""
        self.layout = layout
        self.clips_file = os.fspath(clips_file)
        lengths = clip_lengths(clips_file)
        if train is None and validation is None:
            raise ValueError("a list of training clips or of validation clips is needed; got neither")
        self.clips: dict[str, tuple[Snippet, ...]] = {}
        """Split -> its clips, whole."""
        for split, names in (("train", train), ("validation", validation)):
            if names is not None:
                named = read_clip_list(names) if isinstance(names, str | os.PathLike) else tuple(names)
                there = among(named, lengths, repr(self.clips_file), allow_missing)
                self.clips[split] = tuple(Snippet(name, 0, lengths[name]) for name in there)
        self.splits = tuple(self.clips)
        self.num_workers = min(num_cores(), MAX_WORKERS) if num_workers is None else num_workers
        if self.num_workers < 1:
            raise ValueError(f"num_workers must be at least 1; got {num_workers}")
        self._workers: Workers | None = None

    def draw(self, num_episodes: int, seed: int, split: str) -> list[Snippet]:
        """A clip for each episode, any with the same chance."""
        if num_episodes < 1:
            raise ValueError(f"at least one episode is needed; got {num_episodes}")
        if split not in self.clips:
            raise ValueError(unknown("split", split, self.splits))
        clips = self.clips[split]
        return [clips[index] for index in np.random.default_rng(seed).integers(len(clips), size=num_episodes)]

    def rollouts(
        self,
        act: Act,
        num_episodes: int,
        seed: int,
        split: str,
        on_done: Callable[[int], object] = lambda done: None,
    ) -> list[Result]:
        snippets = self.draw(num_episodes, seed, split)
        try:
            return track(self._started(), snippets, act, on_done)
        except BaseException:
            self.close()  # episodes may still be under way there
            raise

    def film(self, act: Act, seed: int, split: str) -> list[Frame]:
        """The walker, and the reference as a grey figure beside it."""
        snippet = self.draw(1, seed, split)[0]
        with opengl():
            from .environment import TrackingEnvironment  # dm_control decides how to draw when it is imported

            env = TrackingEnvironment(self.clips_file, ghost=True)
            check_layout(self.layout, env.obs_sizes, env.action_dim)
            obs = env.reset(snippet)
            frames = [_rendered(env)]
            done = False
            while not done:
                outcome = env.step(checked(act(obs[None]), 1)[0])
                obs, done = outcome.obs, outcome.done
                frames.append(_rendered(env))
        return frames

    def close(self) -> None:
        """Ends the processes; the next rollouts start new ones."""
        if self._workers is not None:
            self._workers.close()
            self._workers = None

    def _started(self) -> Workers:
        if self._workers is None:
            self._workers = Workers(self.clips_file, self.num_workers)
            check_layout(self.layout, *self._workers.spaces())
        return self._workers


def check_layout(layout: Layout, obs_sizes: Mapping[str, int], action_dim: int) -> None:
    """The layout's observation and action are the environment's, term by term."""
    terms = {term.name: term.size for term in layout.obs}
    if list(terms.items()) != list(obs_sizes.items()) or layout.action_dim != action_dim:
        odd = [name for name in {**terms, **obs_sizes} if terms.get(name) != obs_sizes.get(name)]
        raise ValueError(
            f"the layout is not that of the tracking task ({sum(obs_sizes.values())} observations in alphabetical "
            f"order, {action_dim} actions): it has {layout.obs_dim} and {layout.action_dim}; "
            f"terms that differ: {', '.join(odd) or 'only their order'}"
        )


def _rendered(env: TrackingEnvironment) -> Frame:
    try:
        return env.render()
    except Exception as error:  # each way to draw has errors of its own, MuJoCo's among them
        raise ValueError(no_opengl(f"dm_control says: {error}")) from None
