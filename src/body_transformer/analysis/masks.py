"""Random masks with an exact number of ones, and what attention knows of a mask beforehand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]


def count_ones(num_nodes: int, sparsity: float) -> int:
    """How many ones a mask of this sparsity (share of zeros) has; the diagonal is the least there can be."""
    if num_nodes < 1:
        raise ValueError(f"a mask needs at least one node; got {num_nodes}")
    ones = round((1 - sparsity) * num_nodes**2)
    if not num_nodes <= ones <= num_nodes**2:
        most = 1 - 1 / num_nodes
        raise ValueError(
            f"sparsity {sparsity} with {num_nodes} nodes; a mask with a unit diagonal has from 0 to {most:.4g}"
        )
    return ones


def random_mask(num_nodes: int, sparsity: float, rng: np.random.Generator) -> Mask:
    """[N, N] with a unit diagonal, the other ones anywhere; not symmetric, as the paper asks for nothing more."""
    others = count_ones(num_nodes, sparsity) - num_nodes
    places = rng.choice(num_nodes**2 - num_nodes, others, replace=False, shuffle=False)
    mask = np.eye(num_nodes, dtype=bool)
    mask.ravel()[places + places // num_nodes + 1] = True  # after each diagonal entry come N others
    return mask


@dataclass(frozen=True)
class NeighbourLists:
    """The ones of a mask, row after row."""

    starts: npt.NDArray[np.intp]
    """[N + 1] where each row starts among `neighbours`; the last entry is the number of ones."""
    neighbours: npt.NDArray[np.intp]
    """[ones] columns."""

    @classmethod
    def of(cls, mask: Mask) -> NeighbourLists:
        check(mask)
        starts = np.zeros(len(mask) + 1, dtype=np.intp)
        np.cumsum(mask.sum(axis=1), out=starts[1:])
        return cls(starts, np.flatnonzero(mask) % len(mask))

    @property
    def degrees(self) -> npt.NDArray[np.intp]:
        """[N] ones in each row."""
        return np.diff(self.starts)

    def padded(self) -> tuple[npt.NDArray[np.intp], Mask]:
        """([N, K] columns, [N, K] True where one is meant); K is the longest row.

        What fills up a row repeats its first neighbour: a node that the row does not see cannot spoil it with a NaN.
        """
        degrees = self.degrees
        meant = np.arange(degrees.max()) < degrees[:, None]
        columns = np.repeat(self.neighbours[self.starts[:-1], None], meant.shape[1], axis=1)
        columns[meant] = self.neighbours
        return columns, meant


def check(mask: Mask) -> None:
    if mask.dtype != np.bool_ or mask.ndim != 2 or mask.shape[0] != mask.shape[1] or not mask.size:
        raise ValueError(f"a mask is a bool array [N, N], N at least 1; got {mask.dtype} {list(mask.shape)}")
    if not mask.diagonal().all():
        raise ValueError("every node must attend to itself: the mask's diagonal holds a False")
