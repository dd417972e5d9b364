"""Environments of gymnasium side by side, in several processes: what a policy sees does not depend on how many."""

from __future__ import annotations

import contextlib
import io
import math
import warnings
import weakref
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import install
from ..training.stopping import signals_held

MAX_LANES = 32
"""Episodes that are played side by side; the policy sees them as one batch."""
NUM_STEPS = 200
"""Of an episode, as the Adroit tasks are registered and as the paper plays them."""


class After(NamedTuple):
    """What a step led to."""

    obs: npt.NDArray[np.float64]
    """[B, O]"""
    rewards: npt.NDArray[np.float64]
    """[B]"""
    success: npt.NDArray[np.bool_]
    """[B] whether the task is done right now."""
    terminated: npt.NDArray[np.bool_]
    """[B] whether the task has ended the episode."""
    over: npt.NDArray[np.bool_]
    """[B] whether the episode is over, by the task or by its time limit; what follows of it means nothing."""


class Simulators:
    """Up to `MAX_LANES` environments, spread over processes; one process is this one."""

    def __init__(self, env_id: str, num_processes: int) -> None:
        vector = import_module("gymnasium.vector")
        self.num_processes = num_processes
        slots = math.ceil(MAX_LANES / num_processes)
        groups = [partial(Lanes, env_id, slots, index, num_processes) for index in range(num_processes)]
        # Episodes are never mixed: nothing is reset but by `reset`.
        mode = vector.AutoresetMode.DISABLED
        if num_processes == 1:
            self._envs = vector.SyncVectorEnv(groups, autoreset_mode=mode)
            return
        # Not "fork": a child would share this process's CUDA state and the locks of its threads.
        with _deaths_explained(), signals_held(), _killed_if_it_fails():
            self._envs = vector.AsyncVectorEnv(groups, context="spawn", autoreset_mode=mode)
        self._kill = weakref.finalize(self, _kill, tuple(self._envs.processes))  # at exit, too: they hear no signal

    def reset(self, seeds: Sequence[int]) -> npt.NDArray[np.float64]:
        """One lane a seed; [B, O]"""
        self._num_lanes = len(seeds)
        with _deaths_explained():
            obs, _ = self._envs.reset(options={"seeds": list(seeds)})
        return self._by_lane(obs)

    def step(self, actions: npt.NDArray[np.float32]) -> After:
        """[B, A], one action a lane."""
        width = self._envs.single_action_space.shape
        padded = np.zeros((width[0] * self.num_processes, width[1]), np.float32)
        padded[: len(actions)] = actions
        grouped = padded.reshape(width[0], self.num_processes, width[1]).swapaxes(0, 1)
        with _deaths_explained():
            obs, _, _, _, info = self._envs.step(np.ascontiguousarray(grouped))
        return After(self._by_lane(obs), **{key: self._by_lane(info[key]) for key in After._fields[1:]})

    def close(self) -> None:
        if self.num_processes == 1:
            self._envs.close()
            return
        self._kill()
        with warnings.catch_warnings(), contextlib.suppress(EOFError, OSError):  # of those that are dead
            warnings.simplefilter("ignore")  # "while waiting for a pending call": so be it
            self._envs.close(terminate=True)
        self._envs.closed = True

    def _by_lane(self, grouped: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """[processes, slots, …] -> [B, …]; lane k is slot k // processes of process k % processes."""
        lanes = grouped.swapaxes(0, 1).reshape(-1, *grouped.shape[2:])
        return lanes[: self._num_lanes].copy()


class Lanes:
    """Every `stride`-th lane, one environment each; to gymnasium's vector classes they look like one environment."""

    render_mode = None

    def __init__(self, env_id: str, slots: int, first: int, stride: int) -> None:
        box = import_module("gymnasium").spaces.Box
        self.metadata: dict[str, Any] = {}
        self._mine = slice(first, None, stride)
        self._make = partial(make_env, env_id)
        self._envs = [self._make()]
        obs_dim, action_dim = (
            space.shape[0] for space in (self._envs[0].observation_space, self._envs[0].action_space)
        )
        self.observation_space = box(-np.inf, np.inf, (slots, obs_dim), np.float64)
        self.action_space = box(-1.0, 1.0, (slots, action_dim), np.float32)
        self._obs = np.zeros((slots, obs_dim))
        self._info = {key: np.zeros(slots, float if key == "rewards" else bool) for key in After._fields[1:]}

    def reset(self, *, seed: None = None, options: dict[str, Any]) -> tuple[npt.NDArray[np.float64], dict[str, Any]]:
        seeds = options["seeds"][self._mine]
        while len(self._envs) < len(seeds):
            self._envs.append(self._make())
        self._info["over"][:] = True
        for slot, one in enumerate(seeds):
            self._obs[slot], _ = self._envs[slot].reset(seed=one)
            self._info["over"][slot] = False
        return self._obs.copy(), {}

    def step(
        self, actions: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.float64], float, bool, bool, dict[str, npt.NDArray[Any]]]:
        info = self._info
        for slot in np.flatnonzero(~info["over"]):
            obs, reward, terminated, truncated, said = self._envs[slot].step(actions[slot])
            self._obs[slot] = obs
            info["rewards"][slot], info["success"][slot] = reward, bool(said["success"])
            info["terminated"][slot], info["over"][slot] = terminated, terminated or truncated
        return self._obs.copy(), 0.0, False, False, {key: array.copy() for key, array in info.items()}

    def close(self) -> None:
        for env in self._envs:
            env.close()


@contextlib.contextmanager
def _killed_if_it_fails() -> Iterator[None]:
    """Processes that are started meanwhile do not outlive an error, nor a Ctrl-C."""
    before = set(active_children())
    try:
        yield
    except BaseException:
        _kill([process for process in active_children() if process not in before])
        raise


def _kill(processes: Sequence[BaseProcess]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.join()


def make_env(env_id: str, **options: Any) -> Any:
    """The environment, its time limit said outright."""
    try:
        gymnasium = import_module("gymnasium")
        with contextlib.redirect_stderr(io.StringIO()):  # importing it prints a notice, once a process
            robotics = import_module("gymnasium_robotics")
    except ImportError as error:
        raise ValueError(f"{error}; {install('imitation')}") from None
    gymnasium.register_envs(robotics)
    return gymnasium.make(env_id, max_episode_steps=NUM_STEPS, disable_env_checker=True, **options)


@contextlib.contextmanager
def _deaths_explained() -> Iterator[None]:
    try:
        yield
    except (EOFError, ConnectionError) as error:
        raise ChildProcessError(
            "a simulator's process has died: out of memory, killed, or started by a script whose work is not under "
            "`if __name__ == '__main__':`"
        ) from error
