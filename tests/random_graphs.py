"""Hypothesis strategy for body graphs."""

from hypothesis import strategies as st

from body_transformer import BodyGraph


@st.composite
def graphs(
    draw: st.DrawFn,
    min_nodes: int = 1,
    max_nodes: int = 12,
    loops: bool = True,
    joints: bool = False,
    max_padding: int = 0,
    max_roots: int = 1,
) -> BodyGraph:
    """Draw a tree, or several, whose nodes and edges are in any order, so a parent may come after its child.

    Args:
        min_nodes: minimum number of nodes.
        max_nodes: maximum number of nodes.
        loops: add up to four extra edges, which may repeat each other or edges of the tree.
        joints: give some of the nodes a joint with an actuator.
        max_padding: lengthen each name by up to this many letters.
        max_roots: draw up to this many trees.
    """
    size = draw(st.integers(min_nodes, max_nodes))
    names = [f"n{k}{'m' * draw(st.integers(0, max_padding))}" for k in range(size)]
    num_roots = draw(st.integers(1, min(size, max_roots)))
    edges = [(names[draw(st.integers(0, k - 1))], names[k]) for k in range(num_roots, size)]
    pairs = [(a, b) for a in names for b in names if a != b]
    extra = draw(st.lists(st.sampled_from(pairs), max_size=4)) if loops and pairs else []
    jointed = draw(st.lists(st.sampled_from(names), unique=True)) if joints else []
    places = {f"{name}_joint": name for name in jointed}
    nodes, edges = draw(st.permutations(names)), draw(st.permutations(edges))
    return BodyGraph.from_edges(nodes, edges, names[:num_roots], extra, joints=places, actuators=places)
