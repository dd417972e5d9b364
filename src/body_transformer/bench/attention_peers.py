"""Implementations of masked attention that are timed, this package's and its peers, with their inputs and steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from ..ops.body_attention import BACKENDS, body_attention, choose_backend, reference
from .clocks import Step
from .steps import matmul_precision

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
"""q, k, v [B, H, N, D] -> [B, H, N, D]"""
MakeAttention = Callable[[Tensor], Attention]
"""A mask [N, N] -> attention with it."""
Shape = tuple[int, int, int, int]
"""B, H, N, D"""
Inputs = tuple[Tensor, Tensor, Tensor, Tensor]
"""q, k, v, and the output's gradient, [B, H, N, D] each"""


@dataclass(frozen=True)
class TimedDtype:
    """A dtype of the inputs, the precision of its products, and the errors that are allowed."""

    dtype: torch.dtype
    matmul: str
    """Precision of float32 products, a key of steps.PRECISIONS."""
    tolerance: float
    """Largest relative error of a peer's output; peers may round more than this package does."""
    our_tolerance: float
    """Largest relative error of this package's output and gradients."""


DTYPES = {
    "bf16": TimedDtype(torch.bfloat16, "tf32", 2e-2, 1e-2),
    "fp32": TimedDtype(torch.float32, "fp32", 2e-3, 1e-5),
    "tf32": TimedDtype(torch.float32, "tf32", 5e-3, 1e-3),
}


# -- this package ------------------------------------------------------------------------------------------------------


def ours(mask: Tensor, backend: str | None = None) -> Attention:
    return partial(body_attention, mask=mask, backend=backend)


def chosen_backend(inputs: Inputs, mask: Tensor) -> str:
    """Return the backend that the dispatch table picks for these inputs."""
    q = inputs[0]
    density = float(mask.float().mean())
    return choose_backend(q.device.type, q.dtype, q.shape[2], q.shape[3], density)


def backends_on(device: str) -> list[str]:
    """Return the backends to time; Triton's need a GPU, since on a CPU they run in an interpreter meant for tests."""
    return [name for name, backend in BACKENDS.items() if device == "cuda" or not backend.needs_triton]


# -- peers -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AttentionPeer:
    """One way to compute masked attention without this package."""

    title: str
    make: MakeAttention
    masked: bool = True
    """Whether it applies the mask; without it, its time is shown for context only."""
    compiled: bool = False
    """Whether it needs `torch.compile`."""


def naive(mask: Tensor) -> Attention:
    """Compute the scores of all pairs, their softmax, and the product with the values."""
    return partial(reference.body_attention, mask=mask)


def gather(mask: Tensor) -> Attention:
    """Gather only the keys and values of the neighbours, padded to the longest row."""
    width = int(mask.sum(1).max())
    valid, ids = torch.sort(mask.to(torch.int8), dim=1, descending=True, stable=True)  # a row's ones come first
    ids, valid = ids[:, :width], valid[:, :width].bool()  # [N, K]

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        near_k, near_v = k[:, :, ids], v[:, :, ids]  # [B, H, N, K, D]
        scores = (q.unsqueeze(-2) * near_k).sum(-1) * q.shape[-1] ** -0.5
        weights = torch.softmax(scores.masked_fill(~valid, float("-inf")), dim=-1)
        return (weights.unsqueeze(-1) * near_v).sum(-2)

    return attend


def _flex(mask: Tensor) -> Attention:
    """Use FlexAttention, which skips the empty blocks of the mask."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def may_attend(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return mask[query, key]

    blocks = create_block_mask(may_attend, None, None, len(mask), len(mask), device=str(mask.device))
    compiled = torch.compile(flex_attention, dynamic=False)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = compiled(q, k, v, block_mask=blocks)
        return out

    return attend


def _compiled(make: MakeAttention) -> MakeAttention:
    return lambda mask: torch.compile(make(mask), dynamic=False)


PEERS = {
    "sdpa_unmasked": AttentionPeer("SDPA, no mask", lambda mask: F.scaled_dot_product_attention, masked=False),
    "sdpa": AttentionPeer("SDPA + mask", lambda mask: partial(F.scaled_dot_product_attention, attn_mask=mask)),
    "naive": AttentionPeer("naive", naive),
    "gather": AttentionPeer("gather", gather),
    "naive_compiled": AttentionPeer("naive, comp.", _compiled(naive), compiled=True),
    "flex": AttentionPeer("Flex, comp.", _flex, compiled=True),
    "gather_compiled": AttentionPeer("gather, comp.", _compiled(gather), compiled=True),
}


def peer_names(compile_peers: bool) -> list[str]:
    """Return the peers to time; with `compile_peers`, a compiled form replaces the eager one."""
    left_out = {"naive", "gather"} if compile_peers else {name for name, peer in PEERS.items() if peer.compiled}
    return [name for name in PEERS if name not in left_out]


# -- inputs and steps --------------------------------------------------------------------------------------------------


def draw_inputs(shape: Shape, dtype: str, device: str, count: int) -> list[Inputs]:
    generator = torch.Generator(device=device).manual_seed(0)

    def draw() -> Tensor:
        return torch.randn(shape, generator=generator, device=device).to(DTYPES[dtype].dtype)

    def draw_leaf() -> Tensor:
        return draw().requires_grad_()

    return [(draw_leaf(), draw_leaf(), draw_leaf(), draw()) for _ in range(count)]


def attention_step(
    attention: Attention, inputs: Inputs, dtype: str, backward: bool
) -> Callable[[], Tensor | tuple[Tensor, ...]]:
    q, k, v, grad = inputs
    precision = DTYPES[dtype].matmul

    def forward() -> Tensor:
        with matmul_precision(precision), torch.no_grad():
            return attention(q, k, v)

    def both() -> tuple[Tensor, ...]:
        with matmul_precision(precision):
            return torch.autograd.grad(attention(q, k, v), (q, k, v), grad)

    return both if backward else forward


def attention_steps(attention: Attention, sets: Sequence[Inputs], dtype: str, backward: bool) -> list[Step]:
    return [attention_step(attention, inputs, dtype, backward) for inputs in sets]
