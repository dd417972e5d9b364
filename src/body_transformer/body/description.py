"""Read the fields of a BodyGraph from a robot's description, MJCF or URDF.

`mujoco.MjSpec` parses without compiling, so meshes, textures and height fields may be missing and links may have no
mass. Do not read the `.parent` of a body here: on the world body it crashes the interpreter (mujoco 3.11.0).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from xml.parsers import expat

import mujoco

from ..errors import unknown
from .forest import Edge
from .outside import check_inside
from .tree import Body, Tree, actuators, between_nodes, choose_roots, equalities, fresh_names, mimics

T = TypeVar("T")
_JOINT_TYPES: dict[Any, str] = {
    mujoco.mjtJoint.mjJNT_HINGE: "hinge",
    mujoco.mjtJoint.mjJNT_SLIDE: "slide",
    mujoco.mjtJoint.mjJNT_BALL: "ball",
    mujoco.mjtJoint.mjJNT_FREE: "free",
}
MAX_CELLS = 2**26
"""Largest number of cells of a height field, bytes of a texture and the like."""
MAX_MEMORY_BYTES = 2**32
_SEVERAL_MATERIALS = "repeated element: 'material'"
"""MuJoCo's refusal of a URDF with several materials per shape, as exported from COLLADA; a body graph needs none."""


def parse(source: Mapping[str, str], name: str, allow_outside: bool = False) -> mujoco.MjSpec:
    """Parse `{"path": …}` or `{"text": …}`; error messages call the source `name`.

    Files outside the folder, or the working folder of a text, are included only with `allow_outside`.
    """
    if "text" in source:
        if not allow_outside:
            check_inside(source["text"], name)
        return _parsed(lambda: _parse_text(source["text"]), name)
    path = os.path.abspath(source["path"])  # MuJoCo does not resolve nested includes from a relative path
    if not os.path.exists(path):
        raise FileNotFoundError(f"no robot file at {name}; give an MJCF (.xml) or URDF (.urdf) file")
    if not os.path.isfile(path):
        raise ValueError(f"{name} is not a file; give an MJCF (.xml) or URDF (.urdf) file")
    if not allow_outside:
        check_inside(Path(path), name)
    return _parsed(lambda: _parse_file(path), name)


def _parse_file(path: str) -> mujoco.MjSpec:
    folder, file = os.path.split(path)
    if file.endswith((".xml", ".urdf")):
        return read_file(path)
    os.chdir(folder)  # MuJoCo chooses the parser by suffix; in a text, includes are relative to the working folder
    with open(path, encoding="utf-8") as stream:
        return _parse_text(stream.read())


def read_file(path: str) -> mujoco.MjSpec:
    """Return the specification of an .xml or .urdf file."""
    try:
        spec = mujoco.MjSpec.from_file(path)
    except ValueError as error:
        if _SEVERAL_MATERIALS not in str(error):
            raise
        spec = _parse_text(Path(path).read_text(encoding="utf-8"))
        spec.modelfiledir = os.path.dirname(path)
    _check_sizes(spec)
    return spec


def _check_sizes(spec: mujoco.MjSpec) -> None:
    """Refuse sizes with which a few words in a file would fill the memory when the model is compiled."""
    sizes = {f"height field {one.name!r}": one.nrow * one.ncol for one in spec.hfields}
    sizes |= {f"texture {one.name!r}": one.width * one.height * one.nchannel for one in spec.textures}
    sizes |= {key: getattr(spec, key) for key in dir(spec) if key.startswith("nuser")}
    for name, size in sizes.items():
        if size > MAX_CELLS:
            raise ValueError(f"{name} has {size:,} entries; the limit is {MAX_CELLS:,}")
    if spec.memory > MAX_MEMORY_BYTES:
        raise ValueError(f"it asks for {spec.memory:,} bytes of memory; the limit is {MAX_MEMORY_BYTES:,}")


def _parse_text(text: str) -> mujoco.MjSpec:
    try:
        return mujoco.MjSpec.from_string(text)
    except ValueError as error:
        if _SEVERAL_MATERIALS not in str(error):
            raise
    text = re.sub("<!--.*?-->", "", text, flags=re.DOTALL)
    return mujoco.MjSpec.from_string(re.sub(r"<material\b[^>]*?(/>|>.*?</material\s*>)", "", text, flags=re.DOTALL))


class BrokenParserError(ValueError):
    """Refusal of a file after which MuJoCo 3.11 may hang on the next one."""


def _parsed(parse: Callable[[], T], name: str) -> T:
    try:
        return parse()
    except (ValueError, mujoco.FatalError) as error:
        # MuJoCo quotes the faulty part; if that is not UTF-8, the message is empty in Python 3.11.2 (not in 3.11.7)
        reason = " ".join(str(error).split()) or "it contains bytes that are not UTF-8 text"
        if malformed := re.search(r"Error=XML_\w+.*Line number=(\d+)", reason):
            reason = f"it is not well-formed XML (line {malformed[1]})"
        raise ValueError(f"{name} is not an MJCF or URDF description that MuJoCo can read: {reason}") from None
    except RuntimeError:
        raise BrokenParserError(f"{name} breaks MuJoCo's parser: it is malformed or huge") from None


def read_spec(
    spec: mujoco.MjSpec,
    name: str,
    urdf: Urdf,
    root: str | Sequence[str] | None,
    fixed: str,
    extra_edges: Iterable[Edge],
    equality_edges: bool,
) -> dict[str, Any]:
    """Return the fields of a BodyGraph.

    Error messages call the source `name`. `urdf` holds the facts that MuJoCo does not read; the other arguments are
    those of `BodyGraph.from_file`.
    """
    if fixed not in ("keep", "merge"):
        raise ValueError(unknown("value of fixed", fixed, ("keep", "merge")))
    try:
        bodies = _parsed(lambda: _read_bodies(spec, urdf), name)  # MuJoCo checks a URDF for repeated names only here
        roots = choose_roots(bodies, root, name)
        tree = Tree.grow(bodies, roots, merge=fixed == "merge")
        joints = tree.inside("joint")
        edges = [*extra_edges, *(equalities(spec, tree) if equality_edges else ())]
        return {
            "nodes": list(tree.nodes),
            "edges": [(parent, node) for node, parent in tree.nodes.items() if parent is not None],
            "root": roots[0],
            "other_roots": roots[1:],
            "extra_edges": between_nodes(edges, tree),
            "joints": joints,
            "joint_types": {name: kind for body in bodies for name, kind in body.joints.items() if name in joints},
            "actuators": actuators(spec, tree),
            "bodies": tree.inside("body"),
            "mimics": mimics(spec, urdf.mimics, tree),
            "floating": tree.floating,
            "sites": tree.inside("site"),
        }
    except UnicodeDecodeError:
        raise ValueError(f"{name} has a name that is not UTF-8 text") from None


def _read_bodies(spec: mujoco.MjSpec, urdf: Urdf) -> list[Body]:
    """Return all bodies, the world first, then depth first as in the file: a parent comes before its children."""
    found: list[tuple[Any, int | None]] = []
    stack: list[tuple[Any, int | None]] = [(spec.worldbody, None)]
    while stack:
        body, parent = stack.pop()
        stack.extend((child, len(found)) for child in reversed(body.bodies))
        found.append((body, parent))

    body_names = fresh_names({body.name for body, _ in found})
    joint_names = fresh_names({joint.name for body, _ in found for joint in body.joints})
    bodies = []
    for k, (body, parent) in enumerate(found):
        name = body.name or body_names(f"body_{k}")  # k is its index in MuJoCo
        joints = {
            joint.name or joint_names(f"{name}_joint_{j + 1}"): _JOINT_TYPES[joint.type]
            for j, joint in enumerate(body.joints)
        }
        bodies.append(
            Body(
                name=name,
                parent=parent,
                joints=joints,
                sites=[site.name for site in body.sites if site.name],
                geoms=[geom.name for geom in body.geoms if geom.name],
                floats="free" in joints.values() or (urdf.floats and parent == 0),
            )
        )
    return bodies


# -- URDF --------------------------------------------------------------------------------------------------------------


class Urdf:
    """Facts of a URDF that MuJoCo does not read; an MJCF states them differently, so for an MJCF they are empty."""

    def __init__(self) -> None:
        self.floats = False
        """Whether the base moves freely: it does, unless the URDF has a link named `world`."""
        self.mimics: list[Edge] = []
        """Pairs of a joint with a `mimic` element and the joint that it follows."""
        self._open: list[tuple[str, str]] = []  # tag and name of each element around the current one

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Handle the start of an element."""
        name = attributes.get("name", "")
        if not self._open:
            self.floats = tag == "robot"
        elif tag == "link" and name == "world":
            self.floats = False
        elif tag == "mimic" and self._open[-1][0] == "joint":
            self.mimics.append((self._open[-1][1], attributes.get("joint", "")))
        self._open.append((tag, name))

    def end(self, tag: str) -> None:
        """Handle the end of an element."""
        self._open.pop()


def read_urdf(source: Mapping[str, str], name: str) -> Urdf:
    """Read the facts of `{"path": …}` or `{"text": …}`, after MuJoCo has read it; errors call it `name`."""
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
