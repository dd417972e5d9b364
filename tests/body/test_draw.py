"""Pictures of a body: no overlaps, nothing cut off, and no other file or setting changed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from body_transformer.body.draw import body_figure, draw_body, draw_mask, mask_figure, place_boxes, tidy_layout
from body_transformer.body.graph import BodyGraph

from ..random_graphs import graphs


def chain(count: int) -> BodyGraph:
    nodes = [f"link_{i}" for i in range(count)]
    return BodyGraph.from_edges(nodes, pairwise(nodes), joints={f"joint_{name}": name for name in nodes[1:]})


def star(count: int) -> BodyGraph:
    nodes = ["hub", *(f"spoke_{i}" for i in range(count - 1))]
    return BodyGraph.from_edges(nodes, [("hub", name) for name in nodes[1:]])


def limbs(root: str, **parts: str) -> BodyGraph:
    """Return a body with a chain per limb, for example `limbs("trunk", FR="hip thigh calf")`."""
    chains = [[root, *(f"{limb}_{part}" for part in names.split())] for limb, names in parts.items()]
    nodes = [root, *(name for chain in chains for name in chain[1:])]
    return BodyGraph.from_edges(nodes, [edge for chain in chains for edge in pairwise(chain)], joints={"j": nodes[1]})


def from_suite(name: str) -> BodyGraph:
    spec = find_spec("dm_control")
    if spec is None or spec.origin is None:
        pytest.skip("dm_control is not installed")
    root = "torso" if name in ("dog", "quadruped") else None
    return BodyGraph.from_file(Path(spec.origin).parent / "suite" / f"{name}.xml", root=root)


FINGER = "knuckle proximal middle distal"
ROBOTS: dict[str, Callable[[], BodyGraph]] = {
    "humanoid": lambda: from_suite("humanoid"),
    "humanoid_CMU": lambda: from_suite("humanoid_CMU"),
    "dog": lambda: from_suite("dog"),
    "quadruped": lambda: from_suite("quadruped"),
    "a1": lambda: limbs("trunk", **dict.fromkeys(("FR", "FL", "RR", "RL"), "hip thigh calf")),
    "hand": lambda: limbs("palm", **dict.fromkeys(("first", "middle", "ring", "little", "thumb"), FINGER)),
    "chain of 30": lambda: chain(30),
    "star of 20": lambda: star(20),
    "two arms": lambda: BodyGraph.from_edges("abcde", [("a", "b"), ("b", "c"), ("d", "e")], root=["a", "d"]),
    "single node": lambda: chain(1),
    "names with signs": lambda: BodyGraph.from_edges(
        ["$x_1$", "a&<b>", "ünïcode"], [("$x_1$", "a&<b>"), ("$x_1$", "ünïcode")]
    ),
}
A1_LOOPS = (("FR_calf", "FL_calf"), ("FL_thigh", "RL_thigh"), ("trunk", "FR_calf"))


@pytest.fixture(params=ROBOTS)
def robot(request: pytest.FixtureRequest) -> BodyGraph:
    return ROBOTS[request.param]()


@pytest.fixture
def a1_with_loops() -> BodyGraph:
    a1 = ROBOTS["a1"]()
    return BodyGraph.from_edges(a1.nodes, a1.edges, extra_edges=A1_LOOPS, joints=a1.joints)


def trees() -> st.SearchStrategy[BodyGraph]:
    return graphs(max_nodes=31, loops=False, max_padding=20, max_roots=3)


def family_of(graph: BodyGraph, node: int) -> list[int]:
    return [graph.index(child) for parent, child in graph.edges if parent == graph.nodes[node]]


def families_of(graph: BodyGraph) -> list[tuple[int | None, list[int]]]:
    """Return the children of every node, and the roots as the children of None."""
    families = [(node, family_of(graph, node)) for node in range(graph.num_nodes)]
    return [*families, (None, [graph.index(root) for root in graph.roots])]


def subtree_of(graph: BodyGraph, node: int) -> list[int]:
    return [node, *(below for child in family_of(graph, node) for below in subtree_of(graph, child))]


def overlapping(boxes: np.ndarray, slack: float = 1e-6) -> list[tuple[int, int]]:
    """Return the pairs of (left, bottom, right, top) boxes that share some area."""
    a, b = boxes[:, None], boxes[None, :]
    shared = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    return [(i, j) for i, j in np.argwhere((shared > slack).all(axis=2)) if i < j]


def extents(figure: Figure, texts: list[Text]) -> np.ndarray:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.array([text.get_window_extent(canvas.get_renderer()).extents for text in texts])


def assert_in_picture(figure: Figure, boxes: np.ndarray) -> None:
    """Check that boxes lie in the part of the figure that a file shows."""
    shown = figure.get_tightbbox(FigureCanvasAgg(figure).get_renderer()).extents * figure.dpi
    assert (boxes[:, :2] >= shown[:2] - 1e-6).all()
    assert (boxes[:, 2:] <= shown[2:] + 1e-6).all()


def legend_texts(figure: Figure) -> list[Text]:
    legend = figure.axes[0].get_legend()
    return [] if legend is None else legend.get_texts()


@given(trees(), st.floats(0.0, 2.0), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_layout_keeps_nodes_and_subtrees_apart_and_parents_midway_over_their_children(graph, gap, random) -> None:
    widths = np.array([random.uniform(0.1, 3.0) for _ in graph.nodes])
    centres, depth = tidy_layout(graph, widths, gap)
    assert len(set(zip(centres, depth, strict=True))) == graph.num_nodes
    for node, family in families_of(graph):
        if family and node is not None:
            assert (depth[family] == depth[node] + 1).all()
            assert centres[node] == pytest.approx((centres[family[0]] + centres[family[-1]]) / 2)
        for first, second in combinations((subtree_of(graph, child) for child in family), 2):
            for a in first:
                for b in (b for b in second if depth[b] == depth[a]):
                    assert centres[a] + widths[a] / 2 + gap <= centres[b] - widths[b] / 2 + 1e-6


@given(trees())
@settings(max_examples=40, deadline=None)
def test_parents_lie_above_or_left_of_their_children_and_no_line_runs_through_a_box(graph) -> None:
    boxes, upright = place_boxes(graph)
    assert not overlapping(boxes)
    for parent, child in graph.edges:
        over, under = boxes[graph.index(parent)], boxes[graph.index(child)]
        assert over[1] > under[3] if upright else over[2] < under[0]
    lines = np.array(body_figure(graph).axes[0].collections[0].get_segments()).reshape(-1, 2, 2)
    thick = np.concatenate([lines.min(axis=1) - 1e-3, lines.max(axis=1) + 1e-3], axis=1)
    hits = overlapping(np.concatenate([boxes, thick]), slack=2e-3)
    assert not [(box, line) for box, line in hits if box < len(boxes) <= line]


def test_every_name_is_inside_its_box_and_the_legend_is_below_all_boxes(robot) -> None:
    figure = body_figure(robot)
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.texts] == list(robot.nodes)
    words = extents(figure, [*axes.texts, *legend_texts(figure)])
    names, legend = np.split(words, [robot.num_nodes])
    boxes = axes.transData.transform(place_boxes(robot)[0].reshape(-1, 2)).reshape(-1, 4)
    assert not overlapping(words)
    assert_in_picture(figure, np.concatenate([boxes, words]))
    assert (names[:, :2] >= boxes[:, :2]).all()
    assert (names[:, 2:] <= boxes[:, 2:]).all()
    assert (legend[:, 3] < boxes[:, 1].min()).all()


def test_the_words_around_the_mask_do_not_overlap_and_are_not_cut_off(robot) -> None:
    figure = mask_figure(robot, title="a title")
    axes = figure.axes[0]
    names = [*axes.get_xticklabels(), *axes.get_yticklabels()]
    assert [name.get_text() for name in names] == [*robot.nodes, *robot.nodes]
    words = extents(figure, [*names, *axes.texts, axes.title, axes.xaxis.label, axes.yaxis.label])
    assert not overlapping(words, slack=1.0)
    assert_in_picture(figure, words)


def test_a_mask_of_more_than_64_nodes_names_only_some_of_them() -> None:
    figure = mask_figure(chain(200))
    labels = figure.axes[0].get_xticklabels()
    assert 10 < len(labels) < 100
    assert not overlapping(extents(figure, labels))


def test_the_mask_shows_every_one_in_its_row_and_column_and_counts_them() -> None:
    graph = chain(5)
    mask = np.triu(np.ones((5, 5), dtype=bool), k=3)
    figure = mask_figure(graph, mask)
    axes = figure.axes[0]
    cells = {tuple(path.vertices.min(axis=0)) for path in axes.collections[0].get_paths()}
    assert cells == {(column, row) for row, column in np.argwhere(mask)}
    assert axes.yaxis_inverted()
    assert axes.texts[0].get_text() == "5 nodes, 3 ones of 25, sparsity 0.880"
    assert mask_figure(graph).axes[0].texts[0].get_text() == "5 nodes, 13 ones of 25, sparsity 0.480"


def test_a_mask_of_another_size_is_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"shape \[3, 3\]; this body needs \[5, 5\]"):
        draw_mask(chain(5), tmp_path / "mask.png", np.eye(3, dtype=bool))
    assert not list(tmp_path.iterdir())


def box_colours(graph: BodyGraph) -> dict[str, str]:
    """Return the colour of each node's frame."""
    boxes = body_figure(graph).axes[0].patches
    return {name: to_hex(box.get_edgecolor()) for name, box in zip(graph.nodes, boxes, strict=True)}


def test_each_of_several_trees_has_its_own_colour() -> None:
    colours = box_colours(ROBOTS["two arms"]())
    assert colours["a"] == colours["b"] == colours["c"] != colours["d"] == colours["e"]


def test_the_fingers_of_a_hand_have_their_own_colours() -> None:
    chains = [f"{side}_arm {side}_hand {side}_{finger}1 {side}_{finger}2" for side in "lr" for finger in "abcd"]
    edges = {edge for chain in chains for edge in pairwise(["torso", *chain.split()])}
    nodes = ["torso", *sorted({child for _, child in edges})]
    colours = box_colours(BodyGraph.from_edges(nodes, edges))
    assert colours["torso"] == colours["l_arm"] == colours["l_hand"] == colours["r_hand"]
    for side in "lr":
        assert len({colours[f"{side}_{finger}1"] for finger in "abcd"} | {colours["torso"]}) == 5
        assert all(colours[f"{side}_{finger}2"] == colours[f"{side}_{finger}1"] for finger in "abcd")


def test_extra_edges_are_dashed_arcs_that_cross_no_box(a1_with_loops) -> None:
    figure = body_figure(a1_with_loops)
    arcs = figure.axes[0].lines
    boxes, _ = place_boxes(a1_with_loops)
    assert len(arcs) == len(A1_LOOPS)
    for arc in arcs:
        assert arc.is_dashed()
        points = arc.get_xydata()[1:-1, None]
        assert not ((points > boxes[:, :2]) & (points < boxes[:, 2:])).all(axis=2).any()
        assert_in_picture(figure, np.tile(figure.axes[0].transData.transform(arc.get_xydata()), 2))
    assert "extra edge" in [text.get_text() for text in legend_texts(figure)]


@pytest.mark.parametrize("draw", [draw_body, draw_mask])
def test_a_body_with_loops_is_written(draw, a1_with_loops, tmp_path) -> None:
    draw(a1_with_loops, tmp_path / "loops.png")
    assert is_png(tmp_path / "loops.png")


def test_a_box_is_filled_exactly_where_a_joint_is() -> None:
    graph = BodyGraph.from_edges(
        ["base", "arm", "tool"], [("base", "arm"), ("arm", "tool")], joints={"shoulder": "arm"}
    )
    figure = body_figure(graph)
    hollow = [box.get_facecolor() == (1, 1, 1, 1) for box in figure.axes[0].patches]
    assert hollow == [True, False, True]
    assert [text.get_text() for text in legend_texts(figure)] == ["with joint", "without joint"]


def is_png(path: Path) -> bool:
    with Image.open(path) as image:
        return image.format == "PNG" and round(image.info["dpi"][0]) == 200


CHECKS: dict[str, Callable[[Path], Any]] = {
    "png": is_png,
    "pdf": lambda path: path.read_bytes().startswith(b"%PDF") and path.read_bytes().rstrip().endswith(b"%%EOF"),
    "svg": lambda path: ElementTree.parse(path).getroot().tag.endswith("svg"),
}


@pytest.mark.parametrize("suffix", CHECKS)
@pytest.mark.parametrize("draw", [draw_body, draw_mask])
@pytest.mark.parametrize("name", ["single node", "names with signs"])
def test_each_format_is_written_whole_and_the_same_twice(draw, suffix, name, tmp_path) -> None:
    graph = ROBOTS[name]()
    first, second = tmp_path / f"first.{suffix}", tmp_path / f"second.{suffix.upper()}"
    draw(graph, first)
    draw(graph, second)
    assert CHECKS[suffix](first)
    assert first.read_bytes() == second.read_bytes()
    assert sorted(tmp_path.iterdir()) == sorted([first, second])


@pytest.mark.parametrize("draw", [draw_body, draw_mask])
@pytest.mark.parametrize("name", ["body.jpg", "body"])
def test_an_unknown_suffix_is_refused_with_the_known_ones(draw, name, tmp_path) -> None:
    with pytest.raises(ValueError, match=rf"{name}.*have: '.png', '.pdf', '.svg'"):
        draw(chain(2), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_failure_midway_leaves_the_old_picture_and_nothing_else(tmp_path, monkeypatch) -> None:
    def fail(self: Figure, path: Path, **_: object) -> None:
        path.write_text("half a pict")
        raise OSError("disk full")

    picture = tmp_path / "body.png"
    picture.write_text("old")
    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="disk full"):
        draw_body(chain(3), picture)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_a_users_style_neither_changes_the_picture_nor_is_changed_by_it(tmp_path) -> None:
    draw_body(chain(3), tmp_path / "plain.png")
    with mpl.rc_context({"text.color": "white", "font.size": 30, "savefig.bbox": "tight", "axes.facecolor": "black"}):
        before = dict(mpl.rcParams.copy()), mpl.get_backend(auto_select=False)
        draw_body(chain(3), tmp_path / "styled.png")
        draw_mask(chain(3), tmp_path / "mask.svg")
        assert (dict(mpl.rcParams.copy()), mpl.get_backend(auto_select=False)) == before
    assert (tmp_path / "plain.png").read_bytes() == (tmp_path / "styled.png").read_bytes()


def test_drawing_chooses_no_backend_and_never_loads_pyplot(tmp_path) -> None:
    code = (
        "import sys, pathlib, matplotlib as mpl\n"
        "from body_transformer.body import draw, graph\n"
        "body = graph.BodyGraph.from_edges(['a', 'b'], [('a', 'b')])\n"
        "draw.draw_body(body, pathlib.Path('body.png')); draw.draw_mask(body, pathlib.Path('mask.pdf'))\n"
        "assert mpl.get_backend(auto_select=False) is None\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}  # but not MPLBACKEND
    environment = kept | {"PATH": "", "HOME": str(tmp_path), "MPLCONFIGDIR": mpl.get_configdir()}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)
