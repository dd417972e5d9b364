"""Parallel episodes in several processes, on gymnasium's vector environments.

A lane plays one episode at a time. Results do not depend on the number of processes. Every episode has its own seed,
and the number of lanes alone determines which episodes form a batch. Gymnasium's vector environments start the
processes, call them and return their errors; each process has the environments of several lanes.
"""

from __future__ import annotations

import contextlib
import os
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..errors import import_extra
from ..training.stopping import signals_held
from ..video import Frame
from .tasks.base import Act, StepBatch, checked_actions

gymnasium = import_extra("gymnasium", "imitation")
Array = npt.NDArray[Any]
Value = TypeVar("Value")


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
    action_dim: int
    infos: tuple[str, ...]
    """Keys of each step's info to keep; their values are numbers."""
    own_process: bool = False
    """Whether the environments never run in this process, not even if a single process is enough."""
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
        waiting = iter(enumerate(starts))
        running: dict[int, int] = {}  # lane -> episode
        obs: dict[int, Array] = {}  # lane -> observation
        lengths = np.zeros(len(starts), dtype=int)
        while True:
            free = [lane for lane in range(self.num_lanes) if lane not in running]
            begun = dict(zip(free, waiting, strict=False))  # until either list ends
            if begun:
                obs |= self._call("begin", {lane: start for lane, (_, start) in begun.items()})
                running |= {lane: episode for lane, (episode, _) in begun.items()}
            if not running:
                return
            lanes = sorted(running)
            episodes = np.array([running[lane] for lane in lanes])
            before = np.stack([obs[lane] for lane in lanes])
            actions = checked_actions(act(before.astype(np.float32)), (len(lanes), self.spec.action_dim))
            wanted = actions if added is None else actions + added[episodes, lengths[episodes]]
            lengths[episodes] += 1
            step = self._step(lanes, episodes, before, actions, wanted)
            yield step
            obs = dict(zip(lanes, step.next_obs, strict=True))
            running = {lane: running[lane] for lane, over in zip(lanes, step.over.tolist(), strict=True) if not over}

    def _step(self, lanes: list[int], episodes: Array, obs: Array, actions: Array, wanted: Array) -> StepBatch:
        """Execute the wanted actions [B, A], clipped to their bounds, in these lanes."""
        executed = np.clip(wanted, self.spec.low, self.spec.high).astype(np.float32)
        results = self._call("advance", dict(zip(lanes, executed, strict=True)))
        values = np.array([results[lane][1] for lane in lanes])  # [B, 3 + infos]
        return StepBatch(
            episodes=episodes,
            obs=obs,
            clean=np.clip(actions, self.spec.low, self.spec.high),
            executed=executed,
            next_obs=np.stack([results[lane][0] for lane in lanes]),
            rewards=values[:, 0],
            terminated=values[:, 1] > 0,
            truncated=values[:, 2] > 0,
            infos=dict(zip(self.spec.infos, values.T[3:], strict=True)),
        )

    def _start(self, num_workers: int) -> None:
        if self._envs is not None and self._envs.num_envs >= num_workers:
            return
        self.close()
        workers = [partial(_Worker, self.spec, first, num_workers) for first in range(num_workers)]
        if num_workers == 1 and not self.spec.own_process:
            self._envs = gymnasium.vector.SyncVectorEnv(workers)
            return
        # Not "fork": a child would share this process's CUDA state and the locks of its threads.
        with _errors_explained(), signals_held(), _killed_on_error():
            self._envs = gymnasium.vector.AsyncVectorEnv(workers, shared_memory=False, context="spawn")
        self._kill = weakref.finalize(self, _kill, self.processes)  # also at exit: they ignore stop signals

    def _call(self, method: str, *args: Mapping[int, Any]) -> dict[int, Any]:
        """Call a method of all workers, and return lane -> result."""
        with _errors_explained() if self.processes else contextlib.nullcontext():
            parts = self._envs.call(method, *args)
        return {lane: result for part in parts for lane, result in part.items()}

    def frames(self) -> list[Frame]:
        """Return the new frames of all environments, whose `render` returns those since its last call."""
        return [frame for frames in self._call("draw").values() for frame in frames]

    def close(self) -> None:
        """End all environments and processes."""
        envs, is_spawned = self._envs, bool(self.processes)
        self._envs = None
        if is_spawned:
            self._kill()
            envs.closed = True  # or its destructor would wait for the processes
        elif envs is not None:
            envs.close()


class _Worker:
    """The environments of every `stride`-th lane, as a single environment for gymnasium's vector classes.

    Its methods map lanes to values and leave out the lanes of other workers.
    """

    render_mode = None

    def __init__(self, spec: EnvSpec, first: int, stride: int) -> None:
        self.metadata: dict[str, Any] = {}
        # unused: observations and actions are arguments and results of the methods
        self.observation_space = self.action_space = gymnasium.spaces.Discrete(1)
        self._spec, self._first, self._stride = spec, first, stride
        self._envs: dict[int, Any] = {}  # lane -> environment

    def begin(self, starts: Mapping[int, Mapping[str, Any]]) -> dict[int, Array]:
        """Start episodes, given the arguments of `reset`; return their observations."""
        starts = self._of_own_lanes(starts)
        self._envs |= {lane: self._spec.make() for lane in starts if lane not in self._envs}
        return {lane: np.array(self._envs[lane].reset(**start)[0]) for lane, start in starts.items()}

    def advance(self, actions: Mapping[int, Array]) -> dict[int, tuple[Array, list[float]]]:
        """Take a step; return observations, and lists of reward, terminated, truncated and the infos."""
        results = {}
        for lane, action in self._of_own_lanes(actions).items():
            obs, *outcome, info = self._envs[lane].step(action)
            results[lane] = (
                np.array(obs),
                [float(value) for value in (*outcome, *(info[name] for name in self._spec.infos))],
            )
        return results

    def draw(self) -> dict[int, list[Frame]]:
        """Return the new frames of the environments."""
        return {lane: env.render() for lane, env in self._envs.items()}

    def _of_own_lanes(self, by_lane: Mapping[int, Value]) -> dict[int, Value]:
        return {lane: value for lane, value in by_lane.items() if lane % self._stride == self._first}

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


def film(spec: EnvSpec, make: Callable[[], Any], start: Mapping[str, Any], act: Act) -> list[Frame]:
    """Play and film an episode of `make`'s environment in another process, because graphics drivers may crash."""
    frames: list[Frame] = []
    with contextlib.closing(VectorEnv(replace(spec, make=make, own_process=True), 1, 1)) as envs:
        for _ in envs.play([start], act):
            frames += envs.frames()
    return frames
