"""Problems for the encoder operator, and their solutions in float64."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from body_transformer.ops.encoder_stack import PARAMETERS, encoder_stack, reference
from body_transformer.ops.encoder_stack.packing import layer_shapes

from .attention_cases import MASKS, relative_error, seeded

PATTERNS: dict[str, Callable[[int], bool]] = {
    "hard": lambda layer: True,
    "mix": lambda layer: layer % 2 == 0,
    "unmasked": lambda layer: False,
}
"""Name -> whether a layer is masked."""


@dataclass(frozen=True)
class Case:
    """An encoder's sizes, its masked layers, and its mask."""

    batch: int
    num_nodes: int
    embed_dim: int
    ff_dim: int
    num_heads: int
    num_layers: int = 2
    pattern: str = "mix"
    mask: str = "tree"

    def __str__(self) -> str:
        sizes = f"B{self.batch} N{self.num_nodes} E{self.embed_dim} F{self.ff_dim} H{self.num_heads} L{self.num_layers}"
        return f"{sizes} {self.pattern} {self.mask}"

    @property
    def masked(self) -> list[bool]:
        return [PATTERNS[self.pattern](layer) for layer in range(self.num_layers)]


PAPER = Case(1003, 16, 64, 128, 2, num_layers=10)
"""The paper's reinforcement-learning sizes, with a batch that is not a multiple of any block size."""


@dataclass
class Problem:
    """The arguments of `encoder_stack`, and the gradient of its output."""

    x: Tensor
    parameters: list[Tensor]
    mask: Tensor
    masked: list[bool]
    num_heads: int
    grad_out: Tensor

    def leaves(self, dtype: torch.dtype | None = None) -> list[Tensor]:
        """Return x and the parameters as new leaves."""
        return [t.detach().to(dtype or t.dtype).clone().requires_grad_() for t in (self.x, *self.parameters)]

    def call(self, x: Tensor | None = None, parameters: list[Tensor] | None = None, **options: Any) -> Tensor:
        """Call the operator, by default with the fused backend in float32."""
        x = self.x if x is None else x
        options = {"backend": "fused", "precision": "fp32"} | options
        return encoder_stack(x, parameters or self.parameters, self.mask, self.masked, self.num_heads, **options)


def draw_problem(case: Case, device: str = "cpu", seed: int | None = None) -> Problem:
    """Draw a problem in which no parameter has its usual initial value, so that every parameter has an effect."""
    generator = seeded(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    def parameter(name: str, shape: tuple[int, ...]) -> Tensor:
        scale = shape[-1] ** -0.5 if len(shape) == 2 else 0.2
        return draw(*shape) * scale + (1.0 if name.startswith("norm") and name.endswith("weight") else 0.0)

    x, grad_out = draw(2, case.batch, case.num_nodes, case.embed_dim).to(device)
    layer = list(zip(PARAMETERS, layer_shapes(case.embed_dim, case.ff_dim), strict=True))
    parameters = [parameter(*row).to(device) for _ in range(case.num_layers) for row in layer]
    mask = MASKS[case.mask](case.num_nodes, int(generator.initial_seed() % 1000)).to(device)
    return Problem(x, parameters, mask, case.masked, case.num_heads, grad_out)


@dataclass
class _Kinks(TorchFunctionMode):
    """Recorder of the smallest input magnitude of every ReLU."""

    nearest: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.relu, torch.nn.functional.relu) and args[0].numel():
            self.nearest.append(float(args[0].abs().min()))
        return func(*args, **(kwargs or {}))


def draw_smooth(case: Case, device: str = "cpu", margin: float = 3e-6) -> Problem:
    """Draw a problem in which rounding (float32's, by default) does not change the sign of any ReLU's input.

    A changed sign would change gradients by far more than rounding does.
    """
    while True:
        problem = draw_problem(case, device)
        with _Kinks() as kinks, torch.no_grad():
            exact_output(problem)
        if min(kinks.nearest) > margin:
            return problem


# -- results -----------------------------------------------------------------------------------------------------------


def outcome(problem: Problem, function: Callable[..., Tensor] | None = None, **options: Any) -> dict[str, Tensor]:
    """Return the output, the gradient of x and those of the twelve kinds of parameters, [L, ...] each."""
    leaves = problem.leaves()
    out = (function or problem.call)(leaves[0], leaves[1:], **options)
    return differentiated(out, leaves, problem.grad_out)


def exact_output(problem: Problem) -> Tensor:
    x, *parameters = (t.double() for t in (problem.x, *problem.parameters))
    return reference.encoder_stack(x, parameters, problem.mask, problem.masked, problem.num_heads)


def exact(problem: Problem) -> dict[str, Tensor]:
    """Return the outcome of the reference in float64."""
    return plain(problem, torch.float64)


def plain(
    problem: Problem, dtype: torch.dtype = torch.float32, autocast: torch.dtype | None = None
) -> dict[str, Tensor]:
    """Return the outcome of the reference, optionally under autocast."""
    leaves = problem.leaves(dtype)
    with torch.autocast(problem.x.device.type, autocast, enabled=autocast is not None):
        out = reference.encoder_stack(leaves[0], leaves[1:], problem.mask, problem.masked, problem.num_heads)
    return differentiated(out, leaves, problem.grad_out.to(out.dtype))


def in_tf32(problem: Problem) -> dict[str, Tensor]:
    """Return the outcome of the reference with the factors of all products rounded to TF32, on any device."""
    with _Rounded():
        return plain(problem)


class _Rounded(TorchDispatchMode):
    """Mode in which the factors of products are rounded to TF32's ten fraction bits."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in ("mm", "bmm", "addmm"):
            args = (*args[:-2], *map(_to_tf32, args[-2:]))
        return func(*args, **(kwargs or {}))


def _to_tf32(x: Tensor) -> Tensor:
    """Round to the nearest, ties to even."""
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & -0x2000).view(torch.float32)


def differentiated(out: Tensor, leaves: list[Tensor], grad_out: Tensor) -> dict[str, Tensor]:
    return named(out.detach(), *torch.autograd.grad(out, leaves, grad_out))


def named(out: Tensor, grad_x: Tensor, *grads: Tensor) -> dict[str, Tensor]:
    """Return the output and the gradients by name, those of the parameters stacked over layers."""
    kinds = {name: torch.stack(grads[k :: len(PARAMETERS)]) for k, name in enumerate(PARAMETERS)}
    return {"out": out, "x": grad_x, **kinds}


def errors(found: dict[str, Tensor], expected: dict[str, Tensor]) -> dict[str, float]:
    """Return relative errors by norm over all layers, without the gradient of the keys' bias, which has no effect."""
    assert found.keys() == expected.keys()
    assert all(found[name].shape == expected[name].shape for name in expected)
    return {name: relative_error(_counted(name, found[name]), _counted(name, expected[name])) for name in expected}


def _counted(name: str, gradient: Tensor) -> Tensor:
    if name != "attention.in_proj.bias":
        return gradient
    queries, _, values = gradient.chunk(3, dim=1)
    return torch.cat([queries, values], dim=1)


def same_bits(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first)


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """Fill uninitialised memory with NaN, so that its use is noticed."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)  # fills the tensors of torch.empty and similar functions
    try:
        assert torch.empty(3).isnan().all()
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
