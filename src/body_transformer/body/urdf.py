"""The facts of a URDF that MuJoCo does not read: mimic joints, and whether the base moves freely."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from xml.parsers import expat

Follow = tuple[str, str]
"""Two joints: the first follows the second."""


class Urdf:
    """Facts of a URDF; of an MJCF, which says these things in another way, the facts are empty."""

    def __init__(self) -> None:
        self.floats = False
        """Whether the base moves freely: it does, unless the URDF has a link named `world`."""
        self.mimics: list[Follow] = []
        """Joints with a `mimic` element and the joints that they follow."""
        self._open: list[tuple[str, str]] = []  # tag and name of each element around the current one

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Take in the start of an element."""
        name = attributes.get("name", "")
        if not self._open:
            self.floats = tag == "robot"
        elif tag == "link" and name == "world":
            self.floats = False
        elif tag == "mimic" and self._open[-1][0] == "joint":
            self.mimics.append((self._open[-1][1], attributes.get("joint", "")))
        self._open.append((tag, name))

    def end(self, tag: str) -> None:
        """Take in the end of an element."""
        self._open.pop()


def read_urdf(source: Mapping[str, str], name: str) -> Urdf:
    """Read the facts of `{"path": …}` or `{"text": …}`, which MuJoCo has read; errors call it `name`."""
    text = source["text"].encode() if "text" in source else Path(source["path"]).read_bytes()
    if b"<robot" not in text:
        return Urdf()
    facts = Urdf()
    parser = expat.ParserCreate("UTF-8")
    parser.StartElementHandler, parser.EndElementHandler = facts.start, facts.end
    try:
        parser.Parse(re.sub(rb"<!--.*?-->", b"", text, flags=re.DOTALL), True)  # MuJoCo accepts `--` in comments
    except expat.ExpatError as error:
        if b"<mimic" in text:
            raise ValueError(f"{name} has mimic joints that cannot be read: {error}") from None
    return facts
