"""What the verbs print."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:  # a robot's computer has no rich
    from rich.console import Console


def print_json(content: dict[str, Any]) -> None:
    """One JSON object on standard output."""
    json.dump(content, sys.stdout)
    print()


def complain(text: str) -> None:
    """A line on standard error; what a program does, and its exit status, do not depend on who reads it."""
    try:
        print(text, file=sys.stderr)
    except OSError:
        to_nowhere(sys.stderr)


def to_nowhere(stream: TextIO) -> None:
    """What is left in its buffer would fail again when the program ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def console() -> Console:
    """Standard output; wide where nobody's window sets a width, so that a table in a log keeps its rows whole."""
    from rich.console import Console

    class Ours(Console):
        def on_broken_pipe(self) -> None:
            """Left to `main`; rich would end the program with status 1."""
            raise BrokenPipeError

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 160
    return Ours(width=width, highlight=False, markup=False)  # a body may be called [left]
