"""Masked attention for one sample and one head: vanilla (as usually written, and tuned), the paper's, ours.

Each class takes the mask once, since a robot's body does not change. It precomputes everything that depends on the mask
and allocates its working memory. It is then called with q, k and v [N, D]; the next call overwrites the returned array.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from ..masks import Mask
from .compiled import find_compiler, library, why_not

Floats = npt.NDArray[Any]
NumpyAttention = Callable[[Floats, Floats, Floats], Floats]
"""q, k, v [N, D] -> [N, D]"""


def neighbours_of(mask: Mask) -> tuple[npt.NDArray[np.intp], Mask]:
    """Return each row's neighbours [N, K], padded to the longest row, and where they are valid [N, K].

    Padding repeats a row's first neighbour, so that a NaN of a node outside the row cannot reach it.
    """
    degrees = mask.sum(axis=1)
    valid = np.arange(degrees.max()) < degrees[:, None]
    columns = np.repeat(mask.argmax(axis=1)[:, None], valid.shape[1], axis=1)
    columns[valid] = np.nonzero(mask)[1]
    return columns, valid


class TextbookAttention:
    """All pairs, as usually written."""

    def __init__(self, mask: Mask, head_dim: int, dtype: npt.DTypeLike) -> None:
        self.mask = mask

    def __call__(self, q: Floats, k: Floats, v: Floats) -> Floats:
        scores = np.where(self.mask, q @ k.T / sqrt(q.shape[1]), -np.inf)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        out: Floats = (weights / weights.sum(axis=1, keepdims=True)) @ v
        return out


class VanillaAttention:
    """All pairs, tuned: in place, the mask added to the scores as 0 and -inf. This is the baseline."""

    def __init__(self, mask: Mask, head_dim: int, dtype: npt.DTypeLike) -> None:
        # Scores are stored keys first, [N keys, N queries]. NumPy reduces the first axis with whole vectors, which is a
        # fifth faster than the usual order.
        self.bias = np.where(mask.T, 0.0, -np.inf).astype(dtype)
        self.scores = np.empty_like(self.bias)
        self.out = np.empty((len(mask), head_dim), dtype)

    def __call__(self, q: Floats, k: Floats, v: Floats) -> Floats:
        scores = np.matmul(k, q.T, out=self.scores)
        scores *= 1 / sqrt(q.shape[1])
        scores += self.bias
        scores -= scores.max(axis=0)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=0)
        return np.matmul(scores.T, v, out=self.out)


class _NeighbourAttention:
    """Scores and softmax over neighbour lists whose rows are padded to the longest."""

    def __init__(self, mask: Mask, head_dim: int, dtype: npt.DTypeLike) -> None:
        self.columns, self.valid = neighbours_of(mask)
        self.bias = np.where(self.valid, 0.0, -np.inf).astype(dtype)
        self.gathered = np.empty((*self.columns.shape, head_dim), dtype)
        self.scores = np.empty((*self.columns.shape, 1), dtype)
        self.out = np.empty((len(mask), head_dim), dtype)

    def gather(self, x: Floats) -> Floats:
        """Gather [N, D] -> [N, K, D]."""
        return x.take(self.columns, axis=0, out=self.gathered, mode="clip")  # any other mode copies once more

    def weights(self, q: Floats, k: Floats) -> Floats:
        """Return the attention weights [N, K], 0 in the padding."""
        np.matmul(self.gather(k), q[:, :, None], out=self.scores)
        scores = self.scores[:, :, 0]
        scores *= 1 / sqrt(q.shape[1])
        scores += self.bias
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        return scores


class PaperAttention(_NeighbourAttention):
    """Scores and softmax where the mask is True, then a dense product with v."""

    def __init__(self, mask: Mask, head_dim: int, dtype: npt.DTypeLike) -> None:
        super().__init__(mask, head_dim, dtype)
        num_nodes = len(mask)
        flat = np.arange(num_nodes)[:, None] * num_nodes + self.columns
        self.targets = np.where(self.valid, flat, num_nodes**2)  # padding is written to one extra entry at the end
        self.buffer = np.zeros(num_nodes**2 + 1, dtype)  # stays zero where the mask is False
        self.dense = self.buffer[:-1].reshape(num_nodes, num_nodes)

    def __call__(self, q: Floats, k: Floats, v: Floats) -> Floats:
        self.buffer[self.targets] = self.weights(q, k)
        return np.matmul(self.dense, v, out=self.out)


class SparseAttention(_NeighbourAttention):
    """Scores, softmax and values where the mask is True."""

    def __call__(self, q: Floats, k: Floats, v: Floats) -> Floats:
        weights = self.weights(q, k)
        np.matmul(weights[:, None, :], self.gather(v), out=self.out[:, None, :])
        return self.out


class CompiledAttention:
    """Scores, softmax and values where the mask is True, in C on one thread."""

    def __init__(self, mask: Mask, head_dim: int, dtype: npt.DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self.shape = (len(mask), head_dim)
        self.starts = np.concatenate([[0], mask.sum(axis=1).cumsum()]).astype(np.int32)  # of each row in `neighbours`
        self.neighbours = np.nonzero(mask)[1].astype(np.int32)
        self.weights = np.empty(len(self.neighbours), dtype)
        self.out = np.empty(self.shape, dtype)
        lists, scale = (self.starts.ctypes.data, self.neighbours.ctypes.data), 1 / sqrt(head_dim)
        self.function = library(find_compiler(), self.dtype.name)
        self.rest = (*lists, *self.shape, scale, self.weights.ctypes.data, self.out.ctypes.data)

    def __call__(self, q: Floats, k: Floats, v: Floats) -> Floats:
        if not q.shape == k.shape == v.shape == self.shape or not q.dtype == k.dtype == v.dtype == self.dtype:
            given = ", ".join(f"{x.dtype} {list(x.shape)}" for x in (q, k, v))
            raise ValueError(f"q, k and v must be {self.dtype} {list(self.shape)}; got {given}")
        self.function(_address(q), _address(k), _address(v), *self.rest)
        return self.out


def _address(x: Floats) -> int:
    # raises for an array that is not contiguous or not writable; `x.ctypes.data` takes three times as long
    return ctypes.addressof(ctypes.c_char.from_buffer(x))  # type: ignore[arg-type]


class TorchAttention:
    """PyTorch's own attention, which computes all pairs with any mask."""

    def __init__(self, mask: Mask, head_dim: int, dtype: npt.DTypeLike) -> None:
        self.mask = torch.tensor(mask)

    def __call__(self, q: Floats, k: Floats, v: Floats) -> Floats:
        queries, keys, values = (torch.from_numpy(x)[None, None] for x in (q, k, v))
        return F.scaled_dot_product_attention(queries, keys, values, attn_mask=self.mask)[0, 0].numpy()


@dataclass(frozen=True)
class Implementation:
    """One timed implementation."""

    label: str
    """Name in tables and figures."""
    make: Callable[[Mask, int, npt.DTypeLike], NumpyAttention]
    """Takes a mask [N, N], a head width that is compiled, and float32 or float64."""
    is_ours: bool = False
    """Whether it is this project's."""


IMPLEMENTATIONS: Mapping[str, Implementation] = {
    "vanilla": Implementation("NumPy vanilla", VanillaAttention),
    "textbook": Implementation("NumPy textbook", TextbookAttention),
    "paper": Implementation("NumPy paper", PaperAttention),
    "ours": Implementation("NumPy ours", SparseAttention, is_ours=True),
    "ours-c": Implementation("C ours", CompiledAttention, is_ours=True),
    "sdpa": Implementation("torch SDPA", TorchAttention),
}


def available() -> dict[str, Implementation]:
    """Return the implementations that can run here: C needs a working compiler."""
    return {name: one for name, one in IMPLEMENTATIONS.items() if name != "ours-c" or why_not() is None}


TOLERANCE = {"float32": 1e-4, "float64": 1e-10}
"""Largest allowed difference between two outputs, with inputs of order one."""


def check_agreement(outputs: Mapping[str, Floats], dtype: str) -> None:
    """Raise ArithmeticError if an output differs from vanilla's: that implementation is not worth timing."""
    for name, out in outputs.items():
        apart = float(np.abs(out - outputs["vanilla"]).max())
        if not apart < TOLERANCE[dtype]:
            raise ArithmeticError(
                f"{name} differs from vanilla by {apart:.2g} in {dtype}; allowed: {TOLERANCE[dtype]:g}"
            )
