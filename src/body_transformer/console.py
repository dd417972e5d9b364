"""A rich console that prints text of files and peers without characters that drive a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.text import Text

from .text import printable


class SafeConsole(Console):
    """A console that escapes control characters of every text, and adds only its own.

    Newlines stay, because they are part of tables and messages.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        """Escape a text before its width is measured."""
        return super().render_str(printable(text, keep="\n"), **options)

    def render(self, renderable: Any, options: Any = None) -> Iterable[Any]:
        """Escape what other objects print, such as progress bars."""
        for segment in super().render(renderable, options):
            is_own = segment.control or segment.text == "\n"
            yield segment if is_own else segment._replace(text=printable(segment.text, keep="\n"))
