"""Body attention in plain PyTorch: over all pairs, and over neighbour lists.

Over neighbour lists, time and memory are linear in the number of ones of the mask. Nodes with similar numbers of
neighbours are handled together. No sum is scattered, so the same inputs give the same bits on a GPU too. Tensors are
transposed to [N, P, D] with P = B * H, so that each neighbour is one long row.
"""

import torch
from torch import Tensor

from .mask_facts import facts_of
from .neighbour_lists import Bucket
from .reference import body_attention

# -- all pairs ---------------------------------------------------------------------------------------------------------


def dense_forward(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
    """Compute [B, H, N, D]; 16-bit inputs are multiplied in float32, since rounded scores would cost two digits."""
    q, k, v = precise(q), precise(k), precise(v)
    return body_attention(q, k, v, mask, None if bias is None else bias.to(q.dtype))


def dense_backward(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, grad_out: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return the gradients of q, k, v and the bias (None without a bias), with few passes over all pairs."""
    q, k, v, grad_out = (precise(x) for x in (q, k, v, grad_out))
    scale: float = q.shape[-1] ** -0.5
    scores = (q * scale) @ k.transpose(-2, -1)  # [B, H, N, N]
    if bias is not None:
        scores += bias.to(q.dtype)
    if mask is not None:
        scores.masked_fill_(~mask, float("-inf"))
    p = torch.softmax(scores, dim=-1)
    p_dp = (grad_out @ v.transpose(-2, -1)).mul_(p)
    ds = torch.addcmul(p_dp, p, p_dp.sum(-1, keepdim=True), value=-1)
    dq, dk, dv = ds @ (k * scale), ds.transpose(-2, -1) @ (q * scale), p.transpose(-2, -1) @ grad_out
    return dq, dk, dv, None if bias is None else ds.sum((0, 1))


def precise(x: Tensor) -> Tensor:
    """Convert 16-bit floats to float32, the lowest precision of the computation."""
    return x.float() if x.element_size() < 4 else x


# -- neighbour lists ---------------------------------------------------------------------------------------------------


def neighbours_forward(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, bias: Tensor | None) -> Tensor:
    """Compute [B, H, N, D]."""
    buckets = facts_of(mask).buckets(mask)
    queries, keys, values = (_nodes_first(x) for x in (q, k, v))
    out = torch.empty_like(queries)
    for bucket in buckets.rows:
        p = _probabilities(queries, _gathered(keys, bucket), bias, bucket)
        out[bucket.nodes] = _weighted_sum(p, _gathered(values, bucket))
    return _nodes_third(out, q)


def neighbours_backward(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, bias: Tensor | None, grad_out: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return the gradients of q, k, v and the bias (None without a bias)."""
    buckets = facts_of(mask).buckets(mask)
    queries, keys, values, grads = (_nodes_first(x) for x in (q, k, v, grad_out))
    scale: float = q.shape[-1] ** -0.5
    dq, dk, dv = (torch.empty_like(queries) for _ in range(3))
    p, ds = (queries.new_empty((buckets.num_ones, queries.shape[1])) for _ in range(2))
    for bucket in buckets.rows:
        near = _gathered(keys, bucket)
        p_here = _probabilities(queries, near, bias, bucket)
        dp = _products(grads, _gathered(values, bucket), bucket)
        ds_here = p_here * (dp - (p_here * dp).sum(1, keepdim=True))
        dq[bucket.nodes] = scale * _weighted_sum(ds_here, near)
        for entries, here in ((p, p_here), (ds, ds_here)):
            entries[bucket.positions.flatten()[bucket.filled]] = here.flatten(0, 1)[bucket.filled]
    for bucket in buckets.columns:
        dv[bucket.nodes] = _weighted_sum(_of_entries(p, bucket), _gathered(grads, bucket))
        dk[bucket.nodes] = scale * _weighted_sum(_of_entries(ds, bucket), _gathered(queries, bucket))
    dbias = None if bias is None else torch.zeros_like(bias, dtype=ds.dtype, memory_format=torch.contiguous_format)
    if dbias is not None:
        dbias.view(-1).index_copy_(0, buckets.flat, ds.sum(1))
    return _nodes_third(dq, q), _nodes_third(dk, q), _nodes_third(dv, q), dbias


def _nodes_first(x: Tensor) -> Tensor:
    """Transpose [B, H, N, D] -> [N, P, D]."""
    return precise(x).permute(2, 0, 1, 3).flatten(1, 2).contiguous()


def _nodes_third(x: Tensor, like: Tensor) -> Tensor:
    """Transpose [N, P, D] -> [B, H, N, D]."""
    batch, heads, num_nodes, width = like.shape
    return x.view(num_nodes, batch, heads, width).permute(1, 2, 0, 3)


def _gathered(x: Tensor, bucket: Bucket) -> Tensor:
    """Gather [N, P, D] -> [R, T, P, D]."""
    return x.index_select(0, bucket.others.flatten()).view(*bucket.others.shape, *x.shape[1:])


def _of_entries(x: Tensor, bucket: Bucket) -> Tensor:
    """Gather [num_ones, P] -> [R, T, P], zero in the padding."""
    return x[bucket.positions].masked_fill(~bucket.valid.unsqueeze(2), 0)


def _probabilities(queries: Tensor, near: Tensor, bias: Tensor | None, bucket: Bucket) -> Tensor:
    """Return the attention weights [R, T, P]."""
    scale: float = queries.shape[-1] ** -0.5
    scores = _products(queries, near, bucket) * scale
    if bias is not None:
        scores = scores + bias[bucket.nodes.unsqueeze(1), bucket.others].to(scores.dtype).unsqueeze(2)
    return scores.masked_fill(~bucket.valid.unsqueeze(2), float("-inf")).softmax(1)


def _products(x: Tensor, near: Tensor, bucket: Bucket) -> Tensor:
    """Return the products [R, T, P] of each node's row of `x` with its neighbours' rows."""
    return (x[bucket.nodes].unsqueeze(1) * near).sum(-1)


def _weighted_sum(weights: Tensor, near: Tensor) -> Tensor:
    """Return the weighted sums [R, P, D] of the neighbours' rows."""
    return (weights.unsqueeze(-1) * near).sum(1)
