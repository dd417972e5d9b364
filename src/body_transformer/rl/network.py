"""What a model of rsl_rl runs, and what is exported: one forward for both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from ..model.build import build_detokenizer
from ..model.critic import Critic
from ..model.policy import Policy

Precision = Literal["fp32", "tf32", "bf16"]


class Network(nn.Module):
    """A policy or a critic, with a second head where the distribution has two parameters an action."""

    def __init__(self, net: Policy | Critic, two_heads: bool, precision: Precision) -> None:
        super().__init__()
        self.net = net
        self.precision = precision
        self.squash = net.squash if isinstance(net, Policy) else None
        self.second: nn.Module | None = None
        if two_heads:
            layout = net.layout
            self.second = build_detokenizer(layout.action_node_ids.tolist(), layout.graph, net.config)

    def forward(self, obs: Tensor) -> Tensor:
        """[B, O] -> [B, A], [B, 2, A] with two heads, or a critic's [B, 1]"""
        obs = self.net.normalizer(obs)
        tokens = self.net.tokenizer(obs, self.net.encoder.position)  # [B, N, E]
        tokens = self.net.encoder(tokens, True) if torch.jit.is_scripting() else self._encode(tokens)  # type: ignore
        if self.squash is None:
            value: Tensor = self.net.detokenizer.mean(tokens)
            return value.unsqueeze(-1)
        out: Tensor = self.squash(self.net.detokenizer(tokens))
        if self.second is not None:
            out = torch.stack([out, self.second(tokens)], 1)
        return out

    @torch.jit.unused
    def _encode(self, tokens: Tensor) -> Tensor:
        """In the precision that was asked for; on a GPU the fused encoder then runs by itself."""
        with _arithmetic(self.precision, tokens.is_cuda):
            out: Tensor = self.net.encoder(tokens, placed=True)
        return out.to(tokens.dtype)


@contextmanager
def _arithmetic(precision: str, on_cuda: bool) -> Iterator[None]:
    """fp32 changes nothing, and neither does anything on the CPU."""
    if not on_cuda or precision == "fp32":
        yield
    elif precision == "bf16":
        with torch.autocast("cuda", torch.bfloat16):
            yield
    else:
        before = torch.backends.cuda.matmul.fp32_precision
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        try:
            yield
        finally:
            torch.backends.cuda.matmul.fp32_precision = before


class Exported(nn.Module):
    """The deterministic action from a flat observation, for rsl_rl's `export_policy_to_jit` and `…_to_onnx`."""

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
        """Nothing is remembered from step to step."""

    @torch.jit.unused
    def get_dummy_inputs(self) -> tuple[Tensor]:
        return (torch.zeros(1, self.input_size),)

    @property
    def input_names(self) -> list[str]:
        return ["obs"]

    @property
    def output_names(self) -> list[str]:
        return ["actions"]
