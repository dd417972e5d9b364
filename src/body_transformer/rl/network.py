"""A policy or a critic with the outputs that rsl_rl expects, and the module that rsl_rl exports."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..model.policy import Critic, Policy
from ..model.trunk import build_detokenizer


class Network(nn.Module):
    """A policy or a critic, with a second head if the distribution has two parameters per action."""

    def __init__(self, net: Policy | Critic, two_heads: bool) -> None:
        super().__init__()
        self.net = net
        self.is_critic = isinstance(net, Critic)
        self.second: nn.Module | None = None
        if two_heads:
            self.second = build_detokenizer(net.layout, net.config, net.layout.action_node_ids.tolist())

    def forward(self, obs: Tensor) -> Tensor:
        """[B, O] -> [B, A], [B, 2, A] with two heads, or a critic's [B, 1]"""
        tokens = self.net.encode(obs)
        out = self.net.head(tokens)
        if self.is_critic:
            out = out.unsqueeze(-1)
        if self.second is not None:
            out = torch.stack([out, self.second(tokens)], 1)
        return out


class Exported(nn.Module):
    """The deterministic action of a flat observation, for rsl_rl's `export_policy_to_jit` and `…_to_onnx`."""

    is_recurrent: bool = False
    __jit_unused_properties__ = ("input_names", "output_names")

    def __init__(self, network: Network, deterministic_output: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.deterministic_output = deterministic_output
        self.input_size = network.net.obs_dim

    def forward(self, obs: Tensor) -> Tensor:
        """[B, O] -> [B, A]"""
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
