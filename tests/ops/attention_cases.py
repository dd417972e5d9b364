"""Problems for body attention, and their solutions in float64."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from body_transformer.ops.body_attention import reference

BACKENDS = ["reference", "neighbours", "triton", "tile"]
LIMITS = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 1e-2}
"""Largest allowed relative error of outputs and of every gradient."""


# -- masks -------------------------------------------------------------------------------------------------------------


def identity(size: int, seed: int = 0) -> Tensor:
    return torch.eye(size, dtype=torch.bool)


def all_ones(size: int, seed: int = 0) -> Tensor:
    return torch.ones(size, size, dtype=torch.bool)


def asymmetric(size: int, seed: int = 0) -> Tensor:
    drawn = torch.rand(size, size, generator=torch.Generator().manual_seed(seed)) < 0.2
    return drawn | identity(size)


def tree(size: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    mask = identity(size)
    for child in range(1, size):
        parent = int(torch.randint(max(0, child - 4), child, (1,), generator=generator))
        mask[child, parent] = mask[parent, child] = True
    return mask


def star(size: int, seed: int = 0) -> Tensor:
    """Return the mask of a hub in the middle: one heavy node among light ones."""
    mask = identity(size)
    mask[size // 2] = mask[:, size // 2] = True
    return mask


MASKS: dict[str, Callable[..., Tensor]] = {
    "identity": identity,
    "all ones": all_ones,
    "asymmetric": asymmetric,
    "tree": tree,
    "star": star,
}


# -- problems ----------------------------------------------------------------------------------------------------------


@dataclass
class Problem:
    """q, k, v and the gradient of the output, [B, H, N, D]; mask and bias, [N, N]."""

    q: Tensor
    k: Tensor
    v: Tensor
    grad_out: Tensor
    mask: Tensor | None
    bias: Tensor | None

    def inputs(self, dtype: torch.dtype | None = None) -> list[Tensor]:
        """Return new leaves in the same layouts: q, k, v and, if there is one, the bias."""
        tensors = [self.q, self.k, self.v, *([] if self.bias is None else [self.bias])]
        return [x.detach().to(dtype or x.dtype).requires_grad_() for x in tensors]


def seeded(seed: int | None) -> torch.Generator:
    """Return a generator; without a seed, PyTorch's global generator draws one, which is repeatable per test."""
    return torch.Generator().manual_seed(int(torch.randint(2**31, ())) if seed is None else seed)


def make_problem(
    shape: tuple[int, int, int, int],
    mask: Tensor | None,
    dtype: torch.dtype = torch.float32,
    *,
    bias: bool = False,
    packed: bool = True,
    device: str = "cpu",
    seed: int | None = None,
) -> Problem:
    """Draw a problem; if `packed`, q, k and v are views of one tensor [B, N, 3, H, D], as after a projection."""
    generator = seeded(seed)
    batch, heads, size, width = shape

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    qkv = draw(batch, size, 3, heads, width).to(device, dtype).permute(2, 0, 3, 1, 4)
    q, k, v = (qkv if packed else qkv.contiguous()).unbind(0)
    return Problem(
        q,
        k,
        v,
        grad_out=draw(batch, size, heads, width).to(device, dtype).transpose(1, 2),
        mask=None if mask is None else mask.to(device),
        bias=draw(size, size).to(device) if bias else None,
    )


def outcome(attention: Callable[..., Tensor], problem: Problem, **options: object) -> list[Tensor]:
    """Return the output and the gradients of q, k, v and, if there is one, of the bias."""
    inputs = problem.inputs()
    out = attention(*inputs[:3], problem.mask, *(inputs[3:] or [None]), **options)
    return [out.detach(), *torch.autograd.grad(out, inputs, problem.grad_out)]


def exact(problem: Problem) -> list[Tensor]:
    """Return the outcome of the reference in float64."""
    inputs = problem.inputs(torch.float64)
    out = reference.body_attention(*inputs[:3], problem.mask, *(inputs[3:] or [None]))
    return [out.detach(), *torch.autograd.grad(out, inputs, problem.grad_out.double())]


def errors(found: list[Tensor], expected: list[Tensor]) -> list[float]:
    """Return relative errors by norm; a value that should be zero must be zero."""
    assert [x.shape for x in found] == [x.shape for x in expected]
    return [relative_error(x, y) for x, y in zip(found, expected, strict=True)]


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Return the error relative to the norm; if the norm is zero (every ReLU is off), the sum of magnitudes."""
    if not found.isfinite().all():
        return float("inf")  # NaN would pass every bound: `max` and `<` ignore it
    norm = expected.double().norm()
    return float((found.double() - expected).norm() / norm if norm > 0 else found.abs().sum())
