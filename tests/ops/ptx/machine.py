"""Execution of one block of a program: all threads run in lockstep and take every branch together."""

import re
from collections.abc import Callable
from functools import cache, partial

import numpy as np

from . import memory, warp, warp_group
from .arithmetic import Operation, operation
from .block import Block
from .program import Instruction, Program

ALONE: dict[str, Callable[[Block, Instruction, np.ndarray], None]] = {
    r"mov\.b(32|64)": memory.move,
    r"ld\.param\.b(32|64)": memory.load_parameter,
    r"ld\.(global|shared)(\.v[24])?\.b(8|16|32|64)": memory.load,
    r"st\.(global|shared)(\.v[24])?\.b(8|16|32|64)": memory.store,
    r"cp\.async\.c[ag]\.shared\.global": memory.copy,
}
"""Instructions that a mask can disable per thread; arithmetic has its own table."""
TOGETHER: dict[str, Callable[[Block, Instruction], None]] = {
    r"cp\.async\.commit_group": lambda block, _: block.shared.commit_copies(),
    r"cp\.async\.wait_group": lambda block, given: block.shared.wait_for_copies(int(given.operands[0])),
    r"bar\.sync": memory.barrier,
    r"fence\.proxy\.async(\.shared::cta)?": lambda block, _: block.shared.fence(),
    r"shfl\.sync\.(bfly|idx)\.b32": warp.shuffle,
    r"ldmatrix\.sync\.aligned\.m8n8\.x4\.shared\.b16": warp.load_matrices,
    r"movmatrix\.sync\.aligned\.m8n8\.trans\.b16": warp.transpose,
    r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.bf16\.bf16\.f32": warp.product,
    r"wgmma\.fence\.sync\.aligned": warp_group.fence,
    r"wgmma\.commit_group\.sync\.aligned": lambda block, _: block.commit_products(),
    r"wgmma\.wait_group\.sync\.aligned": lambda block, given: block.wait_for_products(int(given.operands[0])),
    r"wgmma\.mma_async\.sync\.aligned\.m64n\d+k16\.f32\.bf16\.bf16": warp_group.product,
}
"""Instructions that all threads execute."""
BRANCHES = ("bra", "bra.uni")


def run(program: Program, block: Block, kernel: str = "") -> None:
    """Run to the end; the location of a fault is `kernel` and the instruction."""
    at = 0
    with np.errstate(all="ignore"):
        while (instruction := program.instructions[at]).name != "ret":
            block.faults.at = f"{kernel} {at}: {instruction.text}"
            mask = _mask(block, instruction)
            if instruction.name in BRANCHES:
                at = program.labels[instruction.operands[0]] if _all_or_none(instruction, mask) else at + 1
            else:
                _function(instruction.name)(block, instruction, mask)
                at += 1
    if instruction.guard:
        raise NotImplementedError(f"exit of some threads: {instruction.text}")
    block.end()


def _mask(block: Block, instruction: Instruction) -> np.ndarray:
    """Return which threads [T] take part."""
    if instruction.guard is None:
        return np.full(block.threads, True)
    return block.registers.get(instruction.guard, "pred") ^ instruction.negated


def _all_or_none(instruction: Instruction, mask: np.ndarray) -> bool:
    if mask.any() != mask.all():
        raise NotImplementedError(f"divergent branch: {instruction.text}")
    return bool(mask.all())


@cache
def _function(name: str) -> Callable[[Block, Instruction, np.ndarray], None]:
    """Return the function that executes instructions of this name."""
    for pattern, function in ALONE.items():
        if re.fullmatch(pattern, name):
            return function
    for pattern, function in TOGETHER.items():
        if re.fullmatch(pattern, name):
            return partial(_together, function)
    return partial(_compute, operation(name))


def _together(
    function: Callable[[Block, Instruction], None], block: Block, instruction: Instruction, mask: np.ndarray
) -> None:
    if _all_or_none(instruction, mask):
        function(block, instruction)


def _compute(found: Operation, block: Block, instruction: Instruction, mask: np.ndarray) -> None:
    to, *operands = instruction.operands
    values = [block.registers.get(x, kind) for x, kind in zip(operands, found.types, strict=True)]
    block.registers.set(to, found.apply(*values), mask)
