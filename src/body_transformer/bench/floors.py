"""Hardware floors: bytes at the rate of a copy, arithmetic at the rate of a matrix product.

Both rates are measured in the same run on the same device, so that a floor describes this machine at this time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch.utils.benchmark import Timer

from .clocks import Effort, Step, time_with_events, warm_up
from .steps import matmul_precision

if TYPE_CHECKING:
    from ..body.graph import BodyGraph
    from ..body.layout import Layout
    from ..model.config import PolicyConfig

COPY_BYTES = {"cuda": 2**31, "cpu": 2**27}
MATMUL_SIZE = {"cuda": 8192, "cpu": 1024}
BACKWARD = 3
"""Arithmetic of forward and backward over that of forward: each product has two more, its factors' gradients."""


def attention_bytes(shape: Sequence[int], itemsize: int, backward: bool) -> int:
    """Count the bytes of all [B, H, N, D] tensors that must move.

    Forward reads q, k, v and writes o; backward reads q, k, v, o, do and writes dq, dk, dv.
    """
    batch, heads, nodes, head_dim = shape
    return (12 if backward else 4) * batch * heads * nodes * head_dim * itemsize


def encoder_flops(graph: BodyGraph, config: PolicyConfig) -> int:
    """Count the operations of one sample's forward pass; masked layers count only the ones of the mask."""
    nodes, width = graph.num_nodes, config.embed_dim
    projections = nodes * (4 * width**2 + 2 * width * config.ff_dim)  # queries, keys, values, output, feed-forward
    masked = (config.architecture.is_masked(k) for k in range(config.num_layers))
    pairs = (graph.num_ones if is_masked else nodes**2 for is_masked in masked)
    return sum(2 * (projections + 2 * count * width) for count in pairs)


def policy_flops(layout: Layout, config: PolicyConfig) -> int:
    """Count the operations of one observation's forward pass."""
    nodes, width = layout.graph.num_nodes, config.embed_dim
    tokenizer = 2 * layout.used_obs_dim * width
    if config.architecture.encoder == "mlp":
        flat, hidden = nodes * width, config.mlp_dim
        return tokenizer + 2 * (2 * flat * hidden + hidden**2) + 2 * flat * layout.action_dim
    return tokenizer + encoder_flops(layout.graph, config) + 2 * width * layout.action_dim


def floor_ms(amount: float, rate: float) -> float:
    """Return the milliseconds for `amount` bytes or operations at `rate` per second."""
    return 1e3 * amount / rate


MIN_CPU_S = 0.05
"""Minimum time for a floor on a CPU, also in a quick run: too few samples would overestimate it."""


def copy_rate(device: str, effort: Effort, num_bytes: int | None = None) -> float:
    """Measure the bytes per second that a large copy on the device reads and writes."""
    source = torch.ones(num_bytes or COPY_BYTES[device], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2e3 * source.numel() / _floor_step_ms(lambda: target.copy_(source), device, effort)


def read_ms(num_bytes: int, device: str, effort: Effort) -> float:
    """Measure the milliseconds of a matrix-vector product whose float32 matrix has `num_bytes`.

    A matrix as large as a policy's weights stays in a cache between calls if, and only if, the weights do.
    """
    width = 256
    weights = torch.ones(max(1, num_bytes // (4 * width)), width, device=device)
    x, out = torch.ones(width, device=device), torch.empty(len(weights), device=device)
    return _floor_step_ms(lambda: torch.mv(weights, x, out=out), device, effort)


def matmul_rate(device: str, precision: str, effort: Effort, size: int | None = None) -> float:
    """Measure the operations per second of a large square product."""
    size = size or MATMUL_SIZE[device]
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    generator = torch.Generator(device=device).manual_seed(0)
    # random, not constant: a GPU that multiplies zeros draws less power and runs faster
    a, b = (torch.randn(size, size, device=device, generator=generator).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    with matmul_precision(precision):
        return 2e3 * size**3 / _floor_step_ms(lambda: torch.mm(a, b, out=out), device, effort)


def _floor_step_ms(step: Step, device: str, effort: Effort) -> float:
    """Return milliseconds: the median on a GPU, as for contenders; the minimum on a CPU, despite other load."""
    if device == "cuda":
        warm_up([step])
        return time_with_events([step], effort)
    timer = Timer("step()", globals={"step": step}, num_threads=torch.get_num_threads())
    return 1e3 * min(timer.blocked_autorange(min_run_time=max(effort.budget_s, MIN_CPU_S)).times)
