"""An interpreter for Gluon kernels, since Gluon has none.

It runs one program after the other, in plain Python on PyTorch tensors. The results are the same, but neither the
distribution of values over threads nor the order of memory accesses is modelled: layouts, barriers and waits have no
effect. `ptx` models both for the compiled kernels.
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from triton.experimental.gluon._runtime import GluonJITFunction


class Pointer:
    """A pointer into a tensor's memory; `offset` is a number or a tensor of numbers."""

    def __init__(self, memory: Tensor, offset: Any = 0) -> None:
        self.memory, self.offset = memory, offset

    def __add__(self, offset: Any) -> "Pointer":
        return Pointer(self.memory, self.offset + offset)

    def __sub__(self, offset: Any) -> "Pointer":
        return self + -offset


class Shared:
    """A part of shared memory: PyTorch views in place of Gluon's descriptors."""

    def __init__(self, memory: Tensor) -> None:
        self.memory = memory

    @property
    def shape(self) -> list[int]:
        return list(self.memory.shape)

    def index(self, k: int) -> "Shared":
        return Shared(self.memory[int(k)])

    def slice(self, start: int, length: int) -> "Shared":
        return Shared(self.memory[start : start + length])

    def permute(self, order: tuple[int, ...]) -> "Shared":
        return Shared(self.memory.permute(order))

    def _reinterpret(self, dtype: torch.dtype, shape: list[int], layout: Any) -> "Shared":
        return Shared(self.memory.view(shape))

    def load(self, layout: Any) -> Tensor:
        return self.memory.clone()

    def store(self, value: Tensor) -> None:
        self.memory.copy_(value)


def load(pointer: Pointer, mask: Any = None, other: float = 0.0) -> Tensor:
    at = torch.as_tensor(pointer.offset)
    if mask is None:
        return pointer.memory[at]
    mask = torch.as_tensor(mask).broadcast_to(at.shape)
    return torch.where(mask, pointer.memory[torch.where(mask, at, 0)], torch.tensor(other, dtype=pointer.memory.dtype))


def store(pointer: Pointer, value: Tensor, mask: Any = True) -> None:
    at, mask = torch.broadcast_tensors(torch.as_tensor(pointer.offset), torch.as_tensor(mask))
    pointer.memory[at[mask]] = value.broadcast_to(at.shape)[mask].to(pointer.memory.dtype)


def copy(shared: Shared, pointer: Pointer, mask: Any = True) -> None:
    shared.store(load(pointer, mask))


def product(a: Tensor, b: Tensor, acc: Tensor) -> Tensor:
    operands, sums = LANGUAGE["bfloat16"], LANGUAGE["float32"]
    assert (a.dtype, b.dtype, acc.dtype) == (operands, operands, sums)
    return acc + a.to(sums) @ b.to(sums)


def group_product(a: Any, b: Shared, acc: Any, use_acc: bool = True, is_async: bool = False) -> Tensor:
    return product(a.memory if isinstance(a, Shared) else a, b.memory, acc if use_acc else torch.zeros_like(acc))


def wait_for_products(count: int, results: list[Tensor]) -> Any:
    return results if len(results) > 1 else results[0]


def assembly(text: str, constraints: str, args: list[Tensor], dtype: torch.dtype, is_pure: bool, pack: int) -> Tensor:
    (x,) = args
    if text.startswith("cvt.rn.relu.bf16x2.f32"):
        return x.relu().to(dtype)
    if text.startswith(("cvt.rn.bf16x2.f32", "shl.b32")):
        return x.to(dtype)
    assert text.startswith("movmatrix.sync.aligned.m8n8.trans.b16")
    samples, rows, cols = x.shape
    return x.reshape(samples, rows // 8, 8, cols // 8, 8).transpose(2, 4).reshape(x.shape)


def no_layout(*args: Any) -> None:
    return None


LANGUAGE: dict[str, Any] = {
    "allocate_shared_memory": lambda dtype, shape, layout: Shared(torch.full(shape, torch.nan, dtype=dtype)),
    "arange": lambda start, end, layout: torch.arange(start, end),
    "bfloat16": torch.bfloat16,
    "convert_layout": lambda x, layout: x,
    "exp2": torch.exp2,
    "float32": torch.float32,
    "full": lambda shape, value, dtype, layout: torch.full(shape, value, dtype=dtype),
    "inline_asm_elementwise": assembly,
    "int1": torch.bool,
    "int32": torch.int32,
    "int64": torch.int64,
    "join": lambda a, b: torch.stack([a, b], dim=-1),
    "load": load,
    "max": lambda x, axis: x.amax(axis),
    "maximum": lambda a, b: torch.maximum(torch.as_tensor(a), torch.as_tensor(b)),
    "minimum": lambda a, b: torch.minimum(torch.as_tensor(a), torch.as_tensor(b)),
    "permute": torch.permute,
    "reshape": torch.reshape,
    "rsqrt": torch.rsqrt,
    "split": lambda x: x.unbind(-1),
    "static_range": range,
    "store": store,
    "sum": lambda x, axis: x.sum(axis),
    "where": lambda condition, a, b: torch.where(torch.as_tensor(condition), a, b),
    "zeros": lambda shape, dtype, layout: torch.zeros(shape, dtype=dtype),
    "zeros_like": torch.zeros_like,
    **dict.fromkeys(["BlockedLayout", "SliceLayout"], no_layout),
}
LAYOUTS = (
    "by_rows",
    "by_samples",
    "by_columns",
    "by_rows_narrow",
    "left",
    "right",
    "in_memory",
    "shared_matrix",
    "coalesced_matrix",
    "shared_vector",
    "coalesced_vector",
)
COMMANDS: dict[str, Any] = {
    "async_copy": SimpleNamespace(
        async_copy_global_to_shared=copy, commit_group=lambda: None, wait_group=lambda count: None
    ),
    "fence_async_shared": lambda: None,
    "mma_v2": product,
    "warpgroup_mma": group_product,
    "warpgroup_mma_init": lambda x: x,
    "warpgroup_mma_wait": wait_for_products,
    **dict.fromkeys(LAYOUTS, no_layout),
}


class Kernel:
    """Replacement of a kernel, launched in the same way."""

    def __init__(self, kernel: GluonJITFunction) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*args: Any, num_warps: int, maxnreg: int | None, ptx_version: int = 0, **constants: Any) -> None:
            for program in itertools.product(*map(range, grid)):
                index = (*program, 0, 0)
                here = {"program_id": lambda axis, at=index: torch.tensor(at[axis]), "num_warps": lambda: num_warps}
                given = [self._as_argument(arg) for arg in args]
                as_python(self.kernel, SimpleNamespace(**LANGUAGE, **here))(*given, **constants)

        return launch

    def _as_argument(self, arg: Any) -> Any:
        if isinstance(arg, Tensor):
            size = arg.untyped_storage().nbytes() // arg.element_size() - arg.storage_offset()
            return Pointer(arg.as_strided((size,), (1,)))
        return torch.tensor(arg) if isinstance(arg, int) else arg


def as_python(kernel: GluonJITFunction, language: SimpleNamespace) -> Callable[..., Any]:
    """Return the kernel's function, and all that it calls, with `language` in place of `gl`."""

    def converted(value: Any) -> Any:
        if isinstance(value, GluonJITFunction):
            return as_python(value, language)
        return getattr(value, "value", value)  # a constexpr holds its value in `value`

    used = set(kernel.fn.__code__.co_names)
    scope = {name: converted(value) for name, value in kernel.fn.__globals__.items() if name in used}
    scope |= {name: command for name, command in COMMANDS.items() if name in used}
    return FunctionType(kernel.fn.__code__, scope | {"gl": language, "__builtins__": __builtins__})


@contextmanager
def on_cpu(module: ModuleType, launcher: Callable[[GluonJITFunction], Any] = Kernel) -> Iterator[None]:
    """Run the kernels that a module launches on the CPU; `launcher` makes the replacement of each."""
    kernels = {name: value for name, value in vars(module).items() if isinstance(value, GluonJITFunction)}
    with mock.patch.multiple(module, **{name: launcher(kernel) for name, kernel in kernels.items()}):
        yield
