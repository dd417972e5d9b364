"""Other ways to compute masked attention, at their best: what a user would write without this package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
"""q, k, v [B, H, N, D] -> [B, H, N, D]"""


@dataclass(frozen=True)
class Peer:
    """One way, for a mask [N, N]."""

    title: str
    make: Callable[[Tensor], Attention]
    masked: bool = True
    """False: it ignores the mask, and is shown for context only."""
    compiled: bool = False
    """Whether it lives on `torch.compile`."""


def _without_mask(mask: Tensor) -> Attention:
    return F.scaled_dot_product_attention


def _sdpa(mask: Tensor) -> Attention:
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def naive(mask: Tensor) -> Attention:
    """Scores of all pairs, softmax, product."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
        return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1) @ v

    return attend


def gather(mask: Tensor) -> Attention:
    """Keys and values of the neighbours alone, gathered and padded to the longest row."""
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
    """FlexAttention skips the blocks of the mask that are empty."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def may_attend(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return mask[query, key]

    blocks = create_block_mask(may_attend, None, None, len(mask), len(mask), device=str(mask.device))
    compiled = torch.compile(flex_attention, dynamic=False)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = compiled(q, k, v, block_mask=blocks)
        return out

    return attend


def _compiled(make: Callable[[Tensor], Attention]) -> Callable[[Tensor], Attention]:
    return lambda mask: torch.compile(make(mask), dynamic=False)


PEERS = {
    "sdpa_unmasked": Peer("SDPA, no mask", _without_mask, masked=False),
    "sdpa": Peer("SDPA + mask", _sdpa),
    "naive": Peer("naive", naive),
    "gather": Peer("gather", gather),
    "naive_compiled": Peer("naive, comp.", _compiled(naive), compiled=True),
    "flex": Peer("Flex, comp.", _flex, compiled=True),
    "gather_compiled": Peer("gather, comp.", _compiled(gather), compiled=True),
}


def peer_names(compile_peers: bool) -> list[str]:
    """Who takes part. What can be compiled is timed compiled, where compiling is asked for, and as it is elsewhere."""
    left_out = {"naive", "gather"} if compile_peers else {name for name, peer in PEERS.items() if peer.compiled}
    return [name for name in PEERS if name not in left_out]
