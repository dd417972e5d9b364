"""dm_control's tracking task, as MoCapAct and the paper set it up."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import install
from .clips import DT_S, clip_lengths
from .snippets import MIN_STEPS, REF_STEPS, Snippet, among

try:
    from dm_control import composer
    from dm_control.locomotion.arenas import floors
    from dm_control.locomotion.tasks.reference_pose import tracking, types
    from dm_control.locomotion.walkers import cmu_humanoid
    from dm_control.utils import transformations
except ImportError as error:
    raise ValueError(f"motion tracking needs dm_control: {install('imitation')} ({error})") from error

TERMINATION_ERROR = 0.3
"""Half the mean joint error (rad) plus half the mean body error (m) that ends an episode: the default of dm_control's
task, which MoCapAct's training, rollout and evaluation scripts all name as theirs too."""
ARENA_SIZE = (8.0, 8.0)
"""MoCapAct's floor; it is drawn this large, and has no edge to fall off."""
GHOST_OFFSET = (1.2, 0.0, 0.0)
"""Where a film shows the reference, beside the walker (m)."""
NOT_OBSERVED = ("prev_action", "egocentric_camera", "body_camera", "clip_id")
"""The walker's observables that MoCapAct leaves out: not implemented, pictures, and the clip's number."""

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Outcome:
    """What a step led to."""

    obs: Floats
    """[2868]"""
    reward: float
    done: bool
    """The episode is over."""
    failed: bool
    """It was over before the snippet was: too far from the reference, or the physics broke down."""


class SnippetTracking(tracking.MultiClipMocapTracking):  # type: ignore[misc]
    """The task on a snippet that is told, not drawn, and that is the only one held in memory."""

    _snippet: Snippet | None = None

    def track(self, snippet: Snippet, start_step: int) -> None:
        """For the next episode."""
        if self._snippet != snippet:  # to load one takes a tenth of a second
            self._dataset = types.ClipCollection([snippet.clip], [snippet.start], [snippet.end])
            self._all_clips = [None]
            self._snippet = snippet
        self._possible_starts = [(0, start_step)]
        self._start_probabilities = np.ones(1)

    def initialize_episode(self, physics: Any, random_state: np.random.RandomState) -> None:
        # dm_control chooses the clip when it compiles the model anew, for the props' sake; there are none here
        self._get_clip_to_track(random_state)
        super().initialize_episode(physics, random_state)

    # Both are what dm_control computes one quaternion at a time; together that was half the time of a step.

    def get_reference_rel_bodies_quats(self, physics: Any) -> npt.NDArray[np.float64]:
        ahead = self._clip_reference_features["body_quaternions"][self._time_step + self._ref_steps]
        quats: npt.NDArray[np.float64] = transformations.quat_diff(self._walker_features["body_quaternions"], ahead)
        return quats.ravel()

    def get_reference_ego_bodies_quats(self, physics: Any) -> npt.NDArray[np.float64]:
        steps = self._time_step + self._ref_steps
        roots = self._clip_reference_features["quaternion"][steps][:, None]
        bodies = self._clip_reference_features["body_quaternions"][steps]
        quats: npt.NDArray[np.float64] = transformations.quat_diff(roots, bodies)
        return quats.ravel()

    @property
    def steps_left(self) -> int:
        """Until the snippet's end."""
        return int(self._last_step - self._time_step)

    def reference(self, name: str, ahead: int = 0) -> npt.NDArray[np.float64]:
        """A feature of the reference, so many steps from now."""
        feature: npt.NDArray[np.float64] = self._clip_reference_features[name][self._time_step + ahead]
        return feature

    @property
    def walker(self) -> Any:
        return self._walker


class TrackingEnvironment:
    """One humanoid that tracks snippets of the clips in a file."""

    def __init__(self, clips_file: str | os.PathLike[str], ghost: bool = False) -> None:
        """`ghost` draws the reference beside the walker."""
        self.clips_file = os.fspath(clips_file)
        self.lengths = clip_lengths(clips_file)
        first = among(list(self.lengths)[:1], self.lengths, repr(self.clips_file))
        self.task: Any = SnippetTracking(
            walker=cmu_humanoid.CMUHumanoidPositionControlledV2020,
            arena=floors.Floor(ARENA_SIZE),
            ref_path=self.clips_file,
            ref_steps=REF_STEPS,
            dataset=types.ClipCollection([first[0]], [0], [self.lengths[first[0]]]),
            termination_error_threshold=TERMINATION_ERROR,
            min_steps=MIN_STEPS,
            reward_type="comic",
            always_init_at_clip_start=True,
            ghost_offset=np.array(GHOST_OFFSET) if ghost else None,
        )
        if not np.isclose(self.task.control_timestep, DT_S):
            raise ValueError(f"{self.clips_file!r} has frames every {self.task.control_timestep} s; needed is {DT_S} s")
        observables = self.task.walker.observables
        observables.enable_all()
        for name in NOT_OBSERVED:
            observables.get_observable(name).enabled = False
        self.env: Any = composer.Environment(
            self.task,
            random_state=0,  # nothing is drawn from it
            raise_exception_on_physics_error=False,  # a wild policy fails its episode, not the whole evaluation
            recompile_mjcf_every_episode=False,  # without props the model stays the same
        )
        self.obs_sizes = self._obs_sizes()
        self._over = True

    def _obs_sizes(self) -> dict[str, int]:
        """Term -> its entries, in the order of the flat observation: by name."""
        spec = self.env.observation_spec()
        sizes = {name: int(np.prod(spec[name].shape)) for name in sorted(spec)}
        return {
            name.removeprefix("walker/"): size for name, size in sizes.items() if name.startswith("walker/") and size
        }

    @property
    def obs_dim(self) -> int:
        return sum(self.obs_sizes.values())

    @property
    def action_dim(self) -> int:
        return int(self.env.action_spec().shape[0])

    def snippet(self, clip: str) -> Snippet:
        """A whole clip."""
        among([clip], self.lengths, repr(self.clips_file))
        return Snippet(clip, 0, self.lengths[clip])

    def reset(self, snippet: Snippet, start_step: int | None = None) -> Floats:
        """Begins an episode at a frame of the snippet, its first unless told; gives the observation [2868]."""
        among([snippet.clip], self.lengths, repr(self.clips_file))
        start_step = snippet.start if start_step is None else start_step
        last = min(snippet.end, self.lengths[snippet.clip]) - REF_STEPS[-1] - 2
        if snippet.end > self.lengths[snippet.clip] or not snippet.start <= start_step <= last:
            raise ValueError(
                f"snippet {snippet.name!r} cannot be tracked from frame {start_step}: clip {snippet.clip!r} has "
                f"{self.lengths[snippet.clip]} frames, and the start must be within {snippet.start} to {last}"
            )
        self.task.track(snippet, start_step)
        self._over = False
        return self._flat(self.env.reset().observation)

    @property
    def steps_left(self) -> int:
        """Steps until the snippet's end; right after `reset`, the longest the episode can last."""
        return int(self.task.steps_left)

    def step(self, action: npt.ArrayLike) -> Outcome:
        """`action` [56] is clipped to [-1, 1], the walker's range of control."""
        if self._over:
            raise RuntimeError("the episode is over; reset begins another")
        time_step = self.env.step(np.clip(np.asarray(action, dtype=np.float64), -1.0, 1.0))
        self._over = done = time_step.last()
        failed = done and not time_step.discount
        return Outcome(self._flat(time_step.observation), float(time_step.reward), done, failed)

    def render(self, width: int = 640, height: int = 480) -> npt.NDArray[np.uint8]:
        """[height, width, 3] seen from the camera that goes along."""
        camera = self.env.physics.model.name2id("walker/side", "camera")
        return np.array(self.env.physics.render(height, width, camera_id=camera), dtype=np.uint8)

    def _flat(self, observation: Any) -> Floats:
        return np.concatenate([np.ravel(observation[f"walker/{name}"]) for name in self.obs_sizes]).astype(np.float32)
