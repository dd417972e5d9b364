"""Each difference between two layouts is described."""

import pytest

from body_transformer import BodyGraph, Layout, Term
from body_transformer.body.compare import check_same, differences
from body_transformer.experiment import load_experiment

NODES = ["torso", "hip", "foot"]
JOINTS = {"yaw": "hip", "roll": "hip", "ankle": "foot"}
OBS = (Term.root("gravity", 3), Term.joints("pos", JOINTS), Term.bodies("contact", ["hip", "foot"], 3))
ACTIONS = Term.joints("torque", JOINTS)


def graph(nodes=NODES, edges=(("torso", "hip"), ("hip", "foot")), root="torso", extra=(), joints=JOINTS) -> BodyGraph:
    return BodyGraph.from_edges(nodes, edges, root, extra_edges=extra, joints=joints)


def layout(body=None, obs=OBS, actions=ACTIONS) -> Layout:
    return Layout(body or graph(), obs, actions)


def test_a_layout_does_not_differ_from_itself():
    assert differences(layout(), layout()) == []
    check_same(layout(), Layout.from_dict(layout().to_dict()))


def test_terms_of_the_root_and_of_its_body_or_node_have_the_same_owner():
    by_node = (Term.node("gravity", "torso", 3), *OBS[1:])
    by_body = (Term.bodies("gravity", ["torso"], 3), *OBS[1:])
    assert differences(layout(), layout(obs=by_node)) == []
    assert differences(layout(obs=by_body), layout(obs=by_node)) == []


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (layout(obs=OBS[:2]), ["observation entries: 12 for the policy, 6 for the task",
                               "observation terms that only the policy has: 'contact'"]),
        (layout(obs=(*OBS, Term.root("speed", 1))), ["observation entries: 12 for the policy, 13 for the task",
                                                     "observation terms that only the task has: 'speed'"]),
        (layout(obs=(OBS[1], OBS[0], OBS[2])), ["observation terms are in a different order: number 1 is 'gravity' for"
                                                " the policy and 'pos' for the task"]),
        (layout(obs=(Term.root("gravity", 1, 3), *OBS[1:])),
         ["observation term 'gravity': 3 for the policy, 1 x 3 steps for the task"]),
        (layout(obs=(OBS[0], Term.joints("pos", ["roll", "yaw", "ankle"]), OBS[2])),
         ["owners of observation term 'pos' are in a different order: number 1 is 'yaw' for the policy and 'roll' for "
          "the task"]),
        (layout(obs=(OBS[0], OBS[1], Term.bodies("contact", ["torso", "foot"], 3))),
         ["owners of observation term 'contact' that only the policy has: 'hip'",
          "owners of observation term 'contact' that only the task has: 'torso'"]),
        (layout(obs=(OBS[0], Term.bodies("pos", NODES, 1), OBS[2])),
         ["owners of observation term 'pos': joints for the policy, bodies for the task"]),
        (layout(actions=Term.joints("torque", ["yaw", "roll"])),
         ["action entries: 3 for the policy, 2 for the task",
          "owners of action term 'torque' that only the policy has: 'ankle'"]),
        (layout(graph(["torso", "foot", "hip"])),
         ["nodes are in a different order: number 2 is 'hip' for the policy and 'foot' for the task"]),
        (layout(graph(edges=(("torso", "hip"), ("torso", "foot")))),
         ["edges that only the policy has: 'foot-hip'", "edges that only the task has: 'foot-torso'"]),
        (layout(graph(extra=[("torso", "foot")])), ["edges that only the task has: 'foot-torso'"]),
        (layout(graph(root="hip"), obs=(Term.node("gravity", "torso", 3), *OBS[1:])),
         ["root: 'torso' for the policy, 'hip' for the task"]),
        (layout(graph(edges=[("torso", "hip")], root=("torso", "foot"))),
         ["root: 'torso' for the policy, 'torso', 'foot' for the task",
          "edges that only the policy has: 'foot-hip'"]),
    ],
)  # fmt: skip
def test_every_difference_is_one_line(other, expected):
    assert differences(layout(), other) == expected
    with pytest.raises(ValueError, match="the policy does not fit the task: "):
        check_same(layout(), other)


def test_for_another_robot_nodes_sizes_and_terms_are_listed_but_not_every_joint():
    found = differences(load_experiment("a1-walk").layout(), load_experiment("humanoid-mod").layout())
    text = "\n".join(found)
    assert "nodes that only the policy has: 'trunk', 'FR_hip'" in text
    assert "observation entries: 48 for the policy, 100 for the task" in text
    assert "action entries: 12 for the policy, 21 for the task" in text
    assert "abdomen_z" not in text


def test_messages_use_the_given_names_of_the_layouts():
    with pytest.raises(ValueError, match=r"the checkpoint does not fit the run: .* only the checkpoint has: 'contact'"):
        check_same(layout(), layout(obs=OBS[:2]), ("checkpoint", "run"))
