"""Asynchronous matrix products of a warp group of 128 threads (wgmma)."""

import numpy as np

from .arithmetic import from_bf16
from .block import Block, Product
from .faults import Faults
from .program import Instruction
from .warp import as_registers, left_factor

GROUP = 128
WIDTHS = {1: 128, 2: 64, 3: 32}
"""Highest two bits of a descriptor -> bytes per row of the matrix's swizzle pattern."""
DEPTH = 16
"""Length of the axis over which a product sums."""


def fence(block: Block, instruction: Instruction) -> None:
    """Make the current registers visible to later products."""
    block.registers.changed.clear()
    block.fenced = True


def product(block: Block, instruction: Instruction) -> None:
    """Multiply two matrices: the first in registers or in shared memory, the second in shared memory.

    The product is computed immediately. A change of an operand or a use of the result before the wait is a fault.
    """
    sums, left, right, accumulate, *signs_and_turns = instruction.operands
    if signs_and_turns[:2] != ["1", "1"]:
        raise NotImplementedError(f"product with a negated operand: {instruction.text}")
    *turn_left, turn_right = (turn != "0" for turn in signs_and_turns[2:])
    in_registers, cols = left if isinstance(left, list) else [], 2 * len(sums)
    _check_registers(block, sums, in_registers)
    used = [] if in_registers else [_addresses(block, left, 64, *turn_left)]
    used.append(_addresses(block, right, cols, turn_right))
    factors = [from_bf16(block.shared.read_operand(at).view(np.uint16)[..., 0]) for at in used]
    if in_registers:
        fragments = left_factor([block.registers.peek(name, "u32") for name in in_registers])
        factors.insert(0, fragments.reshape(-1, 64, DEPTH))
    a, b = factors
    result = as_registers((a @ b.transpose(0, 2, 1)).reshape(-1, 16, cols))
    _add(block, sums, result, block.registers.get(accumulate, "pred"))
    block.begin(Product(set(sums), set(in_registers), np.unique(np.concatenate([at.reshape(-1) for at in used]))))


def _check_registers(block: Block, sums: list[str], left: list[str]) -> None:
    # a write after the fence is allowed: LLVM moves zeros and copies there, and the assembler undoes it
    if block.registers.changed & {*sums, *left} and not block.fenced:
        block.faults.add("a product's register is written without a wgmma.fence after")
    if block.registers.accumulators & set(left):
        block.faults.add("a product's result is used before the wait")


def _add(block: Block, sums: list[str], result: np.ndarray, accumulate: np.ndarray) -> None:
    for register, value in zip(sums, result, strict=True):
        if accumulate.any():
            value = np.where(accumulate, value + block.registers.peek(register, "f32"), value)
        block.registers.poke(register, value)


def _addresses(block: Block, descriptor: str, rows: int, turned: bool) -> np.ndarray:
    """Return the addresses of both bytes of each element, [groups, rows, DEPTH, 2]."""
    given = block.registers.get(descriptor, "u64").reshape(-1, GROUP)
    block.faults.check("threads disagree on a product's operand", given != given[:, :1])
    first = np.stack([places(int(of_group), rows, turned, block.faults) for of_group in given[:, 0]])
    return block.shared.clipped(first[..., None] + np.arange(2))


def places(descriptor: int, rows: int, turned: bool, faults: Faults) -> np.ndarray:
    """Return the address of each element, [rows, DEPTH].

    Rows or, if turned, columns are contiguous. They are stored in rows of `width` bytes. Eight of these rows form a
    swizzle pattern, which permutes pieces of 16 bytes.
    """
    start, leading, stride = (((descriptor >> shift) & 0x3FFF) << 4 for shift in (0, 16, 32))
    pattern = descriptor >> 62
    if pattern not in WIDTHS or (descriptor >> 49) & 7:
        raise NotImplementedError(f"unsupported swizzle pattern of an operand: {descriptor:#x}")
    width = WIDTHS[pattern]
    row, depth = np.arange(rows)[:, None], np.arange(DEPTH)[None, :]
    if turned:
        if start % width + min(2 * rows, width) > width:  # it may start inside a row, but not continue in the next
            faults.add("a product's operand crosses its row of the pattern")
        along = width // 2
        offset = row // along * leading + row % along * 2 + depth // 8 * stride + depth % 8 * width
    else:
        offset = row // 8 * stride + row % 8 * width + depth * 2
    address = start + offset
    return address ^ (((address >> 7) & (width // 16 - 1)) << 4)
