"""BodyModel: the Body Transformer, and what the paper compares it with, as rsl_rl's actor and critic."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_args

import torch
from rsl_rl.modules.distribution import Distribution, GaussianDistribution, HeteroscedasticGaussianDistribution
from rsl_rl.utils import resolve_callable, unpad_trajectories
from tensordict import TensorDict
from torch import Tensor, nn

from ..body.layout import Layout
from ..errors import listing, unknown
from ..model.config import PolicyConfig
from ..model.policy import Critic, Policy
from ..model.trunk import Precision
from ..schema import build
from .infer_layout import InferredLayout, infer_layout
from .network import Exported, Network
from .normalization import RunningNormalization

if TYPE_CHECKING:
    from mjlab.envs import ManagerBasedRlEnv

NAME = "body_transformer.rl.model:BodyModel"
"""The `class_name` in rsl_rl's configuration."""
CRITIC = "critic"
"""rsl_rl's name for the observation set of a value function."""


class BodyModel(nn.Module):
    """An actor or a critic for rsl_rl whose attention follows the robot's body; any variant of `PolicyConfig`.

    rsl_rl builds its models from configuration alone, so the configuration carries the layout: the object itself, or
    `Layout.to_dict()`, which is plain data. `with_layouts` writes it there for an mjlab environment:

        cfg["actor"] = {"class_name": "body_transformer.rl.model:BodyModel", "policy": {"variant": "bot-mix"}, …}
        runner = OnPolicyRunner(env, with_layouts(cfg, env.unwrapped), device=…)

    Where only names can be given, as in mjlab's own `train`, `by_name.BodyPPO` does that.

    The model of the observation set "critic" is a `Critic`, any other is a `Policy`, which `policy()` returns. The
    normalizer is theirs, and so is the deterministic action; the distribution is rsl_rl's.
    """

    is_recurrent: bool = False

    def __init__(
        self,
        obs: TensorDict,
        obs_groups: Mapping[str, Sequence[str]],
        obs_set: str,
        output_dim: int,
        *,
        layout: Layout | Mapping[str, Any],
        policy: PolicyConfig | Mapping[str, Any] | None = None,
        obs_normalization: bool = False,
        distribution_cfg: Mapping[str, Any] | None = None,
        precision: Precision = "fp32",
    ) -> None:
        """
        Args:
            obs: observations, for their sizes.
            obs_groups: observation set -> the groups that it is made of.
            obs_set: the set that this model reads.
            output_dim: number of actions; 1 for a critic.
            layout: which node owns which entry of the set.
            policy: the architecture; its head is ignored, `distribution_cfg` decides.
            obs_normalization: normalise by the running mean and variance; `policy.obs_clip` bounds the result.
            distribution_cfg: rsl_rl's `class_name` and options of the action distribution; None: deterministic.
            precision: of the encoder's products on a GPU: "fp32" leaves PyTorch's settings alone, "tf32" and "bf16"
                are what the fused encoder runs in.
        """
        super().__init__()
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
        self.network = Network(net, two_heads)
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
                raise ValueError(
                    f"a critic has one output and no distribution; got {output_dim} and {self.distribution}"
                )
        elif output_dim != self.layout.action_dim:
            raise ValueError(f"the layout has {self.layout.action_dim} actions; the environment has {output_dim}")

    # -- what rsl_rl calls -------------------------------------------------------------------------------------------

    def forward(
        self,
        obs: TensorDict,
        masks: Tensor | None = None,
        hidden_state: Any = None,
        stochastic_output: bool = False,
    ) -> Tensor:
        """Groups of [B, O_group] -> [B, A]: the deterministic action or, if asked for, a sample; a critic's [B, 1].

        `masks` come with observations that were padded for a recurrent partner: what they hide is left out.
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
        if self.is_recordable:  # torch.normal(), which rsl_rl's sample() ends in, has the host look at the deviations
            mean: Tensor = distribution.mean.detach()
            actions: Tensor = mean + distribution.std.detach() * torch.randn_like(mean)
        else:
            actions = distribution.sample()
        return actions

    @property
    def is_recordable(self) -> bool:
        """Whether nothing that it does waits for the device, so that it can be recorded there."""
        return self.distribution is None or isinstance(self.distribution, GaussianDistribution)

    def get_latent(self, obs: TensorDict, masks: Tensor | None = None, hidden_state: Any = None) -> Tensor:
        """[B, O] the normalised observation."""
        latent: Tensor = self.network.net.normalizer(self._flat(obs))
        return latent

    def update_normalization(self, obs: TensorDict) -> None:
        if self.statistics is not None:
            self.statistics.update(self._flat(obs), self.network.net.normalizer)

    def _flat(self, obs: TensorDict) -> Tensor:
        groups: list[Tensor] = [obs[group] for group in self.obs_groups]
        return groups[0] if len(groups) == 1 else torch.cat(groups, dim=-1)

    def reset(self, dones: Tensor | None = None, hidden_state: Any = None) -> None:
        """Nothing is remembered from step to step."""

    def get_hidden_state(self) -> None:
        return None

    def detach_hidden_state(self, dones: Tensor | None = None) -> None:
        """There is none."""

    # -- the distribution --------------------------------------------------------------------------------------------

    def _known(self) -> Any:
        if self.distribution is None:
            raise ValueError("this model is deterministic; distribution_cfg gives it a distribution")
        return self.distribution

    @property
    def output_mean(self) -> Tensor:
        mean: Tensor = self._known().mean
        return mean

    @property
    def output_std(self) -> Tensor:
        std: Tensor = self._known().std
        return std

    @property
    def output_entropy(self) -> Tensor:
        entropy: Tensor = self._known().entropy
        return entropy

    @property
    def output_distribution_params(self) -> tuple[Tensor, ...]:
        params: tuple[Tensor, ...] = self._known().params
        return params

    def get_output_log_prob(self, outputs: Tensor) -> Tensor:
        log_prob: Tensor = self._known().log_prob(outputs)
        return log_prob

    def get_kl_divergence(self, old_params: tuple[Tensor, ...], new_params: tuple[Tensor, ...]) -> Tensor:
        divergence: Tensor = self._known().kl_divergence(old_params, new_params)
        return divergence

    # -- what leaves training ----------------------------------------------------------------------------------------

    def as_jit(self) -> nn.Module:
        """A copy that `torch.jit.script` takes."""
        finish = nn.Identity() if self.distribution is None else self.distribution.as_deterministic_output_module()
        return Exported(copy.deepcopy(self.network), finish)

    def as_onnx(self, verbose: bool = False) -> nn.Module:
        """A copy that `torch.onnx.export` takes."""
        return self.as_jit()

    def policy(self) -> Policy:
        """A copy of the actor as a plain policy: the same deterministic actions, and a Gaussian head if it has one."""
        net, gaussian = self.network.net, self.distribution
        if not isinstance(net, Policy):
            raise ValueError("this model is a critic; the actor is a policy")
        if not isinstance(gaussian, GaussianDistribution | None):
            raise ValueError(f"a policy's action is the mean of a Gaussian; this model has a {type(gaussian).__name__}")
        config, log_std = net.config, None
        if gaussian is not None and not isinstance(gaussian, HeteroscedasticGaussianDistribution):
            log_std, learned = _log_std(gaussian)
            config = replace(config, head="gaussian", std="learned" if learned else "fixed")
        with torch.random.fork_rng(devices=[]):  # weights are drawn only to be overwritten
            policy = Policy(self.layout, config).to(net.normalizer.shift.device)
        weights = net.state_dict() if log_std is None else net.state_dict() | {"log_std": log_std}
        policy.load_state_dict(weights)
        return policy


def _make_distribution(cfg: Mapping[str, Any] | None, output_dim: int) -> Distribution | None:
    if cfg is None:
        return None
    options = dict(cfg)
    kind: Any = resolve_callable(options.pop("class_name"))
    distribution: Distribution = kind(output_dim, **options)
    if distribution.input_dim not in (output_dim, [2, output_dim]):
        raise ValueError(f"{kind.__name__} wants outputs {distribution.input_dim}; one or two an action can be had")
    return distribution


def _as_mlp(network: Network) -> list[Any]:
    """What a distribution reaches into to start its second parameter: `mlp[-2].weight[output_dim:]`."""
    heads = [network.net.detokenizer] if network.second is None else [network.net.detokenizer, network.second]
    layers: list[Any] = [getattr(head, "linear", head) for head in heads]
    if len(layers) == 1:
        return [layers[0], None]
    return [SimpleNamespace(weight=_Rows(layers[1].weight), bias=_Rows(layers[1].bias)), None]


class _Rows:
    """The second head's rows, where a slice from the first head's end is asked for."""

    def __init__(self, second: Tensor) -> None:
        self.second = second

    def __getitem__(self, rows: slice) -> Tensor:
        return self.second


def _log_std(gaussian: GaussianDistribution) -> tuple[Tensor, bool]:
    """[A], as the distribution would use it, and whether it is learned."""
    low, high = gaussian.std_range
    parameter = gaussian.std_param if gaussian.std_type == "scalar" else gaussian.log_std_param
    std = parameter.detach() if gaussian.std_type == "scalar" else parameter.detach().exp()
    return std.clamp(low, high).log(), parameter.requires_grad


# -- layouts for a whole configuration -------------------------------------------------------------------------------


def with_layouts(
    cfg: Mapping[str, Any], env: ManagerBasedRlEnv, overrides: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A copy of rsl_rl's configuration in which every BodyModel that had none has its layout, as plain data.

    `overrides` is as in `infer_layout`, for all models; a model's own "layout_overrides" come first.
    """
    out = copy.deepcopy(dict(cfg))
    for model, found in infer_layouts(cfg, env, overrides).items():
        out[model]["layout"] = found.layout.to_dict()
        out[model].pop("layout_overrides", None)
    return out


def infer_layouts(
    cfg: Mapping[str, Any], env: ManagerBasedRlEnv, overrides: Mapping[str, str] | None = None
) -> dict[str, InferredLayout]:
    """Model ("actor", "critic", …) -> its layout, for every BodyModel in the configuration without a layout."""
    found = {}
    for model, options in cfg.items():
        if not _is_body_model(options) or options.get("layout"):
            continue
        groups = cfg.get("obs_groups", {}).get(model)
        if groups is None:
            raise ValueError(f"obs_groups says nothing of {model!r}; it has: {listing(cfg.get('obs_groups', {}))}")
        own = options.get("layout_overrides", {})
        found[model] = infer_layout(env, list(groups), {**(overrides or {}), **own})
    return found


def _is_body_model(options: Any) -> bool:
    """Whether this part of rsl_rl's configuration is a BodyModel's."""
    name = options.get("class_name") if isinstance(options, Mapping) else None
    return name is BodyModel or (isinstance(name, str) and name.replace(":", ".") == NAME.replace(":", "."))
