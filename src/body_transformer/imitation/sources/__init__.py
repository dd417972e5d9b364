"""Demonstrations as others store them: one module a format, one table to choose from."""

from __future__ import annotations

from inspect import signature
from typing import Any

from ...body.layout import Layout
from ...errors import unknown
from ..episodes import Episodes
from . import minari, mocapact, npz, robomimic, tracking

READERS = {"minari": minari, "mocapact": mocapact, "npz": npz, "robomimic": robomimic, "tracking": tracking}
"""Name -> the module whose `open_episodes` reads that format, or makes demonstrations."""


def open_episodes(reader: str, data: str | None, layout: Layout, **options: Any) -> Episodes:
    """The demonstrations at `data`, every file checked; `options` are those of the reader."""
    allowed = reader_options(reader)
    for name in options:
        if name not in allowed:
            raise ValueError(f"reader {reader!r}: " + unknown("option", name, allowed))
    if data is None and reader != "tracking":
        raise ValueError(f"reader {reader!r} needs to know where the demonstrations are: set data")
    episodes: Episodes = READERS[reader].open_episodes(data, layout, **options)
    return episodes


def reader_options(reader: str) -> list[str]:
    """What a reader wants to know beside where the data are."""
    if reader not in READERS:
        raise ValueError(unknown("reader of demonstrations", reader, READERS))
    return list(signature(READERS[reader].open_episodes).parameters)[2:]
