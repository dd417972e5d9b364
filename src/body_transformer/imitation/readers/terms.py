"""Match a layout's terms to stored arrays: names and shapes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...body.layout import Layout
from ...errors import listing, unknown
from ..episodes import Floats

SPLITS = ("train", "validation")


def term_keys(layout: Layout, obs_keys: Mapping[str, str] | str | None) -> dict[str, str]:
    """Return term -> key of its array, for every used term and every term of `obs_keys`, in the layout's order.

    `obs_keys` renames terms; on a command line it is written TERM=KEY,TERM=KEY. Terms with the same key are adjacent
    columns of one array.
    """
    renamed = _pairs(obs_keys) if isinstance(obs_keys, str) else dict(obs_keys or {})
    names = [term.name for term in layout.obs]
    for name in renamed:
        if name not in names:
            raise ValueError("obs_keys: " + unknown("term", name, names))
    used = (term.name for term in layout.obs if term.kind != "unused" or term.name in renamed)
    return {name: renamed.get(name, name) for name in used}


def _pairs(text: str) -> dict[str, str]:
    pairs = [pair.split("=") for pair in text.split(",")]
    if any(len(pair) != 2 or not all(pair) for pair in pairs):
        raise ValueError(f"obs_keys must be written TERM=KEY,TERM=KEY; got {text!r}")
    return dict(pairs)


def check_terms(layout: Layout, keys: Mapping[str, str], shape: Callable[[str], tuple[int, ...]], rows: int) -> None:
    """Check that every key has an array of `rows` rows and its terms' width; `shape` maps keys to shapes."""
    widths: Counter[str] = Counter()
    for term in layout.obs:
        if term.name in keys:
            widths[keys[term.name]] += term.size
    for key, width in widths.items():
        found = shape(key)
        if len(found) < 1 or found[0] != rows or int(np.prod(found[1:])) != width:
            raise ValueError(f"observation {key!r} must be [{rows}, {width}]; it is {list(found)}")


def join_terms(layout: Layout, keys: Mapping[str, str], rows: int, array: Callable[[str], Any]) -> Floats:
    """Concatenate the columns of all used terms to [rows, used entries]; `array` maps keys to arrays."""
    arrays = {key: np.asarray(array(key)) for key in dict.fromkeys(keys.values())}
    arrays = {key: found.reshape(rows, math.prod(found.shape[1:])) for key, found in arrays.items()}
    columns = []
    for term in layout.obs:
        if term.name in keys:
            key = keys[term.name]
            part, arrays[key] = np.split(arrays[key], [term.size], axis=1)
            columns += [part] if term.kind != "unused" else []
    return np.concatenate(columns, axis=1, dtype=np.float32)


def check_matrix(name: str, shape: tuple[int, ...], rows: int | None, width: int) -> None:
    """Check that a shape is [rows, width]; rows None allows any number."""
    if len(shape) != 2 or shape[1] != width or (rows is not None and shape[0] != rows):
        raise ValueError(f"{name} must be [{'steps' if rows is None else rows}, {width}]; it is {list(shape)}")


def check_split(name: str) -> str:
    """Return `name`; raise if it is not the name of a split."""
    if name not in SPLITS:
        raise ValueError(f"the split of an episode must be one of {listing(SPLITS)}; got {name!r}")
    return name
