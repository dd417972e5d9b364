"""Graphs of MJCF and URDF files: nodes, joints, actuators, and refused files."""

import mujoco
import pytest

from body_transformer.body.graph import BodyGraph

LEG = """
<body name="pelvis">
  <freejoint name="floating"/>
  <site name="pelvis_site"/>
  <body name="thigh">
    <joint name="hip"/>
    <site name="thigh_site"/>
    <geom name="thigh_geom" size=".1"/>
    <body name="shin">
      <joint name="knee"/>
      <site name="shin_site"/>
      <geom name="shin_geom" size=".1"/>
    </body>
  </body>
  <body name="tail">
    <joint name="wag" type="ball"/>
    <site name="tail_site"/>
  </body>
</body>
"""


def mjcf(bodies: str, rest: str = "") -> str:
    return f"<mujoco><worldbody>{bodies}</worldbody>{rest}</mujoco>"


def urdf(*joints: str, links: str = "abc") -> str:
    return f'<robot name="r">{"".join(f"""<link name="{name}"/>""" for name in links)}{"".join(joints)}</robot>'


def urdf_joint(name: str, kind: str, parent: str, child: str, more: str = "") -> str:
    return f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>{more}</joint>'


def message_of(read, *args, error=ValueError, **kwargs) -> str:
    """Return the message of an error, which must be one line."""
    with pytest.raises(error) as caught:
        read(*args, **kwargs)
    message = str(caught.value)
    assert message
    assert message.splitlines() == [message]
    return message


# -- bodies and edges --------------------------------------------------------------------------------------------------


def test_nodes_are_the_bodies_and_the_world_is_not_one():
    graph = BodyGraph.from_xml(mjcf('<geom size="1"/><site name="s"/>' + LEG))
    assert graph.nodes == ("pelvis", "thigh", "shin", "tail")
    assert graph.edges == (("pelvis", "thigh"), ("thigh", "shin"), ("pelvis", "tail"))
    assert graph.root == "pelvis"
    assert graph.bodies == {name: name for name in graph.nodes}
    assert graph.extra_edges == ()


def test_every_joint_has_its_node_and_type():
    graph = BodyGraph.from_xml(mjcf(LEG))
    assert graph.joints == {"floating": "pelvis", "hip": "thigh", "knee": "shin", "wag": "tail"}
    assert list(graph.joints) == ["floating", "hip", "knee", "wag"]
    assert graph.joint_types == {"floating": "free", "hip": "hinge", "knee": "hinge", "wag": "ball"}


def test_the_joint_type_of_a_default_class_is_used():
    text = """<mujoco>
      <default><joint type="slide"/><default class="turning"><joint type="hinge"/></default></default>
      <worldbody><body name="a"><joint name="x"/>
        <body name="b" childclass="turning"><joint name="y"/><joint name="z" class="main"/></body></body></worldbody>
    </mujoco>"""
    assert BodyGraph.from_xml(text).joint_types == {"x": "slide", "y": "hinge", "z": "slide"}


def test_a_frame_is_not_a_node_and_keeps_the_order():
    text = mjcf('<body name="a"><body name="b"/><frame pos="1 0 0"><frame><body name="c"/></frame></frame></body>')
    assert BodyGraph.from_xml(text).edges == (("a", "b"), ("a", "c"))


def test_each_replicated_body_is_a_node():
    leg = '<replicate count="3" euler="0 0 120"><body name="leg"><joint name="hip"/></body></replicate>'
    motor = '<actuator><motor name="motor" joint="hip"/></actuator>'
    graph = BodyGraph.from_xml(mjcf(f'<body name="base">{leg}</body>', motor))
    assert graph.nodes == ("base", "leg0", "leg1", "leg2")
    assert graph.joints == {"hip0": "leg0", "hip1": "leg1", "hip2": "leg2"}
    assert graph.actuators == {"motor0": "leg0", "motor1": "leg1", "motor2": "leg2"}


def test_an_attached_model_is_below_the_body_it_is_attached_to(tmp_path):
    arm = '<body name="arm"><joint name="elbow"/><body name="hand"/></body>'
    motor = '<actuator><motor name="motor" joint="elbow"/></actuator>'
    (tmp_path / "arm.xml").write_text(mjcf(arm, motor))
    robot = tmp_path / "robot.xml"
    robot.write_text("""<mujoco>
      <asset><model name="arm" file="arm.xml"/></asset>
      <worldbody><body name="torso">
        <attach model="arm" body="arm" prefix="left_"/><frame><attach model="arm" body="arm" prefix="right_"/></frame>
      </body></worldbody>
    </mujoco>""")
    graph = BodyGraph.from_file(robot)
    assert graph.nodes == ("torso", "left_arm", "left_hand", "right_arm", "right_hand")
    assert graph.parents["right_arm"] == "torso"
    assert graph.joints == {"left_elbow": "left_arm", "right_elbow": "right_arm"}
    assert graph.actuators == {"left_motor": "left_arm", "right_motor": "right_arm"}


@pytest.fixture
def with_includes(tmp_path):
    """Write robot.xml, which includes parts/arm.xml, which includes parts/hand.xml."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "robot.xml").write_text(mjcf('<body name="base"><include file="parts/arm.xml"/></body>'))
    (tmp_path / "parts" / "arm.xml").write_text('<mujoco><body name="arm"><include file="hand.xml"/></body></mujoco>')
    (tmp_path / "parts" / "hand.xml").write_text('<mujoco><body name="hand"><joint name="wrist"/></body></mujoco>')
    return tmp_path


def test_includes_are_relative_to_the_file(with_includes):
    graph = BodyGraph.from_file(with_includes / "robot.xml")
    assert graph.edges == (("base", "arm"), ("arm", "hand"))
    assert graph.joints == {"wrist": "hand"}


def test_includes_of_a_text_are_relative_to_the_working_folder(with_includes, monkeypatch):
    monkeypatch.chdir(with_includes / "parts")
    text = mjcf('<body name="base"><include file="hand.xml"/></body>')
    assert BodyGraph.from_xml(text).nodes == ("base", "hand")


def test_no_mesh_texture_skin_or_height_field_file_is_needed(tmp_path):
    robot = tmp_path / "robot.xml"
    robot.write_text("""<mujoco>
      <compiler meshdir="nowhere" texturedir="nowhere"/>
      <asset>
        <mesh name="m" file="m.stl"/><mesh name="o" file="o.obj"/><hfield name="h" file="h.png" size="1 1 1 1"/>
        <texture name="t" type="2d" file="t.png"/><material name="c" texture="t"/><skin name="k" file="k.skn"/>
      </asset>
      <worldbody>
        <geom type="hfield" hfield="h"/>
        <body name="a"><joint name="j"/><geom type="mesh" mesh="m" material="c"/><geom type="mesh" mesh="o"/></body>
      </worldbody>
    </mujoco>""")
    assert BodyGraph.from_file(robot).joints == {"j": "a"}


def test_the_order_is_that_of_the_compiled_model(tmp_path):
    (tmp_path / "arm.xml").write_text(
        mjcf(
            '<body name="arm"><joint name="elbow"/><geom size=".1"/></body>',
            '<actuator><motor joint="elbow"/></actuator>',
        )
    )
    robot = tmp_path / "robot.xml"
    robot.write_text("""<mujoco>
      <asset><model name="arm" file="arm.xml"/></asset>
      <worldbody><body name="base"><geom size=".1"/>
        <body><geom size=".1"/><joint name="a"/></body>
        <frame><body name="framed"><geom size=".1"/><joint type="slide"/><joint type="ball"/></body></frame>
        <attach model="arm" body="arm" prefix="l_"/>
        <replicate count="2"><body name="r"><geom size=".1"/><joint name="b"/></body></replicate>
        <body name="last"><geom size=".1"/><joint name="c"/></body>
      </body></worldbody>
      <actuator><motor joint="c"/><motor name="second" joint="a"/><motor joint="b"/></actuator>
    </mujoco>""")
    graph, model = BodyGraph.from_file(robot), mujoco.MjModel.from_xml_path(str(robot))
    names = [model.body(k).name or f"body_{k}" for k in range(1, model.nbody)]
    assert list(graph.nodes) == names == ["base", "body_2", "framed", "l_arm", "r0", "r1", "last"]
    assert list(graph.joints.values()) == [names[body - 1] for body in model.jnt_bodyid]
    assert list(graph.joint_types.values()) == [("free", "ball", "slide", "hinge")[kind] for kind in model.jnt_type]
    joints = model.actuator_trnid[:, 0]
    assert list(graph.actuators.values()) == [names[model.jnt_bodyid[joint] - 1] for joint in joints]


def test_a_spec_gives_the_same_graph_as_its_text():
    text = mjcf(LEG, '<actuator><motor name="m" joint="knee"/></actuator>')
    assert BodyGraph.from_spec(mujoco.MjSpec.from_string(text)) == BodyGraph.from_xml(text)


# -- names -------------------------------------------------------------------------------------------------------------


def test_a_body_joint_or_actuator_without_a_name_gets_a_name():
    text = mjcf(
        '<body><joint/><joint/><body name="b"><joint/><joint name="k"/></body><body/></body>',
        '<actuator><motor joint="k"/></actuator>',
    )
    graph = BodyGraph.from_xml(text)
    assert graph.nodes == ("body_1", "b", "body_3")
    assert graph.joints == {"body_1_joint_1": "body_1", "body_1_joint_2": "body_1", "b_joint_1": "b", "k": "b"}
    assert graph.actuators == {"actuator_0": "b"}


def test_a_generated_name_is_unique():
    text = mjcf(
        '<body><joint/><joint name="body_1_joint_1"/><body name="body_1"><joint/></body><body name="body_1_"/></body>',
        '<actuator><motor name="actuator_1" joint="body_1_joint_1"/><motor joint="body_1_joint_1"/></actuator>',
    )
    graph = BodyGraph.from_xml(text)
    assert graph.nodes == ("body_1__", "body_1", "body_1_")
    assert graph.joints == {"body_1___joint_1": "body_1__", "body_1_joint_1": "body_1__", "body_1_joint_1_": "body_1"}
    assert graph.actuators == {"actuator_1": "body_1__", "actuator_1_": "body_1__"}


@pytest.mark.parametrize("name", ["Ärmel 手", "a&quot;b", "it's", "a/b", "&lt;x&gt;", "%s{0}\\n"])
def test_names_may_have_any_characters(name):
    (node,) = BodyGraph.from_xml(mjcf(f'<body name="{name}"/>')).nodes
    assert node == name.replace("&quot;", '"').replace("&lt;", "<").replace("&gt;", ">")


@pytest.mark.parametrize(
    ("bodies", "rest", "what"),
    [
        ('<body name="a"><body name="a"/></body>', "", "'a' in body"),
        ('<body name="a"><joint name="j"/><body name="b"><joint name="j"/></body></body>', "", "'j' in joint"),
        (LEG, '<actuator><motor name="m" joint="hip"/><motor name="m" joint="knee"/></actuator>', "'m' in actuator"),
        ('<body name="world"/>', "", "'world' in body"),
    ],
)
def test_a_name_given_twice_is_refused(bodies, rest, what):
    message = message_of(BodyGraph.from_xml, mjcf(bodies, rest))
    assert message.startswith("the given text is not an MJCF or URDF description that MuJoCo can read: ")
    assert f"repeated name {what}" in message


@pytest.mark.parametrize(
    "text",
    [
        urdf(links="aa"),
        urdf(urdf_joint("j", "revolute", "a", "b"), urdf_joint("j", "revolute", "b", "c")),
    ],
    ids=["links", "joints"],
)
def test_a_name_given_twice_in_a_urdf_is_refused(text):
    message = message_of(BodyGraph.from_xml, text)
    assert message.startswith("the given text")
    assert "repeated" in message


# -- several trees -----------------------------------------------------------------------------------------------------

SCENE = mjcf(
    LEG + '<body name="ball"><freejoint name="rolling"/><site name="top"/></body>',
    """<actuator><motor name="knee" joint="knee"/><motor name="kick" joint="rolling"/><motor name="lift" site="top"/>
    </actuator>""",
)


def test_several_trees_need_a_root_and_the_candidates_are_listed():
    assert message_of(BodyGraph.from_xml, SCENE) == (
        "the given text has several top-level bodies; choose the robot's with root= (--root): 'pelvis', 'ball', "
        "several of them, or 'world' for all"
    )


def test_the_root_chooses_the_tree_with_its_joints_and_actuators():
    graph = BodyGraph.from_xml(SCENE, root="pelvis")
    assert graph.nodes == ("pelvis", "thigh", "shin", "tail")
    assert "rolling" not in graph.joints
    assert graph.actuators == {"knee": "shin"}
    assert BodyGraph.from_xml(SCENE, root="ball").actuators == {"kick": "ball", "lift": "ball"}


def test_the_root_may_be_inside_a_tree():
    graph = BodyGraph.from_xml(SCENE, root="thigh")
    assert graph.nodes == ("thigh", "shin")
    assert graph.joints == {"hip": "thigh", "knee": "shin"}


@pytest.mark.parametrize("root", ["Pelvis", "World", ""])
def test_an_unknown_root_is_refused_with_the_bodies(root):
    message = message_of(BodyGraph.from_xml, SCENE, root=root)
    assert message.startswith(f"the given text: unknown root body {root!r};")
    assert message.endswith("have: 'pelvis', 'thigh', 'shin', 'tail', 'ball', 'world'")


# -- bodies without a joint --------------------------------------------------------------------------------------------

FIXED = mjcf(
    """<body name="base"><body name="mount"><site name="on_mount"/><body name="plate"/>
    <body name="arm"><joint name="shoulder"/><body name="tool"><site name="tip"/></body></body></body></body>""",
    '<actuator><motor name="m" site="tip"/><motor name="n" site="on_mount"/></actuator>',
)


def test_a_body_without_a_joint_keeps_its_node():
    graph = BodyGraph.from_xml(FIXED)
    assert graph.nodes == ("base", "mount", "plate", "arm", "tool")
    assert graph.actuators == {"m": "tool", "n": "mount"}


def test_a_body_without_a_joint_merges_into_its_parent_but_the_root_stays():
    graph = BodyGraph.from_xml(FIXED, fixed="merge")
    assert graph.nodes == ("base", "arm")
    assert graph.edges == (("base", "arm"),)
    assert graph.bodies == {"base": "base", "mount": "base", "plate": "base", "arm": "arm", "tool": "arm"}
    assert graph.actuators == {"m": "arm", "n": "base"}


def test_an_unknown_value_of_fixed_is_refused():
    message = message_of(BodyGraph.from_xml, FIXED, fixed="drop")
    assert message == "unknown value of fixed 'drop'; have: 'keep', 'merge'"


# -- connections beside the tree ---------------------------------------------------------------------------------------


def test_a_repeated_extra_edge_counts_once():
    edges = [("shin", "tail"), ("tail", "shin")]
    assert BodyGraph.from_xml(mjcf(LEG), extra_edges=edges).extra_edges == (("shin", "tail"),)


def test_extra_edges_join_the_nodes_of_merged_bodies_unless_the_tree_joins_them():
    edges = [("plate", "arm"), ("base", "tool")]
    assert BodyGraph.from_xml(FIXED, extra_edges=edges).extra_edges == (("plate", "arm"), ("base", "tool"))
    assert BodyGraph.from_xml(FIXED, fixed="merge", extra_edges=edges).extra_edges == ()


@pytest.mark.parametrize(
    ("edge", "fixed", "message"),
    [
        (("base", "arn"), "keep", "unknown body 'arn'; did you mean 'arm'? have: 'base', 'mount', "),
        (("base", "world"), "keep", "unknown body 'world'; have: 'base', 'mount', "),
        (("arm", "tool"), "merge", "joins node 'arm' to itself"),
    ],
)
def test_a_wrong_extra_edge_is_named(edge, fixed, message):
    found = message_of(BodyGraph.from_xml, FIXED, fixed=fixed, extra_edges=[edge])
    assert found.startswith(f"extra edge {edge!r}")
    assert message in found


@pytest.mark.parametrize(
    ("constraint", "edges"),
    [
        ('<connect body1="shin" body2="tail" anchor="0 0 0"/>', (("shin", "tail"),)),
        ('<weld body1="tail" body2="shin"/>', (("tail", "shin"),)),
        ('<connect site1="shin_site" site2="tail_site"/>', (("shin", "tail"),)),
        ('<weld site1="shin_site" site2="tail_site"/>', (("shin", "tail"),)),
        ('<weld body1="tail" body2="shin"/><connect site1="shin_site" site2="tail_site"/>', (("tail", "shin"),)),
        ('<weld body1="tail" body2="shin" active="false"/>', ()),
        ('<weld body1="shin"/>', ()),
        ('<connect body1="shin" anchor="0 0 0"/>', ()),
        ('<weld body1="shin" body2="world"/>', ()),
        ('<weld site1="shin_site" site2="on_the_floor"/>', ()),
        ('<weld body1="thigh" body2="shin"/>', ()),
        ('<joint joint1="hip" joint2="knee"/>', ()),
    ],
)
def test_active_connect_and_weld_constraints_are_edges_on_request(constraint, edges):
    text = mjcf('<site name="on_the_floor"/>' + LEG, f"<equality>{constraint}</equality>")
    assert BodyGraph.from_xml(text, equality_edges=True).extra_edges == edges
    assert BodyGraph.from_xml(text).extra_edges == ()


def test_a_constraint_between_merged_bodies_is_an_edge_between_their_nodes():
    text = FIXED.replace("</mujoco>", '<equality><weld body1="plate" body2="mount"/></equality></mujoco>')
    assert BodyGraph.from_xml(text, equality_edges=True).extra_edges == ()
    assert BodyGraph.from_xml(text, fixed="merge", equality_edges=True).extra_edges == ()


def test_a_constraint_with_another_tree_is_not_an_edge():
    text = SCENE.replace("</mujoco>", '<equality><weld name="hold" body1="shin" body2="ball"/></equality></mujoco>')
    assert BodyGraph.from_xml(text, root="pelvis", equality_edges=True).extra_edges == ()


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        ('<weld name="grip" body1="shin" body2="tial"/>', "equality 'grip': unknown body 'tial'; did you mean 'tail'?"),
        ('<weld site1="shin_site" site2="xyz"/>', "equality 0: unknown site 'xyz'; have: "),
    ],
)
def test_a_constraint_on_an_unknown_body_or_site_is_refused(constraint, message):
    text = mjcf(LEG, f"<equality>{constraint}</equality>")
    assert message_of(BodyGraph.from_xml, text, equality_edges=True).startswith(message)


# -- actuators ---------------------------------------------------------------------------------------------------------

TENDONS = """<tendon>
  <fixed name="both"><joint joint="hip" coef="1"/><joint joint="knee" coef="-1"/></fixed>
  <fixed name="one"><joint joint="knee" coef="1"/></fixed>
  <fixed name="across"><joint joint="knee" coef="1"/><joint joint="wag" coef="1"/></fixed>
  <spatial name="along"><site site="thigh_site"/><geom geom="shin_geom"/><site site="shin_site"/></spatial>
  <spatial name="branching"><site site="tail_site"/><site site="shin_site"/></spatial>
  <spatial name="pulley">
    <site site="shin_site"/><site site="thigh_site"/>
    <pulley divisor="2"/><site site="thigh_site"/><site site="shin_site"/>
  </spatial>
  <spatial name="to_the_floor"><site site="on_the_floor"/><site site="shin_site"/></spatial>
  <spatial name="on_the_floor"><site site="on_the_floor"/><site site="on_the_floor"/></spatial>
</tendon>"""

TRANSMISSIONS = {
    "joint": ('<motor name="m" joint="knee"/>', "shin"),
    "ball joint": ('<motor name="m" joint="wag"/>', "tail"),
    "free joint": ('<motor name="m" joint="floating"/>', "pelvis"),
    "joint in parent": ('<motor name="m" jointinparent="wag"/>', "tail"),
    "site": ('<general name="m" site="shin_site"/>', "shin"),
    "site with a reference site": ('<general name="m" site="tail_site" refsite="shin_site"/>', "tail"),
    "slider and crank": (
        '<motor name="m" cranksite="shin_site" slidersite="pelvis_site" cranklength="1"/>',
        "shin",
    ),
    "adhesion": ('<adhesion name="m" body="shin" ctrlrange="0 1"/>', "shin"),
    "fixed tendon over one joint": ('<position name="m" tendon="one"/>', "shin"),
    "fixed tendon over two joints": ('<motor name="m" tendon="both"/>', "thigh"),
    "fixed tendon over two branches": ('<motor name="m" tendon="across"/>', "pelvis"),
    "spatial tendon": ('<muscle name="m" tendon="along"/>', "thigh"),
    "spatial tendon over two branches": ('<motor name="m" tendon="branching"/>', "pelvis"),
    "spatial tendon with a pulley": ('<motor name="m" tendon="pulley"/>', "thigh"),
    "spatial tendon from the world": ('<motor name="m" tendon="to_the_floor"/>', "shin"),
    "tendon in the world": ('<motor name="m" tendon="on_the_floor"/>', None),
    "site in the world": ('<motor name="m" site="on_the_floor"/>', None),
    "adhesion of the world": ('<adhesion name="m" body="world" ctrlrange="0 1"/>', None),
}


@pytest.mark.parametrize(("actuator", "node"), TRANSMISSIONS.values(), ids=TRANSMISSIONS)
def test_an_actuator_belongs_to_the_node_it_acts_on(actuator, node):
    text = mjcf('<site name="on_the_floor"/>' + LEG, f"{TENDONS}<actuator>{actuator}</actuator>")
    assert BodyGraph.from_xml(text).actuators == ({"m": node} if node else {})


def test_a_tendon_with_a_part_in_another_tree_belongs_to_the_nodes_it_moves_in_this_one():
    tendon = '<tendon><spatial name="t"><site site="top"/><site site="shin_site"/></spatial></tendon>'
    text = SCENE.replace("</mujoco>", f'{tendon}<actuator><motor name="pull" tendon="t"/></actuator></mujoco>')
    assert BodyGraph.from_xml(text, root="pelvis").actuators == {"knee": "shin", "pull": "shin"}
    assert BodyGraph.from_xml(text, root="ball").actuators == {"kick": "ball", "lift": "ball", "pull": "ball"}


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        (
            '<actuator><motor name="m" joint="kne"/></actuator>',
            "actuator 'm': unknown joint 'kne'; did you mean 'knee'? have: 'floating', 'hip', 'knee', 'wag'",
        ),
        ('<actuator><motor joint="elbow"/></actuator>', "actuator 'actuator_0': unknown joint 'elbow'; "),
        (
            '<actuator><motor name="m" site="xyz"/></actuator>',
            "actuator 'm': unknown site 'xyz'; have: 'pelvis_site', ",
        ),
        (
            '<actuator><adhesion name="m" body="xyz" ctrlrange="0 1"/></actuator>',
            "actuator 'm': unknown body 'xyz'; have: 'pelvis', 'thigh', 'shin', 'tail', 'world'",
        ),
        ('<actuator><motor name="m" tendon="xyz"/></actuator>', "actuator 'm': unknown tendon 'xyz'; have: none"),
        (
            '<tendon><fixed name="t"><joint joint="x" coef="1"/></fixed></tendon>'
            '<actuator><motor name="m" tendon="t"/></actuator>',
            "actuator 'm': tendon 't' runs over a joint, site or geom that does not exist",
        ),
        ('<actuator><general name="m"/></actuator>', "actuator 'm' has no target; give it a joint"),
    ],
)
def test_an_actuator_without_a_valid_target_is_refused(rest, message):
    assert message_of(BodyGraph.from_xml, mjcf(LEG, rest)).startswith(message)


# -- URDF --------------------------------------------------------------------------------------------------------------


def test_urdf_joints_become_joints_of_their_child():
    joints = [
        urdf_joint("r", "revolute", "a", "b", '<limit lower="-1" upper="1" effort="1" velocity="1"/>'),
        urdf_joint("c", "continuous", "b", "c"),
        urdf_joint("p", "prismatic", "b", "d"),
        urdf_joint("x", "fixed", "c", "e"),
        urdf_joint("l", "floating", "a", "f"),
        urdf_joint("n", "planar", "a", "g"),
    ]
    graph = BodyGraph.from_xml(urdf(*joints, links="abcdefg"))
    assert graph.root == "a"
    assert graph.parents == {"b": "a", "c": "b", "d": "b", "e": "c", "f": "a", "g": "a"}
    assert graph.joint_types == {
        "r": "hinge", "c": "hinge", "p": "slide", "l": "free", "n_TX": "slide", "n_TY": "slide", "n_RZ": "hinge",
    }  # fmt: skip
    assert {name: graph.joints[name] for name in ("r", "c", "p", "l", "n_TX", "n_TY", "n_RZ")} == {
        "r": "b", "c": "c", "p": "d", "l": "f", "n_TX": "g", "n_TY": "g", "n_RZ": "g",
    }  # fmt: skip
    assert graph.actuators == {}


def test_urdf_fixed_links_merge():
    joints = [urdf_joint("x", "fixed", "a", "b"), urdf_joint("r", "revolute", "b", "c")]
    graph = BodyGraph.from_xml(urdf(*joints), fixed="merge")
    assert graph.bodies == {"a": "a", "b": "a", "c": "c"}


def test_a_urdf_link_called_world_is_the_world():
    text = '<robot name="r"><link name="world"/><link name="a"/>' + urdf_joint("x", "fixed", "world", "a") + "</robot>"
    assert BodyGraph.from_xml(text).nodes == ("a",)


@pytest.mark.parametrize(
    "joints",
    [
        [urdf_joint("f", "revolute", "a", "b"), urdf_joint("g", "revolute", "b", "a")],
        [urdf_joint("f", "revolute", "a", "b"), urdf_joint("g", "revolute", "c", "b")],
        [urdf_joint("f", "revolute", "a", "a")],
        [urdf_joint("f", "revolute", "a", "xyz")],
        [urdf_joint("f", "screw", "a", "b")],
        ['<joint name="f" type="revolute"/>'],
    ],
    ids=["cycle", "two parents", "its own parent", "unknown link", "unknown type", "no links"],
)
def test_a_urdf_that_is_not_a_tree_is_refused(joints):
    message = message_of(BodyGraph.from_xml, urdf(*joints))
    assert message.startswith("the given text is not an MJCF or URDF description that MuJoCo can read: XML Error: ")


# -- files without a robot ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        "",
        " \n",
        "hello",
        "{}",
        "<mujoco>",
        "<mujoco><worldbody></mujoco>",
        "<html/>",
        "<svg></svg>",
        "<mujoco><x/></mujoco>",
    ],
)
def test_a_file_without_a_robot_description_is_refused(tmp_path, content):
    path = tmp_path / "robot.xml"
    path.write_text(content)
    start = " is not an MJCF or URDF description that MuJoCo can read: "
    assert message_of(BodyGraph.from_file, path).startswith(repr(str(path)) + start)
    assert message_of(BodyGraph.from_xml, content).startswith("the given text" + start)


@pytest.mark.parametrize("content", [mjcf(""), mjcf('<geom size="1"/>'), '<robot name="r"/>', '<mujoco model="x"/>'])
def test_a_description_without_a_body_is_refused(content):
    assert message_of(BodyGraph.from_xml, content) == "the given text has no body, so there is no graph"


def test_a_missing_file_is_a_file_not_found_error(tmp_path):
    path = tmp_path / "robot.xml"
    message = message_of(BodyGraph.from_file, path, error=FileNotFoundError)
    assert message == f"no robot file at {str(path)!r}; give an MJCF (.xml) or URDF (.urdf) file"


def test_a_folder_is_refused(tmp_path):
    message = message_of(BodyGraph.from_file, tmp_path)
    assert message == f"{str(tmp_path)!r} is not a file; give an MJCF (.xml) or URDF (.urdf) file"


def test_a_document_in_place_of_a_path_is_refused():
    message = message_of(BodyGraph.from_file, mjcf(LEG * 10))
    assert message == "BodyGraph.from_file takes the path of a file; BodyGraph.from_xml takes a document"


def test_a_path_longer_than_the_system_allows_is_a_missing_file():
    assert message_of(BodyGraph.from_file, "a" * 5000, error=FileNotFoundError).startswith("no robot file at 'aaa")


@pytest.mark.parametrize("text", [b"<mujoco/>", None, 3])
def test_a_text_that_is_not_a_string_is_refused(text):
    message = message_of(BodyGraph.from_xml, text)
    assert message == f"an MJCF or URDF document must be given as a string; got {type(text).__name__}"
