"""Render the templates: everything that is not markup already is escaped, and a missing name is an error."""

from __future__ import annotations

import shlex
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from .load import FolderPath
from .svg import COLOURS, DASHES, NUM_STYLES
from .text import duration, grouped


def render(template: str, **context: Any) -> str:
    """Return a page from one of the templates beside this file."""
    return _environment().get_template(template).render(context)


def data_uri(mime: str, content: bytes) -> str:
    """Return a file as an address that holds its content."""
    return f"data:{mime};base64,{b64encode(content).decode('ascii')}"


def report_command(places: Sequence[FolderPath], path: Path) -> str:
    """Return the command that writes a page again."""
    return shlex.join(["bot", "report", *map(str, places), "--out", str(path)])


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates", encoding="utf-8"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"grouped": grouped, "duration": duration}
    environment.globals |= {"colours": COLOURS, "dashes": DASHES, "num_styles": NUM_STYLES}
    return environment
