"""dm_control's tracking task as MoCapAct and the paper set it up, with gymnasium's interface."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from ....errors import install
from ....video import Frame, no_opengl
from .clips import DT_S, clip_lengths
from .snippets import MIN_STEPS, REF_STEPS, Snippet, available

try:
    import gymnasium
    from dm_control import composer
    from dm_control.locomotion.arenas import floors
    from dm_control.locomotion.tasks.reference_pose import tracking, types
    from dm_control.locomotion.walkers import cmu_humanoid
    from dm_control.utils import transformations
except ImportError as error:
    raise ValueError(f"motion tracking needs dm_control: {install('imitation')} ({error})") from error

TERMINATION_ERROR = 0.3
"""An episode ends if half the mean joint error (rad) plus half the mean body error (m) is larger. This is the
default of dm_control's task, and the value in MoCapAct's training, rollout and evaluation scripts."""
ARENA_SIZE = (8.0, 8.0)
"""MoCapAct's floor (m). It is drawn at this size but has no edge."""
GHOST_OFFSET = (1.2, 0.0, 0.0)
"""Position of the drawn reference relative to the walker (m)."""
NOT_OBSERVED = ("prev_action", "egocentric_camera", "body_camera", "clip_id")
"""The walker's observables that MoCapAct leaves out: an unimplemented one, camera images, and the clip's number."""

Floats = npt.NDArray[np.float32]


class SnippetTracking(tracking.MultiClipMocapTracking):  # type: ignore[misc]
    """dm_control's task on a given snippet, the only one in memory."""

    _snippet: Snippet | None = None

    def track(self, snippet: Snippet, start_step: int) -> None:
        """Set the snippet of the next episode."""
        if self._snippet != snippet:  # loading takes a tenth of a second
            self._dataset = types.ClipCollection([snippet.clip], [snippet.start], [snippet.end])
            self._all_clips = [None]
            self._snippet = snippet
        self._possible_starts = [(0, start_step)]
        self._start_probabilities = np.ones(1)

    def initialize_episode(self, physics: Any, random_state: np.random.RandomState) -> None:
        # dm_control selects the clip when it recompiles the model for its props; here there are none
        self._get_clip_to_track(random_state)
        super().initialize_episode(physics, random_state)

    # dm_control computes both of these one quaternion at a time, which takes half of a step's time.

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
        """Steps until the snippet's end."""
        return int(self._last_step - self._time_step)

    def reference(self, name: str, ahead: int = 0) -> npt.NDArray[np.float64]:
        """Return a feature of the reference, `ahead` steps from now."""
        feature: npt.NDArray[np.float64] = self._clip_reference_features[name][self._time_step + ahead]
        return feature

    @property
    def walker(self) -> Any:
        return self._walker


class MocapEnv(gymnasium.Env[Floats, Floats]):
    """A humanoid that tracks snippets of the clips in a file.

    `reset(options={"snippet": Snippet, "start_step": frame})` starts an episode. The default of `start_step` is the
    snippet's first frame. An episode is terminated if the walker is too far from the reference or the physics diverges,
    and truncated at the snippet's end. `info["max_steps"]` is the longest possible length of the episode.
    """

    render_mode = "rgb_array"

    def __init__(self, clips_file: str | os.PathLike[str], ghost: bool = False) -> None:
        """Make the environment; with `ghost`, draw the reference beside the walker."""
        self.clips_file = os.fspath(clips_file)
        self.lengths = clip_lengths(clips_file)
        first = available(list(self.lengths)[:1], self.lengths, repr(self.clips_file))
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
            raise ValueError(
                f"{self.clips_file!r} has frames every {self.task.control_timestep} s; they must be {DT_S} s apart"
            )
        observables = self.task.walker.observables
        observables.enable_all()
        for name in NOT_OBSERVED:
            observables.get_observable(name).enabled = False
        self.env: Any = composer.Environment(
            self.task,
            random_state=0,  # no random numbers are drawn
            raise_exception_on_physics_error=False,  # a diverging policy ends its episode, not the evaluation
            recompile_mjcf_every_episode=False,  # without props the model stays the same
        )
        sizes = {name: int(np.prod(spec.shape)) for name, spec in sorted(self.env.observation_spec().items())}
        self.obs_sizes = {
            name.removeprefix("walker/"): size for name, size in sizes.items() if name.startswith("walker/") and size
        }
        """Term -> its number of entries, in the order of the flat observation: by name."""
        self.obs_dim = sum(self.obs_sizes.values())
        self.action_dim = int(self.env.action_spec().shape[0])
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (self.obs_dim,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (self.action_dim,), np.float32)
        self.obs = np.zeros(self.obs_dim, dtype=np.float32)
        """The newest observation."""
        self._max_steps = 0
        self._over = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """Start an episode on `options["snippet"]`; the seed is ignored, because nothing is random."""
        if not options or "snippet" not in options:
            raise ValueError(f"reset needs options with a 'snippet'; got {options!r}")
        snippet: Snippet = options["snippet"]
        start_step = int(options.get("start_step", snippet.start))
        available([snippet.clip], self.lengths, repr(self.clips_file))
        last = min(snippet.end, self.lengths[snippet.clip]) - REF_STEPS[-1] - 2
        if snippet.end > self.lengths[snippet.clip] or not snippet.start <= start_step <= last:
            raise ValueError(
                f"snippet {snippet.name!r} cannot be tracked from frame {start_step}: clip {snippet.clip!r} has "
                f"{self.lengths[snippet.clip]} frames, and the start must be within {snippet.start} to {last}"
            )
        self.task.track(snippet, start_step)
        self.obs = self._flat(self.env.reset().observation)
        self._over, self._max_steps = False, self.task.steps_left
        return self.obs, {"max_steps": self._max_steps}

    def step(self, action: npt.ArrayLike) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Take one step; `action` [56] is clipped to [-1, 1], the walker's control range."""
        if self._over:
            raise RuntimeError("the episode is over; call reset to start another")
        time_step = self.env.step(np.clip(np.asarray(action, dtype=np.float64), -1.0, 1.0))
        self._over = time_step.last()
        terminated = self._over and not time_step.discount
        info = {"max_steps": self._max_steps}
        reward = float(time_step.reward)
        self.obs = self._flat(time_step.observation)
        return self.obs, reward, terminated, self._over and not terminated, info

    def render(self) -> Frame:
        """Return a picture [480, 640, 3] from the camera that follows the walker."""
        camera = self.env.physics.model.name2id("walker/side", "camera")
        try:
            return np.array(self.env.physics.render(480, 640, camera_id=camera), dtype=np.uint8)
        except Exception as error:  # each renderer has its own errors
            raise ValueError(no_opengl(f"dm_control: {error}")) from None

    def _flat(self, observation: Any) -> Floats:
        return np.concatenate([np.ravel(observation[f"walker/{name}"]) for name in self.obs_sizes]).astype(np.float32)
