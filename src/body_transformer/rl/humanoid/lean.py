"""A step of the humanoid tasks without what mjlab's own step does beside them."""

from __future__ import annotations

from typing import Any

from mjlab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from mjlab.envs.types import VecEnvObs, VecEnvStepReturn
from torch import Tensor

from . import terms
from .task import GROUP, OBSERVATIONS, Humanoids, humanoids


class LeanEnv(ManagerBasedRlEnv):
    """The same environment as ManagerBasedRlEnv makes of the configuration, in a quicker step.

    It leaves out the additional forward() of a step, resets by masks instead of by indices, and waits nowhere for the
    device, so that a step can be captured in a CUDA graph. What is missing then: `extras["log"]` (episode sums of
    reward terms, counts of terminations). Observations, rewards and ends of episodes are the same.
    """

    def __init__(self, cfg: ManagerBasedRlEnvCfg, device: str, render_mode: str | None = None, **kwargs: Any):
        _refuse_changes(cfg)
        super().__init__(cfg, device, render_mode, **kwargs)
        self._humanoids: Humanoids = humanoids(self)
        self._weights = {name: term.weight for name, term in cfg.rewards.items()}

    def reset(
        self, *, seed: int | None = None, env_ids: Tensor | None = None, options: dict[str, Any] | None = None
    ) -> tuple[VecEnvObs, dict[str, Any]]:
        """mjlab's own; a seed decides on the starts of all episodes to come."""
        if seed is not None:
            self._humanoids.starts.seed(seed)
        obs, extras = super().reset(seed=seed, env_ids=env_ids, options=options)
        return obs, extras

    def step(self, action: Tensor) -> VecEnvStepReturn:
        """action [B, 21] -> observations, rewards [B], died [B], timed out [B], extras."""
        robots = self._humanoids
        robots.memory.act(action.to(self.device))
        for _ in range(self.cfg.decimation):
            self.sim.step()
        robots.memory.feel()
        self._count()
        self.reset_terminated = robots.died()
        self.reset_time_outs = robots.timed_out(self.reset_terminated)
        self.reset_buf = self.reset_terminated | self.reset_time_outs
        self.reward_buf = robots.reward(self.reset_terminated, self._weights)
        robots.restart(self.reset_buf)
        self.episode_length_buf.masked_fill_(self.reset_buf, 0)
        self.obs_buf = {GROUP: robots.observation()}
        self.observation_manager._obs_buffer = self.obs_buf  # who asks mjlab's manager gets these
        self.extras = {}
        return self.obs_buf, self.reward_buf, self.reset_terminated, self.reset_time_outs, self.extras

    def _count(self) -> None:
        self.episode_length_buf += 1
        self.common_step_counter += 1
        self._sim_step_counter += self.cfg.decimation


def _refuse_changes(cfg: ManagerBasedRlEnvCfg) -> None:
    """The lean step knows one set of terms; others would be left out in silence."""
    expected = {
        "actions": ["torque"],
        "events": ["start"],
        "rewards": list(terms.REWARD_WEIGHTS),
        "terminations": ["died", "time_out"],
        "observations": [GROUP],
        "commands": [],
        "curriculum": [],
        "metrics": [],
        "recorders": [],
    }
    for field, names in expected.items():
        _same(field, list(getattr(cfg, field)), names)
    group = cfg.observations[GROUP]
    _same("observation terms", list(group.terms), list(OBSERVATIONS))
    changed = [
        name
        for name, term in group.terms.items()
        if term.noise or term.clip or term.scale is not None or term.delay_max_lag or term.history_length
    ]
    if changed or group.history_length or cfg.scale_rewards_by_dt or not cfg.auto_reset:
        raise ValueError(
            "the lean step knows no noise, clipping, scaling, delay or history of observations, no rewards by time and "
            f"no manual resets; use lean=False (observations changed: {changed or 'none'})"
        )


def _same(what: str, have: list[str], expected: list[str]) -> None:
    if have != expected:
        raise ValueError(f"the lean step knows {what} {expected}, not {have}; use lean=False")
