"""The Adroit hand's tasks, in gymnasium-robotics: evaluation as the paper does it, and episodes for demonstrations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import unknown
from ..video import Frame, opengl
from .collect import Recording
from .cores import num_cores
from .simulators import MAX_LANES, NUM_STEPS, After, Simulators, make_env
from .task import Act, Result, Task

ENVIRONMENTS = {
    "door": "AdroitHandDoor-v1",
    "hammer": "AdroitHandHammer-v1",
    "relocate": "AdroitHandRelocate-v1",
}
STREAMS = {"validation": 0, "train": 1}
"""A split -> a number in every seed: demonstrations have the starts of `train`, on which nobody is tried out."""
_NOISE = 2
_FILM_STRIDE = 4


class AdroitTask(Task):
    """`door`, `hammer` or `relocate`: 200 steps, success is what the environment says at the last one.

    The returns are those of the installed gymnasium-robotics, whose rewards changed in 1.2.1; successes did not.
    Simulators run in processes that stay until `close`; how many there are changes nothing but the time.
    """

    splits = ("validation",)
    metrics = ("success", "success_any", "total_reward")
    frames_hz = 100.0 / _FILM_STRIDE
    requirements = ("gymnasium-robotics", "mujoco")

    def __init__(self, name: str, num_processes: int | None = None) -> None:
        """`num_processes` at most; as many as there are cores without it, or as OMP_NUM_THREADS says."""
        if name not in ENVIRONMENTS:
            raise ValueError(unknown("Adroit task", name, ENVIRONMENTS))
        if num_processes is not None and num_processes < 1:
            raise ValueError(f"the number of processes must be 1 or more; got {num_processes}")
        self.name = name
        self.env_id = ENVIRONMENTS[name]
        self.max_processes = min(num_processes or num_cores(), MAX_LANES)
        self._simulators: Simulators | None = None

    # -- evaluation ----------------------------------------------------------------------------------------------------

    def rollouts(
        self,
        act: Act,
        num_episodes: int,
        seed: int,
        split: str,
        on_done: Callable[[int], object] = lambda done: None,
    ) -> list[Result]:
        if num_episodes < 1:
            raise ValueError(f"the number of episodes must be 1 or more; got {num_episodes}")
        results = []
        for recording in self._episodes(act, range(num_episodes), seed, split, None):
            results.append(
                Result(
                    clip="",
                    length=recording.num_steps,
                    total_reward=float(recording.rewards.sum()),
                    success=bool(recording.success[-1]),
                    success_any=bool(recording.success.any()),
                )
            )
            on_done(len(results))
        return results

    def film(self, act: Act, seed: int, split: str) -> list[Frame]:
        """The first rollout of the seed; every fourth step is a picture."""
        start = episode_seed(seed, 0, split)
        with opengl():
            env = make_env(self.env_id, render_mode="rgb_array")
            try:
                obs, _ = env.reset(seed=start)
                frames = [env.render()]
                for step in range(1, NUM_STEPS + 1):
                    actions = _checked(act(obs[None].astype(np.float32)), (1, self.action_dim))
                    obs, _, terminated, truncated, _ = env.step(np.clip(actions[0], -1.0, 1.0))
                    if step % _FILM_STRIDE == 0:
                        frames.append(env.render())
                    if terminated or truncated:
                        break
            finally:
                env.close()
        return frames

    # -- demonstrations ------------------------------------------------------------------------------------------------

    def record(
        self, act: Act, episodes: range, seed: int, std: npt.NDArray[np.float64] | None = None
    ) -> Iterator[Recording]:
        """Those episodes of the seed, from the starts of `train`; `std` [A] is of the Gaussian noise on the actions."""
        return self._episodes(act, episodes, seed, "train", std)

    def describe(self) -> dict[str, Any]:
        """What Minari stores of the environment."""
        env = self._example
        return {
            "observation_space": env.observation_space,
            "action_space": env.action_space,
            "env_spec": import_module("gymnasium").spec(self.env_id),
        }

    @property
    def obs_dim(self) -> int:
        return int(self._example.observation_space.shape[0])

    @property
    def action_dim(self) -> int:
        return int(self._example.action_space.shape[0])

    # -- both ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the simulators; the next rollout starts new ones."""
        if self._simulators is not None:
            self._simulators.close()
            self._simulators = None

    def __enter__(self) -> AdroitTask:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @cached_property
    def _example(self) -> Any:
        return make_env(self.env_id)

    def _episodes(
        self, act: Act, episodes: range, seed: int, split: str, std: npt.NDArray[np.float64] | None
    ) -> Iterator[Recording]:
        """Rounds of equal size. Which episodes share a batch depends on `episodes` alone: a matrix product of another
        size may round differently, and contacts make much of that."""
        num_rounds = math.ceil(len(episodes) / MAX_LANES)
        for lane_ids in np.array_split(np.arange(len(episodes)), num_rounds) if num_rounds else ():
            ids = [episodes[lane] for lane in lane_ids]
            seeds = [episode_seed(seed, episode, split) for episode in ids]
            noise = None
            if std is not None:
                draws = [np.random.default_rng([seed, episode, _NOISE]).standard_normal for episode in ids]
                noise = np.stack([draw((NUM_STEPS, len(std))) * std for draw in draws], axis=1)  # [T, B, A]
            try:
                played = self._round(act, seeds, noise)
            except BaseException:  # Ctrl-C too: simulators that were left in the middle of a step are of no use
                self.close()
                raise
            yield from played

    def _round(self, act: Act, seeds: list[int], noise: npt.NDArray[np.float64] | None) -> list[Recording]:
        """Plays one episode a seed, side by side."""
        simulators = self._started(len(seeds))
        obs = [simulators.reset(seeds)]  # T + 1 times [B, O]
        clean: list[npt.NDArray[np.float32]] = []  # T times [B, A]
        executed: list[npt.NDArray[np.float32]] = []
        after: list[After] = []
        while not (after and after[-1].over.all()):
            actions = _checked(act(obs[-1].astype(np.float32)), (len(seeds), self.action_dim))
            noisy = actions if noise is None else actions + noise[len(after)]
            clean.append(np.clip(actions, -1.0, 1.0))
            executed.append(np.clip(noisy, -1.0, 1.0).astype(np.float32))
            after.append(simulators.step(executed[-1]))
            obs.append(after[-1].obs)
        num_steps = 1 + np.argmax([one.over for one in after], axis=0)  # [B] until it was over for the first time
        return [
            Recording(
                seed=seed,
                obs=_lane(obs, lane, num + 1),
                executed=_lane(executed, lane, num),
                clean=_lane(clean, lane, num),
                rewards=_lane([one.rewards for one in after], lane, num),
                success=_lane([one.success for one in after], lane, num),
                terminated=bool(after[num - 1].terminated[lane]),
            )
            for lane, (seed, num) in enumerate(zip(seeds, num_steps.tolist(), strict=True))
        ]

    def _started(self, num_lanes: int) -> Simulators:
        """Simulators in as many processes as so many episodes can use."""
        wanted = min(self.max_processes, num_lanes)
        if self._simulators is None or self._simulators.num_processes < wanted:
            self.close()
            self._simulators = Simulators(self.env_id, wanted)
        return self._simulators


def episode_seed(seed: int, episode: int, split: str) -> int:
    """What the environment is reset with for one episode of a seed."""
    if split not in STREAMS:
        raise ValueError(unknown("split", split, STREAMS))
    if seed < 0:
        raise ValueError(f"a seed is a whole number from 0 up; got {seed}")
    state = np.random.SeedSequence([seed, episode, STREAMS[split]]).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))  # HDF5 readers like signed integers


def _checked(actions: npt.NDArray[np.float32], shape: tuple[int, int]) -> npt.NDArray[np.float32]:
    if np.shape(actions) != shape:
        raise ValueError(f"the policy must give actions {list(shape)}; got {list(np.shape(actions))}")
    if not np.isfinite(actions).all():
        raise ValueError("the policy gave actions that are not finite numbers")
    return np.asarray(actions, dtype=np.float32)


def _lane(values: Sequence[npt.NDArray[Any]], lane: int, length: int) -> npt.NDArray[Any]:
    """What one of those that were played side by side did."""
    return np.stack([value[lane] for value in values[:length]])
