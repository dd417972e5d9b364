"""Output that all verbs share."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

from ..text import printable

if TYPE_CHECKING:  # a robot's computer has no rich
    from rich.console import Console
    from rich.progress import Progress


def print_json(content: dict[str, Any]) -> None:
    """Print one JSON object on standard output."""
    json.dump(content, sys.stdout)
    print()


MAX_MESSAGE = 10_000
"""Longest message in characters; names from a file can be of any length."""


def say(text: object, file: TextIO | None = None, keep: str = "") -> None:
    """Print a line, on standard output by default, with its control characters escaped, except those in `keep`."""
    print(printable(text, keep), file=file or sys.stdout)


def complain(text: str) -> None:
    """Print one line on standard error, with its control characters escaped; if that is closed, continue without it.

    A long one is printed without its middle.
    """
    text = printable(text)
    if len(text) > MAX_MESSAGE:
        text = f"{text[: MAX_MESSAGE // 2]} … {text[-MAX_MESSAGE // 2 :]}"
    try:
        print(text, file=sys.stderr)
    except OSError:
        to_nowhere(sys.stderr)


def to_nowhere(stream: TextIO) -> None:
    """Discard the rest of a stream's buffer, which would fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def console() -> Console:
    """Return a console on standard output; without a terminal it is wide, so that rows of a table are not broken."""
    from ..console import SafeConsole

    class QuietConsole(SafeConsole):
        def on_broken_pipe(self) -> None:
            """Let `main` handle it; rich would end the program with status 1."""
            raise BrokenPipeError

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 160
    return QuietConsole(width=width, highlight=False, markup=False)  # a body may be called [left]


def bars(hidden: bool = False) -> Progress:
    """Return progress bars on standard error, so that standard output can be piped."""
    from rich.progress import Progress

    from ..console import SafeConsole

    return Progress(console=SafeConsole(file=sys.stderr), disable=hidden)
