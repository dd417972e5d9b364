"""Terms are matched by name and size to the parts of a robot; ambiguous ones are errors that name the candidates."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from body_transformer import BodyGraph, robots
from body_transformer.body.layout import Term
from body_transformer.body.match import AmbiguousError, match_terms

FINGER = '<body name="{0}_{1}"><joint name="{0}_{1}_joint" type="slide"/><geom size=".1"/></body>'
ARM = (
    """<body name="{0}_base"><geom size=".1"/><body name="{0}_upper"><joint name="{0}_shoulder"/><geom size=".1"/>
  <body name="{0}_palm"><joint name="{0}_wrist"/><geom size=".1"/><site name="{0}_grasp"/>"""
    + FINGER.replace("{1}", "finger_a")
    + FINGER.replace("{1}", "finger_b")
    + "</body></body></body>"
)
EQUAL = '<joint joint1="{0}_finger_a_joint" joint2="{0}_finger_b_joint"/>'
DRIVEN = ("shoulder", "wrist", "finger_a_joint")
MOTORS = "".join(f'<position name="{{0}}_{joint}" joint="{{0}}_{joint}"/>' for joint in DRIVEN)
SIDES = ("left", "right")
ARMS = f"""<mujoco><worldbody>{"".join(map(ARM.format, SIDES))}</worldbody>
<equality>{"".join(map(EQUAL.format, SIDES))}</equality><actuator>{"".join(map(MOTORS.format, SIDES))}</actuator>
</mujoco>"""
JOINTS = [f"{side}_{name}" for side in SIDES for name in ("shoulder", "wrist", "finger_a_joint", "finger_b_joint")]
WALKER = """<mujoco><worldbody><body name="torso"><freejoint name="root"/><geom size=".1"/>
  <body name="neck"><joint name="look" type="ball"/><geom size=".1"/></body>
  <body name="left_leg"><joint name="left_hip"/><geom size=".1"/><site name="left_foot"/></body>
  <body name="right_leg"><joint name="right_hip"/><geom size=".1"/><site name="right_foot"/></body>
</body></worldbody>
<actuator><motor name="r" joint="right_hip"/><motor name="l" joint="left_hip"/></actuator></mujoco>"""


@pytest.fixture(scope="module")
def arms():
    return BodyGraph.from_xml(ARMS, root=["left_base", "right_base"])


@pytest.fixture(scope="module")
def walker():
    return BodyGraph.from_xml(WALKER)


def matched(graph, name, *shape, num_actions=None):
    """Return the terms of one array."""
    actions = {"actions": (num_actions or len(graph.actuators),)}
    found, _ = match_terms(graph, {name: shape}, actions, "remedy")
    return list(found.layout.obs), found.guessed


@pytest.mark.parametrize(
    ("name", "size", "owners"),
    [
        ("joint_pos", 8, JOINTS),
        ("qpos", 6, [name for name in JOINTS if "finger_b" not in name]),  # the others follow
        ("left_joint_vel", 4, JOINTS[:4]),
        ("right_joint_vel", 3, JOINTS[4:7]),
        ("finger_joint_pos", 4, [name for name in JOINTS if "finger" in name]),
        ("left_gripper_qpos", 2, JOINTS[2:4]),
        ("gripper_qpos", 2, [JOINTS[2], JOINTS[6]]),
        ("arm_joint_pos", 4, [name for name in JOINTS if "finger" not in name]),
    ],
)
def test_joints_are_found_by_words_and_size(arms, name, size, owners):
    assert matched(arms, name, size) == ([Term.joints(name, owners)], [])


def test_actuators_and_the_last_action_are_in_the_order_of_the_file(walker):
    assert matched(walker, "torque", 2)[0] == [Term.actuators("torque", ["r", "l"])]
    assert matched(walker, "last_action", 2)[0] == [Term.actuators("last_action", ["r", "l"])]
    found, _ = match_terms(walker, {"gravity": (3,)}, {"actions": (2,)}, "")
    assert found.layout.actions == (Term.actuators("actions", ["r", "l"]),)


def test_bodies_and_sites_are_found_by_words(arms, walker):
    palms = ["left_palm", "right_palm"]
    assert matched(arms, "palm_force", 6)[0] == [Term.bodies("palm_force", palms, 3)]
    assert matched(arms, "grasp_pos", 2, 3)[0] == [Term.bodies("grasp_pos", palms, 3)]
    assert matched(arms, "left_palm_force", 3)[0] == [Term.bodies("left_palm_force", ["left_palm"], 3)]
    assert matched(walker, "foot_contact", 2)[0] == [Term.bodies("foot_contact", ["left_leg", "right_leg"], 1)]
    assert matched(walker, "feet_height", 2)[0] == [Term.bodies("feet_height", ["left_leg", "right_leg"], 1)]
    assert matched(walker, "body_pos", 4, 3)[0] == [Term.bodies("body_pos", walker.nodes, 3)]


def test_the_shape_tells_entries_per_joint_from_repetitions(walker):
    hips = ["left_hip", "right_hip"]
    assert matched(walker, "joint_history", 3, 2)[0] == [Term.joints("joint_history", hips, steps=3)]
    assert matched(walker, "joint_cos_sin_power", 2, 3)[0] == [Term.joints("joint_cos_sin_power", hips, dim=3)]
    with pytest.raises(AmbiguousError, match=r"'joint_history' has 6 entries, .* as \[steps, parts, entries\] or \["):
        matched(walker, "joint_history", 6)


def test_positions_of_a_floating_base_and_of_ball_joints_are_terms_of_their_own(walker):
    hips = ["left_hip", "right_hip"]
    found, keys = match_terms(walker, {"qpos": (13,), "qvel": (11,)}, {"actions": (2,)}, "")
    base, ball = Term.bodies("qpos.0", ["torso"], 7), Term.joints("qpos.1", ["look"], 4)
    assert found.layout.obs[:3] == (base, ball, Term.joints("qpos.2", hips))
    assert [term.size for term in found.layout.obs] == [7, 4, 2, 6, 3, 2]
    assert keys == {term.name: term.name[:4] for term in found.layout.obs}
    urdf = robots.path("a1").read_text()
    assert "freejoint" in urdf
    assert matched(BodyGraph.from_xml(urdf), "qvel", 18)[0][0].size == 6


def test_the_base_of_a_urdf_floats_without_a_joint():
    links = "".join(f'<link name="{name}"/>' for name in ("base", "leg", "toe"))
    joint = (
        '<joint name="{}" type="revolute"><parent link="{}"/><child link="{}"/><limit effort="1" velocity="1"/></joint>'
    )
    joints = joint.format("hip", "base", "leg") + joint.format("ankle", "leg", "toe")
    graph = BodyGraph.from_xml(f'<robot name="hopper">{links}{joints}</robot>')
    found, keys = match_terms(graph, {"qvel": (8,), "joint_pos": (2,)}, {"actions": (2,)}, "")
    base, joints, angles = found.layout.obs
    assert (base, joints) == (Term.bodies("qvel.0", ["base"], 6), Term.joints("qvel.1", ["hip", "ankle"]))
    assert angles == Term.joints("joint_pos", ["hip", "ankle"])
    assert found.layout.actions == (Term.joints("actions", ["hip", "ankle"]),)
    assert keys == {"qvel.0": "qvel", "qvel.1": "qvel"}


WORDS = ("left", "joint", "pos", "body", "gripper", "palm", "contact", "gravity", "colour", "action", "qvel", "site")


@given(
    names=st.lists(st.sets(st.sampled_from(WORDS), min_size=1, max_size=3), min_size=1, max_size=4),
    data=st.data(),
)
def test_every_entry_of_every_array_has_an_owner_and_arrays_keep_their_order(arms, names, data):
    shapes = st.lists(st.integers(1, 12), min_size=1, max_size=2).map(tuple)
    arrays = {"_".join(sorted(words)): data.draw(shapes) for words in names}
    found, keys = match_terms(arms, arrays, {"actions": data.draw(shapes)}, "", strict=False)
    sizes: dict[str, int] = {}
    for term in found.layout.obs:
        key = keys.get(term.name, term.name)
        sizes[key] = sizes.get(key, 0) + term.size
    assert list(sizes.items()) == [(name, prod(shape)) for name, shape in arrays.items()]
    assert set(found.guessed) | set(found.unclear) <= {*arrays, "actions"}
    assert not set(found.guessed) & set(found.unclear)


def test_global_and_unknown_terms_go_to_the_root_and_only_unknown_ones_are_named(arms):
    assert matched(arms, "goal", 3) == ([Term.root("goal", 3)], [])
    assert matched(arms, "colour", 3) == ([Term.root("colour", 3)], ["colour"])
    assert matched(arms, "toe_contact", 4) == ([Term.root("toe_contact", 4)], ["toe_contact"])


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("joint_pos", 5, "'joint_pos' has 5 entries, which do not fit joints (8: 'left_shoulder', 'left_wrist', "),
        ("joint_pos", 5, "or joints outside of hands (4: 'left_shoulder', 'left_wrist', 'right_shoulder', …); remedy"),
        ("left_joint_pos", 8, "do not fit joints with 'left' (4: "),
        ("body_pos", 7, "do not fit bodies (10: 'left_base', 'left_upper', 'left_palm', …); remedy"),
    ],
)
def test_a_size_that_fits_no_group_is_an_error_that_names_the_candidates(arms, name, size, message):
    with pytest.raises(AmbiguousError) as caught:
        matched(arms, name, size)
    assert message in str(caught.value)


def test_two_groups_that_fit_are_an_error_that_names_both():
    text = """<mujoco><worldbody><body name="hand"><geom size="1"/><body name="tip_a"><joint name="a"/><geom size="1"/>
      <site name="tip_of_hand" pos="0 0 1"/></body></body></worldbody></mujoco>"""
    with pytest.raises(
        AmbiguousError, match=r"'tip_pos' has 3 entries, which fit bodies with 'tip' \(1: 'tip_a'\) or sites"
    ):
        matched(BodyGraph.from_xml(text.replace("<site", "</body><body name='b'><site")), "tip_pos", 3, num_actions=1)


def test_an_ambiguous_array_can_go_to_the_root_with_the_reason(arms):
    found, _ = match_terms(arms, {"joint_pos": (5,)}, {"actions": (5,)}, "", strict=False)
    assert found.layout.obs == (Term.root("joint_pos", 5),)
    assert found.layout.actions == (Term.root("actions", 5),)
    assert found.unclear["actions"].startswith(
        "'actions' has 5 entries, which do not fit actuators (6: 'left_shoulder', "
    )
    assert found.guessed == []


def test_named_actions_are_matched_like_observations(arms):
    arm, gripper = ["left_shoulder", "left_wrist"], ["left_finger_a_joint", "right_finger_a_joint"]
    found, _ = match_terms(arms, {"goal": (1,)}, {"left_arm_ctrl": (3,), "finger_joint_target": (2,)}, "")
    assert found.layout.actions[0] == Term.actuators("left_arm_ctrl", [*arm, "left_finger_a_joint"])
    assert found.layout.actions[1] == Term.joints("finger_joint_target", gripper)
