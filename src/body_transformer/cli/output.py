"""What the verbs print."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a robot's computer has no rich
    from rich.console import Console


def print_json(content: dict[str, Any]) -> None:
    """One JSON object on standard output."""
    json.dump(content, sys.stdout)
    print()


def console() -> Console:
    """Standard output; wide where nobody's window sets a width, so that a table in a log keeps its rows whole."""
    from rich.console import Console

    class Ours(Console):
        def on_broken_pipe(self) -> None:
            """Left to `main`; rich would end the program with status 1."""
            raise BrokenPipeError

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 160
    return Ours(width=width, highlight=False, markup=False)  # a body may be called [left]
