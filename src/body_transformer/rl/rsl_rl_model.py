"""BodyModel: the Body Transformer and its baselines as rsl_rl's actor and critic."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, get_args

import torch
from rsl_rl.models import MLPModel
from rsl_rl.modules.distribution import Distribution, GaussianDistribution, HeteroscedasticGaussianDistribution
from rsl_rl.utils import resolve_callable, unpad_trajectories
from tensordict import TensorDict
from torch import Tensor, nn

from ..body.layout import Layout
from ..errors import unknown
from ..model.config import PolicyConfig
from ..model.policy import Critic, Policy
from ..model.trunk import Precision, build_detokenizer
from ..schema import build
from .normalization import RunningNormalization

NAME = "body_transformer.rl.rsl_rl_model:BodyModel"
"""The `class_name` in rsl_rl's configuration."""
IGNORED = {"hidden_dims", "activation", "cnn_cfg", "rnn_type", "rnn_hidden_dim", "rnn_num_layers", "layout_overrides"}
"""Settings of rsl_rl's own models, which may stand in a configuration and have no effect."""
NO_LAYOUT = (
    "BodyModel needs a layout. For mjlab add this line to the configuration of the algorithm:\n"
    '    class_name="body_transformer.rl.rsl_rl_config:BodyPPO"\n'
    "For any other environment add this line to the configuration of the model, as docs/isaac_lab.md shows:\n"
    "    layout=layout.to_dict()"
)
CRITIC = "critic"
"""rsl_rl's name for the observation set of a value function."""


class BodyModel(MLPModel):
    """An actor or a critic for rsl_rl: any variant of `PolicyConfig`.

    rsl_rl builds its models from configuration alone, so the configuration carries the layout: the object itself, or
    the plain data of `Layout.to_dict()`. `rsl_rl_config.BodyPPO` adds it for an mjlab environment, and
    `rsl_rl_config.with_layouts` for other algorithms of rsl_rl.

    The model of the observation set "critic" is a `Critic`; any other is a `Policy`, which `policy()` returns. It
    normalises observations and computes the deterministic action. The distribution, and its part of the interface, are
    rsl_rl's.
    """

    def __init__(
        self,
        obs: TensorDict,
        obs_groups: Mapping[str, Sequence[str]],
        obs_set: str,
        output_dim: int,
        *,
        layout: Layout | Mapping[str, Any] | None = None,
        policy: PolicyConfig | Mapping[str, Any] | None = None,
        obs_normalization: bool = False,
        distribution_cfg: Mapping[str, Any] | None = None,
        precision: Precision = "fp32",
        **others: Any,
    ) -> None:
        """
        Args:
            obs: observations, for their shapes.
            obs_groups: observation set -> its groups.
            obs_set: the observation set of this model.
            output_dim: number of actions; 1 for a critic.
            layout: the node of every entry of the set.
            policy: the architecture; its head is ignored in favour of `distribution_cfg`.
            obs_normalization: normalise by the running mean and variance; `policy.obs_clip` bounds the result.
            distribution_cfg: rsl_rl's `class_name` and options of the action distribution; None: deterministic.
            precision: precision of the encoder's matrix products on a GPU. "fp32" keeps PyTorch's settings; the fused
                encoder runs in "tf32" and "bf16".
            others: settings of rsl_rl's models in `IGNORED`.
        """
        allowed = ("layout", "policy", "obs_normalization", "distribution_cfg", "precision")
        for name in others.keys() - IGNORED:
            raise ValueError(f"BodyModel: {unknown('setting', name, allowed)}")
        if layout is None:
            raise ValueError(NO_LAYOUT)
        nn.Module.__init__(self)  # MLPModel's would build an MLP
        if precision not in get_args(Precision):
            raise ValueError(unknown("precision", precision, get_args(Precision)))
        self.obs_groups = list(obs_groups[obs_set])
        self.obs_normalization = obs_normalization
        self.layout = layout if isinstance(layout, Layout) else Layout.from_dict(layout)
        self.obs_dim = self.layout.obs_dim
        config = policy if isinstance(policy, PolicyConfig) else build(PolicyConfig, policy or {}, "policy")
        self.distribution = _make_distribution(distribution_cfg, output_dim)
        self._check_sizes(obs, obs_set, output_dim)
        deterministic = replace(config, head="deterministic")
        net = Critic(self.layout, config) if obs_set == CRITIC else Policy(self.layout, deterministic)
        two_heads = self.distribution is not None and self.distribution.input_dim != output_dim
        net.precision = precision
        self.network = BodyNetwork(net, two_heads)
        self.statistics = RunningNormalization(self.obs_dim) if obs_normalization else None
        if self.distribution is not None:
            self.distribution.init_mlp_weights(_as_mlp(self.network))

    def _check_sizes(self, obs: TensorDict, obs_set: str, output_dim: int) -> None:
        shapes = {group: list(obs[group].shape[1:]) for group in self.obs_groups}
        if any(len(shape) != 1 for shape in shapes.values()):
            raise ValueError(f"observation groups must be vectors; those of the set {obs_set!r} have shapes {shapes}")
        if sum(shape[0] for shape in shapes.values()) != self.obs_dim:
            raise ValueError(f"the layout has {self.obs_dim} observation entries; the set {obs_set!r} has {shapes}")
        if obs_set == CRITIC:
            if output_dim != 1 or self.distribution is not None:
                got = f"{output_dim} and {self.distribution}"
                raise ValueError(f"a critic has one output and no distribution; got {got}")
        elif output_dim != self.layout.action_dim:
            raise ValueError(f"the layout has {self.layout.action_dim} actions; the environment has {output_dim}")

    # -- interface of rsl_rl ---------------------------------------------------------------------------------------

    def forward(
        self, obs: TensorDict, masks: Tensor | None = None, hidden_state: Any = None, stochastic_output: bool = False
    ) -> Tensor:
        """Compute the deterministic action or a sample [B, A] for groups [B, O_group]; values [B, 1] for a critic.

        `masks` mark the valid entries of observations that were padded for a recurrent model; the others are dropped.
        """
        flat = self._flat(obs if masks is None else unpad_trajectories(obs, masks))
        out: Tensor = self.network(flat.flatten(0, -2))  # [B, A] or [B, 2, A]
        out = out.view(*flat.shape[:-1], *out.shape[1:])
        if self.distribution is None:
            return out
        if stochastic_output:
            self.distribution.update(out)
            return self._sample(self.distribution)
        actions: Tensor = self.distribution.deterministic_output(out)
        return actions

    def _sample(self, distribution: Distribution) -> Tensor:
        if self.is_recordable:  # rsl_rl's sample() calls torch.normal(), which reads the deviations on the host
            mean: Tensor = distribution.mean.detach()
            actions: Tensor = mean + distribution.std.detach() * torch.randn_like(mean)
        else:
            actions = distribution.sample()
        return actions

    @property
    def is_recordable(self) -> bool:
        """Whether the model never waits for the device, so that CUDA graphs can record it."""
        return self.distribution is None or isinstance(self.distribution, GaussianDistribution)

    @property
    def obs_normalizer(self) -> nn.Module:
        """The normaliser that `get_latent` applies."""
        normalizer: nn.Module = self.network.net.normalizer
        return normalizer

    def update_normalization(self, obs: TensorDict) -> None:
        """Add observations to the running statistics."""
        if self.statistics is not None:
            self.statistics.update(self._flat(obs), self.network.net.normalizer)

    def _flat(self, obs: TensorDict) -> Tensor:
        groups: list[Tensor] = [obs[group] for group in self.obs_groups]
        return groups[0] if len(groups) == 1 else torch.cat(groups, dim=-1)

    def get_output_log_prob(self, outputs: Tensor) -> Tensor:
        """Return the log probability [B] of actions.

        rsl_rl's PPO calls this first, so a missing distribution is reported here.
        """
        if self.distribution is None:
            raise ValueError("this model is deterministic; distribution_cfg gives it a distribution")
        log_prob: Tensor = self.distribution.log_prob(outputs)
        return log_prob

    # -- export ----------------------------------------------------------------------------------------------------

    def as_jit(self) -> nn.Module:
        """Return a copy for `torch.jit.script`."""
        finish = nn.Identity() if self.distribution is None else self.distribution.as_deterministic_output_module()
        return ExportedActor(copy.deepcopy(self.network), finish)

    def as_onnx(self, verbose: bool = False) -> nn.Module:
        """Return a copy for `torch.onnx.export`."""
        return self.as_jit()

    def policy(self) -> Policy:
        """Return a copy of the actor as a policy; a Gaussian head is kept."""
        net, gaussian = self.network.net, self.distribution
        if not isinstance(net, Policy):
            raise ValueError("this model is a critic; the actor is a policy")
        if not isinstance(gaussian, GaussianDistribution | None):
            raise ValueError(f"a policy's action is the mean of a Gaussian; this model has a {type(gaussian).__name__}")
        config, log_std = net.config, None
        if gaussian is not None and not isinstance(gaussian, HeteroscedasticGaussianDistribution):
            log_std, learned = _log_std(gaussian)
            config = replace(config, head="gaussian", std="learned" if learned else "fixed")
        with torch.random.fork_rng(devices=[]):  # the initial weights are overwritten
            policy = Policy(self.layout, config).to(net.normalizer.shift.device)
        weights = net.state_dict() if log_std is None else net.state_dict() | {"log_std": log_std}
        policy.load_state_dict(weights)
        return policy


class BodyNetwork(nn.Module):
    """A policy or a critic, with a second head if the distribution has two parameters per action."""

    def __init__(self, net: Policy | Critic, two_heads: bool) -> None:
        super().__init__()
        self.net = net
        self.is_critic = isinstance(net, Critic)
        self.second: nn.Module | None = None
        if two_heads:
            self.second = build_detokenizer(net.layout, net.config, net.layout.action_node_ids.tolist())

    def forward(self, obs: Tensor) -> Tensor:
        """Compute [B, O] -> [B, A], [B, 2, A] with two heads, or a critic's [B, 1]."""
        tokens = self.net.encode(obs)
        out = self.net.head(tokens)
        if self.is_critic:
            out = out.unsqueeze(-1)
        if self.second is not None:
            out = torch.stack([out, self.second(tokens)], 1)
        return out


class ExportedActor(nn.Module):
    """The deterministic action of a flat observation, for rsl_rl's `export_policy_to_jit` and `…_to_onnx`."""

    is_recurrent: bool = False
    __jit_unused_properties__ = ("input_names", "output_names")

    def __init__(self, network: BodyNetwork, deterministic_output: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.deterministic_output = deterministic_output
        self.input_size = network.net.obs_dim

    def forward(self, obs: Tensor) -> Tensor:
        """Compute [B, O] -> [B, A]."""
        actions: Tensor = self.deterministic_output(self.network(obs))
        return actions

    @torch.jit.export
    def reset(self) -> None:
        """Do nothing: there is no state between steps."""

    @torch.jit.unused
    def get_dummy_inputs(self) -> tuple[Tensor]:
        return (torch.zeros(1, self.input_size),)

    @property
    def input_names(self) -> list[str]:
        return ["obs"]

    @property
    def output_names(self) -> list[str]:
        return ["actions"]


def _make_distribution(cfg: Mapping[str, Any] | None, output_dim: int) -> Distribution | None:
    if cfg is None:
        return None
    options = dict(cfg)
    kind: Any = resolve_callable(options.pop("class_name"))
    distribution: Distribution = kind(output_dim, **options)
    if distribution.input_dim not in (output_dim, [2, output_dim]):
        raise ValueError(f"{kind.__name__} needs outputs {distribution.input_dim}; supported are one or two per action")
    return distribution


def _as_mlp(network: BodyNetwork) -> list[Any]:
    """Return a stand-in for the MLP of `init_mlp_weights`, which sets `mlp[-2].weight[output_dim:]` of two heads."""
    heads = [network.net.detokenizer] if network.second is None else [network.net.detokenizer, network.second]
    layers: list[Any] = [getattr(head, "linear", head) for head in heads]
    if len(layers) == 1:
        return [layers[0], None]
    return [SimpleNamespace(weight=_Rows(layers[1].weight), bias=_Rows(layers[1].bias)), None]


class _Rows:
    """Weight or bias of the second head. Any slice returns all of it."""

    def __init__(self, second: Tensor) -> None:
        self.second = second

    def __getitem__(self, rows: slice) -> Tensor:
        return self.second


def _log_std(gaussian: GaussianDistribution) -> tuple[Tensor, bool]:
    """Return the log standard deviation [A] within its range, and whether it is learned."""
    low, high = gaussian.std_range
    parameter = gaussian.std_param if gaussian.std_type == "scalar" else gaussian.log_std_param
    std = parameter.detach() if gaussian.std_type == "scalar" else parameter.detach().exp()
    return std.clamp(low, high).log(), parameter.requires_grad
