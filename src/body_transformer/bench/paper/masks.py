"""Random masks with an exact number of ones, and the neighbour lists of a mask."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..bodies import Mask


def count_ones(num_nodes: int, sparsity: float) -> int:
    """Return the number of ones of a mask of this sparsity (share of zeros); the diagonal is the minimum."""
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
    """Draw a mask [N, N] with a unit diagonal; it need not be symmetric, as the paper's need not be."""
    others = count_ones(num_nodes, sparsity) - num_nodes
    places = rng.choice(num_nodes**2 - num_nodes, others, replace=False, shuffle=False)
    mask = np.eye(num_nodes, dtype=bool)
    mask.ravel()[places + places // num_nodes + 1] = True  # N other entries follow each diagonal entry
    return mask


@dataclass(frozen=True)
class MaskRows:
    """The ones of a mask, row after row."""

    starts: npt.NDArray[np.intp]
    """[N + 1] start of each row in `neighbours`; the last entry is the number of ones."""
    neighbours: npt.NDArray[np.intp]
    """[ones] columns."""

    @classmethod
    def of(cls, mask: Mask) -> MaskRows:
        check(mask)
        starts = np.zeros(len(mask) + 1, dtype=np.intp)
        np.cumsum(mask.sum(axis=1), out=starts[1:])
        return cls(starts, np.flatnonzero(mask) % len(mask))

    def padded(self) -> tuple[npt.NDArray[np.intp], Mask]:
        """Return the columns [N, K], with K the longest row, and where they are valid [N, K].

        Padding repeats a row's first neighbour: a NaN of a node outside the row cannot spread to it.
        """
        degrees = np.diff(self.starts)
        valid = np.arange(degrees.max()) < degrees[:, None]
        columns = np.repeat(self.neighbours[self.starts[:-1], None], valid.shape[1], axis=1)
        columns[valid] = self.neighbours
        return columns, valid


def check(mask: Mask) -> None:
    """Refuse an array that is not a square bool mask with a unit diagonal."""
    if mask.dtype != np.bool_ or mask.ndim != 2 or mask.shape[0] != mask.shape[1] or not mask.size:
        raise ValueError(f"a mask is a bool array [N, N], N at least 1; got {mask.dtype} {list(mask.shape)}")
    if not mask.diagonal().all():
        raise ValueError("every node must attend to itself: the mask's diagonal holds a False")
