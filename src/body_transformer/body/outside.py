"""Files that a robot's description names: those outside its folder are read only if the user allows it.

An MJCF file may include any file of the computer, and its meshes, textures, height fields and skins may be anywhere.
This module finds the names before MuJoCo opens them. It needs no MuJoCo.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape
from itertools import product
from pathlib import Path
from xml.parsers import expat

from ..size_limits import read_at_most

MAX_XML_BYTES = 2**26
MAX_FILES = 200
"""Largest number of files that a description may consist of."""
DESCRIPTIONS = ("include", "model")
"""Elements whose file is a description, too."""
AT_ONCE = ("flexcomp",)
"""Other elements whose file MuJoCo opens when it reads the description, not only when it compiles the model."""
_DIRECTORIES = ("meshdir", "texturedir", "assetdir")
_ATTRIBUTE = re.compile(r"""(?=\b(file\w*|\w+dir)\s*=\s*("[^"]*"|'[^']*'))""")
_BEFORE_BASE = re.compile(r".*[/\\]")
_UNUSUAL = (b"<!DOCTYPE", b"<![CDATA[")
"""Parts of XML that MuJoCo's parser may read in another way than Python's."""
_WHITESPACE = re.compile(r"[\t\n\r]")
"""Whitespace that MuJoCo's parser leaves in a name; Python's makes a space of it."""
_INSTALLED = ("site-packages", "dist-packages")


@dataclass
class _Names:
    """The names in one file."""

    files: list[tuple[str, str]] = field(default_factory=list)
    """Element and file; an unknown element counts as `include` and as `mesh`."""
    directories: list[str] = field(default_factory=list)
    strippath: set[str] = field(default_factory=set)
    """Values of this attribute of `compiler`: "true" leaves only the last part of an asset's path."""


def check_inside(source: Path | str, name: str, assets: bool = False) -> None:
    """Refuse a description with a file outside its folder; errors call the description `name`.

    Args:
        source: the path of a description, or its text; the folder of a text is the working folder.
        name: the name in errors.
        assets: check meshes, textures, height fields and skins, too; only compiling the model opens them.
    """
    main = Path(os.path.abspath(source)) if isinstance(source, Path) else None
    folder = main.parent if main else Path.cwd()
    text = _read(str(main)) if main else str(source).encode("utf-8", "replace")
    texts, seen, directories = [(folder, text)], set[str](), {""}
    strippath: set[str] = set()
    others: set[tuple[Path, str]] = set()  # meshes and the like, which may lie in each of the directories
    while texts:
        own_folder, text = texts.pop()
        names = _names(text)
        directories |= set(names.directories)
        strippath |= names.strippath
        for element, file in names.files:
            if element == "model":
                strippath.add("of its own")
            if element not in DESCRIPTIONS:
                others |= {(own_folder, file)} if assets or element in AT_ONCE else set()
                continue
            new = set(_places(name, folder, own_folder, file, {""})) - seen
            seen |= new
            texts += [(Path(place).parent, _read(place)) for place in new if os.path.isfile(place)]
        if max(len(seen), len(directories)) > MAX_FILES:
            raise ValueError(f"{name} consists of over {MAX_FILES} files or folders; that is the limit")
    for own_folder, file in others:
        _places(name, folder, own_folder, _BEFORE_BASE.sub("", file) if strippath == {"true"} else file, directories)


def _places(name: str, folder: Path, own_folder: Path, file: str, directories: set[str]) -> list[str]:
    """Return the places where MuJoCo may look for a file; raise if one is outside the main description's folder."""
    root = os.path.realpath(_package_of(folder) or folder)
    spellings = {(one, file) for one in directories}
    spellings |= {(one.replace("\\", "/"), end.replace("\\", "/")) for one, end in spellings}  # as MuJoCo does
    places = [os.path.realpath(os.path.join(start, *rest)) for start, rest in product({folder, own_folder}, spellings)]
    if any(os.path.commonpath([root, place]) != root for place in places):
        raise ValueError(_refusal(name, file, str(folder)))
    return places


def _read(place: str) -> bytes:
    return read_at_most(Path(place), MAX_XML_BYTES, "a robot's description")


def _refusal(name: str, file: str, folder: str) -> str:
    return (
        f"{name} names the file {file!r}, which is outside its folder {folder!r}; if you trust it, allow such files "
        "with --allow-outside (in Python allow_outside=True, in an experiment `allow_outside: true` of its robot)"
    )


def _package_of(folder: Path) -> Path | None:
    """Return the folder of the installed package that a file belongs to; its models share files."""
    for parent in (folder, *folder.parents):
        if parent.parent.name in _INSTALLED:
            return parent
    return None


def _names(text: bytes) -> _Names:
    """Return the names of files and folders in a description.

    Text that another parser could read differently is searched for anything that looks like a name.
    """
    names = _Names()

    def start(element: str, attributes: dict[str, str]) -> None:
        for key, value in attributes.items():
            if key.startswith("file"):
                names.files.append((element, value))
            elif key in _DIRECTORIES:
                names.directories.append(value)
            elif key == "strippath":
                names.strippath.add(value)

    parser = expat.ParserCreate("UTF-8")
    parser.StartElementHandler = start
    try:
        if any(part in text for part in _UNUSUAL) or any(_WHITESPACE.search(found[2]) for found in _attributes(text)):
            raise expat.ExpatError
        parser.Parse(text, True)
    except expat.ExpatError:
        return _anything_like_a_name(text)
    return names


def _attributes(text: bytes) -> Iterator[re.Match[str]]:
    """Yield the matches of what looks like a file or folder; lines end as in MuJoCo's parser."""
    return _ATTRIBUTE.finditer(re.sub("\r\n?", "\n", text.decode("utf-8", "replace")))


def _anything_like_a_name(text: bytes) -> _Names:
    names = _Names(strippath={"perhaps"})
    for match in _attributes(text):
        key, raw = match[1], match[2][1:-1]
        for value in {raw, unescape(raw), raw.split("\0")[0]}:
            value = value.replace("\0", "")
            if key in _DIRECTORIES:
                names.directories.append(value)
            elif key.startswith("file"):
                names.files += [("include", value), ("mesh", value)]
    return names
