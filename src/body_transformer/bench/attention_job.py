"""What `bot bench attention` is asked to time: shapes, dtypes, inputs, and one step of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..ops.body_attention import BACKENDS, body_attention, choose_backend, reference
from .arithmetic import matmul_precision
from .attention_peers import Attention
from .timing import QUICK, Effort, Step

Shape = tuple[int, int, int, int]
"""B, H, N, D"""
Inputs = tuple[Tensor, Tensor, Tensor, Tensor]
"""q, k, v, and the output's gradient, [B, H, N, D] each"""
Make = Callable[[Tensor], Attention]
"""A mask -> attention over it."""


@dataclass(frozen=True)
class Dtype:
    dtype: torch.dtype
    matmul: str
    """Precision of float32 products, a key of arithmetic.PRECISIONS."""
    tolerance: float
    """Relative error above which an output counts as wrong."""


DTYPES = {
    "bf16": Dtype(torch.bfloat16, "tf32", 2e-2),
    "fp32": Dtype(torch.float32, "fp32", 2e-3),
    "tf32": Dtype(torch.float32, "tf32", 5e-3),
}
DEFAULT_DTYPES = {"cuda": ("bf16", "fp32"), "cpu": ("fp32",)}
SHAPES: Mapping[str, Sequence[Shape]] = {
    "cuda": ((8192, 2, 16, 32), (256, 5, 32, 64), (1024, 4, 128, 64), (128, 4, 1024, 64), (16, 4, 4096, 64)),
    "cpu": ((256, 2, 16, 32), (16, 5, 32, 64), (8, 4, 128, 64), (1, 4, 1024, 64)),
}
QUICK_SHAPES: Sequence[Shape] = ((4, 2, 16, 32), (2, 2, 24, 16))
SCALING = "scaling"


@dataclass(frozen=True)
class AttentionJob:
    """What to time."""

    device: str
    rows: Sequence[str]
    """Keys of row_shapes, and `scaling`."""
    dtypes: Sequence[str]
    """Keys of DTYPES."""
    peers: bool
    compile_peers: bool
    quick: bool = False

    @property
    def effort(self) -> Effort:
        return QUICK if self.quick else Effort()


def row_shapes(device: str, quick: bool) -> dict[str, Shape]:
    """`8192x2x16x32` -> its shape."""
    return {shape_name(shape): shape for shape in (QUICK_SHAPES if quick else SHAPES[device])}


def shape_name(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def ours(mask: Tensor, backend: str | None = None) -> Attention:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = body_attention(q, k, v, mask, backend=backend)
        return out

    return attend


def chosen_backend(inputs: Inputs, mask: Tensor) -> str:
    """The one that the table picks for these."""
    q = inputs[0]
    density = float(mask.float().mean())
    return choose_backend(q.device.type, q.dtype, q.shape[2], q.shape[3], density)


def backends_on(device: str) -> list[str]:
    """On a CPU the Triton ones run in an interpreter, to be tested, not timed."""
    return [name for name, backend in BACKENDS.items() if device == "cuda" or not backend.needs_triton]


def takes(backend: str, shape: Shape, dtype: str) -> bool:
    """Whether the backend is made for this size and type."""
    limits, (_, _, num_nodes, head_dim) = BACKENDS[backend], shape
    return (
        DTYPES[dtype].dtype in limits.dtypes
        and num_nodes <= (limits.max_nodes or num_nodes)
        and head_dim <= (limits.max_head_dim or head_dim)
    )


def draw_inputs(shape: Shape, dtype: str, device: str, count: int) -> list[Inputs]:
    generator = torch.Generator(device=device).manual_seed(0)

    def draw() -> Tensor:
        return torch.randn(shape, generator=generator, device=device).to(DTYPES[dtype].dtype)

    def draw_leaf() -> Tensor:
        return draw().requires_grad_()

    return [(draw_leaf(), draw_leaf(), draw_leaf(), draw()) for _ in range(count)]


def attention_step(attention: Attention, inputs: Inputs, dtype: str, backward: bool) -> Step:
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


def check(attention: Attention, mask: Tensor, inputs: Inputs, dtype: str) -> None:
    """Whoever computes something else has no time worth showing; the first sample will do."""
    q, k, v, _ = inputs
    with matmul_precision(DTYPES[dtype].matmul), torch.no_grad():
        out = attention(q, k, v)[:1].double()
        wanted = reference.body_attention(q[:1].double(), k[:1].double(), v[:1].double(), mask)
    error = float((out - wanted).norm() / wanted.norm())
    if not error < DTYPES[dtype].tolerance:
        raise ValueError(f"wrong output: relative error {error:.1e}, more than {DTYPES[dtype].tolerance:.0e}")
