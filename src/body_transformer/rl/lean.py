"""A step of our own tasks without what mjlab's own step does beside it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from mjlab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from mjlab.envs.types import VecEnvObs, VecEnvStepReturn
from torch import Tensor

from ..training.cuda_graphs import CudaGraphed
from .world import Robots


class LeanStep(ManagerBasedRlEnv):
    """The same environment as ManagerBasedRlEnv makes of the configuration, in a quicker step.

    It leaves out the additional forward() of a step, resets by masks instead of by indices, and waits nowhere for the
    device, so that all of a step but the physics is recorded on a GPU and replayed. What is missing then:
    `extras["log"]` (episode sums of reward terms, counts of terminations). Observations, rewards and ends of episodes
    are the same, but for the numbers that noise and pushes are drawn with.
    """

    robots: Robots
    _episode_length: Tensor
    forward_speed: Tensor
    """[B], m/s: how far ahead the step has brought the robot."""
    broken: Tensor
    """[]: how many episodes have ended because the simulation broke."""
    lost: Tensor
    """[B, bool]: whose state was no number since this was last set to False."""
    left: dict[str, Tensor]
    """qpos [B, nq] and qvel [B, nv] as the last step's physics left them; of who is lost, as they were then."""

    def __init__(self, cfg: ManagerBasedRlEnvCfg, device: str, render_mode: str | None = None, **kwargs: Any):
        super().__init__(cfg, device, render_mode, **kwargs)
        self.robots = self._find_robots()
        self._groups = list(cfg.observations)
        self._weights = {name: term.weight for name, term in cfg.rewards.items()}
        self.broken = torch.zeros((), dtype=torch.long, device=device)
        self.lost = torch.zeros(self.num_envs, dtype=torch.bool, device=device)
        self.left = {name: getattr(self.robots.world, name).clone() for name in ("qpos", "qvel")}
        self.judge = self._recorded(self.judge_plainly)

    @abstractmethod
    def _find_robots(self) -> Robots:
        """Those of the environment that has just been made."""

    @abstractmethod
    def _move(self, action: Tensor) -> None:
        """All physics steps of a step."""

    def _recorded(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        return CudaGraphed(compute) if torch.device(self.device).type == "cuda" else compute

    @property
    def commanded_speed(self) -> Tensor | None:
        """[B], m/s ahead, of the episodes that run, if they are told one."""
        return self.robots.commanded_speed()

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
            self.robots.starts.seed(seed)
        obs, extras = super().reset(seed=seed, env_ids=env_ids, options=options)
        return obs, extras

    def step(self, action: Tensor) -> VecEnvStepReturn:
        """action [B, A] -> observations, rewards [B], died [B], timed out [B], extras."""
        self._move(action.to(self.device))
        self.common_step_counter += 1
        self._sim_step_counter += self.cfg.decimation
        # copies: the next step writes into the same tensors, and a caller may still hold this one's
        *obs, reward, died, late, self.forward_speed = (found.clone() for found in self.judge())
        self.obs_buf, self.reward_buf, self.extras = dict(zip(self._groups, obs, strict=True)), reward, {}
        self.reset_terminated, self.reset_time_outs, self.reset_buf = died, late, died | late
        self.observation_manager._obs_buffer = self.obs_buf  # who asks mjlab's manager gets these
        return self.obs_buf, reward, died, late, self.extras

    def judge_plainly(self) -> tuple[Tensor, ...]:
        """What the physics led to; who is at the end of an episode begins the next."""
        robots, world = self.robots, self.robots.world
        robots.feel()
        self.episode_length_buf.add_(1)
        died = robots.died()
        late = robots.timed_out(died)
        ended = died | late
        reward = robots.reward(died, self._weights)
        broken = world.broken()
        self.broken.add_(broken.sum())
        for name, left in self.left.items():
            torch.where(self.lost[:, None], left, getattr(world, name), out=left)
        self.lost.logical_or_(world.lost())
        forward_speed = robots.forward_speed().masked_fill(broken, 0.0)
        robots.disturb()
        robots.restart(ended)
        self.episode_length_buf.masked_fill_(ended, 0)
        obs = robots.observations()
        return *(obs[group] for group in self._groups), reward, died, late, forward_speed
