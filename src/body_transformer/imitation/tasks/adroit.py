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

from ...errors import import_extra, unknown
from ...video import Frame, opengl
from ..vector_env import EnvSpec, StepBatch, VectorEnv, film_episode, num_cores
from .base import Act, CollectableTask, OnDone, Rollout, Trajectory, checked_actions, ignore

ENVIRONMENTS = {
    "door": ("AdroitHandDoor-v1", 39, 28),
    "hammer": ("AdroitHandHammer-v1", 46, 26),
    "relocate": ("AdroitHandRelocate-v1", 39, 30),
}
"""Name -> environment, entries of its observation, entries of its action."""
STREAMS = {"validation": 0, "train": 1}
"""Split -> a number in every seed. Demonstrations start from `train`, which no evaluation uses."""
_NOISE = 2
_FILM_STRIDE = 4
MAX_LANES = 32
"""Episodes that are played side by side; the policy sees them as one batch."""
NUM_STEPS = 200
"""Steps of an episode, as the tasks are registered and as in the paper."""


class AdroitTask(CollectableTask):
    """`door`, `hammer` or `relocate`: 200 steps; success is the environment's own, at the last step.

    Returns are those of the installed gymnasium-robotics: version 1.2.1 changed the rewards but not the successes.
    Simulator processes run until `close`; their number affects only the time.
    """

    splits = ("validation",)
    metrics = ("success", "success_any", "total_reward")
    frames_hz = 100.0 / _FILM_STRIDE
    requirements = ("gymnasium-robotics", "mujoco")

    def __init__(self, name: str, num_processes: int | None = None) -> None:
        """Use at most `num_processes`; by default one per core, or OMP_NUM_THREADS."""
        if name not in ENVIRONMENTS:
            raise ValueError(unknown("Adroit task", name, ENVIRONMENTS))
        if num_processes is not None and num_processes < 1:
            raise ValueError(f"the number of processes must be 1 or more; got {num_processes}")
        self.env_id, obs_dim, self.action_dim = ENVIRONMENTS[name]
        spec = EnvSpec(partial(make_env, self.env_id), obs_dim, self.action_dim, np.float64, ("success",))
        self._envs = VectorEnv(spec, MAX_LANES, min(num_processes or num_cores(), MAX_LANES))

    # -- evaluation ----------------------------------------------------------------------------------------------------

    def rollouts(self, act: Act, num_episodes: int, seed: int, split: str, on_done: OnDone = ignore) -> list[Rollout]:
        if num_episodes < 1:
            raise ValueError(f"the number of episodes must be 1 or more; got {num_episodes}")
        found = []
        for one in self._episodes(act, range(num_episodes), seed, split, None):
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
        return self._episodes(act, episodes, seed, "train", std)

    def describe(self) -> dict[str, Any]:
        with closing(make_env(self.env_id)) as env:
            spaces = {"observation_space": env.observation_space, "action_space": env.action_space}
        return {**spaces, "env_spec": import_extra("gymnasium", "imitation").spec(self.env_id)}

    # -- both ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._envs.close()

    def _episodes(
        self, act: Act, episodes: range, seed: int, split: str, std: npt.NDArray[np.float64] | None
    ) -> Iterator[Trajectory]:
        """Play the episodes in rounds of equal size.

        The batches depend on `episodes` alone. A matrix product of another size may round differently, and contacts
        amplify the difference.
        """
        num_rounds = math.ceil(len(episodes) / MAX_LANES)
        for part in np.array_split(np.asarray(episodes), num_rounds) if num_rounds else ():
            ids = part.tolist()
            seeds = [episode_seed(seed, episode, split) for episode in ids]
            noise = None
            if std is not None:
                draws = [np.random.default_rng([seed, episode, _NOISE]).standard_normal for episode in ids]
                noise = np.stack([draw((NUM_STEPS, len(std))) * std for draw in draws])  # [B, T, A]
            yield from self._round(act, seeds, noise)

    def _round(self, act: Act, seeds: list[int], noise: npt.NDArray[np.float64] | None) -> list[Trajectory]:
        """Play one episode per seed, side by side."""
        clean: list[npt.NDArray[np.float32]] = []  # T times [B, A]

        def execute(obs: npt.NDArray[np.float32], episodes: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
            actions = checked_actions(act(obs), (len(obs), self.action_dim))
            noisy = actions if noise is None else actions + noise[episodes, len(clean)]
            clean.append(np.clip(actions, -1.0, 1.0))
            return np.clip(noisy, -1.0, 1.0).astype(np.float32)

        steps = list(self._envs.play([{"seed": seed} for seed in seeds], execute))
        return [_trajectory(episode, seed, steps, clean) for episode, seed in enumerate(seeds)]


def _trajectory(episode: int, seed: int, steps: list[StepBatch], clean: list[npt.NDArray[np.float32]]) -> Trajectory:
    """Collect one episode from the steps of all."""
    rows = [(step, int(row)) for step in steps for row in np.flatnonzero(step.episodes == episode)]
    last, last_row = rows[-1]
    return Trajectory(
        seed=seed,
        obs=np.stack([*(step.obs[row] for step, row in rows), last.next_obs[last_row]]),
        executed=np.stack([step.actions[row] for step, row in rows]),
        clean=np.stack([actions[row] for actions, (_, row) in zip(clean, rows, strict=False)]),
        rewards=np.array([step.rewards[row] for step, row in rows]),
        success=np.array([bool(step.infos["success"][row]) for step, row in rows]),
        terminated=bool(last.terminated[last_row]),
    )


def episode_seed(seed: int, episode: int, split: str) -> int:
    """Return the seed with which the environment is reset for one episode."""
    if split not in STREAMS:
        raise ValueError(unknown("split", split, STREAMS))
    if seed < 0:
        raise ValueError(f"the seed must be a whole number, 0 or more; got {seed}")
    state = np.random.SeedSequence([seed, episode, STREAMS[split]]).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))  # HDF5 readers expect signed integers


def make_env(env_id: str, **options: Any) -> Any:
    """Make the gymnasium environment, with an explicit time limit."""
    gymnasium = import_extra("gymnasium", "imitation")
    with redirect_stderr(io.StringIO()):  # its import prints a notice
        robotics = import_extra("gymnasium_robotics", "imitation")
    gymnasium.register_envs(robotics)
    return gymnasium.make(env_id, max_episode_steps=NUM_STEPS, disable_env_checker=True, **options)
