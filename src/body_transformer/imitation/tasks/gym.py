"""Any Gymnasium environment as a task: evaluated in parallel processes, filmed, and recorded as demonstrations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import numpy.typing as npt

from ...body.layout import Layout
from ...video import Frame, opengl
from ..vector_env import EnvSpec, VectorEnv, allowed_processes, film
from .base import Act, CollectableTask, OnDone, Rollout, Trajectory, ignore, trajectories
from .gym_env import FlatEnv, gymnasium

Singles = npt.NDArray[np.float32]
Box = gymnasium.spaces.Box
STREAMS = {"validation": 0, "train": 1}
"""Split -> number that is part of every seed, so that demonstrations and evaluations have different starts."""
_NOISE = 2
MAX_FRAMES_HZ = 25.0
"""Frame rate of films of environments that run faster; not every step is drawn."""
MAX_LANES = 32
"""Episodes that run in parallel; their observations are one batch."""


class GymTask(CollectableTask):
    """A Gymnasium environment by its name.

    A dictionary observation is flattened in the order of `obs_keys`. Without them, the order is that of the layout's
    terms if all of them are keys, else that of the environment's space. Actions are in the environment's units, and are
    clipped to its action space. An episode ends when the environment terminates or truncates it, at the latest after
    `max_steps`. Simulator processes run until `close`; their number affects only the speed.
    """

    def __init__(
        self,
        layout: Layout,
        id: str,
        success: str | None = None,
        options: Mapping[str, Any] | None = None,
        obs_keys: tuple[str, ...] = (),
        max_steps: int | None = None,
        num_processes: int | None = None,
    ) -> None:
        """Make the task for policies of this layout.

        Args:
            id: name in Gymnasium's registry; `MODULE:NAME` imports the module that registers it.
            success: key of `info` that holds the success; without one, only returns are measured.
            options: keyword options of the environment.
            obs_keys: keys of the observation, in order.
            max_steps: time limit; by default the environment's own.
            num_processes: highest number of simulator processes; by default one per core, or OMP_NUM_THREADS.
        """
        if max_steps is not None and max_steps < 1:
            raise ValueError(f"max_steps must be 1 or more; got {max_steps}")
        self.env_id, self.action_dim, self.has_success = id, layout.action_dim, success is not None
        self.metrics = ("success", "success_any", "total_reward") if success else ("total_reward", "length")
        terms = [term.name for term in layout.obs]
        self._make = partial(FlatEnv, id, dict(options or {}), obs_keys, terms, success, max_steps)
        with closing(self._make()) as env:
            low, high = _bounds(env)
            _check_sizes(env, layout, len(low))
            self.max_steps = _time_limit(env, max_steps)
            self._description = _description(env)
            self.requirements = _requirements(env)
            self._render_modes = env.env.metadata.get("render_modes") or []
            steps_hz = float(env.env.metadata.get("render_fps") or MAX_FRAMES_HZ)
        self._frame_stride = math.ceil(steps_hz / MAX_FRAMES_HZ)
        self.frames_hz = steps_hz / self._frame_stride
        spec = EnvSpec(self._make, self.action_dim, ("success",), low=low, high=high)
        self._envs = VectorEnv(spec, MAX_LANES, allowed_processes(num_processes, MAX_LANES))

    # -- evaluation ----------------------------------------------------------------------------------------------------

    def rollouts(self, act: Act, num_episodes: int, seed: int, split: str, on_done: OnDone = ignore) -> list[Rollout]:
        found = []
        for one in self._play(act, range(num_episodes), seed, split):
            success = {"success": bool(one.success[-1]), "success_any": bool(one.success.any())}
            judged = success if self.has_success else {}
            found.append(Rollout("", one.num_steps, float(one.rewards.sum()), **judged))
            on_done(len(found))
        return found

    def film(self, act: Act, seed: int, split: str) -> list[Frame]:
        """Return the frames of the first rollout of the seed."""
        if "rgb_array" not in self._render_modes:
            modes = ", ".join(map(str, self._render_modes)) or "none"
            raise ValueError(
                f"no film: environment {self.env_id!r} must support the render mode rgb_array; its modes: {modes}"
            )
        make = partial(self._make, frame_stride=self._frame_stride)
        with ExitStack() as stack:
            try:
                stack.enter_context(opengl())
                hint = ""
            except ValueError as error:  # an environment may draw without OpenGL
                hint = f"; {error}"
            try:
                return film(self._envs.spec, make, {"seed": episode_seed(seed, 0, split)}, act)
            except ValueError as error:
                raise ValueError(f"{error}{hint}") from error

    # -- demonstrations ------------------------------------------------------------------------------------------------

    def record(
        self, act: Act, episodes: range, seed: int, std: npt.NDArray[np.float64] | None = None
    ) -> Iterator[Trajectory]:
        return self._play(act, episodes, seed, "train", std)

    def describe(self) -> dict[str, Any]:
        return self._description

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
            noise = None
            if std is not None:
                draws = [np.random.default_rng([seed, episode, _NOISE]).standard_normal for episode in part.tolist()]
                noise = np.stack([draw((self.max_steps, self.action_dim)) for draw in draws]) * std  # [B, T, A]
            steps = self._envs.play([{"seed": one} for one in seeds.values()], act, noise)
            yield from trajectories(steps, seeds, dict.fromkeys(seeds, ""))


def episode_seed(seed: int, episode: int, split: str) -> int:
    """Return the seed with which the environment is reset for one episode."""
    state = np.random.SeedSequence([seed, episode, STREAMS[split]]).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))  # HDF5 readers expect signed integers


# -- properties of the environment -------------------------------------------------------------------------------------


def _bounds(env: FlatEnv) -> tuple[Singles, Singles]:
    """Return the lower and upper bounds [A] of the actions."""
    space = env.env.action_space
    if not isinstance(space, Box) or space.dtype.kind != "f":
        raise ValueError(
            f"environment {env.env_id!r} has the action space {space}; a policy needs a Box of floating-point numbers"
        )
    return _rounded_up(space.low), -_rounded_up(-space.high)


def _rounded_up(values: npt.NDArray[Any]) -> Singles:
    """Return flat float32 values that are not below the given ones: a clipped action must be in its space."""
    rounded: Singles = values.ravel().astype(np.float32)
    return np.where(rounded < values.ravel(), np.nextafter(rounded, np.float32(np.inf)), rounded)


def _check_sizes(env: FlatEnv, layout: Layout, action_dim: int) -> None:
    if (sum(env.obs_sizes.values()), action_dim) != (layout.obs_dim, layout.action_dim):
        raise ValueError(
            f"environment {env.env_id!r} has {env.num_entries()} and {action_dim} actions; the layout has "
            f"{layout.obs_dim} and {layout.action_dim}"
            + ("" if "" in env.obs_sizes else "; obs_keys selects keys of the observation")
        )


def _time_limit(env: FlatEnv, given: int | None) -> int:
    limit = env.env.spec.max_episode_steps if given is None else given
    if limit is None:
        raise ValueError(f"environment {env.env_id!r} has no time limit: give max_steps")
    return int(limit)


def _description(env: FlatEnv) -> dict[str, Any]:
    """Return the spaces of the recorded arrays; the environment's specification, too, if it has the same spaces."""
    own, flat = (env.env.observation_space, env.env.action_space), []
    for space, size in zip(own, (sum(env.obs_sizes.values()), env.env.action_space.low.size), strict=True):
        is_flat = isinstance(space, Box) and space.shape == (size,)
        flat.append(space if is_flat else Box(-np.inf, np.inf, (size,), np.float64))
    spec = env.env.spec
    is_same = tuple(flat) == own and isinstance(spec.entry_point, str)
    return {"observation_space": flat[0], "action_space": flat[1], "env_spec": spec if is_same else None}


def _requirements(env: FlatEnv) -> tuple[str, ...]:
    """Return the installed package named like the environment's module, else gymnasium; and MuJoCo."""
    package = type(env.env.unwrapped).__module__.partition(".")[0].replace("_", "-")
    try:
        version(package)
    except PackageNotFoundError:
        package = "gymnasium"
    return package, "mujoco"
