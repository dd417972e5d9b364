"""Collector: robots act, and what came of it goes to the learner's storage."""

from __future__ import annotations

import torch
from mjlab.rl import RslRlVecEnvWrapper
from tensordict import TensorDict
from torch import Tensor

from .learner import Learner


class Collector:
    """The robots of an environment, and what they see now."""

    def __init__(self, env: RslRlVecEnvWrapper, obs: TensorDict, learner: Learner) -> None:
        self.env, self.obs, self.learner = env, obs, learner
        self.finished = Finished(env.num_envs, str(env.device))

    @torch.inference_mode()
    def collect(self) -> None:
        """As many steps of each robot as the storage holds."""
        ppo, scale = self.learner.ppo, self.learner.config.reward_scale
        for _ in range(self.learner.config.num_steps):
            self.obs, rewards, dones, extras = self.env.step(ppo.act(self.obs))
            ppo.process_env_step(self.obs, rewards * scale, dones, extras)
            self.finished.add(rewards, dones)

    @torch.inference_mode()
    def value(self) -> None:
        """Returns and advantages of what was collected."""
        self.learner.ppo.compute_returns(self.obs)


class Finished:
    """Episodes that ended during rollouts: their returns and lengths, summed up on the device."""

    def __init__(self, num_envs: int, device: str) -> None:
        self.returns, self.lengths = (torch.zeros(num_envs, device=device) for _ in range(2))
        self.sums = torch.zeros(3, device=device)
        """Of returns, lengths, and how many."""

    def add(self, rewards: Tensor, dones: Tensor) -> None:
        ended = dones.float()
        self.returns += rewards
        self.lengths += 1
        self.sums += torch.stack([(self.returns * ended).sum(), (self.lengths * ended).sum(), ended.sum()])
        self.returns *= 1 - ended
        self.lengths *= 1 - ended

    def means(self) -> dict[str, float]:
        """Since it was asked the last time; nothing if no episode has ended."""
        total, length, number = self.sums.tolist()
        self.sums.zero_()
        if not number:
            return {}
        return {"train/return": total / number, "train/length": length / number, "train/episodes": number}
