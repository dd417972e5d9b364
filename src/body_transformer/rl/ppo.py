"""Proximal policy optimisation (Schulman et al. 2017), recorded as CUDA graphs on a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDict
from torch import Tensor, distributed, nn

from ..training.cuda_graphs import CudaGraphed
from .config import RlConfig
from .normalization import ValueScale
from .rollout import EpisodeStats, RolloutBuffer, grouped

if TYPE_CHECKING:
    from .envs.interface import RlEnv

STATS = ("value", "surrogate", "entropy", "bound", "kl")
"""Statistics of an update, averaged over its minibatches."""


class PPO:
    """PPO for feed-forward models with rsl_rl's interface; the settings are those of `RlConfig`.

    An iteration is a rollout (`act` and `process_env_step` for every step), then `compute_returns` and `update`. With
    `kl_reference="rollout"`, `normalize_values=False`, `minibatch_by_env=False`, `joint_grad_norm=False` and
    `action_bound_coef=0` it computes the same as rsl_rl's PPO. The other values of these settings are those of
    rl_games, which the paper used. With `kl_reference="epoch"` an update moves the policy several times as far.

    - The learning rate and all statistics are tensors on the device, so the host waits only once per update.
    - The observations' statistics are updated after the update, not at every step of the rollout. Actor and learner
      then use the same normalisation, so the KL divergence measures only the weight update.
    - As in rsl_rl and unlike rl_games, the divergence of a minibatch changes the learning rate before its own step.
      The scale of values is that of the returns alone. Neither returns nor values are clipped at ±5.

    Recurrent models, curiosity and symmetry need rsl_rl's own PPO (see `rsl_rl_config.BodyPPO`).
    """

    def __init__(
        self, actor: Any, critic: Any, rollout: RolloutBuffer, config: RlConfig, num_processes: int = 1
    ) -> None:
        """Prepare training; `num_processes` processes of torch.distributed average their gradients and divergences."""
        self.actor, self.critic, self.rollout, self.config = actor, critic, rollout, config
        self.num_processes = num_processes
        device, on_gpu = rollout.device, rollout.device.type == "cuda"
        self.learning_rate = torch.tensor(config.learning_rate, device=device)
        # A fixed standard deviation gets no gradients, so the optimizer would have no state of it to save.
        self.parameters = [param for model in (actor, critic) for param in model.parameters() if param.requires_grad]
        self.optimizer = torch.optim.Adam(self.parameters, self.learning_rate, fused=on_gpu, capturable=on_gpu)
        self.value_scale = ValueScale().to(device) if config.normalize_values else None
        self._stat_sums = torch.zeros(len(STATS), device=device)
        self._decision: tuple[Any, ...] | None = None
        """Arguments of `RolloutBuffer.add` from the last `act`."""
        is_recordable = on_gpu and all(getattr(model, "is_recordable", False) for model in (actor, critic))
        self._decide = CudaGraphed(self.decide) if is_recordable else self.decide
        self._train_step = CudaGraphed(self.train_step) if is_recordable and num_processes == 1 else self.train_step

    # -- rollout -------------------------------------------------------------------------------------------------------

    def act(self, obs: TensorDict) -> Tensor:
        """Sample actions [B, A]. On a GPU the next call overwrites them."""
        actions, values, log_probs, *params = self._decide(*(obs[key] for key in self.rollout.observations))
        self._decision = obs, actions, values, log_probs, params
        return actions

    def decide(self, *groups: Tensor) -> tuple[Tensor, ...]:
        """Return actions, values, log probabilities and the parameters of the distribution for groups [B, …]."""
        obs = self._as_dict(groups)
        actions = self.actor(obs, stochastic_output=True).detach()
        params = (param.detach() for param in self.actor.output_distribution_params)
        return actions, self._values(obs), self.actor.get_output_log_prob(actions).detach(), *params

    def process_env_step(self, rewards: Tensor, dones: Tensor, time_outs: Tensor | None) -> None:
        """Store the last decision with its rewards and ends of episodes, [B] each."""
        if self._decision is None:
            raise RuntimeError("process_env_step() needs an act() before it")
        (obs, actions, values, log_probs, params), self._decision = self._decision, None
        if time_outs is not None:  # the value stands for the rewards that would have followed
            rewards = rewards + self.config.gamma * values.squeeze(1) * time_outs
        self.rollout.add(obs, actions, values, log_probs, params, rewards, dones)

    def compute_returns(self, obs: TensorDict) -> None:
        """Compute returns and advantages of the rollout; `obs` are the observations after its last step."""
        self.rollout.compute_returns(self._values(obs), self.config.gamma, self.config.lam)
        if not self.config.normalize_advantage_per_mini_batch:
            self.rollout.advantages.copy_(standardized(self.rollout.advantages))

    def _values(self, obs: TensorDict) -> Tensor:
        """Return the critic's values [B, 1] on the scale of returns."""
        values: Tensor = self.critic(obs).detach()
        return values if self.value_scale is None else self.value_scale.inverse(values)

    # -- update --------------------------------------------------------------------------------------------------------

    def update(self) -> dict[str, float]:
        """Improve actor and critic on the rollout, and return the means of `STATS`."""
        config = self.config
        self._stat_sums.zero_()
        if self.value_scale is not None:
            self.value_scale.update(self.rollout.returns)
        for tensors in self.minibatches():
            params = self._train_step(*tensors)
            if config.kl_reference == "epoch":
                for reference, param in zip(tensors[-len(params) :], params, strict=True):
                    reference.copy_(param)
        obs = self._as_dict([group.flatten(0, 1) for group in self.rollout.observations.values()])
        for model in (self.actor, self.critic):
            model.update_normalization(obs)
        self.rollout.clear()
        num_updates = config.num_learning_epochs * config.num_mini_batches
        means = (self._stat_sums / num_updates).tolist()  # the host waits for the device only here
        return dict(zip(STATS, means, strict=True))

    def minibatches(self) -> Iterable[list[Tensor]]:
        """Yield the minibatches of an update, each as a list of tensors for `train_step`."""
        config = self.config
        return self.rollout.minibatches(config.num_learning_epochs, config.num_mini_batches, config.minibatch_by_env)

    def train_step(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Take one optimizer step on a minibatch; return the parameters of the distribution before it."""
        stats, *params = self.compute_gradients(*tensors)
        self.apply_gradients()
        self._stat_sums += stats
        return tuple(params)

    def compute_gradients(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Compute the gradients of a minibatch; return `STATS` and the parameters of the distribution."""
        config, num_groups = self.config, len(self.rollout.observations)
        obs = self._as_dict(tensors[:num_groups])
        actions, old_values, advantages, returns, old_log_probs, *reference = tensors[num_groups:]
        if config.normalize_advantage_per_mini_batch:
            advantages = standardized(advantages)
        self.optimizer.zero_grad()
        self.actor(obs, stochastic_output=True)  # sets the distribution
        log_probs = self.actor.get_output_log_prob(actions)
        params = tuple(self.actor.output_distribution_params)
        entropy = self.actor.output_entropy.mean()
        with torch.no_grad():
            kl = self.actor.get_kl_divergence(tuple(reference), params).mean()
            self._adapt_learning_rate(kl)
        ratio = torch.exp(log_probs - old_log_probs.squeeze(-1))
        clipped = ratio.clamp(1 - config.clip_param, 1 + config.clip_param)
        advantages = advantages.squeeze(-1)
        surrogate = torch.max(-advantages * ratio, -advantages * clipped).mean()
        value = self._value_loss(self.critic(obs), old_values, returns)
        excess = (self.actor.output_mean.abs() - config.action_bound).clamp(min=0).square().sum(-1).mean()
        loss = surrogate + config.value_loss_coef * value - config.entropy_coef * entropy
        loss = loss + config.action_bound_coef * excess
        loss.backward()
        if self.num_processes > 1:
            self._average_gradients()
        stats = torch.stack([value, surrogate, entropy, excess, kl]).detach()
        return stats, *(param.detach() for param in params)

    def apply_gradients(self) -> None:
        """Clip the gradients and update the weights."""
        joint = self.config.joint_grad_norm
        groups = [self.parameters] if joint else [self.actor.parameters(), self.critic.parameters()]
        for group in groups:
            nn.utils.clip_grad_norm_(group, self.config.max_grad_norm)
        self.optimizer.step()

    def _value_loss(self, values: Tensor, old_values: Tensor, returns: Tensor) -> Tensor:
        if self.value_scale is not None:
            old_values, returns = self.value_scale(old_values), self.value_scale(returns)
        loss = (values - returns).square()
        if self.config.use_clipped_value_loss:
            limit = self.config.clip_param
            clipped = old_values + (values - old_values).clamp(-limit, limit)
            loss = torch.max(loss, (clipped - returns).square())
        return loss.mean()

    def _adapt_learning_rate(self, kl: Tensor) -> None:
        """Lower the learning rate if the divergence is far above its target, and raise it if far below."""
        config = self.config
        if config.schedule == "fixed":
            return
        if self.num_processes > 1:
            distributed.all_reduce(kl)
            kl /= self.num_processes
        slower = (self.learning_rate / 1.5).clamp(min=config.min_learning_rate)
        faster = (self.learning_rate * 1.5).clamp(max=config.max_learning_rate)
        is_small = (kl < config.desired_kl / 2) & (kl > 0)
        rate = torch.where(is_small, faster, self.learning_rate)
        self.learning_rate.copy_(torch.where(kl > 2 * config.desired_kl, slower, rate))

    def _average_gradients(self) -> None:
        """Replace the gradients by their means over all processes."""
        grads = [param.grad for param in self.parameters if param.grad is not None]
        total = torch.cat([grad.flatten() for grad in grads])
        distributed.all_reduce(total)
        total /= self.num_processes
        for grad, mean in zip(grads, torch.split(total, [grad.numel() for grad in grads]), strict=True):
            grad.copy_(mean.view_as(grad))

    def _as_dict(self, groups: Sequence[Tensor]) -> TensorDict:
        """Return the observation groups under their names."""
        return grouped(dict(zip(self.rollout.observations, groups, strict=True)))

    # -- checkpoint ----------------------------------------------------------------------------------------------------

    def training_state(self) -> dict[str, Tensor]:
        """Return the tensors of actor, critic, value scale and optimizer."""
        found = {
            f"{part}.{name}": tensor
            for part, module in self._modules().items()
            for name, tensor in module.state_dict().items()
        }
        for index, state in self.optimizer.state_dict()["state"].items():
            found |= {f"optimizer.{index}.{name}": value for name, value in state.items()}
        return found | {"learning_rate": self.learning_rate}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from the tensors of `training_state`; refuse those of another architecture."""
        for part, module in self._modules().items():
            saved = _under(f"{part}.", tensors)
            if differences := _differences(saved, module.state_dict()):
                raise ValueError(f"the checkpoint's {part} does not fit this run: {differences}")
            module.load_state_dict(saved)
        optimizer = self.optimizer.state_dict()
        optimizer["state"] = {
            index: _moments(index, parameter, tensors) for index, parameter in enumerate(self.parameters)
        }
        self.optimizer.load_state_dict(optimizer)
        self.learning_rate.fill_(float(_number(tensors, "learning_rate")))
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate  # a tensor on the device, which loading has replaced

    def _modules(self) -> dict[str, nn.Module]:
        modules: dict[str, nn.Module] = {"actor": self.actor, "critic": self.critic}
        return modules if self.value_scale is None else modules | {"value_scale": self.value_scale}


def _moments(index: int, parameter: Tensor, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the state of Adam for a parameter; refuse one that is incomplete or of another shape."""
    prefix = f"optimizer.{index}."
    saved = _under(prefix, tensors)
    wanted = {"step": torch.zeros(()), "exp_avg": parameter, "exp_avg_sq": parameter}
    if differences := _differences(saved, wanted):
        raise ValueError(f"the checkpoint's {prefix}* does not fit this run: {differences}")
    return saved


def _number(tensors: Mapping[str, Tensor], name: str) -> Tensor:
    found = tensors.get(name)
    if found is None or found.numel() != 1:
        raise ValueError(f"the checkpoint's training state must have one number as {name}")
    return found


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    found = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    if not found:
        raise ValueError(f"the checkpoint's training state lacks {prefix}*")
    return found


def _differences(saved: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> str:
    """Describe a tensor that differs between a checkpoint and this run, and count all; empty if there is none."""
    there, here = ({name: list(tensor.shape) for name, tensor in tensors.items()} for tensors in (saved, own))
    names = [name for name in there | here if there.get(name) != here.get(name)]
    if not names:
        return ""
    shapes = f"{there.get(names[0], 'missing')} in the checkpoint and {here.get(names[0], 'missing')} in this run"
    return f"{len(names)} tensors differ, such as {names[0]!r}, which is {shapes}"


def standardized(values: Tensor) -> Tensor:
    """Return the values with mean 0 and standard deviation 1."""
    return (values - values.mean()) / (values.std() + 1e-8)


class Collector:
    """The environments, their current observations, and the statistics of their episodes."""

    def __init__(self, env: RlEnv, obs: TensorDict, ppo: PPO) -> None:
        """Take the observations `obs` after the environments' reset."""
        self.env, self.obs, self.ppo = env, obs, ppo
        self.episodes = EpisodeStats(env.num_envs, str(env.device))

    def reset(self) -> None:
        """Begin an episode in every environment."""
        self.obs = grouped(self.env.reset()[0])

    @torch.inference_mode()
    def collect(self) -> None:
        """Fill the rollout."""
        scale = self.ppo.config.reward_scale
        for _ in range(self.ppo.rollout.num_steps):
            obs, rewards, died, timed_out, _ = self.env.step(self.ppo.act(self.obs))
            self.obs, dones = grouped(obs), died | timed_out
            self.ppo.process_env_step(rewards * scale, dones, None if self.env.is_finite_horizon else timed_out)
            self.episodes.add(rewards, dones)

    @torch.inference_mode()
    def compute_returns(self) -> None:
        """Compute returns and advantages of the rollout."""
        self.ppo.compute_returns(self.obs)
