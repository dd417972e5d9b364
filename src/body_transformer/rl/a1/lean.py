"""A step of a1-walk without what mjlab's own step does beside it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from mjlab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from mjlab.envs.types import VecEnvObs, VecEnvStepReturn
from torch import Tensor

from ...training.replay import Replayed
from . import terms
from .task import ACTOR, CRITIC, A1s, env_cfg, robots_of, task_of


class LeanEnv(ManagerBasedRlEnv):
    """The same environment as ManagerBasedRlEnv makes of the configuration, in a quicker step.

    It leaves out the additional forward() of a step, resets by masks instead of by indices, and waits nowhere for the
    device, so that all of a step but the physics is recorded on a GPU and replayed. What is missing then:
    `extras["log"]` (episode sums of reward terms, counts of terminations). Observations, rewards and ends of episodes
    are the same, but for the numbers that noise and pushes are drawn with.
    """

    _episode_length: Tensor
    forward_speed: Tensor
    """[B], m/s along the world's x axis: how far the step has brought the trunk."""
    broken: Tensor
    """[]: how many episodes have ended because the simulation broke."""
    lost: Tensor
    """[B, bool]: whose state was no number since this was last set to False."""
    left: dict[str, Tensor]
    """qpos [B, nq] and qvel [B, nv] as the last step's physics left them; of who is lost, as they were then."""

    def __init__(self, cfg: ManagerBasedRlEnvCfg, device: str, render_mode: str | None = None, **kwargs: Any):
        _refuse_changes(cfg)
        super().__init__(cfg, device, render_mode, **kwargs)
        self._robots: A1s = robots_of(self)
        self._weights = {name: term.weight for name, term in cfg.rewards.items()}
        self.broken = torch.zeros((), dtype=torch.long, device=device)
        self.lost = torch.zeros(self.num_envs, dtype=torch.bool, device=device)
        self.left = {name: getattr(self._robots.memory.world, name).clone() for name in ("qpos", "qvel")}
        on_gpu = torch.device(device).type == "cuda"

        def recorded(compute: Callable[..., Any]) -> Callable[..., Any]:
            return Replayed(compute) if on_gpu else compute

        self.begin = recorded(self._begin_plainly)
        self.go_on = [recorded(partial(self._robots.drive, step)) for step in range(1, cfg.decimation)]
        self.judge = recorded(self._judge_plainly)

    @property
    def commanded_speed(self) -> Tensor:
        """[B], m/s ahead, of the episodes that run."""
        return self._robots.state.command[:, 0]

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
            self._robots.starts.seed(seed)
        obs, extras = super().reset(seed=seed, env_ids=env_ids, options=options)
        return obs, extras

    def step(self, action: Tensor) -> VecEnvStepReturn:
        """action [B, 12] -> observations, rewards [B], died [B], timed out [B], extras."""
        self.begin(action.to(self.device))
        self.sim.step()
        for go_on in self.go_on:
            go_on()
            self.sim.step()
        self.common_step_counter += 1
        self._sim_step_counter += self.cfg.decimation
        # copies: the next step writes into the same tensors, and a caller may still hold this one's
        actor, critic, reward, died, late, self.forward_speed = (found.clone() for found in self.judge())
        self.obs_buf, self.reward_buf, self.extras = {ACTOR: actor, CRITIC: critic}, reward, {}
        self.reset_terminated, self.reset_time_outs, self.reset_buf = died, late, died | late
        self.observation_manager._obs_buffer = self.obs_buf  # who asks mjlab's manager gets these
        return self.obs_buf, reward, died, late, self.extras

    def _begin_plainly(self, action: Tensor) -> None:
        self._robots.memory.act(action)
        self._robots.drive(0)

    def _judge_plainly(self) -> tuple[Tensor, ...]:
        """What the physics led to; who is at the end of an episode begins the next."""
        robots = self._robots
        robots.judge()
        self.episode_length_buf.add_(1)
        died = robots.died()
        late = robots.timed_out(died)
        ended = died | late
        reward = robots.reward(self._weights)
        broken = robots.memory.broken()
        self.broken.add_(broken.sum())
        for name, left in self.left.items():
            torch.where(self.lost[:, None], left, getattr(robots.memory.world, name), out=left)
        self.lost.logical_or_(robots.memory.lost())
        forward_speed = terms.forward_speed(robots.state).masked_fill(broken, 0.0)
        robots.push()
        robots.restart(ended)
        self.episode_length_buf.masked_fill_(ended, 0)
        return robots.actor_observation(), robots.critic_observation(), reward, died, late, forward_speed


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
