"""Global memory: the tensors of a launch, each at its own address, with gaps between them."""

import numpy as np
import torch
from torch import Tensor

from .faults import Faults

ROOM = 512
"""Size of the gaps, and alignment of the addresses."""
NO_THREAD = -1


class GlobalMemory:
    """Copies of the tensors; `write_back` updates the originals."""

    def __init__(self, tensors: list[Tensor], faults: Faults) -> None:
        self.faults = faults
        self.program = 0  # the current program
        self.bytes = {x.untyped_storage().data_ptr(): _bytes(x) for x in tensors}  # two tensors may share memory
        self.starts: dict[int, int] = {}
        size = ROOM
        for key, memory in self.bytes.items():
            self.starts[key] = size
            size += (len(memory) // ROOM + 2) * ROOM
        self.values, self.given = np.zeros(size, np.uint8), np.zeros(size, bool)
        self.writer = np.full(size, NO_THREAD)
        for key, memory in self.bytes.items():
            here = slice(self.starts[key], self.starts[key] + len(memory))
            self.values[here], self.given[here] = memory, True

    def address(self, tensor: Tensor) -> int:
        return self.starts[tensor.untyped_storage().data_ptr()] + tensor.storage_offset() * tensor.element_size()

    def load(self, addresses: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Load [T, n] at `addresses` [T, n]; zeros where `mask` [T] is false."""
        mask = self._inside(addresses, mask)[:, None]
        return np.where(mask, self.values[np.where(mask, addresses, 0)], np.uint8(0))

    def store(self, addresses: np.ndarray, values: np.ndarray, mask: np.ndarray) -> None:
        mask = self._inside(addresses, mask)
        at = addresses[mask]
        self.faults.check("two programs write to one address", ~np.isin(self.writer[at], (NO_THREAD, self.program)))
        self.writer[at], self.values[at] = self.program, values[mask]
        self.faults.check("threads write different values", self.values[at] != values[mask])

    def write_back(self) -> None:
        for key, memory in self.bytes.items():
            memory[:] = self.values[self.starts[key] :][: len(memory)]

    def _inside(self, addresses: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return which threads [T] take part and stay within a tensor."""
        inside = (addresses >= 0) & (addresses < len(self.values))
        outside = mask & ~(inside & self.given[np.where(inside, addresses, 0)]).all(1)
        self.faults.check("access beyond a tensor", outside)
        self.faults.check("misaligned access to global memory", mask & (addresses[:, 0] % addresses.shape[1] != 0))
        return mask & ~outside


def _bytes(tensor: Tensor) -> np.ndarray:
    """Return the whole memory of which the tensor is a view."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).numpy()
