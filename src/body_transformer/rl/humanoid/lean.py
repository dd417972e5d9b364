"""The quick step of the humanoid tasks."""

from __future__ import annotations

from typing import Any

from mjlab.envs import ManagerBasedRlEnvCfg
from torch import Tensor

from ..lean import LeanStep
from . import terms
from .task import Humanoids, humanoids, observations, task_of


class LeanEnv(LeanStep):
    """Action [B, 21]; what happens around the physics steps is recorded, too."""

    robots: Humanoids

    def __init__(self, cfg: ManagerBasedRlEnvCfg, device: str, render_mode: str | None = None, **kwargs: Any):
        _refuse_changes(cfg)
        super().__init__(cfg, device, render_mode, **kwargs)
        self.act, self.go_on = self._recorded(self.robots.act), self._recorded(self.robots.go_on)

    def _find_robots(self) -> Humanoids:
        return humanoids(self)

    def _move(self, action: Tensor) -> None:
        self.act(action)
        for number in range(self.cfg.decimation):
            if number and self.robots.planes is not None:
                self.go_on()
            self.sim.step()


def _refuse_changes(cfg: ManagerBasedRlEnvCfg) -> None:
    """The lean step knows one set of terms; others would be left out in silence."""
    _same("actions", list(cfg.actions), ["torque"])
    groups = observations(task_of(cfg))
    expected = {
        "events": ["start"],
        "rewards": list(terms.REWARD_WEIGHTS),
        "terminations": ["died", "time_out"],
        "observations": list(groups),
        "commands": [],
        "curriculum": [],
        "metrics": [],
        "recorders": [],
    }
    for field, names in expected.items():
        _same(field, list(getattr(cfg, field)), names)
    for name, group in groups.items():
        _same(f"observation terms of the {name}", list(cfg.observations[name].terms), list(group.terms))
    changed = [
        name
        for group in cfg.observations.values()
        for name, term in group.terms.items()
        if term.noise or term.clip or term.scale is not None or term.delay_max_lag or term.history_length
    ]
    remembered = any(group.history_length for group in cfg.observations.values())
    if changed or remembered or cfg.scale_rewards_by_dt or not cfg.auto_reset:
        raise ValueError(
            "the lean step knows no noise, clipping, scaling, delay or history of observations, no rewards by time and "
            f"no manual resets; use lean=False (observations changed: {changed or 'none'})"
        )


def _same(what: str, have: list[str], expected: list[str]) -> None:
    if have != expected:
        raise ValueError(f"the lean step knows {what} {expected}, not {have}; use lean=False")
