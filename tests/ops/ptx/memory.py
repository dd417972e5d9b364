"""Instructions that move registers, access memory, and order memory accesses."""

import numpy as np

from .arithmetic import TYPES
from .block import Block
from .global_memory import GlobalMemory
from .program import Instruction
from .shared_memory import SharedMemory


def move(block: Block, instruction: Instruction, mask: np.ndarray) -> None:
    """Move a register, pack several registers into a wide one, or unpack a wide register."""
    to, source = instruction.registers(0), instruction.registers(1)
    size = int(instruction.parts[-1][1:])
    parts = [block.registers.get(register, f"b{size // len(source)}") for register in source]
    values = np.stack(parts, axis=1).view(TYPES[f"b{size // len(to)}"])
    for k, register in enumerate(to):
        block.registers.set(register, values[:, k].copy(), mask)


def load_parameter(block: Block, instruction: Instruction, mask: np.ndarray) -> None:
    register, place = instruction.operands
    kind = np.dtype(TYPES[instruction.parts[-1]])
    value = block.parameters[place.strip("[] ")] % 2 ** (8 * kind.itemsize)
    block.registers.set(register, np.full(block.threads, value, kind), mask)


def load(block: Block, instruction: Instruction, mask: np.ndarray) -> None:
    kind, registers = np.dtype(TYPES[instruction.parts[-1]]), instruction.registers(0)
    addresses = block.addresses(instruction.operands[1], kind.itemsize * len(registers))
    found = np.ascontiguousarray(_memory(block, instruction).load(addresses, mask)).view(kind)
    for k, register in enumerate(registers):
        value = found[:, k].copy()
        block.registers.set(register, value.astype(np.uint16) if kind.itemsize == 1 else value, mask)


def store(block: Block, instruction: Instruction, mask: np.ndarray) -> None:
    kind, registers = instruction.parts[-1], instruction.registers(1)
    values = np.stack([block.registers.get(register, kind) for register in registers], axis=1).view(np.uint8)
    addresses = block.addresses(instruction.operands[0], values.shape[1])
    _memory(block, instruction).store(addresses, values, mask)


def _memory(block: Block, instruction: Instruction) -> GlobalMemory | SharedMemory:
    return {"global": block.memory, "shared": block.shared}[instruction.parts[1]]


def copy(block: Block, instruction: Instruction, mask: np.ndarray) -> None:
    """Copy the given number of bytes; bytes beyond the limit in a fourth operand are zero."""
    to, source, size, *there = instruction.operands
    size = int(size, 0)
    num_read = block.registers.get(there[0], "u32") if there else np.full(block.threads, size)
    if not np.isin(num_read[mask], (0, size)).all():
        raise NotImplementedError(f"partial copy: {instruction.text}")
    values = block.memory.load(block.addresses(source, size), mask & (num_read > 0))
    block.shared.copy(block.addresses(to, size), values, mask)


def barrier(block: Block, instruction: Instruction) -> None:
    if instruction.operands != ["0"]:
        raise NotImplementedError(f"barrier for some threads: {instruction.text}")
    block.shared.barrier()
