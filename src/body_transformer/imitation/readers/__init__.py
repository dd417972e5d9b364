"""Readers of demonstrations: one module per file format, one table to choose from."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from inspect import signature
from typing import Any

from ...body.layout import Layout
from ...errors import unknown
from ..episodes import Episodes

READERS = {
    "minari": ".minari",
    "mocapact": ".mocapact",
    "npz": ".npz",
    "robomimic": ".robomimic",
    "tracking": "..tasks.tracking.demonstrations",
}
"""Name -> module with a function `open_episodes`, which reads that format or generates demonstrations."""


def open_episodes(reader: str, data: str | None, layout: Layout, **options: Any) -> Episodes:
    """Open the demonstrations at `data` and check every file; `options` are those of the reader."""
    allowed = reader_options(reader)
    for name in options:
        if name not in allowed:
            raise ValueError(f"reader {reader!r}: " + unknown("option", name, allowed))
    if data is None and reader != "tracking":
        raise ValueError(f"reader {reader!r} needs the path or name of the demonstrations: set data")
    episodes: Episodes = _opener(reader)(data, layout, **options)
    return episodes


def reader_options(reader: str) -> list[str]:
    """Return the names of a reader's options."""
    if reader not in READERS:
        raise ValueError(unknown("reader of demonstrations", reader, READERS))
    return list(signature(_opener(reader)).parameters)[2:]


def _opener(reader: str) -> Callable[..., Any]:
    opener: Callable[..., Any] = import_module(READERS[reader], __package__).open_episodes
    return opener
