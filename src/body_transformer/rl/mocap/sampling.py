"""Frames at which training episodes begin: more often where the policy fails.

Each clip is cut into bins of one second. Exponential moving averages count the visits of a bin and the failures in it.
Nothing here waits for the device, so a CUDA graph can record all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ...imitation.tasks.mocap.snippets import MIN_STEPS
from .motions import Motions

BIN_FRAMES = 33
"""One second."""
REWIND_FRAMES = (33, 66)
"""Distance of a new start from the failure before it."""
AHEAD = (1.0, 0.7, 0.4)
"""Weights of the failures in a bin and in the two after it, because an episode begins before it fails."""
KEEP = 0.999
"""Weight of the past in each step's averages."""
PRIOR_VISITS, PRIOR_RATE = 20.0, 0.01
"""Initial number of visits of a bin, and initial failures per visit."""


@dataclass(frozen=True)
class SamplingSettings:
    """Shares of the ways in which an episode begins."""

    uniform: float = 0.2
    """Share of starts from any second with equal probability; the others depend on failures."""
    cap: float = 10.0
    """Largest failure rate of a second, relative to the mean. Otherwise, glitches in the data take all starts."""
    clip_starts: float = 0.2
    """Share of starts from the first frame of the chosen clip."""
    rewind: float = 0.5
    """Share of failures after which the next episode begins one to two seconds before the failure."""


class FrameSampler:
    """Draws the first frames of episodes on the training clips."""

    def __init__(self, motions: Motions, clips: Tensor, settings: SamplingSettings) -> None:
        """Take the numbers of the training clips."""
        self.motions, self.settings = motions, settings
        latest = (motions.last[clips] - MIN_STEPS - 1).maximum(motions.start[clips])
        counts = (latest - motions.start[clips]) // BIN_FRAMES + 1
        clip = torch.repeat_interleave(clips, counts)
        number = torch.arange(len(clip), device=clip.device) - torch.repeat_interleave(
            counts.cumsum(0) - counts, counts
        )
        self.first = motions.start[clip] + BIN_FRAMES * number
        """[bins]: first frame of each bin."""
        self.size = (torch.repeat_interleave(latest, counts) + 1 - self.first).clamp(max=BIN_FRAMES)
        """[bins]: number of frames at which an episode may begin."""
        self.bin = torch.searchsorted(self.first, torch.arange(motions.num_frames, device=clip.device), right=True) - 1
        """[F]: bin of each frame."""
        self._share = self.size / self.size.sum()
        self._follows = torch.cat([clip[1:] == clip[:-1], clip.new_zeros(1, dtype=torch.bool)])
        """[bins]: whether the next bin belongs to the same clip."""
        self.visits = torch.full_like(self._share, PRIOR_VISITS)
        self.failures = PRIOR_RATE * self.visits

    def note(self, frames: Tensor, failed: Tensor) -> None:
        """Count a step of all environments: their frames [B], and where the episode failed [B, bool]."""
        bins = self.bin[frames]
        for average, counted in ((self.visits, torch.ones_like(failed)), (self.failures, failed)):
            average.mul_(KEEP).index_add_(0, bins, counted.to(average.dtype))

    def probabilities(self) -> Tensor:
        """Return the probability of each bin, [bins]."""
        rate = (self.failures + PRIOR_RATE) / (self.visits + 1.0)
        score, ahead = torch.zeros_like(rate), rate
        for weight in AHEAD:
            score = score + weight * ahead
            ahead = torch.cat([ahead[1:], ahead[-1:]]) * self._follows
        score = score.minimum(self.settings.cap * score.mean()) * self._share
        return self.settings.uniform * self._share + (1 - self.settings.uniform) * score / score.sum()

    def draw(self, count: int) -> Tensor:
        """Draw first frames, [count]."""
        which, place, whole = torch.rand(3, count, device=self.first.device, dtype=self._share.dtype)
        edges = self.probabilities().cumsum(0)
        bins = torch.searchsorted(edges, which * edges[-1]).clamp(max=len(edges) - 1)
        frames = self.first[bins] + (place * self.size[bins]).long()
        return torch.where(whole < self.settings.clip_starts, self.motions.start[self.motions.clip[frames]], frames)

    def draw_after(self, frames: Tensor, failed: Tensor) -> Tensor:
        """Draw first frames [B] of the episodes after those that ended at these frames, some of them by a failure."""
        again, back = torch.rand(2, len(frames), device=frames.device)
        low, high = REWIND_FRAMES
        before = (frames - low - (back * (high - low + 1)).long()).maximum(
            self.motions.start[self.motions.clip[frames]]
        )
        return torch.where(failed & (again < self.settings.rewind), before, self.draw(len(frames)))

    # -- checkpoint ----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """Return the averages under their names in a checkpoint."""
        return {"task.visits": self.visits, "task.failures": self.failures}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Set the averages; those of other clips are refused."""
        for name, own in self.state().items():
            if tensors[name].shape != own.shape:
                raise ValueError(
                    f"the checkpoint's visits belong to other clips: it has {len(tensors[name])} seconds of training "
                    f"clips, this run {len(own)}"
                )
            own.copy_(tensors[name])
