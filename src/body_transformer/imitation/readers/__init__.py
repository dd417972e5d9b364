"""Readers of demonstrations: one module per file format, one table to choose from."""

from __future__ import annotations

from typing import Any

from ...body.layout import Layout
from ..episodes import Episodes
from ..options import Catalog

READERS = Catalog(
    "reader",
    {
        "minari": ".readers.minari:open_episodes",
        "mocapact": ".readers.mocapact:open_episodes",
        "npz": ".readers.npz:open_episodes",
        "robomimic": ".readers.robomimic:open_episodes",
        "rollouts": "..rl.mocap.rollouts:open_episodes",
        "tracking": ".tasks.tracking.demonstrations:open_episodes",
    },
    num_given=2,
)
"""Functions that read a format or generate demonstrations, given data and layout."""


def open_episodes(reader: str, data: str | None, layout: Layout, **options: Any) -> Episodes:
    """Open the demonstrations at `data` and check every file; `options` are those of the reader."""
    if data is None and reader in READERS.places and reader != "tracking":
        raise ValueError(f"reader {reader!r} needs the path or name of the demonstrations: set data")
    episodes: Episodes = READERS.call(reader, data, layout, options=options)
    return episodes
