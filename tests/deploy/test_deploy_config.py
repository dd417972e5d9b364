"""The `deploy` section of an experiment."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import yaml

from body_transformer import BodyGraph, Layout, Term
from body_transformer.deploy.config import DeployConfig, ObsSource, contract_sections, per_joint
from body_transformer.deploy.contract import _check_control
from body_transformer.schema import build

JOINTS = ("FL_hip", "FR_hip", "FL_calf")


def section(text: str) -> DeployConfig:
    return build(DeployConfig, yaml.safe_load(f"{{kind: position, hz: 50, obs: {{}}, {text}}}"), "deploy")


def test_a_number_is_for_all_joints():
    assert per_joint(section("kp: 100").kp, JOINTS, {}) == (100.0, 100.0, 100.0)


def test_patterns_match_names_of_joints():
    value = section("default_pose: {FL_hip: 0.1, FR_hip: -0.1, '*_calf': -1.5}").default_pose
    assert per_joint(value, JOINTS, {}) == (0.1, -0.1, -1.5)


def test_a_name_refers_to_numbers_given_elsewhere():
    value = section("action_offset: default_pose").action_offset
    assert per_joint(value, JOINTS, {"default_pose": (1, 2, 3)}) == (1, 2, 3)


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        ({"*_hip": 1.0}, "joint 'FL_calf' must match one pattern .* it matches 0"),
        ({"*": 1.0, "*_hip": 2.0}, "joint 'FL_hip' must match one pattern .* it matches 2"),
        ({"*": 1.0, "*_foot": 2.0}, "no joint matches '\\*_foot'"),
    ],
)
def test_every_joint_must_match_one_pattern_and_every_pattern_a_joint(patterns, message):
    with pytest.raises(ValueError, match=message):
        per_joint(patterns, JOINTS, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gain: 3", "deploy: unknown key 'gain'"),
        ("kp: .nan", "deploy.kp must be a finite number or one of"),
        ("kp: fast", "deploy.kp must be a finite number or one of"),
        ("filter: {order: 2}", "deploy.filter: missing key: 'cutoff_hz'"),
        ("command: 3", "deploy.command must be a list"),
    ],
)
def test_an_invalid_section_is_refused_with_the_reason(text, message):
    with pytest.raises(ValueError, match=message):
        section(text)


def test_a_term_of_a_body_has_a_number_for_each_of_its_entries(tmp_path):
    robot = tmp_path / "robot.xml"
    robot.write_text("""<mujoco><worldbody><body name="base"><freejoint/><geom size="1"/><body name="leg">
    <joint name="hip"/><geom size="1"/></body></body></worldbody></mujoco>""")
    terms = [Term.bodies("gyro", ["base"], 3), Term.joints("pos", ["hip"])]
    layout = Layout(BodyGraph.from_file(robot), terms, Term.joints("target", ["hip"]))
    obs = {"gyro": ObsSource("angular_velocity", scale=0.25), "pos": ObsSource("joint_pos")}
    sections = contract_sections(replace(section("kp: 1"), obs=obs), robot, layout)
    assert sections.obs[0].scale == (0.25, 0.25, 0.25)


def test_actions_of_actuators_belong_to_their_joints_and_the_contract_keeps_to_them(tmp_path):
    robot = tmp_path / "pair.xml"
    robot.write_text("""<mujoco><worldbody><body name="a"><joint name="x"/><geom size="1"/></body><body name="b">
    <joint name="y"/><geom size="1"/></body></worldbody><actuator><motor name="my" joint="y"/>
    <motor name="mx" joint="x"/></actuator></mujoco>""")
    graph = BodyGraph.from_file(robot, root=["a", "b"])
    actions = Term.actuators("ctrl", ["my", "mx"])
    layout = Layout(graph, [Term.joints("pos", ["y", "x"]), Term.actuators("last", ["my", "mx"])], actions)
    obs = {"pos": ObsSource("joint_pos"), "last": ObsSource("previous_action")}
    sections = contract_sections(replace(section("kp: 1"), obs=obs), robot, layout)
    assert sections.control.joints == ("y", "x")
    _check_control(sections.control, sections.obs, layout)
    for wrong in (("x", "y"), ("y",), ("y", "z")):
        with pytest.raises(ValueError, match=r"control\.joints must be the layout's, in its order: "):
            _check_control(SimpleNamespace(joints=wrong), sections.obs, layout)
