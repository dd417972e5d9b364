"""BodyGraph: the parts of a robot's body and their connections."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from ..errors import listing, unknown
from ..schema import build, documented, plain
from .forest import Edge, check_edges, check_graph_size, check_nodes, check_roots, orient, pairs, root_names

if TYPE_CHECKING:
    import mujoco

Fixed = Literal["keep", "merge"]
JointType = Literal["hinge", "slide", "ball", "free"]
Root = str | Sequence[str] | None
"""The root body, or several; "world" = the whole file, None = the only top-level body."""


@documented
@dataclass(frozen=True)
class BodyGraph:
    """A graph with one node per body part and one edge per connection.

    `BodyGraph.from_file` reads a robot's description; `BodyGraph.from_edges` takes names. The edges form a tree under
    `root`, and one under each of `other_roots`. Connections that close a loop (a parallel leg, a hand holding a bar)
    are in `extra_edges`.
    """

    nodes: tuple[str, ...]
    """Names of the body parts, in the order of the tokens."""
    edges: tuple[Edge, ...]
    """(parent, child) for every node except the roots, in the order of the children."""
    root: str
    """The node at the top of the first tree, which owns the terms about the whole robot."""
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
    other_roots: tuple[str, ...] = ()
    """Roots of further trees. All roots are neighbours of each other: two arms on a table are one hop apart."""
    mimics: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Joint -> the joint that it follows, such as the second finger of a gripper."""
    floating: tuple[str, ...] | None = None
    """Nodes that move freely in the world; joint positions do not determine their pose. By default all roots."""
    sites: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Site name -> its node, in the order of the file. They help to infer a layout; `to_dict` leaves them out."""

    def __post_init__(self) -> None:
        check_nodes(self.nodes)
        check_graph_size(self.nodes, self.extra_edges)
        check_edges(self.nodes, (*self.edges, *self.extra_edges))
        check_roots(self.nodes, self.roots)
        if orient(self.nodes, self.edges, self.roots) != self.edges:
            raise ValueError(
                f"edges must be (parent, child) away from the {root_names(self.roots)}, in the order of the children; "
                "BodyGraph.from_edges puts them in that form"
            )
        if not self.bodies:
            object.__setattr__(self, "bodies", {name: name for name in self.nodes})
        if self.floating is None:
            object.__setattr__(self, "floating", self.roots)
        for node in self.floating or ():
            if node not in self.nodes:
                raise ValueError("floating: " + unknown("node", node, self.nodes))
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
        for follower, leader in self.mimics.items():
            for name in (follower, leader):
                if name not in self.joints:
                    raise ValueError("mimics: " + unknown("joint", name, self.joints))
            if leader in self.mimics:
                raise ValueError(f"mimics: joint {follower!r} follows {leader!r}, which follows another joint itself")

    # -- construction ----------------------------------------------------------------------------------------------

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        root: Root = None,
        fixed: Fixed = "keep",
        extra_edges: Iterable[Edge] = (),
        equality_edges: bool = False,
        allow_outside: bool = False,
    ) -> BodyGraph:
        """Read an MJCF or URDF file; mesh, texture and height-field files are not needed (but a `flexcomp`'s are).

        Args:
            path: the robot's description.
            root: the body to start from, several of them (two arms), or "world" for all bodies below a node of the
                world. It is required if the file has several top-level bodies.
            fixed: `"merge"` joins a body without a joint to its parent, `"keep"` gives it its own node.
            extra_edges: more connections, by body name.
            equality_edges: use the file's `connect` and `weld` constraints as connections, too.
            allow_outside: allow the file to include files outside its folder.
        """
        from .isolate import read_graph

        source = {"path": os.fspath(path)}
        if source["path"].lstrip().startswith("<"):
            raise ValueError("BodyGraph.from_file takes the path of a file; BodyGraph.from_xml takes a document")
        options = (root, fixed, pairs(extra_edges), equality_edges)
        return cls.from_dict(read_graph(source, *options, allow_outside=allow_outside))

    @classmethod
    def from_xml(
        cls,
        text: str,
        root: Root = None,
        fixed: Fixed = "keep",
        extra_edges: Iterable[Edge] = (),
        equality_edges: bool = False,
        allow_outside: bool = False,
    ) -> BodyGraph:
        """Read the text of an MJCF or URDF document; the arguments are those of `from_file`."""
        from .isolate import read_graph

        if not isinstance(text, str):
            raise ValueError(f"an MJCF or URDF document must be given as a string; got {type(text).__name__}")
        if not text.isascii() and text.encode(errors="ignore").decode() != text:
            raise ValueError("the given text has unpaired surrogates, which UTF-8 cannot encode")
        options = (root, fixed, pairs(extra_edges), equality_edges)
        return cls.from_dict(read_graph({"text": text}, *options, allow_outside=allow_outside))

    @classmethod
    def from_spec(
        cls,
        spec: mujoco.MjSpec,
        root: Root = None,
        fixed: Fixed = "keep",
        extra_edges: Iterable[Edge] = (),
        equality_edges: bool = False,
    ) -> BodyGraph:
        """Read a `mujoco.MjSpec`; the arguments are those of `from_file`."""
        from .description import Urdf, read_spec

        return cls.from_dict(read_spec(spec, "the given MjSpec", Urdf(), root, fixed, extra_edges, equality_edges))

    @classmethod
    def from_edges(
        cls,
        nodes: Sequence[str],
        edges: Iterable[Edge],
        root: Root = None,
        extra_edges: Iterable[Edge] = (),
        joints: Mapping[str, str] | None = None,
        actuators: Mapping[str, str] | None = None,
    ) -> BodyGraph:
        """Build a graph from names. Edges are (parent, child), or in either direction if `root` is given."""
        nodes = tuple(nodes)
        check_nodes(nodes)
        edges = pairs(edges)
        check_edges(nodes, edges)
        if root is None:
            children = {child for _, child in edges}
            tops = [name for name in nodes if name not in children]
            if len(tops) > 1:
                raise ValueError(f"several nodes have no parent: {listing(tops)}; connect them, or give root=")
            root = tops[0] if tops else nodes[0]
        roots = (root,) if isinstance(root, str) else tuple(root)
        check_roots(nodes, roots)
        return cls(
            nodes=nodes,
            edges=orient(nodes, edges, roots),
            root=roots[0],
            other_roots=roots[1:],
            extra_edges=pairs(extra_edges),
            joints=dict(joints or {}),
            actuators=dict(actuators or {}),
        )

    # -- properties ------------------------------------------------------------------------------------------------

    @property
    def num_nodes(self) -> int:
        return len(self.nodes)

    @property
    def roots(self) -> tuple[str, ...]:
        """Roots of all trees."""
        return (self.root, *self.other_roots)

    @property
    def root_edges(self) -> tuple[Edge, ...]:
        """Connections between the trees: every pair of roots."""
        return tuple(combinations(self.roots, 2))

    @property
    def is_fixed_base(self) -> bool:
        """Whether nothing moves freely, so that the joint positions determine the pose of the whole body."""
        return not self.floating

    @property
    def independent_joints(self) -> tuple[str, ...]:
        """Hinge and slide joints that follow no other joint, in the order of the file."""
        return tuple(n for n, kind in self.joint_types.items() if kind in ("hinge", "slide") and n not in self.mimics)

    @cached_property
    def hops(self) -> npt.NDArray[np.int64]:
        """[N, N] Length of the shortest path between each pair of nodes."""
        hops = np.zeros((self.num_nodes, self.num_nodes), dtype=np.int64)
        placed = [self.index(root) for root in self.roots]
        hops[np.ix_(placed, placed)] = ~np.eye(len(placed), dtype=np.bool_)
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
        """Node -> its parent, for every node except the roots."""
        return {child: parent for parent, child in self.edges}

    @cached_property
    def children(self) -> dict[int, list[int]]:
        """Index of each node -> the indices of its children, with parents before their children."""
        families: list[list[int]] = [[] for _ in self.nodes]
        for parent, child in self.edges:
            families[self.index(parent)].append(self.index(child))
        order = [self.index(root) for root in self.roots]
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
        """Return the graph as a JSON-serialisable dict, without the optional fields that have their default."""
        data: dict[str, Any] = plain(self)
        usual: dict[str, Any] = {"other_roots": [], "mimics": {}, "floating": list(self.roots), "sites": data["sites"]}
        return {key: value for key, value in data.items() if key not in usual or value != usual[key]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> BodyGraph:
        """Return the graph that `to_dict` wrote."""
        usual: dict[str, Any] = {"other_roots": (), "mimics": {}, "floating": None, "sites": {}}
        return build(cls, usual | data if isinstance(data, dict) else data, "body graph", complete=True)
