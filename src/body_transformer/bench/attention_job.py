"""What `bot bench attention` is asked to time: shapes, dtypes, inputs, and one step of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import listing
from ..ops.body_attention import BACKENDS, body_attention, choose_backend, reference
from .arithmetic import matmul_precision
from .attention_peers import Attention
from .timing import ONCE, QUICK, Effort, Step, num_sets

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
    """Relative error above which a peer's output counts as wrong: it may round more than we would."""
    our_tolerance: float
    """The same for ours, and for its gradients."""


DTYPES = {
    "bf16": Dtype(torch.bfloat16, "tf32", 2e-2, 1e-2),
    "fp32": Dtype(torch.float32, "fp32", 2e-3, 1e-5),
    "tf32": Dtype(torch.float32, "tf32", 5e-3, 1e-3),
}
ON_DEVICE = {"cuda": tuple(DTYPES), "cpu": ("fp32",)}
"""What can be timed where: a CPU has no tf32, and on one without bf16 PyTorch's products of it end the process."""
DEFAULT_DTYPES = {"cuda": ("bf16", "fp32"), "cpu": ("fp32",)}
CHECKED_SAMPLES = 2
"""Gradients are compared on so many samples of a batch."""
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
    compile_only: bool = False
    """Run everyone once and time nothing."""

    def __post_init__(self) -> None:
        for dtype in self.dtypes:
            if dtype not in ON_DEVICE[self.device]:
                have = listing(ON_DEVICE[self.device])
                raise ValueError(f"dtype {dtype!r} is not timed on {self.device}; have there: {have}")

    @property
    def effort(self) -> Effort:
        return ONCE if self.compile_only else QUICK if self.quick else Effort()

    def num_sets(self, set_bytes: int) -> int:
        return 1 if self.quick or self.compile_only else num_sets(set_bytes, self.device)


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


def check(attention: Attention, mask: Tensor, inputs: Inputs, dtype: str, is_ours: bool = False) -> None:
    """Whoever computes something else has no time worth showing: the first samples against float64.

    The whole batch is computed, as it will be when it is timed; ours is held to a closer bound, and its gradients too.
    """
    numbers = DTYPES[dtype]
    q, k, v, _ = inputs
    with matmul_precision(numbers.matmul), torch.no_grad():
        out = attention(q, k, v)[:CHECKED_SAMPLES]
    few = few_samples(inputs, numbers.dtype)
    exact = few_samples(inputs, torch.float64)
    wanted = reference.body_attention(*exact[:3], mask)
    _compare("output", out, wanted, numbers.our_tolerance if is_ours else numbers.tolerance)
    if is_ours:
        found = attention_step(attention, few, dtype, backward=True)()
        grads = torch.autograd.grad(wanted, exact[:3], exact[3])
        for name, value, truth in zip("qkv", found, grads, strict=True):
            _compare(f"gradient of {name}", value, truth, numbers.our_tolerance)


def few_samples(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """The first samples, as leaves of their own."""
    q, k, v, grad = (x.detach()[:CHECKED_SAMPLES].to(dtype) for x in inputs)
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), grad


def _compare(what: str, value: Tensor, truth: Tensor, tolerance: float) -> None:
    error = float((value.detach().double() - truth.detach()).norm() / truth.detach().norm())
    if not error < tolerance:  # NaN is not
        raise ValueError(f"wrong {what}: relative error {error:.1e}, more than {tolerance:.0e}")
