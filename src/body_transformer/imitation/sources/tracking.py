"""The built-in task's own demonstrations: made, not read."""

from __future__ import annotations

from ...body.layout import Layout
from ..episodes import Episodes
from ..tracking.starts import CLIP_SEED


def open_episodes(
    data: str | None, layout: Layout, num_clips: int = 32, repetitions: int = 12, clip_seed: int = CLIP_SEED
) -> Episodes:
    """The expert shows each of `num_clips` motions `repetitions` times; `data` names nothing and must be None."""
    from ..tracking.demonstrations import demonstrate  # brings MuJoCo

    if data is not None:
        raise ValueError(f"the tracking task makes its own demonstrations: leave data out; got {data!r}")
    return demonstrate(int(num_clips), int(repetitions), clip_seed=int(clip_seed), layout=layout)
