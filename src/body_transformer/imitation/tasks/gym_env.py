"""A Gymnasium environment with a flat observation and checked outcomes; its errors are one sentence."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import broken, import_extra, unknown
from ...video import Frame

gymnasium = import_extra("gymnasium", "imitation")
Doubles = npt.NDArray[np.float64]


class FlatEnv:
    """A Gymnasium environment with flat observations and actions, and an info that holds only `success`.

    A step is a success if the environment's value is above 0. Before the last step of an episode, the value may be
    missing, which counts as no success.
    """

    def __init__(
        self,
        env_id: str,
        options: Mapping[str, Any],
        obs_keys: Sequence[str] = (),
        terms: Sequence[str] = (),
        success: str | None = None,
        max_steps: int | None = None,
        frame_stride: int | None = None,
    ) -> None:
        """Make the environment.

        Args:
            options: keyword options of the environment.
            obs_keys: keys of an observation that is a dictionary, in order.
            terms: keys to use instead if there are no `obs_keys`; if one does not exist, all keys in the space's order.
            success: key of `info` that holds the success.
            max_steps: time limit; by default the environment's own.
            frame_stride: steps per frame; None = draw no frames.
        """
        self.env_id, self._success, self._stride = env_id, success, frame_stride
        drawn = {} if frame_stride is None else {"render_mode": "rgb_array"}
        register(env_id)
        with self._explained("cannot be made"):
            given = {**options, **drawn}
            self.env = gymnasium.make(env_id, disable_env_checker=True, max_episode_steps=max_steps, **given)
        self.parts = self._parts(obs_keys, terms)
        """Key -> space, in the order of the flat observation; a single "" if the observation is not a dictionary."""
        self.obs_sizes = {key: int(gymnasium.spaces.flatdim(space)) for key, space in self.parts.items()}
        """Key -> number of entries."""
        self._num_steps = 0
        self._frames: list[Frame] = []

    def _parts(self, obs_keys: Sequence[str], terms: Sequence[str]) -> dict[str, Any]:
        space = self.env.observation_space
        if not isinstance(space, gymnasium.spaces.Dict):
            if obs_keys:
                raise ValueError(f"environment {self.env_id!r} has one observation without keys; remove obs_keys")
            parts = {"": space}
        else:
            for key in obs_keys:
                if key not in space.spaces:
                    raise ValueError(f"environment {self.env_id!r}: {unknown('obs_key', key, space.spaces)}")
            default = terms if set(terms) <= space.keys() else space.spaces
            parts = {key: space[key] for key in obs_keys or default}
        for key, part in parts.items():
            if not part.is_np_flattenable:
                what = f"observation {key!r}" if key else "observation"
                raise ValueError(f"environment {self.env_id!r}: its {what} has no fixed number of entries: {part}")
        return parts

    # -- episodes ------------------------------------------------------------------------------------------------------

    def reset(self, *, seed: int) -> tuple[Doubles, dict[str, Any]]:
        """Start an episode."""
        self._num_steps, self._frames = 0, []
        with self._explained("failed in reset"):
            obs, _ = self.env.reset(seed=seed)
        self._draw()
        return self._flat(obs), {}

    def step(self, action: npt.NDArray[np.float32]) -> tuple[Doubles, float, bool, bool, dict[str, float]]:
        """Take a step; the action [A] is in the environment's own units."""
        self._num_steps += 1
        with self._explained(f"failed at step {self._num_steps}"):
            obs, reward, terminated, truncated, info = self.env.step(action.reshape(self.env.action_space.shape))
            reward = float(reward)
        if not np.isfinite(reward):
            raise ValueError(f"environment {self.env_id!r} returned the reward {reward} at step {self._num_steps}")
        success = self._success_of(info, is_last=bool(terminated or truncated))
        self._draw()
        return self._flat(obs), reward, bool(terminated), bool(truncated), {"success": success}

    def render(self) -> list[Frame]:
        """Return the frames since the last call: the episode's start, and one per `frame_stride` steps."""
        frames, self._frames = self._frames, []
        return frames

    def close(self) -> None:
        self.env.close()

    def _flat(self, obs: Any) -> Doubles:
        with self._explained("returned an observation that does not fit its space"):
            arrays = [
                gymnasium.spaces.flatten(space, obs[key] if key else obs).astype(np.float64)
                for key, space in self.parts.items()
            ]
            if [len(array) for array in arrays] != list(self.obs_sizes.values()):
                raise ValueError(f"it must have {self.num_entries()}; got {[len(array) for array in arrays]}")
        flat = np.concatenate(arrays)
        if not np.isfinite(flat).all():
            entries = ", ".join(map(str, np.flatnonzero(~np.isfinite(flat)).tolist()))
            raise ValueError(
                f"environment {self.env_id!r} returned an observation that is not finite (NaN or infinite) at step "
                f"{self._num_steps}: entries {entries}"
            )
        return flat

    def num_entries(self) -> str:
        """Return `6 observation entries (achieved_goal 2, observation 4)`."""
        parts = ", ".join(f"{key} {size}" for key, size in self.obs_sizes.items())
        return f"{sum(self.obs_sizes.values())} observation entries" + (f" ({parts})" if "" not in self.parts else "")

    def _success_of(self, info: Mapping[str, Any], is_last: bool) -> float:
        if self._success is None or not (is_last or self._success in info):
            return 0.0
        if self._success not in info:
            raise ValueError(f"environment {self.env_id!r}: {unknown('key of info', self._success, info)}")
        with self._explained(f"has a success {self._success!r} that is not a number"):
            return float(float(info[self._success]) > 0)

    def _draw(self) -> None:
        if self._stride is None or self._num_steps % self._stride:
            return
        with self._explained("cannot be drawn"):
            frame = np.asarray(self.env.render())
            if frame.ndim != 3 or frame.shape[2] != 3 or frame.dtype != np.uint8:
                raise ValueError(f"render must return [height, width, 3] of uint8; got {frame.dtype} {frame.shape}")
        self._frames.append(frame)

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Turn any error of the environment's own code into one sentence."""
        try:
            yield
        except (gymnasium.error.Error, ImportError) as error:
            raise ValueError(f"environment {self.env_id!r} {what}: {error}") from error
        except Exception as error:
            raise ValueError(broken(f"environment {self.env_id!r} {what}", error)) from error


def register(env_id: str) -> None:
    """Register the environments of gymnasium-robotics, unless Gymnasium has this name or it is `MODULE:NAME`."""
    if ":" not in env_id and env_id not in gymnasium.registry:
        with redirect_stderr(io.StringIO()):  # its import prints a notice
            robotics = import_extra("gymnasium_robotics", "imitation")
        gymnasium.register_envs(robotics)
