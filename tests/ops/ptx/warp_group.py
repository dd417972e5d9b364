"""Matrix products that the 128 threads of a warp group begin together (wgmma), and wait for later."""

import numpy as np

from .arithmetic import from_bf16
from .block import Block, Product
from .faults import Faults
from .program import Instruction
from .warp import as_registers, left_factor

GROUP = 128
WIDTHS = {1: 128, 2: 64, 3: 32}
"""Bytes of a row of the pattern in which a matrix lies, by the highest two bits of its descriptor."""
DEPTH = 16
"""Numbers that are multiplied and summed up for one of the result."""


def fence(block: Block, instruction: Instruction) -> None:
    """Products that follow see the registers as they are."""
    block.registers.changed.clear()
    block.fenced = True


def commit(block: Block, instruction: Instruction) -> None:
    block.commit_products()


def wait(block: Block, instruction: Instruction) -> None:
    block.wait_for_products(int(instruction.operands[0]))


def product(block: Block, instruction: Instruction) -> None:
    """Its first operand is in registers or, as the second, in shared memory. Computed at once: whoever changes an
    operand before it is waited for, or uses the result, is reported."""
    sums, left, right, accumulate, *signs_and_turns = instruction.operands
    if signs_and_turns[:2] != ["1", "1"]:
        raise NotImplementedError(f"a product with another sign: {instruction.text}")
    *turn_left, turn_right = (turn != "0" for turn in signs_and_turns[2:])
    in_registers, cols = left if isinstance(left, list) else [], 2 * len(sums)
    _check_registers(block, sums, in_registers)
    used = [] if in_registers else [_addresses(block, left, 64, *turn_left)]
    used.append(_addresses(block, right, cols, turn_right))
    factors = [from_bf16(block.shared.multiply(at).view(np.uint16)[..., 0]) for at in used]
    if in_registers:
        fragments = left_factor([block.registers.peek(name, "u32") for name in in_registers])
        factors.insert(0, fragments.reshape(-1, 64, DEPTH))
    a, b = factors
    result = as_registers((a @ b.transpose(0, 2, 1)).reshape(-1, 16, cols))
    _add(block, sums, result, block.registers.get(accumulate, "pred"))
    block.begin(Product(set(sums), set(in_registers), np.unique(np.concatenate([at.reshape(-1) for at in used]))))


def _check_registers(block: Block, sums: list[str], left: list[str]) -> None:
    if block.registers.changed & {*sums, *left}:
        if block.fenced:  # LLVM sinks zeros and copies there; the assembler takes them back
            block.faults.add_note("a product's register is written after wgmma.fence")
        else:
            block.faults.add("a product's register is written with no wgmma.fence after")
    if block.registers.accumulators & set(left):
        block.faults.add("a product's result is used before it is there")


def _add(block: Block, sums: list[str], result: np.ndarray, accumulate: np.ndarray) -> None:
    for register, value in zip(sums, result, strict=True):
        if accumulate.any():
            value = np.where(accumulate, value + block.registers.peek(register, "f32"), value)
        block.registers.poke(register, value)


def _addresses(block: Block, descriptor: str, rows: int, turned: bool) -> np.ndarray:
    """[groups, rows, DEPTH, 2]: of both bytes of each number."""
    given = block.registers.get(descriptor, "u64").reshape(-1, GROUP)
    block.faults.check("threads disagree on a product's operand", given != given[:, :1])
    first = np.stack([places(int(of_group), rows, turned, block.faults) for of_group in given[:, 0]])
    return block.shared.clipped(first[..., None] + np.arange(2))


def places(descriptor: int, rows: int, turned: bool, faults: Faults) -> np.ndarray:
    """[rows, DEPTH], the address of each number. What lies together is a row or, if turned, a column; either in rows of
    `width` bytes, eight of which are a pattern in which pieces of 16 bytes change places."""
    start, leading, stride = (((descriptor >> shift) & 0x3FFF) << 4 for shift in (0, 16, 32))
    pattern = descriptor >> 62
    if pattern not in WIDTHS or (descriptor >> 49) & 7:
        raise NotImplementedError(f"a product's operand that lies in another pattern: {descriptor:#x}")
    width = WIDTHS[pattern]
    row, depth = np.arange(rows)[:, None], np.arange(DEPTH)[None, :]
    if turned:
        if start % width + min(2 * rows, width) > width:  # it may begin inside of a row, but not go on in the next
            faults.add("a product's operand leaves its row of the pattern")
        along = width // 2
        offset = row // along * leading + row % along * 2 + depth // 8 * stride + depth % 8 * width
    else:
        offset = row // 8 * stride + row % 8 * width + depth * 2
    address = start + offset
    return address ^ (((address >> 7) & (width // 16 - 1)) << 4)
