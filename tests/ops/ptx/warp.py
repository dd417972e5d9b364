"""Instructions that the 32 threads of a warp run together.

A register with two 16-bit numbers is an 8 x 8 matrix: thread k of a warp holds two neighbours of row k / 4.
"""

import numpy as np

from .arithmetic import from_bf16
from .block import Block
from .program import Instruction


def matrices(register: np.ndarray) -> np.ndarray:
    """Reshape [T] -> [W, 8, 8], one matrix of 16-bit numbers per warp."""
    return register.view(np.uint16).reshape(-1, 8, 8)


def left_factor(registers: list[np.ndarray]) -> np.ndarray:
    """Return the first operand of a product in float32, [W, 16, 16], from its four registers."""
    a, b, c, d = (from_bf16(matrices(register)) for register in registers)
    return np.block([[a, c], [b, d]])


def as_registers(result: np.ndarray) -> np.ndarray:
    """Distribute a product's result to registers, [W, 16, N] -> [N / 2, T]."""
    warps, _, cols = result.shape
    parts = result.reshape(warps, 2, 8, cols // 8, 4, 2)  # warp, half, row, block of columns, pair, place in the pair
    return parts.transpose(3, 1, 5, 0, 2, 4).reshape(cols // 2, warps * 32)


def product(block: Block, instruction: Instruction) -> None:
    """Multiply 16 x 16 by 16 x 8 matrices (mma)."""
    out, left, right, sums = instruction.operands
    a = left_factor([block.registers.get(name, "u32") for name in left])
    b = [from_bf16(matrices(block.registers.get(name, "u32"))).transpose(0, 2, 1) for name in right]
    before = [block.registers.get(name, "f32") for name in sums]
    for register, value, acc in zip(out, as_registers(a @ np.concatenate(b, axis=1)), before, strict=True):
        block.registers.set(register, value + acc)


def transpose(block: Block, instruction: Instruction) -> None:
    to, source = instruction.operands
    turned = matrices(block.registers.get(source, "u32")).transpose(0, 2, 1)
    block.registers.set(to, np.ascontiguousarray(turned).reshape(-1).view(np.uint32))


def load_matrices(block: Block, instruction: Instruction) -> None:
    """Load four matrices: thread k has the address of row k % 8 of matrix k / 8."""
    registers, place = instruction.operands
    rows = block.shared.load(block.addresses(place, 16), np.full(block.threads, True))
    words = np.ascontiguousarray(rows).view(np.uint32).reshape(-1, 4, 32)
    for k, register in enumerate(registers):
        block.registers.set(register, words[:, k].reshape(-1))


def shuffle(block: Block, instruction: Instruction) -> None:
    """Read a value from another thread: the one whose index differs in given bits, or the one with a given index."""
    to, source, which, *whole_warp = instruction.operands
    if whole_warp != ["31", "-1"]:
        raise NotImplementedError(f"shuffle within a part of a warp: {instruction.text}")
    lane, which = np.arange(block.threads) % 32, block.registers.get(which, "u32").astype(np.int64)
    wanted = {"bfly": lane ^ which, "idx": which % 32}[instruction.parts[2]]
    value = block.registers.get(source, "u32")
    block.registers.set(to.split("|")[0], value[np.arange(block.threads) - lane + wanted])
