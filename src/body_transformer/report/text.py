"""Numbers and tables as text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


def decimals(values: Iterable[float]) -> int:
    """Return the number of decimal places that suits all values, so that a column lines up."""
    largest = max((abs(value) for value in values), default=0.0)
    if largest == 0.0:
        return 3
    return min(6, max(0, 2 - math.floor(math.log10(largest)))) if largest < 0.1 or largest >= 10 else 3


def rounded(value: float, places: int) -> str:
    """Return a number with this many decimal places and a true minus sign, which is as wide as a plus."""
    return f"{value:.{places}f}".replace("-", "−")


def short(value: float) -> str:
    """Return a number for an axis: 0, 0.25, 300, 40k, 17.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):.4g}{letter}".replace("-", "−")
    if value != 0 and abs(value) < 1e-3:
        return f"{value:.0e}".replace("e-0", "e-").replace("-", "−")
    return f"{value:.4g}".replace("-", "−")


def grouped(value: int) -> str:
    """Return 17 531 904, with spaces that do not break."""
    return f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def duration(seconds: float) -> str:
    """Return `42 s`, `3 min 20 s` or `5 h 07 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def file_size(num_bytes: int) -> str:
    """Return `120 kB` or `3.4 MB`."""
    return f"{num_bytes / 1e6:.1f} MB" if num_bytes >= 1e6 else f"{max(1, round(num_bytes / 1e3))} kB"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown, one line per row."""
    escaped = ([cell.replace("|", "\\|") for cell in row] for row in (head, ["---"] * len(head), *rows))
    return "".join(f"| {' | '.join(row)} |\n" for row in escaped)
