"""BodyGraph from names: the tree, the distances, the mask and the errors."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from body_transformer.body.graph import BodyGraph

from ..random_graphs import graphs

CHAIN = {"nodes": ["hip", "thigh", "shin", "foot"], "edges": [("hip", "thigh"), ("thigh", "shin"), ("shin", "foot")]}


def adjacency(graph: BodyGraph) -> np.ndarray:
    matrix = np.zeros((graph.num_nodes, graph.num_nodes), dtype=bool)
    for a, b in (*graph.edges, *graph.root_edges, *graph.extra_edges):
        matrix[graph.nodes.index(a), graph.nodes.index(b)] = matrix[graph.nodes.index(b), graph.nodes.index(a)] = True
    return matrix


def floyd_warshall(neighbours: np.ndarray) -> np.ndarray:
    distance = np.where(neighbours, 1.0, np.inf)
    np.fill_diagonal(distance, 0)
    for k in range(len(distance)):
        distance = np.minimum(distance, distance[:, k, None] + distance[None, k, :])
    return distance


# -- distances and mask ------------------------------------------------------------------------------------------------


@given(graphs(joints=True, max_roots=3))
def test_hops_are_the_shortest_paths(graph):
    np.testing.assert_array_equal(graph.hops, floyd_warshall(adjacency(graph)))
    assert graph.diameter == graph.hops.max()


@given(graphs(joints=True, max_roots=3))
def test_the_mask_is_true_for_a_node_and_its_neighbours(graph):
    np.testing.assert_array_equal(graph.mask, adjacency(graph) | np.eye(graph.num_nodes, dtype=bool))
    np.testing.assert_array_equal(graph.mask, graph.mask.T)
    assert graph.mask.dtype == np.bool_
    assert graph.mask.diagonal().all()
    assert graph.num_ones == np.count_nonzero(graph.mask)
    assert graph.sparsity == pytest.approx(np.mean(~graph.mask), abs=1e-12)


@given(graphs(joints=True, max_roots=3))
def test_the_edges_are_trees_away_from_the_roots(graph):
    assert len(graph.edges) == graph.num_nodes - len(graph.roots)
    assert [child for _, child in graph.edges] == [name for name in graph.nodes if name not in graph.roots]
    for name in graph.nodes:
        line = [name]
        while line[-1] not in graph.roots:
            line.append(graph.parents[line[-1]])
            assert len(line) <= graph.num_nodes


@given(graphs(joints=True, max_roots=3), st.randoms(use_true_random=False))
def test_edges_may_be_given_in_either_direction_with_a_root(graph, random):
    edges = [random.choice([(a, b), (b, a)]) for a, b in graph.edges]
    assert BodyGraph.from_edges(graph.nodes, edges, graph.roots).edges == graph.edges


def test_a_chain_has_known_numbers():
    graph = BodyGraph.from_edges(**CHAIN)
    assert graph.hops.tolist() == [[0, 1, 2, 3], [1, 0, 1, 2], [2, 1, 0, 1], [3, 2, 1, 0]]
    assert (graph.num_nodes, graph.num_ones, graph.diameter, graph.sparsity) == (4, 10, 3, 1 - 10 / 16)


def test_a_single_node_is_a_graph():
    graph = BodyGraph.from_edges(["ball"], [])
    assert (graph.root, graph.edges, graph.mask.tolist()) == ("ball", (), [[True]])
    assert (graph.sparsity, graph.diameter) == (0.0, 0)


def test_an_extra_edge_closes_a_loop():
    graph = BodyGraph.from_edges(**CHAIN, extra_edges=[("hip", "foot")])
    assert graph.extra_edges == (("hip", "foot"),)
    assert graph.hops.tolist() == [[0, 1, 2, 1], [1, 0, 1, 2], [2, 1, 0, 1], [1, 2, 1, 0]]
    assert (graph.num_ones, graph.diameter) == (12, 2)


@pytest.mark.parametrize("what", ["hops", "mask"])
def test_distances_and_mask_are_read_only(what):
    array = getattr(BodyGraph.from_edges(**CHAIN), what)
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 1


# -- names and places --------------------------------------------------------------------------------------------------


def test_the_root_is_the_node_without_a_parent():
    graph = BodyGraph.from_edges(["arm", "base", "hand"], [("arm", "hand"), ("base", "arm")])
    assert graph.root == "base"
    assert graph.edges == (("base", "arm"), ("arm", "hand"))
    assert graph.parents == {"arm": "base", "hand": "arm"}


def test_another_root_turns_the_edges_around():
    graph = BodyGraph.from_edges(**CHAIN, root="shin")
    assert graph.edges == (("thigh", "hip"), ("shin", "thigh"), ("shin", "foot"))


def test_the_order_of_the_nodes_is_kept():
    nodes = ["foot", "hip", "shin", "thigh"]
    graph = BodyGraph.from_edges(nodes, CHAIN["edges"])
    assert graph.nodes == tuple(nodes)
    assert [graph.index(name) for name in nodes] == [0, 1, 2, 3]


def test_joints_are_hinges_by_default_and_bodies_are_their_own_nodes():
    graph = BodyGraph.from_edges(**CHAIN, joints={"knee": "shin"}, actuators={"knee_motor": "shin"})
    assert graph.joints == {"knee": "shin"}
    assert graph.joint_types == {"knee": "hinge"}
    assert graph.actuators == {"knee_motor": "shin"}
    assert graph.bodies == {name: name for name in CHAIN["nodes"]}


def test_graphs_are_immutable_and_compared_by_value():
    graph, same = BodyGraph.from_edges(**CHAIN), BodyGraph.from_edges(**CHAIN)
    assert graph == same
    assert len({graph, same}) == 1
    assert graph != BodyGraph.from_edges(**CHAIN, joints={"knee": "shin"})
    with pytest.raises(AttributeError):
        graph.root = "foot"


@given(graphs(joints=True, max_roots=3))
def test_a_graph_is_restored_from_json(graph):
    back = BodyGraph.from_dict(json.loads(json.dumps(graph.to_dict())))
    assert back == graph
    assert list(back.joints) == list(graph.joints)


# -- errors -----------------------------------------------------------------------------------------------------------

WRONG = {
    "no node": ([], [], {}, "a body graph needs at least one node; none was given"),
    "empty name": (["a", ""], [("a", "")], {}, "node names must be non-empty strings; got ''"),
    "a number as a name": (["a", 1], [("a", 1)], {}, "node names must be non-empty strings; got 1"),
    "the same name twice": (["a", "b", "a"], [("a", "b")], {}, "node names must differ; given more than once: 'a'"),
    "unknown node": (
        ["thigh", "shin"],
        [("thigh", "shinn")],
        {},
        "edge ('thigh', 'shinn'): unknown node 'shinn'; did you mean 'shin'? have: 'thigh', 'shin'",
    ),
    "unknown node in an extra edge": (
        ["a", "b"],
        [("a", "b")],
        {"extra_edges": [("a", "xyz")]},
        "edge ('a', 'xyz'): unknown node 'xyz'; have: 'a', 'b'",
    ),
    "loop": (
        ["a", "b", "c"],
        [("a", "b"), ("b", "c"), ("a", "c")],
        {},
        "edges close a loop through 'c' and 'b'; the body must be a tree: give the edge that closes it in extra_edges",
    ),
    "cycle without a top": (
        ["a", "b", "c"],
        [("a", "b"), ("b", "c"), ("c", "a")],
        {},
        "edges close a loop through 'c' and 'b'; the body must be a tree: give the edge that closes it in extra_edges",
    ),
    "the same edge twice": (
        ["a", "b"],
        [("a", "b"), ("a", "b")],
        {},
        "edges close a loop through 'a' and 'b'; the body must be a tree: give the edge that closes it in extra_edges",
    ),
    "to itself": (
        ["a", "b"],
        [("a", "b"), ("b", "b")],
        {},
        "edge ('b', 'b') joins a node to itself; every node attends to itself already",
    ),
    "two parents": (
        ["a", "b", "c"],
        [("a", "c"), ("b", "c")],
        {},
        "several nodes have no parent: 'a', 'b'; connect them, or give root=",
    ),
    "disconnected": (
        ["a", "b", "c", "d"],
        [("a", "b"), ("c", "d")],
        {"root": "a"},
        "edges do not connect 'c', 'd' to the root 'a'",
    ),
    "unknown root": (["a", "b"], [("a", "b")], {"root": "c"}, "unknown root 'c'; have: 'a', 'b'"),
    "joint of an unknown node": (
        ["a", "b"],
        [("a", "b")],
        {"joints": {"knee": "c"}},
        "joint 'knee': unknown node 'c'; have: 'a', 'b'",
    ),
    "actuator of an unknown node": (
        ["a", "b"],
        [("a", "b")],
        {"actuators": {"motor": "c"}},
        "actuator 'motor': unknown node 'c'; have: 'a', 'b'",
    ),
}


@pytest.mark.parametrize(("nodes", "edges", "more", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_graph_is_refused_with_the_given_and_the_known_names(nodes, edges, more, message):
    with pytest.raises(ValueError, match=r"^.+$") as error:
        BodyGraph.from_edges(nodes, edges, **more)
    assert str(error.value) == message


@pytest.mark.parametrize("edge", [("a",), ("a", "b", "c")])
def test_an_edge_that_is_not_a_pair_is_named(edge):
    with pytest.raises(ValueError, match=r"^.*pair.*\('a'"):
        BodyGraph.from_edges(["a", "b"], [edge])


def test_the_constructor_requires_edges_away_from_the_root():
    with pytest.raises(ValueError, match=r"^edges must be \(parent, child\) away from the root 'a'.*from_edges"):
        BodyGraph(nodes=("a", "b"), edges=(("b", "a"),), root="a")


def test_an_unknown_node_has_no_index():
    with pytest.raises(ValueError, match=r"^unknown node 'shinn'; did you mean 'shin'\? have: 'hip', 'thigh', "):
        BodyGraph.from_edges(**CHAIN).index("shinn")


def test_a_long_list_of_names_is_truncated():
    nodes = [f"n{k}" for k in range(100)]
    with pytest.raises(ValueError, match=r"'n59', … \(40 more\)$"):
        BodyGraph.from_edges(nodes, [(nodes[0], name) for name in nodes[1:]]).index("torso")
