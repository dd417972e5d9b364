"""The options of mocap-expert."""

from __future__ import annotations

from dataclasses import dataclass

from ...schema import check_fields
from .model import Cone
from .motions import ClipFile
from .sampling import SamplingSettings

NAME = "mocap-expert"
TERMINATION_ERROR = 0.3
"""Default of dm_control, which MoCapAct also uses."""


@dataclass(frozen=True, kw_only=True)
class ExpertOptions(SamplingSettings):
    """Options of the task, `--rl.options NAME VALUE …`."""

    clips: str = ""
    """Motion clips in dm_control's HDF5 format; this option is required."""
    train_clips: str | None = None
    """Text file with the names of the training clips, one per line. Without any list, all clips are for training."""
    validation_clips: str | None = None
    """The same for the validation clips, which are never used for training."""
    only: tuple[str, ...] | None = None
    """Train on these clips alone."""
    action_scale: float = 0.33
    """Change of the control by an action of 1, in units of the control range [-1, 1]."""
    max_error: float = TERMINATION_ERROR
    """Error beyond which a training episode fails; evaluations have dm_control's 0.3."""
    alive_weight: float = 0.2
    """Reward of each step."""
    kernel_weight: float = 0.3
    """Weight of the rewards for joint angles and body rotations; the weight for joint velocities is a third of it."""
    start_noise: float = 0.02
    """Standard deviation of joint angles at the start of a training episode, rad. That of joint velocities is ten times
    as large, in rad/s."""
    start_at_rest: float = 0.5
    """Share of training episodes that begin with activations of 0, as in dm_control; the others hold the motion."""
    freeze_fingers: bool = True
    """Remove the joints of fingers and thumbs from the training model."""
    cone: Cone = "pyramidal"
    """Friction cones of the training model."""
    iterations: int = 4
    ls_iterations: int = 8
    """Iterations of the contact solver, and of its line search."""

    def __post_init__(self) -> None:
        if not self.clips:
            raise ValueError(
                f"{NAME} needs a file of motion clips: --rl.options clips FILE.hdf5; "
                "`python -m body_transformer.imitation.tasks.mocap.clips` makes one from joint angles"
            )
        shares = ("uniform", "clip_starts", "rewind", "start_at_rest", "start_noise")
        check_fields(self, non_negative=("alive_weight", "kernel_weight"), fractions=shares)

    def clip_file(self) -> ClipFile:
        """Check the file of clips."""
        return ClipFile.open(self.clips, self.train_clips, self.validation_clips, self.only)
