"""The registers of one block: per name, one value for each thread."""

import numpy as np

from .arithmetic import TYPES, bits
from .faults import Faults
from .shared_memory import START

SYMBOLS = {"global_smem": START}
UNNAMED = "_"
"""Name of the register that discards its value."""


class Registers:
    """Registers of one block; `special` registers, such as the thread's index, are set from the start."""

    def __init__(self, threads: int, special: dict[str, np.ndarray], faults: Faults) -> None:
        self.threads, self.faults = threads, faults
        self.values = dict(special)
        self.accumulators: set[str] = set()  # of products in flight
        self.operands: set[str] = set()
        self.changed: set[str] = set()  # since the last wgmma.fence

    def get(self, operand: str, kind: str) -> np.ndarray:
        """Read a register or a number as [T] values of type `kind`."""
        if not operand.startswith("%"):
            return self._number(operand, kind)
        if operand in self.accumulators:
            self.faults.add("a product's result is used before the wait")
        return self.peek(operand, kind)

    def peek(self, register: str, kind: str) -> np.ndarray:
        """Read a register without the check for products in flight."""
        if register not in self.values:
            self.faults.add("an uninitialised register is read")
        wanted = np.dtype(TYPES[kind])
        value = self.values.get(register, np.zeros(self.threads, f"u{wanted.itemsize}"))
        if value.itemsize != wanted.itemsize:  # a byte in a register of 16 bits
            value = value.astype(f"u{wanted.itemsize}")
        return value.view(wanted)

    def set(self, register: str, value: np.ndarray, mask: np.ndarray | bool = True) -> None:
        """Write where `mask` [T] is true."""
        if register == UNNAMED:
            return
        if register in self.accumulators or register in self.operands:
            self.faults.add("a register of a product in flight is written")
        self.poke(register, value, mask)
        self.changed.add(register)

    def poke(self, register: str, value: np.ndarray, mask: np.ndarray | bool = True) -> None:
        """Write a register as the result of a product in flight, without checks."""
        value = bits(value)
        if not np.all(mask):
            value = np.where(mask, value, self.values.get(register, np.zeros_like(value)))
        self.values[register] = value

    def _number(self, text: str, kind: str) -> np.ndarray:
        if text.startswith("0f"):
            return np.full(self.threads, int(text[2:], 16), np.uint32).view(np.float32).view(TYPES[kind])
        number = SYMBOLS[text] if text in SYMBOLS else int(text, 0)
        if kind == "pred":
            return np.full(self.threads, number != 0)
        wanted = np.dtype(TYPES[kind])
        return np.full(self.threads, number % 2 ** (8 * wanted.itemsize), f"u{wanted.itemsize}").view(wanted)
