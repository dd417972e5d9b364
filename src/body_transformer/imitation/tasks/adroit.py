"""The tasks of the Adroit hand, in gymnasium-robotics: the paper's evaluation, and episodes for demonstrations."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import closing, redirect_stderr
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ...body.layout import Layout
from ...errors import import_extra, unknown
from ...video import Frame, opengl
from ..vector_env import EnvSpec, VectorEnv, allowed_processes, film_episode
from .base import Act, CollectableTask, OnDone, Rollout, Trajectory, ignore, trajectories

ENVIRONMENTS = {
    "door": ("AdroitHandDoor-v1", 39, 28),
    "hammer": ("AdroitHandHammer-v1", 46, 26),
    "relocate": ("AdroitHandRelocate-v1", 39, 30),
}
"""Name -> environment, entries of its observation, entries of its action."""
STREAMS = {"validation": 0, "train": 1}
"""Split -> number that is part of every seed, so that demonstrations and evaluations have different starts."""
_NOISE = 2
_FILM_STRIDE = 4
MAX_LANES = 32
"""Episodes that run in parallel; their observations are one batch."""
NUM_STEPS = 200
"""Steps of an episode, as in gymnasium-robotics and the paper."""


class AdroitTask(CollectableTask):
    """`door`, `hammer` or `relocate`: 200 steps; success is the environment's own, at the last step.

    Returns are those of the installed gymnasium-robotics: version 1.2.1 changed the rewards but not the successes.
    Simulator processes run until `close`; their number affects only the speed.
    """

    splits = ("validation",)
    metrics = ("success", "success_any", "total_reward")
    frames_hz = 100.0 / _FILM_STRIDE
    requirements = ("gymnasium-robotics", "mujoco")

    def __init__(self, layout: Layout, name: str, num_processes: int | None = None) -> None:
        """Make the task `name` for policies of this layout.

        It uses at most `num_processes`, by default one per core, or OMP_NUM_THREADS.
        """
        if name not in ENVIRONMENTS:
            raise ValueError(unknown("Adroit task", name, ENVIRONMENTS))
        self.env_id, obs_dim, self.action_dim = ENVIRONMENTS[name]
        if (layout.obs_dim, layout.action_dim) != (obs_dim, self.action_dim):
            raise ValueError(
                f"Adroit task {name!r} has {obs_dim} observation entries and {self.action_dim} actions; "
                f"the layout has {layout.obs_dim} and {layout.action_dim}"
            )
        spec = EnvSpec(partial(make_env, self.env_id), obs_dim, self.action_dim, np.float64, ("success",))
        self._envs = VectorEnv(spec, MAX_LANES, allowed_processes(num_processes, MAX_LANES))

    # -- evaluation ----------------------------------------------------------------------------------------------------

    def rollouts(self, act: Act, num_episodes: int, seed: int, split: str, on_done: OnDone = ignore) -> list[Rollout]:
        found = []
        for one in self._play(act, range(num_episodes), seed, split):
            total_reward, success = float(one.rewards.sum()), bool(one.success[-1])
            found.append(Rollout("", one.num_steps, total_reward, success=success, success_any=bool(one.success.any())))
            on_done(len(found))
        return found

    def film(self, act: Act, seed: int, split: str) -> list[Frame]:
        """Return the first rollout of the seed, one frame per four steps."""
        start = episode_seed(seed, 0, split)
        with opengl(), closing(make_env(self.env_id, render_mode="rgb_array")) as env:
            obs, _ = env.reset(seed=start)
            return film_episode(env, act, obs, env.render, _FILM_STRIDE)

    # -- demonstrations ------------------------------------------------------------------------------------------------

    def record(
        self, act: Act, episodes: range, seed: int, std: npt.NDArray[np.float64] | None = None
    ) -> Iterator[Trajectory]:
        return self._play(act, episodes, seed, "train", std)

    def describe(self) -> dict[str, Any]:
        with closing(make_env(self.env_id)) as env:
            spaces = {"observation_space": env.observation_space, "action_space": env.action_space}
        return {**spaces, "env_spec": import_extra("gymnasium", "imitation").spec(self.env_id)}

    # -- both ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._envs.close()

    def _play(
        self, act: Act, episodes: range, seed: int, split: str, std: npt.NDArray[np.float64] | None = None
    ) -> Iterator[Trajectory]:
        """Play the episodes in rounds of nearly equal size.

        The sizes of the policy's batches then depend on `episodes` alone. In a batch of another size, a matrix product
        may round differently, and contacts amplify the difference.
        """
        for part in np.array_split(np.asarray(episodes), math.ceil(len(episodes) / MAX_LANES)):
            seeds = {lane: episode_seed(seed, episode, split) for lane, episode in enumerate(part.tolist())}
            draws = [np.random.default_rng([seed, episode, _NOISE]).standard_normal for episode in part.tolist()]
            noise = np.stack([draw((NUM_STEPS, self.action_dim)) for draw in draws])  # [B, T, A]
            noise *= 0.0 if std is None else std
            steps = self._envs.play([{"seed": one} for one in seeds.values()], act, noise)
            yield from trajectories(steps, seeds, dict.fromkeys(seeds, ""))


def episode_seed(seed: int, episode: int, split: str) -> int:
    """Return the seed with which the environment is reset for one episode."""
    state = np.random.SeedSequence([seed, episode, STREAMS[split]]).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))  # HDF5 readers expect signed integers


def make_env(env_id: str, **options: Any) -> Any:
    """Make the gymnasium environment, with an explicit time limit."""
    gymnasium = import_extra("gymnasium", "imitation")
    with redirect_stderr(io.StringIO()):  # its import prints a notice
        robotics = import_extra("gymnasium_robotics", "imitation")
    gymnasium.register_envs(robotics)
    return gymnasium.make(env_id, max_episode_steps=NUM_STEPS, disable_env_checker=True, **options)
