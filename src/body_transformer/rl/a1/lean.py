"""The quick step of a1-walk."""

from __future__ import annotations

from functools import partial
from typing import Any

from mjlab.envs import ManagerBasedRlEnvCfg
from torch import Tensor

from ..lean import LeanStep
from .task import A1s, env_cfg, robots_of, task_of


class LeanEnv(LeanStep):
    """Action [B, 12]; motors and ground of each physics step are recorded, too."""

    robots: A1s

    def __init__(self, cfg: ManagerBasedRlEnvCfg, device: str, render_mode: str | None = None, **kwargs: Any):
        _refuse_changes(cfg)
        super().__init__(cfg, device, render_mode, **kwargs)
        self.begin = self._recorded(self.begin_plainly)
        self.go_on = [self._recorded(partial(self.robots.drive, step)) for step in range(1, cfg.decimation)]

    def _find_robots(self) -> A1s:
        return robots_of(self)

    def _move(self, action: Tensor) -> None:
        self.begin(action)
        self.sim.step()
        for go_on in self.go_on:
            go_on()
            self.sim.step()

    def begin_plainly(self, action: Tensor) -> None:
        """Before the first physics step."""
        self.robots.memory.act(action)
        self.robots.drive(0)


def _refuse_changes(cfg: ManagerBasedRlEnvCfg) -> None:
    """The lean step knows one set of terms; others would be left out in silence. Weights may be what they like."""
    plain = env_cfg(task_of(cfg), cfg.scene, cfg.sim, cfg.seed or 0)
    fields = ("actions", "events", "rewards", "terminations", "commands", "curriculum", "metrics", "recorders")
    for field in fields:
        have, expected = list(getattr(cfg, field)), list(getattr(plain, field))
        if have != expected:
            raise ValueError(f"the lean step knows {field} {expected}, not {have}; use lean=False")
    if cfg.observations != plain.observations:
        raise ValueError("the lean step knows a1-walk's own observations, others were asked for; use lean=False")
    if not cfg.scale_rewards_by_dt or not cfg.auto_reset or cfg.rewards["floor"].weight != 1:
        raise ValueError("the lean step knows rewards by time and at least 0, and resets by itself; use lean=False")
