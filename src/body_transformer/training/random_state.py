"""States of the random number generators in a checkpoint, as tensors."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

PYTHON, NUMPY, CPU, CUDA = "random.python", "random.numpy", "random.cpu", "random.cuda"
NUM_WORDS = 625
"""Size of a Mersenne Twister: 624 words and the position in them."""


def random_state(device: str) -> dict[str, Tensor]:
    """Return the states of the generators of PyTorch, NumPy and Python."""
    found = {CPU: torch.get_rng_state(), NUMPY: _numpy_state(), PYTHON: _python_state()}
    if torch.device(device).type == "cuda":
        found[CUDA] = torch.cuda.get_rng_state(device)
    return found


def restore_random_state(tensors: Mapping[str, Tensor], device: str) -> None:
    """Set the generators to saved states; older checkpoints have only those of PyTorch."""
    own, saved = torch.get_rng_state(), tensors.get(CPU)
    if saved is None or (saved.shape, saved.dtype) != (own.shape, own.dtype):
        given = "nothing" if saved is None else f"{saved.dtype} {list(saved.shape)}"
        raise ValueError(f"{CPU} in the checkpoint must be {own.dtype} {list(own.shape)}; got {given}")
    torch.set_rng_state(saved)
    if CUDA in tensors and torch.device(device).type == "cuda":
        torch.cuda.set_rng_state(tensors[CUDA], device)
    if NUMPY in tensors:
        words, normal = _from_tensor(tensors[NUMPY])
        key = np.array(words[:-1], dtype=np.uint32)
        np.random.set_state(("MT19937", key, words[-1], int(normal is not None), normal or 0.0))  # noqa: NPY002
    if PYTHON in tensors:
        words, normal = _from_tensor(tensors[PYTHON])
        random.setstate((3, tuple(words), normal))


def _numpy_state() -> Tensor:
    found: Any = np.random.get_state(legacy=False)  # noqa: NPY002
    words = [*found["state"]["key"].tolist(), found["state"]["pos"]]
    return _to_tensor(words, found["gauss"] if found["has_gauss"] else None)


def _python_state() -> Tensor:
    _, words, normal = random.getstate()
    return _to_tensor(list(words), normal)


def _to_tensor(words: list[int], normal: float | None) -> Tensor:
    """Return the words of a Mersenne Twister, whether it holds a normal number, and the bits of that number."""
    bits = np.array(normal or 0.0, dtype=np.float64).view(np.int64)
    return torch.tensor([*words, int(normal is not None), int(bits)], dtype=torch.int64)


def _from_tensor(state: Tensor) -> tuple[list[int], float | None]:
    *words, has_normal, bits = state.tolist()
    if len(words) != NUM_WORDS:
        raise ValueError(
            f"the checkpoint's state of a random number generator must have {NUM_WORDS} words; got {len(words)}"
        )
    return words, float(np.array(bits, dtype=np.int64).view(np.float64)) if has_normal else None
