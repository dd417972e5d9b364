"""What the simulated robot says of the link to it, as far as it is not as it should be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

WORDS = {
    "timeouts": "the robot damped by itself {:g} times, as no command came",
    "refused": "it refused {:g} datagrams",
    "lag_s": "its computer was {:.2f} s too slow for real time",
}
"""Key of its report -> what it means, where it is not 0."""


def link_trouble(report: Mapping[str, Any]) -> list[str]:
    """In words; none if all went well, or it does not say."""
    found = []
    for key, words in WORDS.items():
        value = report.get(key)
        if isinstance(value, int | float) and math.isfinite(value) and value > 0:
            found.append(words.format(value))
    return found
