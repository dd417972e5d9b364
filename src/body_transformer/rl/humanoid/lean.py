"""A step of the humanoid tasks without what mjlab's own step does beside them."""

from __future__ import annotations

from typing import Any

import torch
from mjlab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from mjlab.envs.types import VecEnvObs, VecEnvStepReturn
from torch import Tensor

from ...training.replay import Replayed
from . import terms
from .task import GROUP, OBSERVATIONS, Humanoids, humanoids


class LeanEnv(ManagerBasedRlEnv):
    """The same environment as ManagerBasedRlEnv makes of the configuration, in a quicker step.

    It leaves out the additional forward() of a step, resets by masks instead of by indices, and waits nowhere for the
    device, so that all of a step but the physics is recorded on a GPU and replayed. What is missing then:
    `extras["log"]` (episode sums of reward terms, counts of terminations). Observations, rewards and ends of episodes
    are the same.
    """

    _episode_length: Tensor
    forward_speed: Tensor
    """[B], m/s along the world's x axis: how far the step has brought the torso."""
    broken: Tensor
    """[]: how many episodes have ended because the simulation broke."""
    lost: Tensor
    """[B, bool]: whose state was no number since this was last set to False."""
    left: dict[str, Tensor]
    """qpos [B, nq] and qvel [B, nv] as the last step's physics left them; of who is lost, as they were then."""

    def __init__(self, cfg: ManagerBasedRlEnvCfg, device: str, render_mode: str | None = None, **kwargs: Any):
        _refuse_changes(cfg)
        super().__init__(cfg, device, render_mode, **kwargs)
        self._humanoids: Humanoids = humanoids(self)
        self._weights = {name: term.weight for name, term in cfg.rewards.items()}
        self.broken = torch.zeros((), dtype=torch.long, device=device)
        self.lost = torch.zeros(self.num_envs, dtype=torch.bool, device=device)
        self.left = {name: getattr(self._humanoids.memory, name).clone() for name in ("qpos", "qvel")}
        on_gpu = torch.device(device).type == "cuda"
        self.judge = Replayed(self._judge_plainly) if on_gpu else self._judge_plainly
        self.act = Replayed(self._humanoids.act) if on_gpu else self._humanoids.act
        self.go_on = Replayed(self._humanoids.go_on) if on_gpu else self._humanoids.go_on

    @property
    def episode_length_buf(self) -> Tensor:
        """[B]: steps so far. What is set is copied: a recorded step knows the tensor, not its name."""
        return self._episode_length

    @episode_length_buf.setter
    def episode_length_buf(self, value: Tensor) -> None:
        if hasattr(self, "_episode_length"):
            self._episode_length.copy_(value)
        else:
            self._episode_length = value

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
        self.act(action.to(self.device))
        for number in range(self.cfg.decimation):
            if number and self._humanoids.planes is not None:
                self.go_on()
            self.sim.step()
        self.common_step_counter += 1
        self._sim_step_counter += self.cfg.decimation
        # copies: the next step writes into the same tensors, and a caller may still hold this one's
        obs, reward, died, late, self.forward_speed = (found.clone() for found in self.judge())
        self.obs_buf, self.reward_buf, self.extras = {GROUP: obs}, reward, {}
        self.reset_terminated, self.reset_time_outs, self.reset_buf = died, late, died | late
        self.observation_manager._obs_buffer = self.obs_buf  # who asks mjlab's manager gets these
        return self.obs_buf, reward, died, late, self.extras

    def _judge_plainly(self) -> tuple[Tensor, ...]:
        """What the physics led to; who is at the end of an episode begins the next."""
        robots = self._humanoids
        robots.feel()
        self.episode_length_buf.add_(1)
        died = robots.died()
        late = robots.timed_out(died)
        ended = died | late
        reward = robots.reward(died, self._weights)
        broken = robots.memory.broken()
        self.broken.add_(broken.sum())
        for name, left in self.left.items():
            torch.where(self.lost[:, None], left, getattr(robots.memory, name), out=left)
        self.lost.logical_or_(robots.memory.lost())
        forward_speed = terms.forward_speed(robots.state).masked_fill(broken, 0.0)
        robots.restart(ended)
        self.episode_length_buf.masked_fill_(ended, 0)
        return robots.observation(), reward, died, late, forward_speed


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
