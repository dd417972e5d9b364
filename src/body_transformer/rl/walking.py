"""What evaluations measure of a walking robot: its path beside the commanded one, slip, symmetry and power."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

MAX_PATHS = 8
"""Robots whose paths are kept."""
STRIDE = 5
"""Control steps between two points of a path."""


@dataclass(frozen=True)
class Motion:
    """The motion of B robots in their last control step. Fields that a task does not know are None."""

    xy: Tensor
    """[B, 2], m, world: position of the trunk."""
    heading: Tensor
    """[B], rad: angle of the trunk about the vertical."""
    command: Tensor
    """[B, 3]: the command of the next step, m/s ahead, m/s to the left, rad/s to the left."""
    power: Tensor | None = None
    """[B], W: sum over the joints of the sizes of their powers."""
    slip: Tensor | None = None
    """[B], m/s: mean speed of the feet on the ground."""
    thighs: Tensor | None = None
    """[B, pairs, 2], rad: angles of the left and the right thigh of each pair."""


@dataclass(frozen=True)
class Paths:
    """Paths from above, in the frame of each start: m ahead and m to the left."""

    walked: Tensor
    """[T, B, 2]; from the end of an episode on, its last point."""
    commanded: Tensor
    """[T, B, 2]"""

    def to_json(self) -> dict[str, list[list[list[float]]]]:
        """Return the points of each robot in mm."""
        ways = {"walked": self.walked, "commanded": self.commanded}
        return {name: (way.transpose(0, 1) * 1000).round().div(1000).tolist() for name, way in ways.items()}


class WalkingMetrics:
    """Sums over the first episode of each of B environments, on their device.

    The commanded path begins where the robot begins. It follows the commanded speeds from there, turned as commanded.
    """

    def __init__(self, motion: Motion, step_s: float) -> None:
        """Begin after a reset; `step_s` is the duration of a control step."""
        self._step_s = step_s
        self._start = motion.xy.double().clone()
        self._last = motion
        self.xy, self.wanted_xy = self._start.clone(), self._start.clone()
        """[B, 2], m: ends of the paths so far."""
        self._start_heading, self._wanted_heading = motion.heading.double().clone(), motion.heading.double().clone()
        self._heading = self._wanted_heading.clone()
        """[B], rad, not wrapped: turns add up."""
        self._command = motion.command.double().clone()
        zeros = torch.zeros_like(self._heading)
        self._steps, self._power, self._slip = zeros.clone(), zeros.clone(), zeros.clone()
        self._sideways, self._wanted = zeros.clone(), torch.zeros_like(self._command)
        thighs = motion.thighs
        self._thighs = None if thighs is None else torch.zeros(2, *thighs.shape, dtype=zeros.dtype, device=zeros.device)
        """[2, B, pairs, 2]: sums of the angles and of their squares."""
        self._num_added, self._trail = 0, [self._ends()]

    def _ends(self) -> Tensor:
        """Return the ends of the first paths, walked and commanded, [2, MAX_PATHS, 2]."""
        return torch.stack([self.xy[:MAX_PATHS], self.wanted_xy[:MAX_PATHS]])

    def add(self, motion: Motion, running: Tensor) -> None:
        """Add a step of the episodes that still run after it, [B, bool]: where one ended, the next has begun."""
        dt, going = self._step_s, running.to(self._steps)
        ahead, left, turn = self._command.unbind(-1)
        cos, sin = self._wanted_heading.cos(), self._wanted_heading.sin()
        wanted = torch.stack([ahead * cos - left * sin, ahead * sin + left * cos], -1)
        self.wanted_xy += dt * wanted * going[:, None]
        self._wanted_heading += dt * turn * going
        self._wanted += self._command * going[:, None]
        moved = (motion.xy.double() - self.xy) * going[:, None]
        self._sideways += moved[:, 1] * self._heading.cos() - moved[:, 0] * self._heading.sin()
        self.xy += moved
        self._heading += wrapped(motion.heading.double() - self._heading) * going
        self._steps += going
        for total, value in ((self._power, motion.power), (self._slip, motion.slip)):
            if value is not None:
                total += value * going
        if self._thighs is not None and motion.thighs is not None:
            angles = motion.thighs.double() * going[:, None, None]
            self._thighs += torch.stack([angles, angles * motion.thighs])
        self._command, self._last = motion.command.double().clone(), motion
        self._num_added += 1
        if self._num_added % STRIDE == 0:
            self._trail.append(self._ends())

    def result(self) -> dict[str, Tensor]:
        """Return the metrics of each episode, [B].

        - `ahead`, m: the way of the whole episode along the initial heading.
        - `drift`, m: distance of its end from the line of the end of the commanded path, along its heading.
        - `heading_error`, degrees: size of the difference between the headings of both ends.
        - `sideways_error`, m/s, and `turning_error`, rad/s: sizes of the differences of mean and commanded speeds.
        - `foot_slip`, m/s; `power`, W; `asymmetry`: the difference of the swings of left and right thighs over their
          mean.
        """
        steps = self._steps.clamp_min(1)
        turned, wanted_turn = self._heading - self._start_heading, self._wanted_heading - self._start_heading
        ahead, _ = turned_back(self.xy - self._start, self._start_heading)
        _, drift = turned_back(self.xy - self.wanted_xy, self._wanted_heading)
        seconds = steps * self._step_s
        found = {
            "ahead": ahead,
            "drift": drift.abs(),
            "heading_error": (turned - wanted_turn).abs() * (180 / math.pi),
            "sideways_error": (self._sideways / seconds - self._wanted[:, 1] / steps).abs(),
            "turning_error": ((turned - wanted_turn) / seconds).abs(),
        }
        if self._last.slip is not None:
            found["foot_slip"] = self._slip / steps
        if self._last.power is not None:
            found["power"] = self._power / steps
        if self._thighs is not None:
            found["asymmetry"] = asymmetry(self._thighs, steps)
        return found

    def paths(self) -> Paths:
        """Return the paths of the first robots."""
        ways = torch.stack([*self._trail, self._ends()]) - self._start[:MAX_PATHS]  # [T, 2, B, 2]
        heading = self._start_heading[: ways.shape[2]].repeat(ways.shape[0] * 2)
        ahead, left = turned_back(ways.flatten(0, 2), heading)
        turned = torch.stack([ahead, left], -1).view_as(ways).cpu()
        return Paths(turned[:, 0], turned[:, 1])


def asymmetry(sums: Tensor, steps: Tensor) -> Tensor:
    """Return the difference of left and right swings relative to their mean, the mean over pairs, [B].

    Args:
        sums: [2, B, pairs, 2], of the angles and of their squares. A swing is a standard deviation.
        steps: [B], number of angles.
    """
    mean, square = sums / steps[:, None, None]
    swing = (square - mean.square()).clamp_min(0.0).sqrt()
    difference: Tensor = (swing[..., 0] - swing[..., 1]).abs() / swing.mean(-1).clamp_min(1e-6)
    return difference.mean(-1)


def turned_back(way: Tensor, heading: Tensor) -> tuple[Tensor, Tensor]:
    """Return a way [B, 2] in the frame of a heading [B]: ahead and to the left, [B] each."""
    cos, sin = heading.cos(), heading.sin()
    return way[:, 0] * cos + way[:, 1] * sin, way[:, 1] * cos - way[:, 0] * sin


def wrapped(angle: Tensor) -> Tensor:
    """Return the same angle in [-pi, pi)."""
    return (angle + math.pi) % (2 * math.pi) - math.pi
