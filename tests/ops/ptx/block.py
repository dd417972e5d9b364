"""The state of one block of threads."""

import re
from dataclasses import dataclass

import numpy as np

from .faults import Faults
from .global_memory import GlobalMemory
from .program import Program
from .registers import Registers
from .shared_memory import SharedMemory

ADDRESS = re.compile(r"\[\s*([%$\w]+)\s*(?:\+\s*(-?\d+))?\s*\]")


@dataclass(frozen=True)
class Product:
    """A matrix product in flight, which may still read and write."""

    accumulators: set[str]
    operands: set[str]
    addresses: np.ndarray  # bytes in shared memory


class Block:
    """One block of threads; `parameters` are by name, `place` is the block's index in the grid."""

    def __init__(
        self,
        program: Program,
        memory: GlobalMemory,
        parameters: dict[str, int],
        place: tuple[int, int, int],
        faults: Faults,
    ) -> None:
        self.threads, self.parameters, self.memory, self.faults = program.threads, parameters, memory, faults
        self.shared = SharedMemory(program.shared, self.threads, faults)
        special = {"%tid.x": np.arange(self.threads, dtype=np.uint32)}
        special |= {f"%ctaid.{axis}": np.full(self.threads, k, np.uint32) for axis, k in zip("xyz", place, strict=True)}
        self.registers = Registers(self.threads, special, faults)
        self.fenced = False  # by wgmma.fence, for the products of the next group
        self.begun: list[Product] = []
        self.groups: list[list[Product]] = []

    def addresses(self, operand: str, size: int) -> np.ndarray:
        """Return the addresses [T, size] of the bytes of an operand such as [%rd1 + 16]."""
        base, offset = ADDRESS.fullmatch(operand).groups()
        kind = "u64" if base.startswith("%rd") else "u32"
        return self.registers.get(base, kind).astype(np.int64)[:, None] + int(offset or 0) + np.arange(size)

    def begin(self, product: Product) -> None:
        self.begun.append(product)
        self._registers_in_flight()

    def commit_products(self) -> None:
        self.groups.append(self.begun)
        self.begun, self.fenced = [], False

    def wait_for_products(self, count: int) -> None:
        """Wait until at most `count` groups are in flight."""
        while len(self.groups) > count:
            for product in self.groups.pop(0):
                self.shared.end_product_read(product.addresses)
        for product in self._products():  # it may read the same data
            self.shared.begin_product_read(product.addresses)
        self._registers_in_flight()

    def end(self) -> None:
        if self.shared.begun or self.shared.groups:
            self.faults.add("a copy without a wait")
        if self._products():
            self.faults.add("a product without a wait")

    def _products(self) -> list[Product]:
        return [product for group in (*self.groups, self.begun) for product in group]

    def _registers_in_flight(self) -> None:
        products = self._products()
        self.registers.accumulators = set().union(*(product.accumulators for product in products))
        self.registers.operands = set().union(*(product.operands for product in products))
