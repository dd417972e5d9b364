"""Robots of several trees, mimic joints and fixed bases."""

import numpy as np
import pytest

from body_transformer.body.graph import BodyGraph
from body_transformer.body.layout import Layout, Term

from .test_description import message_of, mjcf, urdf, urdf_joint

ARM = """<body name="{0}/base"><geom size=".1"/><body name="{0}/upper"><joint name="{0}/shoulder"/>
  <body name="{0}/hand"><joint name="{0}/wrist"/><site name="{0}/tip"/></body></body></body>"""
TABLE = '<body name="table"><site name="middle"/></body>'
TWO_ARMS = mjcf(
    '<site name="ceiling"/>' + TABLE + ARM.format("left") + ARM.format("right"),
    """<tendon><spatial name="rope"><site site="left/tip"/><site site="right/tip"/></spatial></tendon>
    <equality><weld body1="left/base" body2="world"/></equality>
    <actuator><motor name="l" joint="left/wrist"/><motor name="r" joint="right/wrist"/>
      <motor name="pull" tendon="rope"/><general name="top" site="ceiling"/></actuator>""",
)
ROOTS = ("left/base", "right/base")


# -- several roots -----------------------------------------------------------------------------------------------------


def test_two_named_roots_are_neighbours_of_each_other():
    graph = BodyGraph.from_xml(TWO_ARMS, root=ROOTS)
    assert (graph.roots, graph.num_nodes) == (ROOTS, 6)
    assert graph.hops[graph.index("left/base"), graph.index("right/base")] == 1
    assert graph.hops[graph.index("left/hand"), graph.index("right/hand")] == graph.diameter == 5
    assert graph.num_ones == 6 + 2 * 5
    assert graph.parents.keys() == set(graph.nodes) - set(ROOTS)
    np.testing.assert_array_equal(graph.mask, graph.mask.T)


def test_the_order_of_the_nodes_is_that_of_the_file_whatever_the_order_of_the_roots():
    assert BodyGraph.from_xml(TWO_ARMS, root=ROOTS[::-1]).nodes == BodyGraph.from_xml(TWO_ARMS, root=ROOTS).nodes


def test_the_first_of_several_roots_owns_the_terms_about_the_whole_robot():
    graph = BodyGraph.from_xml(TWO_ARMS, root=ROOTS[::-1])
    layout = Layout(graph, Term.root("goal", 3), Term.actuators("ctrl", ["l", "r"]))
    assert layout.obs_ids("right/base") == [0, 1, 2]


def test_a_tendon_between_trees_belongs_to_the_first_root():
    assert BodyGraph.from_xml(TWO_ARMS, root=ROOTS).actuators == {"l": "left/hand", "r": "right/hand", "pull": ROOTS[0]}


def test_the_world_as_a_root_is_a_node_above_all_bodies():
    graph = BodyGraph.from_xml(TWO_ARMS, root="world")
    assert (graph.root, graph.nodes[:3], graph.num_nodes) == ("world", ("world", "table", "left/base"), 8)
    assert {node: graph.parents[node] for node in (*ROOTS, "table")} == dict.fromkeys((*ROOTS, "table"), "world")
    assert graph.actuators["pull"] == graph.actuators["top"] == "world"
    assert Layout.proprioceptive(graph).obs_ids("world") == []


def test_the_world_takes_in_fixed_bodies_if_they_are_merged():
    graph = BodyGraph.from_xml(TWO_ARMS, root="world", fixed="merge", equality_edges=True)
    assert graph.nodes == ("world", "left/upper", "left/hand", "right/upper", "right/hand")
    assert graph.bodies["table"] == graph.bodies["left/base"] == "world"
    assert graph.extra_edges == ()


def test_merging_keeps_every_root():
    graph = BodyGraph.from_xml(TWO_ARMS, root=ROOTS, fixed="merge")
    assert graph.roots == ROOTS


def test_an_edge_may_join_two_trees_or_a_body_and_the_world():
    assert BodyGraph.from_xml(TWO_ARMS, root=ROOTS, extra_edges=[("left/hand", "right/hand")]).diameter == 3  # a ring
    graph = BodyGraph.from_xml(TWO_ARMS, root="world", extra_edges=[("left/hand", "world")])
    assert graph.hops[graph.index("world"), graph.index("left/hand")] == 1


def test_an_edge_between_roots_is_there_already():
    assert BodyGraph.from_xml(TWO_ARMS, root=ROOTS, extra_edges=[ROOTS]).extra_edges == ()


@pytest.mark.parametrize(
    ("root", "message"),
    [
        (["left/base", "rigth/base"], "the given text: unknown root body 'rigth/base'; did you mean 'right/base'?"),
        (["left/base", "left/base"], "the given text: root body 'left/base' is given twice"),
        (["left/base", "left/hand"], "root body 'left/hand' is below another root, 'left/base'"),
        (["left/base", "world"], "root body 'left/base' is below another root, 'world'"),
        ([], "the given text: root must name at least one body; got an empty list"),
    ],
)
def test_wrong_roots_are_named(root, message):
    assert message_of(BodyGraph.from_xml, TWO_ARMS, root=root).startswith(message)


# -- mimic joints ------------------------------------------------------------------------------------------------------

FINGERS = '<body name="palm"><body name="f"><joint name="a"/></body><body name="g"><joint name="b"/></body>%s</body>'


def coupled(constraint: str, actuators: str = "", more: str = "") -> BodyGraph:
    rest = f"<equality>{constraint}</equality><actuator>{actuators}</actuator>"
    return BodyGraph.from_xml(mjcf(FINGERS % more, rest))


def test_the_first_joint_of_a_constraint_follows_the_second():
    graph = coupled('<joint joint1="a" joint2="b" polycoef="0 -1 0 0 0"/>')
    assert (graph.mimics, graph.independent_joints) == ({"a": "b"}, ("b",))
    assert list(graph.joints) == ["a", "b"]


@pytest.mark.parametrize(
    ("actuators", "follower"),
    [
        ('<position joint="a"/>', "b"),
        ('<position joint="b"/>', "a"),
        ('<position joint="a"/><position joint="b"/>', "a"),
    ],
)
def test_the_joint_with_an_actuator_leads(actuators, follower):
    assert list(coupled('<joint joint1="a" joint2="b"/>', actuators).mimics) == [follower]


@pytest.mark.parametrize(
    "constraint",
    [
        '<joint joint1="a" joint2="b" active="false"/>',
        '<joint joint1="a"/>',
        '<joint joint1="a" joint2="b" polycoef="0.5 0 0 0 0"/>',
    ],
)
def test_a_constraint_that_couples_nothing_makes_no_follower(constraint):
    assert coupled(constraint).mimics == {}


def test_a_follower_of_a_follower_has_the_same_leader_and_a_circle_has_one():
    more = '<body name="h"><joint name="c"/></body>'
    pairs = ('<joint joint1="b" joint2="c"/>', '<joint joint1="a" joint2="b"/>', '<joint joint1="c" joint2="a"/>')
    for order in (pairs, pairs[1::-1] + pairs[2:]):
        assert coupled("".join(order), more=more).mimics == {"a": "c", "b": "c"}


def test_a_leader_in_another_tree_leads_nothing():
    text = mjcf('<body name="x"><joint name="a"/></body><body name="y"><joint name="b"/></body>',
                '<equality><joint joint1="a" joint2="b"/></equality>')  # fmt: skip
    assert BodyGraph.from_xml(text, root="x").mimics == {}
    assert BodyGraph.from_xml(text, root=["x", "y"]).mimics == {"a": "b"}


LIMIT = '<limit lower="0" upper="1" effort="1" velocity="1"/>'


def gripper(more: str = "", links: str = "abc") -> str:
    leader = urdf_joint("lead", "revolute", "a", "b", LIMIT)
    return urdf(
        leader,
        urdf_joint("twin", "revolute", "a", "c", f'<mimic joint="lead" multiplier="-1"/>{LIMIT}'),
        more,
        links=links,
    )


def test_the_mimic_joints_of_a_urdf_follow():
    graph = BodyGraph.from_xml(gripper())
    assert (graph.mimics, graph.independent_joints) == ({"twin": "lead"}, ("lead",))
    assert Layout.proprioceptive(graph).action_names() == ["ctrl[lead]"]


def test_a_urdf_is_read_as_mujoco_reads_it_with_comments_transmissions_and_fixed_mimic_joints(tmp_path):
    odd = """<!-- -- a comment that XML forbids --><transmission name="t"><joint name="lead"/></transmission>"""
    fixed = urdf_joint("stuck", "fixed", "c", "d", '<mimic joint="lead"/>')
    file = tmp_path / "robot.xml"
    file.write_text(gripper(odd + fixed, links="abcd"))
    assert BodyGraph.from_file(file).mimics == {"twin": "lead"}


@pytest.mark.parametrize("is_file", [False, True])
def test_a_link_of_a_urdf_may_have_several_materials(tmp_path, is_file):
    materials = '<material name="red"><color rgba="1 0 0 1"/></material><material name="grey"/>'
    shape = f"<visual><geometry><sphere radius='1'/></geometry>{materials}</visual>"
    text = gripper().replace('<link name="a"/>', f'<link name="a">{shape}</link>')
    assert shape in text
    file = tmp_path / "robot.urdf"
    file.write_text(text)
    graph = BodyGraph.from_file(file) if is_file else BodyGraph.from_xml(text)
    assert (graph.nodes, graph.mimics) == (BodyGraph.from_xml(gripper()).nodes, {"twin": "lead"})


def test_a_follower_has_an_entry_only_if_it_is_named():
    graph = BodyGraph.from_xml(gripper())
    layout = Layout(graph, Term.joints("joint_pos", ["lead", "twin"]), Term.joints("ctrl", graph.independent_joints))
    assert layout.obs_ids("c") == [1]


# -- fixed and floating bases ------------------------------------------------------------------------------------------

BODY = '<body name="b">%s<body name="t"><joint name="hip"/></body></body>'


@pytest.mark.parametrize(
    ("text", "root", "floating"),
    [
        (mjcf(BODY % ""), None, ()),
        (mjcf(BODY % "<freejoint/>"), None, ("b",)),
        (mjcf(BODY % "<freejoint/>"), "t", ("t",)),
        (mjcf(BODY % "<freejoint/>"), "world", ("b",)),
        (mjcf(BODY % '<joint type="slide"/>'), None, ()),
        (TWO_ARMS, ROOTS, ()),
        (urdf(links="a"), None, ("a",)),
        (gripper(), None, ("a",)),
        (gripper().replace('"a"', '"world"'), "b", ()),
    ],
)
def test_a_base_floats_if_nothing_joins_it_to_the_world(text, root, floating):
    graph = BodyGraph.from_xml(text, root=root)
    assert (graph.floating, graph.is_fixed_base) == (floating, not floating)


def test_a_fixed_base_gets_no_gravity_and_turning_rate():
    assert [term.name for term in Layout.proprioceptive(BodyGraph.from_xml(mjcf(BODY % ""))).obs] == [
        "joint_pos",
        "joint_vel",
    ]


def test_each_floating_base_gets_its_own_gravity_and_turning_rate():
    text = mjcf(BODY % "<freejoint/>" + ARM.format("left") + '<body name="cube"><freejoint name="cube"/></body>')
    layout = Layout.proprioceptive(BodyGraph.from_xml(text, root="world"))
    assert [term.of for term in layout.obs[:2]] == [("b", "cube")] * 2
    assert layout.obs_ids("cube") == [3, 4, 5, 9, 10, 11]


def test_the_base_of_a_graph_from_names_floats():
    assert BodyGraph.from_edges("ab", [("a", "b")]).floating == ("a",)
