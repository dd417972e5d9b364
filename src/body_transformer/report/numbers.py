"""Numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Iterable


def decimals(values: Iterable[float]) -> int:
    """Places after the point that suit all of them, so that a column lines up."""
    largest = max((abs(value) for value in values), default=0.0)
    if largest == 0.0:
        return 3
    return min(6, max(0, 2 - math.floor(math.log10(largest)))) if largest < 0.1 or largest >= 10 else 3


def plain(value: float, places: int) -> str:
    """With a true minus sign, as wide as a plus."""
    return f"{value:.{places}f}".replace("-", "−")


def short(value: float) -> str:
    """For axes: 0, 0.25, 300, 40k, 17.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):.4g}{letter}".replace("-", "−")
    if value != 0 and abs(value) < 1e-3:
        return f"{value:.0e}".replace("e-0", "e-").replace("-", "−")
    return f"{value:.4g}".replace("-", "−")


def grouped(value: int) -> str:
    """17 531 904, with spaces that do not break."""
    return f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def duration(seconds: float) -> str:
    """`42 s`, `3 min 20 s`, `5 h 07 min`"""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def size(num_bytes: int) -> str:
    """`120 kB`, `3.4 MB`"""
    return f"{num_bytes / 1e6:.1f} MB" if num_bytes >= 1e6 else f"{max(1, round(num_bytes / 1e3))} kB"


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers within [low, high]."""
    if not high > low:
        return [low]
    rough = (high - low) / about
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten within [low, high], with halves and fifths where there are few of them."""
    tens = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1,) if len(tens) > 4 else (1, 2, 5)
    every = max(1, len(tens) // 5)
    found = [factor * 10.0**power for power in tens[::every] for factor in factors]
    return [value for value in found if low * 0.999 <= value <= high * 1.001]
