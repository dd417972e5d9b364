"""Commands of B A1s: drawn for each episode, changed every few seconds, and steered to a heading."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..envs.geometry import yaw
from ..walking import wrapped
from .model import CONTROL_DT
from .options import WalkOptions
from .state import A1State

STEERING = 1.0
"""Turning speed per error of the heading, 1/s."""
WIDTH = 5
"""Numbers per command: m/s ahead, m/s to the left, rad/s to the left, heading in rad, 1 where the heading counts."""


def draw_commands(rng: np.random.Generator, options: WalkOptions, count: int, max_steps: int) -> NDArray[np.float64]:
    """Draw the commands of episodes of up to `max_steps`, [count, commands, WIDTH]."""
    number = 1 if options.resample_every_s is None else -(-max_steps // _steps(options.resample_every_s))
    slowest, fastest = np.array(options.command).T
    drawn = np.zeros((count, number, WIDTH))
    drawn[..., :3] = rng.uniform(slowest, fastest, (count, number, 3))
    kind = rng.uniform(size=(count, number, 1))
    is_straight = kind < options.straight
    is_standing = kind > 1 - options.standing
    has_heading = ~is_straight & (kind < options.straight + options.heading)
    drawn[..., 1:3] = np.where(is_straight, 0.0, drawn[..., 1:3])
    drawn[..., :3] = np.where(is_standing, 0.0, drawn[..., :3])
    drawn[..., 3] = rng.uniform(-np.pi, np.pi, (count, number))
    drawn[..., 4] = has_heading[..., 0]
    return drawn


class Commands:
    """The commands of B robots in their current episodes."""

    def __init__(self, state: A1State, drawn: Tensor, options: WalkOptions) -> None:
        """Take the drawn commands [starts, commands, WIDTH] of all starts."""
        self._state = state
        self._every = 0 if drawn.shape[1] == 1 else _steps(options.resample_every_s or 0.0)
        low, high = options.command[2]
        self._turning = (low, high)
        self.may_change = self._every > 0 or options.heading > 0
        self.schedule = drawn.new_zeros(len(state.command), *drawn.shape[1:])
        """[B, commands, WIDTH], of the current episodes."""

    def restart(self, fresh: Tensor, schedule: Tensor) -> None:
        """Begin the first command of an episode where `fresh` [B, bool]; `schedule` has those of every episode."""
        self.schedule.copy_(schedule)
        self._begin(fresh, self.schedule[:, 0])

    def advance(self, steps: Tensor) -> None:
        """Continue after a control step; `steps` [B] are those of the current episodes so far."""
        if not self.may_change:
            return
        if not self._every:
            self._steer(self.schedule[:, 0])
            return
        number = (steps // self._every).clamp_max(self.schedule.shape[1] - 1)
        current = self.schedule.gather(1, number[:, None, None].expand(-1, 1, WIDTH))[:, 0]
        self._begin(steps % self._every == 0, current)
        self._steer(current)

    def _begin(self, begins: Tensor, current: Tensor) -> None:
        """Begin the commands [B, WIDTH] where `begins` [B, bool]."""
        state = self._state
        state.command.copy_(torch.where(begins[:, None], current[:, :3], state.command))
        state.wanted_heading.copy_(torch.where(begins, yaw(state.root.quat), state.wanted_heading))
        self._steer(current, begins)

    def _steer(self, current: Tensor, chosen: Tensor | bool = True) -> None:
        """Turn the chosen robots [B, bool] whose command has a heading towards it."""
        state = self._state
        error = wrapped(current[:, 3] - yaw(state.root.quat))
        turning = (STEERING * error).clamp(*self._turning)
        state.command[:, 2].copy_(torch.where((current[:, 4] > 0) & chosen, turning, state.command[:, 2]))


def _steps(seconds: float) -> int:
    return max(1, round(seconds / CONTROL_DT))
