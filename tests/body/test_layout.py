"""Layout: the owner of each entry of the observation and of the action."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from body_transformer.body.graph import BodyGraph
from body_transformer.body.layout import UNUSED, Layout, Term

from ..random_graphs import graphs

LEG = """<mujoco>
  <worldbody><body name="pelvis"><freejoint name="floating"/>
    <body name="imu"/>
    <body name="thigh"><joint name="hip"/>
      <body name="shin"><joint name="knee"/><body name="toe"/></body></body>
    <body name="tail"><joint name="wag" type="ball"/></body>
  </body></worldbody>
  <actuator><motor name="knee_motor" joint="knee"/><motor name="hip_motor" joint="hip"/></actuator>
</mujoco>"""


@pytest.fixture(scope="module")
def graph() -> BodyGraph:
    """pelvis 0, thigh 1, shin 2, tail 3; imu is part of the pelvis, toe of the shin."""
    return BodyGraph.from_xml(LEG, fixed="merge")


def message_of(make, *args, **kwargs) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the caller compares the whole message
        make(*args, **kwargs)
    message = str(caught.value)
    assert message.splitlines() == [message]
    return message


# -- terms -------------------------------------------------------------------------------------------------------------

TERMS = {
    "root": (Term.root("gravity", 3), [0, 0, 0], ["gravity.0", "gravity.1", "gravity.2"]),
    "joints": (Term.joints("pos", ["knee", "hip", "wag"]), [2, 1, 3], ["pos[knee]", "pos[hip]", "pos[wag]"]),
    "actuators": (Term.actuators("ctrl", ["knee_motor", "hip_motor"]), [2, 1], ["ctrl[knee_motor]", "ctrl[hip_motor]"]),
    "bodies": (
        Term.bodies("force", ["tail", "thigh"], 2),
        [3, 3, 1, 1],
        ["force[tail].0", "force[tail].1", "force[thigh].0", "force[thigh].1"],
    ),
    "merged bodies": (Term.bodies("touch", ["toe", "imu"], 1), [2, 0], ["touch[toe]", "touch[imu]"]),
    "node": (Term.node("heat", "tail", 2), [3, 3], ["heat[tail].0", "heat[tail].1"]),
    "unused": (Term.unused("clock", 2), [UNUSED, UNUSED], ["clock.0", "clock.1"]),
    "one entry": (Term.root("height", 1), [0], ["height"]),
    "steps of the root": (Term.root("past", 1, steps=2), [0, 0], ["past@0", "past@1"]),
    "step by step, owner by owner, dim in a row": (
        Term.bodies("ref", ["shin", "tail"], 2, steps=2),
        [2, 2, 3, 3, 2, 2, 3, 3],
        [
            "ref@0[shin].0", "ref@0[shin].1", "ref@0[tail].0", "ref@0[tail].1",
            "ref@1[shin].0", "ref@1[shin].1", "ref@1[tail].0", "ref@1[tail].1",
        ],
    ),
    "joints over time": (
        Term.joints("pos", ["hip", "knee"], steps=3),
        [1, 2, 1, 2, 1, 2],
        ["pos@0[hip]", "pos@0[knee]", "pos@1[hip]", "pos@1[knee]", "pos@2[hip]", "pos@2[knee]"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("term", "nodes", "names"), TERMS.values(), ids=TERMS)
def test_the_entries_of_a_term_have_these_owners_and_names(graph, term, nodes, names):
    assert graph.nodes == ("pelvis", "thigh", "shin", "tail")
    assert term.node_ids(graph).tolist() == nodes
    assert term.entry_names() == names
    assert term.size == len(nodes)


WRONG_TERMS = {
    "dim 0": (lambda: Term.root("x", 0), "term 'x': dim must be a whole number from 1 up; got 0"),
    "dim 1.5": (lambda: Term.root("x", 1.5), "term 'x': dim must be a whole number from 1 up; got 1.5"),
    "dim True": (lambda: Term.root("x", True), "term 'x': dim must be a whole number from 1 up; got True"),
    "steps -1": (
        lambda: Term.joints("x", ["hip"], steps=-1),
        "term 'x': steps must be a whole number from 1 up; got -1",
    ),
    "no owner": (lambda: Term.joints("x", []), "term 'x' of kind 'joints' needs at least one owner; got none"),
    "owners of a root term": (
        lambda: Term("x", "root", ("hip",)),
        "term 'x' of kind 'root' takes no owners; got 'hip'",
    ),
    "an empty name": (lambda: Term.root("", 3), "a term needs a name; got ''"),
    "two nodes": (lambda: Term("x", "node", ("thigh", "shin")), "term 'x' belongs to one node; got 'thigh', 'shin'"),
    "twice": (lambda: Term.joints("x", ["hip", "knee", "hip"]), "term 'x' names 'hip' more than once"),
    "one bare string": (lambda: Term.joints("x", "hip"), "term 'x' needs a list of names; got the single string 'hip'"),
    "kind": (
        lambda: Term("x", "joint", ("hip",)),
        "term 'x': unknown kind 'joint'; did you mean 'joints'? "
        "have: 'root', 'joints', 'actuators', 'bodies', 'node', 'unused'",
    ),
}


@pytest.mark.parametrize(("make", "message"), WRONG_TERMS.values(), ids=WRONG_TERMS)
def test_a_wrong_term_is_refused(make, message):
    assert message_of(make) == message


# -- layouts -----------------------------------------------------------------------------------------------------------

OBS = (
    Term.root("gravity", 3),
    Term.joints("pos", ["hip", "knee"]),
    Term.unused("clock", 2),
    Term.bodies("force", ["toe", "imu"], 3),
)
ACTIONS = Term.actuators("ctrl", ["knee_motor", "hip_motor"])


def test_every_entry_has_one_node_or_is_unused(graph):
    layout = Layout(graph, OBS, ACTIONS, obs_dim=13, action_dim=2)
    assert layout.obs_node_ids.tolist() == [0, 0, 0, 1, 2, UNUSED, UNUSED, 2, 2, 2, 0, 0, 0]
    assert layout.action_node_ids.tolist() == [2, 1]
    assert (layout.obs_dim, layout.used_obs_dim, layout.action_dim) == (13, 11, 2)
    assert {node: layout.obs_ids(node) for node in graph.nodes} == {
        "pelvis": [0, 1, 2, 10, 11, 12], "thigh": [3], "shin": [4, 7, 8, 9], "tail": [],
    }  # fmt: skip
    assert {node: layout.action_ids(node) for node in graph.nodes} == {
        "pelvis": [], "thigh": [1], "shin": [0], "tail": [],
    }  # fmt: skip


def test_entries_and_terms_can_be_found_by_name(graph):
    layout = Layout(graph, OBS, ACTIONS)
    slices = {"gravity": slice(0, 3), "pos": slice(3, 5), "clock": slice(5, 7), "force": slice(7, 13)}
    assert layout.obs_slices == slices
    assert layout.obs_names()[3:8] == ["pos[hip]", "pos[knee]", "clock.0", "clock.1", "force[toe].0"]
    assert layout.action_names() == ["ctrl[knee_motor]", "ctrl[hip_motor]"]


def test_the_owners_are_read_only(graph):
    layout = Layout(graph, OBS, ACTIONS)
    for ids in (layout.obs_node_ids, layout.action_node_ids):
        with pytest.raises(ValueError, match="read-only"):
            ids[0] = 1


def test_several_action_terms_follow_one_another(graph):
    layout = Layout(graph, OBS, [Term.joints("hips", ["hip"], dim=2), Term.root("brake", 1)])
    assert layout.action_node_ids.tolist() == [1, 1, 0]


WRONG_LAYOUTS = {
    "too few": (
        {"obs_dim": 15},
        "the observation has 15 entries and the terms cover 13: entries 13 to 14 have no owner; "
        "give them to a node or declare them Term.unused",
    ),
    "too many": (
        {"obs_dim": 11},
        "the observation has 11 entries and the terms cover 13; beyond the end: 'force[imu].1', 'force[imu].2'",
    ),
    "too few actions": (
        {"action_dim": 3},
        "the action has 3 entries and the terms cover 2: entries 2 to 2 have no owner; give them to a node",
    ),
    "too many actions": (
        {"action_dim": 1},
        "the action has 1 entries and the terms cover 2; beyond the end: 'ctrl[hip_motor]'",
    ),
    "unused action": (
        {"actions": [ACTIONS, Term.unused("spare", 2)]},
        "every action needs a node; declared unused: 'spare.0', 'spare.1'",
    ),
    "the same term twice": (
        {"obs": [Term.root("x", 1), Term.unused("x", 2)]},
        "observation terms must have different names; given more than once: 'x'",
    ),
    "no observation": ({"obs": []}, "a layout needs at least one observation term; got none"),
    "no action": ({"actions": []}, "a layout needs at least one action term; got none"),
    "no term": ({"obs": ["gravity"]}, "observation terms must be Terms; got 'gravity'"),
    "unknown joint": (
        {"obs": [Term.joints("pos", ["hip", "kne"])]},
        "term 'pos': unknown joint 'kne'; did you mean 'knee'? have: 'floating', 'hip', 'knee', 'wag'",
    ),
    "unknown actuator": (
        {"actions": Term.actuators("ctrl", ["hip"])},
        "term 'ctrl': unknown actuator 'hip'; have: 'knee_motor', 'hip_motor'",
    ),
    "unknown body": (
        {"obs": [Term.bodies("force", ["foot"], 3)]},
        "term 'force': unknown body 'foot'; have: 'pelvis', 'imu', 'thigh', 'shin', 'toe', 'tail'",
    ),
    "unknown node": (
        {"obs": [Term.node("heat", "foot", 3)]},
        "term 'heat': unknown node 'foot'; have: 'pelvis', 'imu', 'thigh', 'shin', 'toe', 'tail'",
    ),
}


@pytest.mark.parametrize(("change", "message"), WRONG_LAYOUTS.values(), ids=WRONG_LAYOUTS)
def test_a_wrong_layout_is_refused(graph, change, message):
    assert message_of(Layout, graph, **{"obs": OBS, "actions": ACTIONS} | change) == message


# -- any layout --------------------------------------------------------------------------------------------------------


@st.composite
def layouts(draw):
    tree = draw(graphs(max_nodes=8, loops=False))
    places = {f"{node} ü": node for node in tree.nodes}
    graph = BodyGraph.from_edges(tree.nodes, tree.edges, joints=places, actuators=places)
    dims = {"dim": st.integers(1, 3), "steps": st.integers(1, 3)}

    def some(names):
        return st.lists(st.sampled_from(names), min_size=1, unique=True).map(tuple)

    def terms(*kinds):
        owners = {
            "root": st.just(()),
            "joints": some(list(places)),
            "actuators": some(list(places)),
            "bodies": some(graph.nodes),
            "node": st.sampled_from(graph.nodes).map(lambda node: (node,)),
            "unused": st.just(()),
        }
        term = st.one_of(*(st.builds(Term, st.text(min_size=1), st.just(kind), owners[kind], **dims) for kind in kinds))
        return draw(st.lists(term, min_size=1, max_size=5, unique_by=lambda term: term.name))

    used = ("root", "joints", "actuators", "bodies", "node")
    return Layout(graph, terms(*used, "unused"), terms(*used))


@settings(max_examples=40)
@given(layouts())
def test_a_layout_is_restored_from_json(layout):
    data = layout.to_dict()
    assert json.loads(json.dumps(data)) == data
    back = Layout.from_dict(data)
    assert back == layout
    np.testing.assert_array_equal(back.obs_node_ids, layout.obs_node_ids)


@settings(max_examples=40)
@given(layouts())
def test_every_entry_is_listed_once_under_its_node_or_is_unused(layout):
    owned = [k for node in layout.graph.nodes for k in layout.obs_ids(node)]
    unused = np.flatnonzero(layout.obs_node_ids == UNUSED).tolist()
    assert sorted(owned + unused) == list(range(layout.obs_dim))
    assert len(owned) == layout.used_obs_dim
    assert sorted(k for node in layout.graph.nodes for k in layout.action_ids(node)) == list(range(layout.action_dim))
    assert len(layout.obs_names()) == layout.obs_dim
    assert len(layout.action_names()) == layout.action_dim


@settings(max_examples=40)
@given(layouts())
def test_an_entry_belongs_to_the_owner_in_its_name(layout):
    for term in layout.obs:
        names = layout.obs_names()[layout.obs_slices[term.name]]
        ids = layout.obs_node_ids[layout.obs_slices[term.name]]
        for k, (name, node) in enumerate(zip(names, ids, strict=True)):
            owner = term.of[k // term.dim % len(term.of)] if term.of else None
            if owner is not None:
                assert f"[{owner}]" in name
                assert layout.graph.nodes[node] == owner.removesuffix(" ü")
            else:
                assert node == (UNUSED if term.kind == "unused" else layout.graph.index(layout.graph.root))


# -- Layout.proprioceptive ---------------------------------------------------------------------------------------------


def test_the_proprioceptive_layout_is_gravity_and_angular_velocity_of_the_root_and_the_joints(graph):
    layout = Layout.proprioceptive(graph)
    assert [(term.name, term.kind, term.of, term.dim) for term in layout.obs] == [
        ("gravity", "root", (), 3),
        ("angular_velocity", "root", (), 3),
        ("joint_pos", "joints", ("hip", "knee"), 1),
        ("joint_vel", "joints", ("hip", "knee"), 1),
        ("ball_quat", "joints", ("wag",), 4),
        ("ball_vel", "joints", ("wag",), 3),
    ]
    assert layout.action_names() == ["ctrl[knee_motor]", "ctrl[hip_motor]"]
    assert layout.used_obs_dim == layout.obs_dim == 17


def test_without_actuators_there_is_one_action_per_joint():
    graph = BodyGraph.from_xml(LEG.replace("actuator", "sensor").replace("motor ", "jointpos "))
    layout = Layout.proprioceptive(graph)
    assert layout.action_names() == ["ctrl[hip]", "ctrl[knee]"]
    assert [graph.nodes[k] for k in layout.action_node_ids] == ["thigh", "shin"]


def test_a_robot_without_actuators_and_joints_to_control_is_refused():
    graph = BodyGraph.from_xml('<mujoco><worldbody><body name="cup"><freejoint/></body></worldbody></mujoco>')
    assert list(graph.joint_types.values()) == ["free"]
    message = "this robot has neither actuators nor hinge or slide joints: there is nothing to control"
    assert message_of(Layout.proprioceptive, graph) == message


def test_sizes_may_be_numpy_integers(graph):
    term = Term.root("gravity", np.zeros((2, 3)).shape[1])
    assert Term.root("gravity", np.int64(3)) == term
    assert json.dumps(Term.root("gravity", np.int64(3)).to_dict())


def test_a_single_term_needs_no_list(graph):
    layout = Layout(graph, Term.root("gravity", 3), Term.joints("torque", ["knee"]))
    assert layout == Layout(graph, [Term.root("gravity", 3)], [Term.joints("torque", ["knee"])])


WRONG_DATA = {
    "no terms": (lambda data: data.pop("obs"), "layout: missing key: 'obs'"),
    "no root": (lambda data: data["graph"].pop("root"), "layout.graph: missing key: 'root'"),
    "no name": (lambda data: data["obs"][0].pop("name"), "layout.obs[0]: missing key: 'name'"),
    "no kind": (lambda data: data["obs"][0].pop("kind"), "layout.obs[0]: missing key: 'kind'"),
    "a bare string": (
        lambda data: data["actions"][0].update(of="knee"),
        "layout.actions[0].of must be a list; got 'kn",
    ),
    "key": (
        lambda data: data["obs"][0].update(dims=3),
        "layout.obs[0]: unknown key 'dims'; did you mean 'dim'? have: 'name', 'kind', 'of', 'dim', 'steps'",
    ),
}


@pytest.mark.parametrize(("damage", "message"), WRONG_DATA.values(), ids=WRONG_DATA)
def test_json_with_a_wrong_or_missing_part_is_refused(graph, damage, message):
    data = Layout(graph, Term.root("gravity", 3), Term.joints("torque", ["knee"])).to_dict()
    damage(data)
    assert message_of(Layout.from_dict, data).startswith(message)
