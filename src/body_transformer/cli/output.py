"""What the verbs print."""

import json
import sys
from typing import Any

from rich.console import Console


def print_json(content: dict[str, Any]) -> None:
    """One JSON object on standard output."""
    json.dump(content, sys.stdout)
    print()


def console() -> Console:
    """Standard output; wide where nobody's window sets a width, so that a table in a log keeps its rows whole."""
    width = None if sys.stdout.isatty() else 160
    return Console(width=width, highlight=False, markup=False)  # a body may be called [left]
