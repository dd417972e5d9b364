"""HTML and SVG as text; whatever is not `Markup` already is escaped."""

from __future__ import annotations

from html import escape

VOID = {"br", "circle", "img", "line", "meta", "path", "rect"}
"""Elements that never hold anything."""
SVG = {"circle", "line", "path", "rect"}


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, /, *children: str | None, **attributes: object) -> Markup:
    """`tag("td", "a < b", class_="number", data_step=3)`; an attribute that is None or False is left out."""
    words = [
        name,
        *(_attribute(key, value) for key, value in attributes.items() if value is not None and value is not False),
    ]
    if name in VOID:
        return Markup(f"<{' '.join(words)}{'/' if name in SVG else ''}>")
    return Markup(f"<{' '.join(words)}>{join(*children)}</{name}>")


def join(*parts: str | None, by: str = "") -> Markup:
    """The parts one after the other; None is left out."""
    return Markup(by.join(_escaped(part) for part in parts if part is not None))


def _attribute(key: str, value: object) -> str:
    key = key.rstrip("_").replace("_", "-")
    return key if value is True else f'{key}="{escape(str(value))}"'


def _escaped(text: str) -> str:
    return text if isinstance(text, Markup) else escape(text)
