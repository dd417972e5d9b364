"""Masked attention in NumPy, for one sample and one head: vanilla (as usually written, and tuned), the paper's, ours.

Each class takes the mask once, as a robot's body does not change, keeps what it can know beforehand together with its
working memory, and is then called with q, k and v [N, D]. The array it returns is its own: the next call overwrites it.
"""

from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from .masks import Mask, NeighbourLists, check

Floats = npt.NDArray[Any]


class Textbook:
    """All pairs, as usually written."""

    def __init__(self, mask: Mask, head_dim: int, dtype: npt.DTypeLike) -> None:
        check(mask)
        self.mask = mask

    def __call__(self, q: Floats, k: Floats, v: Floats) -> Floats:
        scores = np.where(self.mask, q @ k.T / sqrt(q.shape[1]), -np.inf)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        out: Floats = (weights / weights.sum(axis=1, keepdims=True)) @ v
        return out


class Vanilla:
    """All pairs, tuned: in place, the mask added to the scores as 0 and -inf. This is the baseline."""

    def __init__(self, mask: Mask, head_dim: int, dtype: npt.DTypeLike) -> None:
        check(mask)
        # Scores are kept keys first, [N keys, N queries]: NumPy reduces the first axis with whole vectors, which makes
        # this a fifth faster than the usual order.
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


class _Neighbours:
    """Scores and softmax over a neighbour list whose rows are filled up to the longest."""

    def __init__(self, mask: Mask, head_dim: int, dtype: npt.DTypeLike) -> None:
        self.columns, self.meant = NeighbourLists.of(mask).padded()  # [N, K]
        self.bias = np.where(self.meant, 0.0, -np.inf).astype(dtype)
        self.gathered = np.empty((*self.columns.shape, head_dim), dtype)
        self.scores = np.empty((*self.columns.shape, 1), dtype)
        self.out = np.empty((len(mask), head_dim), dtype)

    def gather(self, x: Floats) -> Floats:
        """[N, D] -> [N, K, D]"""
        return x.take(self.columns, axis=0, out=self.gathered, mode="clip")  # any other mode copies once more

    def weights(self, q: Floats, k: Floats) -> Floats:
        """[N, K], 0 where nothing is meant."""
        np.matmul(self.gather(k), q[:, :, None], out=self.scores)
        scores = self.scores[:, :, 0]
        scores *= 1 / sqrt(q.shape[1])
        scores += self.bias
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        return scores


class Paper(_Neighbours):
    """Scores and softmax where the mask is True, then a dense product with v."""

    def __init__(self, mask: Mask, head_dim: int, dtype: npt.DTypeLike) -> None:
        super().__init__(mask, head_dim, dtype)
        num_nodes = len(mask)
        flat = np.arange(num_nodes)[:, None] * num_nodes + self.columns
        self.places = np.where(self.meant, flat, num_nodes**2)  # what is not meant goes to one more place at the end
        self.room = np.zeros(num_nodes**2 + 1, dtype)  # zero where the mask is False, and stays so
        self.dense = self.room[:-1].reshape(num_nodes, num_nodes)

    def __call__(self, q: Floats, k: Floats, v: Floats) -> Floats:
        self.room[self.places] = self.weights(q, k)
        return np.matmul(self.dense, v, out=self.out)


class Ours(_Neighbours):
    """Scores, softmax and values where the mask is True."""

    def __call__(self, q: Floats, k: Floats, v: Floats) -> Floats:
        weights = self.weights(q, k)
        np.matmul(weights[:, None, :], self.gather(v), out=self.out[:, None, :])
        return self.out
