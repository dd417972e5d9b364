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
from .steps import TimedModel, forward, gradients

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
    """Precision of float32 products, a key of steps.MATMUL_PRECISION."""
    tolerance: float
    """Largest relative error of a peer's output; peers may round more than this package does."""
    our_tolerance: float
    """Largest relative error of this package's output and gradients."""


DTYPES = {
    "bf16": TimedDtype(torch.bfloat16, "tf32", 2e-2, 1e-2),
    "fp32": TimedDtype(torch.float32, "fp32", 2e-3, 1e-5),
    "tf32": TimedDtype(torch.float32, "tf32", 5e-3, 1e-3),
}


@dataclass(frozen=True)
class AttentionKind:
    """One way to compute masked attention."""

    title: str
    make: MakeAttention
    is_ours: bool = False
    is_masked: bool = True
    """Whether it applies the mask; without it, its time is shown for context only."""
    compiled: bool = False
    """Whether it needs `torch.compile`."""


# -- this package ------------------------------------------------------------------------------------------------------


def ours(mask: Tensor, backend: str | None = None) -> Attention:
    """Use this backend, or the one that the dispatch table chooses."""
    return partial(body_attention, mask=mask, backend=backend)


def chosen_backend(inputs: Inputs, mask: Tensor) -> str:
    """Return the backend that the dispatch table picks for these inputs."""
    q = inputs[0]
    density = float(mask.float().mean())
    return choose_backend(q.device.type, q.dtype, q.shape[2], q.shape[3], density)


def backends_on(device: str) -> list[str]:
    """Return the backends to time; Triton's need a GPU, since on a CPU they run in an interpreter meant for tests."""
    return [name for name, backend in BACKENDS.items() if device == "cuda" or not backend.needs_triton]


OURS = AttentionKind("ours", ours, is_ours=True)


# -- peers -------------------------------------------------------------------------------------------------------------


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
    "sdpa_unmasked": AttentionKind("SDPA, no mask", lambda mask: F.scaled_dot_product_attention, is_masked=False),
    "sdpa": AttentionKind("SDPA + mask", lambda mask: partial(F.scaled_dot_product_attention, attn_mask=mask)),
    "naive": AttentionKind("naive", naive),
    "gather": AttentionKind("gather", gather),
    "naive_compiled": AttentionKind("naive, comp.", _compiled(naive), compiled=True),
    "flex": AttentionKind("Flex, comp.", _flex, compiled=True),
    "gather_compiled": AttentionKind("gather, comp.", _compiled(gather), compiled=True),
}


def chosen_kinds(device: str, peers: bool = True, compile_peers: bool = False) -> dict[str, AttentionKind]:
    """Return the peers, this package with the backend that the dispatch table chooses, and each backend by itself.

    With `compile_peers`, the compiled form of a peer replaces the eager one.
    """
    left_out = {"naive", "gather"} if compile_peers else {name for name, peer in PEERS.items() if peer.compiled}
    others = {name: peer for name, peer in PEERS.items() if peers and name not in left_out}
    backends = {name: AttentionKind(name, partial(ours, backend=name), is_ours=True) for name in backends_on(device)}
    return others | {"ours": OURS} | backends


# -- inputs and steps --------------------------------------------------------------------------------------------------


def draw_inputs(shape: Shape, dtype: str, device: str, count: int) -> list[Inputs]:
    generator = torch.Generator(device=device).manual_seed(0)

    def draw() -> Tensor:
        return torch.randn(shape, generator=generator, device=device).to(DTYPES[dtype].dtype)

    def draw_leaf() -> Tensor:
        return draw().requires_grad_()

    return [(draw_leaf(), draw_leaf(), draw_leaf(), draw()) for _ in range(count)]


def attention_steps(attention: Attention, sets: Sequence[Inputs], dtype: str, backward: bool) -> list[Step]:
    model, precision = TimedModel(attention), DTYPES[dtype].matmul
    if backward:
        return [partial(gradients, model, inputs[:3], inputs[3], precision) for inputs in sets]
    return [partial(forward, model, inputs[:3], precision) for inputs in sets]
