"""RecordedPPO: rsl_rl's PPO, whose updates never wait for the host and are recorded on a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from rsl_rl.algorithms import PPO
from tensordict import TensorDict
from torch import Tensor, nn

from ..model.normalizer import Normalizer
from ..training.replay import Replayed
from .running import RunningNormalization

STATS = ("value", "surrogate", "entropy", "bound", "kl")


@dataclass(frozen=True)
class Minibatch:
    """Steps of a rollout, [b, …] each."""

    obs: TensorDict
    actions: Tensor
    values: Tensor
    advantages: Tensor
    returns: Tensor
    log_prob: Tensor
    old: tuple[Tensor, ...]
    """The parameters of the distribution that the divergence is measured from."""


class RecordedPPO(PPO):
    """Computes what rsl_rl's `PPO` computes, with what rl_games, which the paper used, has beside that.

    - The learning rate is a tensor that follows the divergence on the device; its bounds can be set.
    - `bound_coef` punishes mean actions beyond ±`bound`, where the environment cuts them off.
    - `normalize_values`: the critic learns returns of mean 0 and variance 1, and says values on their own scale.
    - `joint_norm`: actor's and critic's gradients are clipped together, not each by itself.
    - `normalize_after`: observations' statistics move once, after the updates, not at every step of a rollout: who
      learns sees what the one who acted saw, and the divergence between them is its own doing.
    - `blocks`: a minibatch is all steps of some environments, always the same, instead of steps drawn at random.
    - `divergence_from`: "rollout", the divergence that the learning rate follows is that from the policy that acted, as
      in rsl_rl; "epoch", from what the policy was when it last saw this minibatch, as in rl_games, where an update goes
      several times as far.

    Where it stays with rsl_rl: the learning rate changes before the step that the divergence was measured for, not
    after it; the scale of values is that of the returns alone, and neither they nor values are cut off at ±5.

    What rsl_rl adds to PPO (recurrent models, curiosity, symmetry) goes its own way, by rsl_rl's `update`.
    """

    def __init__(
        self,
        *args: Any,
        learning_rate: float = 1e-3,
        learning_rate_bounds: tuple[float, float] = (1e-5, 1e-2),
        bound: float = 1.1,
        bound_coef: float = 0.0,
        normalize_values: bool = False,
        joint_norm: bool = False,
        normalize_after: bool = False,
        blocks: bool = False,
        divergence_from: str = "rollout",
        **options: Any,
    ) -> None:
        self._rate = torch.tensor(learning_rate, device=options.get("device", "cpu"))
        super().__init__(*args, learning_rate=learning_rate, **options)
        self.learning_rate_bounds = learning_rate_bounds
        self.bound, self.bound_coef = bound, bound_coef
        self.joint_norm, self.normalize_after, self.blocks = joint_norm, normalize_after, blocks
        self.divergence_from = divergence_from
        self.optimizer: torch.optim.Optimizer
        self.value_scale = ValueScale().to(self.device) if normalize_values else None
        self._is_plain = not (self.rnd or self.symmetry or self.actor.is_recurrent or self.critic.is_recurrent)
        on_gpu = self._rate.is_cuda
        if self._is_plain and isinstance(self.optimizer, torch.optim.Adam):
            self.optimizer = torch.optim.Adam(self._parameters(), self._rate, fused=on_gpu, capturable=on_gpu)
        self._sums = torch.zeros(len(STATS), device=self.device)
        is_recordable = on_gpu and all(getattr(model, "is_recordable", False) for model in (self.actor, self.critic))
        self._decide = Replayed(self._decide_on) if is_recordable else self._decide_on
        self._learn = Replayed(self._learn_from) if is_recordable and not self.is_multi_gpu else self._learn_from

    @property
    def learning_rate(self) -> float:
        """Reading it waits for the device."""
        return float(self._rate)

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._rate.fill_(value)

    def _parameters(self) -> list[nn.Parameter]:
        """All that learn: of one that does not, a fixed deviation, the optimizer would remember nothing to save."""
        both = chain(self.actor.parameters(), self.critic.parameters())
        return [parameter for parameter in both if parameter.requires_grad]

    # -- rollouts ------------------------------------------------------------------------------------------------------

    def act(self, obs: TensorDict) -> Tensor:
        """Actions [B, A]; they and what belongs to them are overwritten by the next call, on a GPU."""
        step = self.transition
        if not self._is_plain:
            super().act(obs)
            if self.value_scale is not None:
                step.values = self.value_scale.inverse(step.values)
        else:
            decided = self._decide(*(obs[key] for key in self._obs_keys))
            step.actions, step.values, step.actions_log_prob, *params = decided
            step.distribution_params, step.observations = tuple(params), obs
        actions: Tensor = step.actions
        return actions

    def _decide_on(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Actions, values, the actions' log probabilities, the parameters of their distribution."""
        obs = self._together(tensors)
        actions = self.actor(obs, stochastic_output=True).detach()
        values = self.critic(obs).detach()
        if self.value_scale is not None:
            values = self.value_scale.inverse(values)
        params = (param.detach() for param in self.actor.output_distribution_params)
        return actions, values, self.actor.get_output_log_prob(actions).detach(), *params

    def process_env_step(self, obs: TensorDict, rewards: Tensor, dones: Tensor, extras: dict[str, Any]) -> None:
        if not (self._is_plain and self.normalize_after):
            super().process_env_step(obs, rewards, dones, extras)
            return
        step = self.transition
        step.rewards, step.dones = rewards, dones
        if "time_outs" in extras:  # the episode would have gone on
            step.rewards = rewards + self.gamma * step.values.squeeze(1) * extras["time_outs"]
        self.storage.add_transition(step)
        step.clear()

    def compute_returns(self, obs: TensorDict) -> None:
        """Generalised advantage estimates, as rsl_rl computes them."""
        if not self._is_plain:
            super().compute_returns(obs)
            return
        stored = self.storage
        following = self.critic(obs).detach()
        if self.value_scale is not None:
            following = self.value_scale.inverse(following)
        goes_on = 1.0 - stored.dones.float()
        advantage = torch.zeros_like(following)
        for step in reversed(range(stored.num_transitions_per_env)):
            error = stored.rewards[step] + goes_on[step] * self.gamma * following - stored.values[step]
            advantage = error + goes_on[step] * self.gamma * self.lam * advantage
            stored.returns[step] = advantage + stored.values[step]
            following = stored.values[step]
        advantages = stored.returns - stored.values
        if not self.normalize_advantage_per_mini_batch:
            advantages = _standardized(advantages)
        stored.advantages.copy_(advantages)

    # -- updates -------------------------------------------------------------------------------------------------------

    def update(self) -> dict[str, float]:
        """Goes through the rollout several times; the means of what was minimised."""
        if not self._is_plain:
            found: dict[str, float] = super().update()
            return found
        self._sums.zero_()
        num_updates = self.num_learning_epochs * self.num_mini_batches
        if self.value_scale is not None:
            self.value_scale.update(self.storage.returns)
        for tensors in self.minibatches():
            now = self._learn(*tensors)
            if self.divergence_from == "epoch":
                with torch.inference_mode():  # what was collected in it can be written in it only
                    for old, new in zip(tensors[-len(now) :], now, strict=True):
                        old.copy_(new)
        if self.normalize_after:
            for model in (self.actor, self.critic):
                model.update_normalization(self.storage.observations.flatten(0, 1))
        self.storage.clear()
        means = (self._sums / num_updates).tolist()  # the only time that the host waits
        return dict(zip(STATS, means, strict=True))

    def minibatches(self) -> Iterator[list[Tensor]]:
        """The rollout's tensors, in minibatches; every epoch has the same ones, as in rsl_rl."""
        stored = self.storage
        assert stored.distribution_params is not None
        fields = (stored.actions, stored.values, stored.advantages, stored.returns, stored.actions_log_prob)
        columns = [*(stored.observations[key] for key in self._obs_keys), *fields, *stored.distribution_params]
        # [T, envs, …]: blocks of environments, or steps in any order
        flat = [column.transpose(0, 1).flatten(0, 1) if self.blocks else column.flatten(0, 1) for column in columns]
        size = len(flat[0]) // self.num_mini_batches
        if not self.blocks:
            order = torch.randperm(self.num_mini_batches * size, device=self.device)
            flat = [column[order] for column in flat]
        for _ in range(self.num_learning_epochs):
            for start in range(0, self.num_mini_batches * size, size):
                yield [column[start : start + size] for column in flat]

    @property
    def _obs_keys(self) -> list[str]:
        return sorted(self.storage.observations.keys())

    def _together(self, tensors: Sequence[Tensor]) -> TensorDict:
        """The groups of observations under their names."""
        return TensorDict(dict(zip(self._obs_keys, tensors, strict=True)), batch_size=[len(tensors[0])])

    def _learn_from(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """One step of the optimizer; the parameters of the distribution before it."""
        stats, *now = self.gradients(*tensors)
        self.apply_gradients()
        self._sums += stats
        return tuple(now)

    def gradients(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Computes those of a minibatch; what was minimised, and the parameters of the distribution."""
        obs, actions, values, advantages, returns, log_prob, *old = _split(tensors, len(self._obs_keys))
        batch = Minibatch(
            self._together(obs),
            actions,
            values,
            _standardized(advantages) if self.normalize_advantage_per_mini_batch else advantages,
            returns,
            log_prob,
            tuple(old),
        )
        self.optimizer.zero_grad()
        loss, stats, now = self._loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.is_multi_gpu:
            self.reduce_parameters()
        return stats, *now

    def apply_gradients(self) -> None:
        """Clips them and moves the weights."""
        groups = [self._parameters()] if self.joint_norm else [self.actor.parameters(), self.critic.parameters()]
        for group in groups:
            nn.utils.clip_grad_norm_(group, self.max_grad_norm)
        self.optimizer.step()

    def _loss(self, batch: Minibatch) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        self.actor(batch.obs, stochastic_output=True)
        log_prob = self.actor.get_output_log_prob(batch.actions)
        new = tuple(self.actor.output_distribution_params)
        entropy = self.actor.output_entropy.mean()
        with torch.no_grad():
            divergence = self.actor.get_kl_divergence(batch.old, new).mean()
            self._adapt(divergence)
        ratio = torch.exp(log_prob - batch.log_prob.squeeze(-1))
        advantages = batch.advantages.squeeze(-1)
        clipped = ratio.clamp(1 - self.clip_param, 1 + self.clip_param)
        surrogate = torch.max(-advantages * ratio, -advantages * clipped).mean()
        value = self._value_loss(batch)
        beyond = (self.actor.output_mean.abs() - self.bound).clamp(min=0).square().sum(-1).mean()
        loss = surrogate + self.value_loss_coef * value - self.entropy_coef * entropy + self.bound_coef * beyond
        stats = torch.stack([value, surrogate, entropy, beyond, divergence])
        return loss, stats.detach(), tuple(param.detach() for param in new)

    def _value_loss(self, batch: Minibatch) -> Tensor:
        old, returns = batch.values, batch.returns
        if self.value_scale is not None:
            old, returns = self.value_scale(old), self.value_scale(returns)
        values = self.critic(batch.obs)
        loss: Tensor = (values - returns).square()
        if self.use_clipped_value_loss:
            clipped = old + (values - old).clamp(-self.clip_param, self.clip_param)
            loss = torch.max(loss, (clipped - returns).square())
        return loss.mean()

    def _adapt(self, divergence: Tensor) -> None:
        """The learning rate falls where the policy is far from the one that acted, and rises where it is near."""
        if self.schedule != "adaptive" or self.desired_kl is None:
            return
        if self.is_multi_gpu:
            torch.distributed.all_reduce(divergence)
            divergence = divergence / self.gpu_world_size
        low, high = self.learning_rate_bounds
        slower, faster = (self._rate / 1.5).clamp(min=low), (self._rate * 1.5).clamp(max=high)
        is_small = (divergence < self.desired_kl / 2) & (divergence > 0)
        rate = torch.where(is_small, faster, self._rate)
        self._rate.copy_(torch.where(divergence > 2 * self.desired_kl, slower, rate))

    # -- what a checkpoint keeps ---------------------------------------------------------------------------------------

    def save(self) -> dict[str, Any]:
        saved: dict[str, Any] = super().save()
        if self.value_scale is not None:
            saved["value_scale_state_dict"] = self.value_scale.state_dict()
        return saved

    def load(self, loaded_dict: dict[str, Any], load_cfg: dict[str, bool] | None, strict: bool) -> bool:
        goes_on: bool = super().load(loaded_dict, load_cfg, strict)
        if self.value_scale is not None and (load_cfg is None or load_cfg.get("critic")):
            self.value_scale.load_state_dict(loaded_dict["value_scale_state_dict"])
        self.use_rate(self.learning_rate)
        return goes_on

    def use_rate(self, learning_rate: float) -> None:
        """After the optimizer was loaded, which makes numbers of its own of it."""
        self.learning_rate = learning_rate
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate


class ValueScale(nn.Module):
    """Returns [B, 1] to mean 0 and variance 1, by all that were seen; stays on the device."""

    def __init__(self) -> None:
        super().__init__()
        self.statistics, self.normalizer = RunningNormalization(1), Normalizer(1)

    def update(self, returns: Tensor) -> None:
        """[…, 1]"""
        self.statistics.update(returns.reshape(-1, 1), self.normalizer)

    def forward(self, values: Tensor) -> Tensor:
        scaled: Tensor = self.normalizer(values)
        return scaled

    def inverse(self, values: Tensor) -> Tensor:
        return values * self.normalizer.scale + self.normalizer.shift


def _standardized(values: Tensor) -> Tensor:
    return (values - values.mean()) / (values.std() + 1e-8)


def _split(tensors: tuple[Tensor, ...], num_obs: int) -> tuple[Any, ...]:
    return (tensors[:num_obs], *tensors[num_obs:])
