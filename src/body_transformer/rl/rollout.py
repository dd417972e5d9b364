"""Rollouts: storage of the steps between two updates, and statistics of their episodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor


def grouped(obs: Mapping[str, Any]) -> TensorDict:
    """Return groups of observations, [B, …] each, as one TensorDict of batch size B."""
    return TensorDict(dict(obs), batch_size=[len(next(iter(obs.values())))])


class RolloutBuffer:
    """Storage of T steps of B environments; every tensor is [T, B, …]."""

    def __init__(self, obs: TensorDict, num_steps: int, num_actions: int, device: torch.device | str) -> None:
        """Allocate storage for observations with the names, shapes and types of `obs`, [B, …]."""
        num_envs = len(obs)
        self.device, self.num_steps = torch.device(device), num_steps
        self.observations: dict[str, Tensor] = {
            key: torch.zeros(num_steps, *obs[key].shape, dtype=obs[key].dtype, device=device)
            for key in sorted(map(str, obs.keys()))
        }
        """Observation groups by name."""
        self.actions = torch.zeros(num_steps, num_envs, num_actions, device=device)
        self.dones = torch.zeros(num_steps, num_envs, 1, device=device, dtype=torch.bool)
        self.rewards, self.values, self.log_probs, self.returns, self.advantages = (
            torch.zeros(num_steps, num_envs, 1, device=device) for _ in range(5)
        )
        self.distribution_params: tuple[Tensor, ...] = ()
        """Parameters of the action distribution; allocated with the first step."""
        self.step = 0
        """Number of stored steps."""

    def add(
        self,
        obs: TensorDict,
        actions: Tensor,
        values: Tensor,
        log_probs: Tensor,
        distribution_params: Sequence[Tensor],
        rewards: Tensor,
        dones: Tensor,
    ) -> None:
        """Store one step of all environments: [B, …] each."""
        if self.step == self.num_steps:
            raise OverflowError(f"the rollout is full: it holds {self.num_steps} steps; call clear() first")
        if not self.distribution_params:
            with torch.inference_mode(False):  # inference tensors could not be written to during the update
                shapes = [(self.num_steps, *param.shape) for param in distribution_params]
                self.distribution_params = tuple(torch.zeros(shape, device=self.device) for shape in shapes)
        for key, group in self.observations.items():
            group[self.step].copy_(obs[key])
        self.actions[self.step].copy_(actions)
        self.values[self.step].copy_(values)
        self.log_probs[self.step].copy_(log_probs.view(-1, 1))
        for stored, param in zip(self.distribution_params, distribution_params, strict=True):
            stored[self.step].copy_(param)
        self.rewards[self.step].copy_(rewards.view(-1, 1))
        self.dones[self.step].copy_(dones.view(-1, 1))
        self.step += 1

    def compute_returns(self, next_values: Tensor, gamma: float, lam: float) -> None:
        """Compute returns and generalised advantage estimates; `next_values` [B, 1] are those after the last step."""
        continues = 1.0 - self.dones.float()
        advantage = torch.zeros_like(next_values)
        for step in reversed(range(self.num_steps)):
            error = self.rewards[step] + continues[step] * gamma * next_values - self.values[step]
            advantage = error + continues[step] * gamma * lam * advantage
            self.returns[step] = advantage + self.values[step]
            next_values = self.values[step]
        self.advantages.copy_(self.returns - self.values)

    def minibatches(self, num_epochs: int, num_mini_batches: int, by_env: bool) -> Iterator[list[Tensor]]:
        """Yield the minibatches of all epochs; as in rsl_rl, every epoch repeats the same ones.

        Each lists the observation groups, actions, values, advantages, returns, log probabilities and the parameters of
        the distribution, [b, …] each. It holds all steps of some environments (`by_env`), or steps drawn at random.
        """
        columns = [*self.observations.values(), self.actions, self.values, self.advantages]
        columns += [self.returns, self.log_probs, *self.distribution_params]
        flat = [column.transpose(0, 1).flatten(0, 1) if by_env else column.flatten(0, 1) for column in columns]
        size = len(flat[0]) // num_mini_batches
        if not by_env:
            order = torch.randperm(num_mini_batches * size, device=self.device)
            flat = [column[order] for column in flat]
        for _ in range(num_epochs):
            for start in range(0, num_mini_batches * size, size):
                yield [column[start : start + size] for column in flat]

    def clear(self) -> None:
        """Start the next rollout; its steps overwrite those of this one."""
        self.step = 0


class EpisodeStats:
    """Returns and lengths of finished episodes, summed on the device."""

    def __init__(self, num_envs: int, device: str) -> None:
        self.returns, self.lengths = (torch.zeros(num_envs, device=device) for _ in range(2))
        self.sums = torch.zeros(3, device=device)
        """Sums over finished episodes: returns, lengths, number."""

    def add(self, rewards: Tensor, dones: Tensor) -> None:
        """Add one step: rewards and ends of episodes, [B] each."""
        ended = dones.float()
        self.returns += rewards
        self.lengths += 1
        self.sums += torch.stack([(self.returns * ended).sum(), (self.lengths * ended).sum(), ended.sum()])
        self.returns *= 1 - ended
        self.lengths *= 1 - ended

    def means(self) -> dict[str, float]:
        """Return the means since the last call; empty if no episode has ended."""
        total, length, number = self.sums.tolist()
        self.sums.zero_()
        if not number:
            return {}
        return {"train/return": total / number, "train/length": length / number, "train/episodes": number}
