"""BodyGraph: the parts of a robot's body and their connections."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from ..errors import listing, unknown
from ..schema import build, plain

if TYPE_CHECKING:
    import mujoco

Edge = tuple[str, str]
Fixed = Literal["keep", "merge"]
JointType = Literal["hinge", "slide", "ball", "free"]


@dataclass(frozen=True)
class BodyGraph:
    """A graph with one node per body part and one edge per connection.

    `BodyGraph.from_file` reads a robot's description; `BodyGraph.from_edges` takes names. The edges form a tree under
    `root`. Connections that close a loop (a parallel leg, a hand holding a bar) are in `extra_edges`.
    """

    nodes: tuple[str, ...]
    """Names of the body parts, in the order of the tokens."""
    edges: tuple[Edge, ...]
    """(parent, child) for every node except the root, in the order of the children."""
    root: str
    """The node at the top of the tree."""
    extra_edges: tuple[Edge, ...] = ()
    """Connections beside the tree; `hops` and `mask` include them."""
    joints: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Joint name -> the node it moves, in the order of the file."""
    joint_types: Mapping[str, JointType] = field(default_factory=dict, hash=False)
    """Joint name -> its type, by default hinge."""
    actuators: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Actuator name -> the node it belongs to, in the order of the file."""
    bodies: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Body name -> its node: itself, or the node it was merged into."""

    def __post_init__(self) -> None:
        _check_nodes(self.nodes)
        _check_edges(self.nodes, (*self.edges, *self.extra_edges))
        if self.root not in self.nodes:
            raise ValueError(unknown("root", self.root, self.nodes))
        oriented = _orient(self.nodes, self.edges, self.root)
        if oriented != self.edges:
            raise ValueError(
                f"edges must be (parent, child) away from the root {self.root!r}, in the order of the children; "
                "BodyGraph.from_edges puts them in that form"
            )
        if not self.bodies:
            object.__setattr__(self, "bodies", {name: name for name in self.nodes})
        for kind, places in (("joint", self.joints), ("actuator", self.actuators), ("body", self.bodies)):
            for name, node in places.items():
                if node not in self.nodes:
                    raise ValueError(f"{kind} {name!r}: " + unknown("node", node, self.nodes))
        for name, kind in self.joint_types.items():
            if kind not in get_args(JointType):
                raise ValueError(f"joint {name!r}: " + unknown("type", kind, get_args(JointType)))
        if self.joint_types.keys() != self.joints.keys():
            types: dict[str, JointType] = {name: self.joint_types.get(name, "hinge") for name in self.joints}
            object.__setattr__(self, "joint_types", types)

    # -- construction ----------------------------------------------------------------------------------------------

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        root: str | None = None,
        fixed: Fixed = "keep",
        extra_edges: Iterable[Edge] = (),
        equality_edges: bool = False,
    ) -> BodyGraph:
        """Read an MJCF or URDF file; mesh, texture and height-field files are not needed (but a `flexcomp`'s are).

        Args:
            path: the robot's description.
            root: the body to start from; required if the file has several top-level bodies.
            fixed: `"merge"` joins a body without a joint to its parent, `"keep"` gives it its own node.
            extra_edges: more connections, by body name.
            equality_edges: use the file's `connect` and `weld` constraints as connections, too.
        """
        from .isolate import read_graph

        source = {"path": os.fspath(path)}
        if source["path"].lstrip().startswith("<"):
            raise ValueError("BodyGraph.from_file takes the path of a file; BodyGraph.from_xml takes a document")
        return cls.from_dict(read_graph(source, root, fixed, _pairs(extra_edges), equality_edges))

    @classmethod
    def from_xml(
        cls,
        text: str,
        root: str | None = None,
        fixed: Fixed = "keep",
        extra_edges: Iterable[Edge] = (),
        equality_edges: bool = False,
    ) -> BodyGraph:
        """Read the text of an MJCF or URDF document; the arguments are those of `from_file`."""
        from .isolate import read_graph

        if not isinstance(text, str):
            raise ValueError(f"an MJCF or URDF document must be given as a string; got {type(text).__name__}")
        if not text.isascii() and text.encode(errors="ignore").decode() != text:
            raise ValueError("the given text has unpaired surrogates, which UTF-8 cannot encode")
        return cls.from_dict(read_graph({"text": text}, root, fixed, _pairs(extra_edges), equality_edges))

    @classmethod
    def from_spec(
        cls,
        spec: mujoco.MjSpec,
        root: str | None = None,
        fixed: Fixed = "keep",
        extra_edges: Iterable[Edge] = (),
        equality_edges: bool = False,
    ) -> BodyGraph:
        """Read a `mujoco.MjSpec`; the arguments are those of `from_file`."""
        from .description import read_spec

        return cls.from_dict(read_spec(spec, "the given MjSpec", root, fixed, extra_edges, equality_edges))

    @classmethod
    def from_edges(
        cls,
        nodes: Sequence[str],
        edges: Iterable[Edge],
        root: str | None = None,
        extra_edges: Iterable[Edge] = (),
        joints: Mapping[str, str] | None = None,
        actuators: Mapping[str, str] | None = None,
    ) -> BodyGraph:
        """Build a graph from names. Edges are (parent, child), or in either direction if `root` is given."""
        nodes = tuple(nodes)
        _check_nodes(nodes)
        edges = _pairs(edges)
        _check_edges(nodes, edges)
        if root is None:
            children = {child for _, child in edges}
            tops = [name for name in nodes if name not in children]
            if len(tops) > 1:
                raise ValueError(f"several nodes have no parent: {listing(tops)}; connect them, or give root=")
            root = tops[0] if tops else nodes[0]
        elif root not in nodes:
            raise ValueError(unknown("root", root, nodes))
        return cls(
            nodes=nodes,
            edges=_orient(nodes, edges, root),
            root=root,
            extra_edges=_pairs(extra_edges),
            joints=dict(joints or {}),
            actuators=dict(actuators or {}),
        )

    # -- properties ------------------------------------------------------------------------------------------------

    @property
    def num_nodes(self) -> int:
        return len(self.nodes)

    @cached_property
    def hops(self) -> npt.NDArray[np.int64]:
        """[N, N] Length of the shortest path between each pair of nodes."""
        hops = np.zeros((self.num_nodes, self.num_nodes), dtype=np.int64)
        placed = [self.index(self.root)]
        for parent, family in self.children.items():
            for child in family:
                hops[child, placed] = hops[placed, child] = hops[parent, placed] + 1
                placed.append(child)
        for a, b in self.extra_edges:  # a shortest path uses a new edge at most once
            through = hops[:, self.index(a), None] + 1 + hops[None, self.index(b), :]
            hops = np.minimum(hops, np.minimum(through, through.T))
        hops.setflags(write=False)
        return hops

    @cached_property
    def mask(self) -> npt.NDArray[np.bool_]:
        """[N, N] True where a node may attend: itself and its neighbours, M = I + A."""
        mask = self.hops <= 1
        mask.setflags(write=False)
        return mask

    @property
    def num_ones(self) -> int:
        """Number of True entries in the mask."""
        return int(self.mask.sum())

    @property
    def sparsity(self) -> float:
        """Fraction of the mask that is False."""
        return 1.0 - self.num_ones / self.num_nodes**2

    @property
    def diameter(self) -> int:
        """Largest hop distance between two nodes."""
        return int(self.hops.max())

    @cached_property
    def parents(self) -> Mapping[str, str]:
        """Node -> its parent, for every node except the root."""
        return {child: parent for parent, child in self.edges}

    @cached_property
    def children(self) -> dict[int, list[int]]:
        """Index of each node -> the indices of its children, with parents before their children."""
        families: list[list[int]] = [[] for _ in self.nodes]
        for parent, child in self.edges:
            families[self.index(parent)].append(self.index(child))
        order = [self.index(self.root)]
        for node in order:  # grows during the loop
            order += families[node]
        return {node: families[node] for node in order}

    def index(self, node: str) -> int:
        """Return the position of a node in `nodes`."""
        try:
            return self._index[node]
        except KeyError:
            raise ValueError(unknown("node", node, self.nodes)) from None

    @cached_property
    def _index(self) -> Mapping[str, int]:
        return {name: i for i, name in enumerate(self.nodes)}

    # -- JSON ------------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the graph as a JSON-serialisable dict."""
        data: dict[str, Any] = plain(self)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> BodyGraph:
        """Return the graph that `to_dict` wrote."""
        return build(cls, data, "body graph", complete=True)


def _pairs(edges: Iterable[Edge]) -> tuple[Edge, ...]:
    edges = tuple(edges)
    for edge in edges:
        if not isinstance(edge, tuple | list) or len(edge) != 2 or not all(isinstance(name, str) for name in edge):
            raise ValueError(f"an edge is a pair of node names; got {edge!r}")
    return tuple((a, b) for a, b in edges)


def _check_nodes(nodes: Sequence[str]) -> None:
    if not nodes:
        raise ValueError("a body graph needs at least one node; none was given")
    wrong = [name for name in nodes if not isinstance(name, str) or not name]
    if wrong:
        raise ValueError(f"node names must be non-empty strings; got {wrong[0]!r}")
    repeated = [name for name, count in Counter(nodes).items() if count > 1]
    if repeated:
        raise ValueError(f"node names must differ; given more than once: {listing(repeated)}")


def _check_edges(nodes: Sequence[str], edges: Iterable[Edge]) -> None:
    for a, b in edges:
        for name in (a, b):
            if name not in nodes:
                raise ValueError(f"edge ({a!r}, {b!r}): " + unknown("node", name, nodes))
        if a == b:
            raise ValueError(f"edge ({a!r}, {b!r}) joins a node to itself; every node attends to itself already")


def _orient(nodes: Sequence[str], edges: Sequence[Edge], root: str) -> tuple[Edge, ...]:
    """Return the edges as (parent, child) away from the root, in the order of the children; they must form one tree."""
    neighbours: dict[str, list[str]] = {name: [] for name in nodes}
    for a, b in edges:
        neighbours[a].append(b)
        neighbours[b].append(a)
    parents: dict[str, str | None] = {root: None}
    queue = [root]
    while queue:
        node = queue.pop()
        back = parents[node]
        for other in neighbours[node]:
            if other == back:
                back = None  # only one edge leads back; a second closes a loop of two
            elif other in parents:
                raise ValueError(
                    f"edges close a loop through {node!r} and {other!r}; the body must be a tree: "
                    "give the edge that closes it in extra_edges"
                )
            else:
                parents[other] = node
                queue.append(other)
    lost = [name for name in nodes if name not in parents]
    if lost:
        raise ValueError(f"edges do not connect {listing(lost)} to the root {root!r}")
    return tuple((parent, name) for name in nodes if (parent := parents[name]) is not None)
