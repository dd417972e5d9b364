"""Execution of compiled Gluon kernels without a GPU: all programs of the grid, one after the other.

`gluon_on_cpu` interprets the source. This module runs the compiler's output, with the layouts, barriers and fences of a
GPU.
"""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from triton.experimental.gluon._runtime import GluonJITFunction

from ..compile_kernels import compile_for_hopper
from .block import Block
from .faults import Faults
from .global_memory import GlobalMemory
from .machine import run
from .program import Program, parse

POINTERS = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.bool: "*i1"}
NUMBERS = {int: "i32", float: "fp32"}


class Kernel:
    """Replacement of a kernel, launched in the same way, which records faults."""

    def __init__(self, kernel: GluonJITFunction, faults: Faults) -> None:
        self.kernel, self.faults = kernel, faults

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*args: Any, **constants: Any) -> None:
            program = self._compiled(args, constants)
            memory = GlobalMemory([arg for arg in args if isinstance(arg, Tensor)], self.faults)
            words = [memory.address(arg) if isinstance(arg, Tensor) else _word(arg) for arg in args]
            words += [0] * (len(program.parameters) - len(words))  # Triton's own parameters are not used
            parameters = dict(zip(program.parameters, words, strict=True))
            for place in itertools.product(*map(range, grid)):
                memory.program += 1
                block = Block(program, memory, parameters, (*place, 0, 0)[:3], self.faults)
                run(program, block, self.kernel.__name__)
            memory.write_back()

        return launch

    def _compiled(self, args: tuple[Any, ...], constants: dict[str, Any]) -> Program:
        given = [POINTERS[arg.dtype] if isinstance(arg, Tensor) else NUMBERS[type(arg)] for arg in args]
        types = dict(zip(self.kernel.arg_names, given, strict=False))  # constants come last
        compiled = compile_for_hopper(self.kernel, types, constants)
        return parse(compiled.asm["ptx"], compiled.metadata.shared)


def _word(number: float) -> int:
    """Return the bits of a scalar argument."""
    return number if isinstance(number, int) else int(np.float32(number).view(np.uint32))
