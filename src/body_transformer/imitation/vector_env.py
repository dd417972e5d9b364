"""Parallel episodes in several processes, on gymnasium's vector environments.

A lane plays one episode at a time. Results do not depend on the number of processes: every episode has its own seed,
and the number of lanes alone determines which episodes form a batch. Gymnasium's automatic resets are off, and `play`
resets a lane for its next episode.
"""

from __future__ import annotations

import contextlib
import math
import os
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import import_extra
from ..training.stopping import signals_held
from ..video import Frame
from .tasks.base import Act, StepBatch, checked_actions

Array = npt.NDArray[Any]


def allowed_processes(given: int | None, most: int) -> int:
    """Return the number of processes to start: `given`, or one per core, but at most `most`.

    Only cores that this process may use are counted. OMP_NUM_THREADS, if it is set, limits their number.
    """
    if given is not None and given < 1:
        raise ValueError(f"the number of processes must be 1 or more; got {given}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdecimal():
        cores = min(cores, max(1, int(threads)))
    return min(given or cores, most)


@dataclass(frozen=True)
class EnvSpec:
    """A gymnasium environment with flat observations and actions, and numeric infos."""

    make: Callable[[], Any]
    """Picklable function (not a lambda) that makes the environment; it is called in the environment's process."""
    obs_dim: int
    action_dim: int
    obs_dtype: type[np.float32] | type[np.float64]
    infos: tuple[str, ...]
    """Keys of each step's info to keep; their values are numbers."""
    own_process: bool = False
    """Start a process even where one is enough; otherwise the environments run in this process."""
    low: Array | float = -1.0
    """Lower bound of the actions, or [A] bounds; actions are clipped."""
    high: Array | float = 1.0
    """Upper bound of the actions, or [A] bounds."""


class VectorEnv:
    """`num_lanes` environments in at most `num_processes` processes, and never more processes than episodes.

    `play` starts them. `close`, or an error in `play`, ends them; the next `play` then starts new ones.
    """

    def __init__(self, spec: EnvSpec, num_lanes: int, num_processes: int) -> None:
        self.spec, self.num_lanes, self.num_processes = spec, num_lanes, num_processes
        self._envs: Any = None
        self._num_groups = 0

    @property
    def processes(self) -> Sequence[BaseProcess]:
        return tuple(getattr(self._envs, "processes", ()))

    def play(
        self, starts: Sequence[Mapping[str, Any]], act: Act, added: npt.NDArray[np.float64] | None = None
    ) -> Iterator[StepBatch]:
        """Play one episode per start, which holds the arguments of `reset`; a free lane takes the next episode.

        `added` [len(starts), T, A], such as noise, is added to the actions, and the sum is clipped to their bounds. The
        assignment of episodes to lanes depends on the episodes' lengths alone, not on the speed of a process.
        """
        try:
            yield from self._play(starts, act, added)
        except BaseException:  # Ctrl-C and an abandoned loop, too: environments in mid-episode cannot be reused
            self.close()
            raise

    def _play(
        self, starts: Sequence[Mapping[str, Any]], act: Act, added: npt.NDArray[np.float64] | None
    ) -> Iterator[StepBatch]:
        self._start(min(self.num_processes, self.num_lanes, max(1, len(starts))))
        waiting = iter(range(len(starts)))
        running: dict[int, int] = {}  # lane -> episode
        lengths = np.zeros(len(starts), dtype=int)
        obs = np.empty((self.num_lanes, self.spec.obs_dim), self.spec.obs_dtype)
        while True:
            free = [lane for lane in range(self.num_lanes) if lane not in running]
            begun = {lane: episode for lane, episode in zip(free, waiting)}  # noqa: B905, C416  (zip stops at the shorter one)
            if begun:
                with self._explained():
                    options = {"starts": {lane: starts[episode] for lane, episode in begun.items()}}
                    obs = self._by_lane(self._envs.reset(options=options)[0])
                running |= begun
            if not running:
                return
            lanes = sorted(running)
            episodes = np.array([running[lane] for lane in lanes])
            actions = checked_actions(act(obs[lanes].astype(np.float32)), (len(lanes), self.spec.action_dim))
            wanted = actions if added is None else actions + added[episodes, lengths[episodes]]
            lengths[episodes] += 1
            executed = np.clip(wanted, self.spec.low, self.spec.high).astype(np.float32)
            next_obs, results = self._step(lanes, executed)
            step = StepBatch(
                episodes=episodes,
                obs=obs[lanes],
                clean=np.clip(actions, self.spec.low, self.spec.high),
                executed=executed,
                next_obs=next_obs[lanes],
                rewards=results["reward"],
                terminated=results["terminated"] > 0,
                truncated=results["truncated"] > 0,
                infos={name: results[name] for name in self.spec.infos},
            )
            yield step
            obs = next_obs
            for lane, over in zip(lanes, step.over.tolist(), strict=True):
                if over:
                    del running[lane]

    def _start(self, num_groups: int) -> None:
        if self._num_groups >= num_groups:
            return
        self.close()
        vector = import_extra("gymnasium.vector", "imitation")
        self._slots = math.ceil(self.num_lanes / num_groups)
        groups = [partial(_EnvGroup, self.spec, self._slots, group, num_groups) for group in range(num_groups)]
        mode = vector.AutoresetMode.DISABLED
        if num_groups == 1 and not self.spec.own_process:
            self._envs = vector.SyncVectorEnv(groups, autoreset_mode=mode)
        else:
            # Not "fork": a child would share this process's CUDA state and the locks of its threads.
            with _errors_explained(), signals_held(), _killed_on_error():
                self._envs = vector.AsyncVectorEnv(groups, context="spawn", autoreset_mode=mode)
            # also at exit: the processes ignore stop signals
            self._kill = weakref.finalize(self, _kill, self.processes)
        self._num_groups = num_groups

    def _step(self, lanes: list[int], actions: npt.NDArray[np.float32]) -> tuple[Array, dict[str, Array]]:
        """Take a step in these lanes; return the observations of all lanes, and name -> result of these lanes."""
        padded = np.zeros((self._slots * self._num_groups, self.spec.action_dim), np.float32)
        padded[lanes] = actions
        grouped = padded.reshape(self._slots, self._num_groups, -1).swapaxes(0, 1)
        with self._explained():
            next_obs, _, _, _, info = self._envs.step(np.ascontiguousarray(grouped))
        results = {name: self._by_lane(info[name])[lanes] for name in (*_RESULTS, *self.spec.infos)}
        return self._by_lane(next_obs), results

    def _explained(self) -> contextlib.AbstractContextManager[None]:
        return _errors_explained() if self.processes else contextlib.nullcontext()

    def _by_lane(self, grouped: Array) -> Array:
        """Reorder [groups, slots, ...] to [lanes, ...]: lane k is slot k // groups of group k % groups."""
        return grouped.swapaxes(0, 1).reshape(-1, *grouped.shape[2:])[: self.num_lanes].copy()

    def frames(self) -> list[Frame]:
        """Return the frames of all environments, whose `render` returns those of their last episode."""
        with self._explained():
            return [frame for group in self._envs.call("render") for frame in group]

    def close(self) -> None:
        """End all environments and processes."""
        envs, is_spawned = self._envs, bool(self.processes)
        self._envs, self._num_groups = None, 0
        if is_spawned:
            self._kill()
            with warnings.catch_warnings(), contextlib.suppress(EOFError, OSError):  # the processes are gone
                warnings.simplefilter("ignore")  # "while waiting for a pending call"
                envs.close(terminate=True)
            envs.closed = True  # also after an error, or its destructor would close it again
        elif envs is not None:
            envs.close()


_RESULTS = ("reward", "terminated", "truncated")


class _EnvGroup:
    """The environments of every `stride`-th lane, as a single environment for gymnasium's vector classes."""

    render_mode = None

    def __init__(self, spec: EnvSpec, slots: int, first: int, stride: int) -> None:
        box = import_extra("gymnasium", "imitation").spaces.Box
        self.metadata: dict[str, Any] = {}
        self.observation_space = box(-np.inf, np.inf, (slots, spec.obs_dim), spec.obs_dtype)
        self.action_space = box(-np.inf, np.inf, (slots, spec.action_dim), np.float32)  # the caller clips
        self._spec, self._first, self._stride = spec, first, stride
        self._envs: dict[int, Any] = {}  # slot -> environment, made when it is first needed
        self._running: set[int] = set()
        self._obs = np.zeros((slots, spec.obs_dim), spec.obs_dtype)
        self._infos = {name: np.zeros(slots) for name in (*_RESULTS, *spec.infos)}

    def reset(self, *, seed: None = None, options: dict[str, Any]) -> tuple[Array, dict[str, Any]]:
        for lane, start in options["starts"].items():
            slot, group = divmod(lane, self._stride)
            if group == self._first:
                if slot not in self._envs:
                    self._envs[slot] = self._spec.make()
                self._obs[slot], _ = self._envs[slot].reset(**start)
                self._running.add(slot)
        return self._obs.copy(), {}

    def step(self, actions: npt.NDArray[np.float32]) -> tuple[Array, float, bool, bool, dict[str, Array]]:
        for slot in sorted(self._running):
            obs, reward, terminated, truncated, info = self._envs[slot].step(actions[slot])
            self._obs[slot] = obs
            values = (reward, terminated, truncated, *(info[name] for name in self._spec.infos))
            for name, value in zip(self._infos, values, strict=True):
                self._infos[name][slot] = float(value)
            if terminated or truncated:
                self._running.discard(slot)
        return self._obs.copy(), 0.0, False, False, {name: array.copy() for name, array in self._infos.items()}

    def render(self) -> list[Frame]:
        return [frame for env in self._envs.values() for frame in env.render()]

    def get_wrapper_attr(self, name: str) -> Any:
        """Return an attribute; gymnasium's vector classes look methods up with this one."""
        return getattr(self, name)

    def close(self) -> None:
        for env in self._envs.values():
            env.close()


@contextlib.contextmanager
def _killed_on_error() -> Iterator[None]:
    """Kill the processes that were started in this context after an error or Ctrl-C."""
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


@contextlib.contextmanager
def _errors_explained() -> Iterator[None]:
    """Explain why a process may have died; attach gymnasium's report of an error in a process to that error."""
    with warnings.catch_warnings(record=True) as reports:  # processes print their own warnings
        try:
            yield
        except (EOFError, ConnectionError) as error:
            raise ChildProcessError(
                "a simulator process has died: it ran out of memory, was killed, or was started by a script without "
                "`if __name__ == '__main__':`"
            ) from error
        except Exception as error:
            error.add_note("".join(f"{report.message}\n" for report in reports))
            raise


def film_episode(env: Any, act: Act, obs: npt.NDArray[Any], render: Callable[[], Frame], every: int = 1) -> list[Frame]:
    """Play an episode from its first observation; return the first frame and one per `every` steps."""
    frames = [render()]
    over, step = False, 0
    while not over:
        actions = checked_actions(act(obs[None].astype(np.float32)), (1, env.action_space.shape[0]))
        obs, _, terminated, truncated, _ = env.step(np.clip(actions[0], -1.0, 1.0))
        over, step = terminated or truncated, step + 1
        if step % every == 0:
            frames.append(render())
    return frames
