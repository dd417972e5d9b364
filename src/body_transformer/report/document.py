"""The HTML around a page, and where it goes: one file that asks nothing of the network."""

from __future__ import annotations

import os
import tempfile
import uuid
from pathlib import Path

from . import look
from .markup import Markup, tag

SUFFIXES = (".html", ".htm")
# Whatever is said on the page, nothing is fetched from anywhere.
POLICY = "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def document(title: str, style_sheet: str, main: Markup) -> str:
    """The whole HTML."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup(style_sheet)),
    )
    body = tag("body", main, tag("script", Markup(look.SCRIPT)))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def write(path: Path, content: bytes) -> None:
    """Aside, then renamed: an older page stays until the new one is whole."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        aside.write_bytes(content)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Before the work, not after it."""
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"cannot write a report to {str(path)!r}: its name must end in {' or '.join(SUFFIXES)}")
    if path.is_dir():
        raise ValueError(f"cannot write a report to {str(path)!r}: it is a folder")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise OSError(f"cannot write a report to {str(path)!r}: {error.strerror}") from None
