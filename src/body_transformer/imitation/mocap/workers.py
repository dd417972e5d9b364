"""Tracking environments in processes of their own, so that episodes run side by side."""

from __future__ import annotations

import multiprocessing
import os
import traceback
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
import numpy.typing as npt

from ...training.stopping import signals_held
from ..task import Act, Result
from .snippets import Snippet

Floats = npt.NDArray[np.float32]


class Workers:
    """Processes with one environment each; they live until `close`, because to build an environment takes seconds."""

    def __init__(self, clips_file: str, num_workers: int) -> None:
        if num_workers < 1:
            raise ValueError(f"at least one worker is needed; got {num_workers}")
        context = multiprocessing.get_context("spawn")  # a fork would copy locks that torch's threads hold
        self._lines: list[Connection] = []
        self._processes: list[BaseProcess] = []
        for _ in range(num_workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, clips_file), daemon=True)
            with signals_held():
                process.start()
            theirs.close()
            self._lines.append(ours)
            self._processes.append(process)
        self.close = weakref.finalize(self, _stop, tuple(self._lines), tuple(self._processes))

    def __len__(self) -> int:
        return len(self._lines)

    def spaces(self) -> tuple[dict[str, int], int]:
        """The observation's terms with their sizes, and the number of actions."""
        self.send(0, "spaces")
        sizes, action_dim = self.receive(0)
        return sizes, action_dim

    def send(self, worker: int, what: str, *values: object) -> None:
        try:
            self._lines[worker].send((what, values))
        except (BrokenPipeError, OSError):
            self._lost(worker)

    def receive(self, worker: int) -> Any:
        try:
            kind, value = self._lines[worker].recv()
        except (EOFError, OSError):
            self._lost(worker)
        if kind == "error":
            raise RuntimeError(f"an environment failed in its process:\n{value}")
        return value

    def _lost(self, worker: int) -> None:
        process = self._processes[worker]
        process.join(timeout=5)
        raise RuntimeError(
            f"environment process {worker} ended by itself (exit code {process.exitcode}); out of memory, or killed?"
        ) from None


def track(
    workers: Workers, snippets: Sequence[Snippet], act: Act, on_done: Callable[[int], object] = lambda done: None
) -> list[Result]:
    """An episode on each snippet, from its start; the policy sees all running episodes as one batch.

    Who runs which episode depends on the episodes' lengths alone, never on how fast a process is: the same policy
    meets the same batches every time.
    """
    results: list[Result | None] = [None] * len(snippets)
    running: dict[int, _Running] = {}
    waiting = iter(range(len(snippets)))

    def begin(free: Sequence[int]) -> None:
        begun = [(worker, index) for worker, index in zip(free, waiting)]  # noqa: B905  (the shorter one ends it)
        for worker, index in begun:
            workers.send(worker, "reset", snippets[index])
        for worker, index in begun:
            obs, max_steps = workers.receive(worker)
            running[worker] = _Running(index, obs, max_steps)

    begin(range(len(workers)))
    while running:
        order = sorted(running)
        actions = checked(act(np.stack([running[worker].obs for worker in order])), len(order))
        for worker, action in zip(order, actions, strict=True):
            workers.send(worker, "step", action)
        free = []
        for worker in order:
            episode = running[worker]
            episode.obs, reward, done = workers.receive(worker)
            episode.length += 1
            episode.total_reward += reward
            if done:
                results[episode.index] = episode.result(snippets[episode.index].clip)
                del running[worker]
                free.append(worker)
                on_done(sum(result is not None for result in results))
        begin(free)
    return [result for result in results if result is not None]


class _Running:
    """An episode under way."""

    def __init__(self, index: int, obs: Floats, max_steps: int) -> None:
        self.index = index
        self.obs = obs
        self.max_steps = max_steps
        self.length = 0
        self.total_reward = 0.0

    def result(self, clip: str) -> Result:
        return Result(
            clip,
            self.length,
            self.total_reward,
            normalized_length=self.length / self.max_steps,
            normalized_return=self.total_reward / self.max_steps,
        )


def checked(actions: npt.NDArray[np.float32], batch: int) -> Floats:
    """The policy's actions, if they are some: [batch, A], finite."""
    actions = np.asarray(actions, dtype=np.float32)
    if actions.ndim != 2 or len(actions) != batch:
        raise ValueError(f"the policy must give actions [{batch}, A]; got {list(actions.shape)}")
    if not np.isfinite(actions).all():
        raise ValueError("the policy's actions are not finite (NaN or infinite)")
    return actions


def _stop(lines: Sequence[Connection], processes: Sequence[BaseProcess]) -> None:
    for line in lines:
        try:
            line.send(("stop", ()))
        except OSError:
            continue  # it is gone already
    for process in processes:
        process.join(timeout=5)
        if process.is_alive():
            process.kill()
    for line in lines:
        line.close()


def _serve(line: Connection, clips_file: str) -> None:
    """A worker's life; an error is told to whoever asked."""
    os.environ["MUJOCO_GL"] = "disabled"  # nobody draws here, and a machine may have no OpenGL
    try:
        from .environment import TrackingEnvironment

        env = TrackingEnvironment(clips_file)
        answers: dict[str, Callable[..., object]] = {
            "spaces": lambda: (env.obs_sizes, env.action_dim),
            "reset": lambda snippet: (env.reset(snippet), env.steps_left),
            "step": lambda action: _stepped(env.step(action)),
        }
        while True:
            what, values = line.recv()
            if what == "stop":
                return
            line.send(("answer", answers[what](*values)))
    except EOFError:
        return  # whoever asked is gone
    except Exception:
        line.send(("error", traceback.format_exc()))


def _stepped(outcome: Any) -> tuple[Floats, float, bool]:
    return outcome.obs, outcome.reward, outcome.done
