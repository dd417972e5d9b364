"""The contract: its content, refused files, and the values that may be set for a robot."""

import hashlib
import json
import math
import warnings
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

from body_transformer import Policy, robots
from body_transformer.cli.main import main
from body_transformer.deploy.contract import FIXED, TUNABLE, Contract, Environment
from body_transformer.deploy.control import Control, TorqueClip
from body_transformer.deploy.export import Trained, make_contract, sections_of
from body_transformer.deploy.policy import OnnxPolicy
from body_transformer.experiment import load_experiment
from body_transformer.schema import json_digest

from .conftest import make_policy
from .virtual_robot import a1_contract, save_contract, virtual_run

FAR_HIPS = [0.1, 0.8, -1.5, -0.1, 0.8, -1.5, 0.1, 1.0, -1.5, -0.1, 1.0, -1.5]


@pytest.fixture(scope="module")
def contract(folder: Path) -> Contract:
    return Contract.load(folder)


@pytest.fixture(scope="module")
def control(contract: Contract) -> Control:
    assert contract.control is not None
    return contract.control


def change(folder: Path, path: str, value: Any = None, remove: bool = False) -> None:
    """Change a key of the contract in policy.json, such as `control.kp.3`; `.format` is a key outside the contract."""
    content = json.loads((folder / "policy.json").read_text())
    *way, last = [int(key) if key.isdigit() else key for key in path.removeprefix(".").split(".")]
    place = content if path.startswith(".") else content["contract"]
    for key in way:
        place = place[key]
    if remove:
        del place[last]
    else:
        place[last] = value
    (folder / "policy.json").write_text(json.dumps(content))


# -- content -----------------------------------------------------------------------------------------------------------


def test_a_contract_reads_as_it_was_written(contract, tmp_path):
    save_contract(contract, tmp_path)
    assert Contract.read(tmp_path) == contract


@pytest.mark.parametrize(
    ("squash", "experiment", "clip"),
    [("tanh", None, 1.0), ("tanh", 5.0, 1.0), ("tanh", 0.5, 0.5), ("none", None, None), ("none", 5.0, 5.0)],
)
def test_an_action_is_bounded_by_the_policys_squash_and_the_experiments_clip(squash, experiment, clip):
    known = load_experiment("a1-walk")
    known = replace(known, deploy=replace(known.deploy, action_clip=experiment))
    policy = make_policy(squash=squash)
    contract = make_contract(policy, Trained(policy, "a1-walk", sections=sections_of(policy, known)), b"model")
    assert contract.control.clip == clip


def test_an_action_that_a_squashed_policy_cannot_give_is_cut_off_and_counted(contract):
    given = np.zeros(12, np.float32)
    runtime, _ = virtual_run(policy=lambda obs: given, contract=contract, seconds=0.2)
    given[:] = 1.0000002  # ONNX Runtime's tanh rounds like this
    assert "action clipped" not in runtime.run().interventions
    assert runtime.log.rows()["action"].max() == 1.0
    runtime, _ = virtual_run(policy=lambda obs: given, contract=contract, seconds=0.2)
    given[:] = 1.5
    assert runtime.run().interventions["action clipped"] == 10
    assert runtime.log.rows()["action"].max() == 1.0


def test_the_a1s_numbers_are_those_of_the_paper_and_its_code(contract, control):
    assert (control.kind, control.hz, control.clip) == ("position", 50.0, 1.0)
    assert list(control.default_pose) == list(control.offset) == FAR_HIPS
    assert set(control.scale) == {0.5}
    assert (set(control.kp), set(control.kd)) == ({100.0}, {1.0})
    assert (contract.training.kp, contract.training.kd) == ((50.0,) * 12, (1.0,) * 12)
    assert control.torque_clip == TorqueClip((25.0,) * 12, kp=(50.0,) * 12, kd=(1.0,) * 12)
    assert control.filter is not None
    assert (control.filter.order, control.filter.cutoff_hz) == (2, 13.0)
    assert control.command == (0.5, 0.0, 0.0)
    assert list(control.velocity_limits) == [52.4, 28.6, 28.6] * 4


def test_the_a1s_pose_and_limits_are_those_of_its_model(control):
    model = mujoco.MjModel.from_xml_path(str(robots.path("a1")))
    for k, name in enumerate(control.joints):
        joint = model.joint(name)
        assert control.position_limits[k] == tuple(joint.range)
        assert control.torque_limits[k] == model.actuator(name).forcerange[1] == 33.5
        assert control.default_pose[k] == model.key("home").qpos[joint.qposadr[0]]


def test_the_contract_records_the_training(contract):
    about = contract.training
    assert (about.command, about.date) == ("bot train a1-walk --seed 4", "2025-01-02 03:04 UTC")
    assert (about.variant, about.seed, about.steps) == ("bot-mix", 4, 3 * 64 * 10)


def test_an_export_without_facts_of_its_environment_is_read(tmp_path):
    """Exports of earlier versions have none, and no model of the robot."""
    contract = a1_contract()
    save_contract(contract, tmp_path)
    change(tmp_path, "environment", remove=True)
    assert Contract.read(tmp_path) == contract
    assert (contract.environment, contract.robot_sha256) == (Environment(), None)


def test_an_export_names_the_robots_model_and_holds_its_digest(contract, folder):
    assert contract.environment.robot == "a1"
    assert contract.robot_sha256 == hashlib.sha256((folder / "robot.xml").read_bytes()).hexdigest()


def test_facts_of_the_environment_are_fixed(contract, tmp_path):
    known = Environment("go1", (0.1, 0.0, 0.0), ((-1.0, 1.0), (-0.5, 0.5), (0.0, 0.0)))
    layout = make_policy().layout
    made = Contract.make("a1-walk", contract.obs, contract.control, layout, contract.checks, b"", None, known)
    save_contract(made, tmp_path)
    assert Contract.read(tmp_path) == made
    change(tmp_path, "environment.command_range.0.1", 2.0)
    with pytest.raises(ValueError, match=r"trained_sha256 is not the digest of the fixed part .*; environment"):
        Contract.read(tmp_path)


def test_a_default_command_beyond_the_trained_range_is_refused(contract):
    known = Environment(command_range=((-0.4, 0.4),) * 3)
    with pytest.raises(ValueError, match=r"trained with commands of -0.4 to 0.4, .*; got 0.5, 0, 0"):
        Contract.make(
            "a1-walk", contract.obs, contract.control, make_policy().layout, contract.checks, b"", None, known
        )


def test_every_digit_is_kept(contract, folder):
    written = json.loads((folder / "policy.json").read_text())
    assert written["contract"]["checks"]["obs"] == [list(row) for row in contract.checks.obs]
    assert written["contract"]["control"]["position_limits"][0] == [-0.802851455917, 0.802851455917]


def test_the_file_has_one_line_per_list_of_numbers(folder):
    text = (folder / "policy.json").read_text()
    assert '\n   "kp": [100.0, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0, 100.0],\n' in text
    assert len(text.splitlines()) < 430


def test_the_digest_covers_the_layout_in_any_order_of_keys(contract, policy):
    layout = policy.layout.to_dict()
    assert contract.layout_sha256 == json_digest(dict(reversed(layout.items())))
    contract.check_layout(dict(reversed(layout.items())))
    for change in ({"obs": layout["obs"][1:]}, {"graph": layout["graph"] | {"joints": {}}}):
        with pytest.raises(ValueError, match=r"layout_sha256 is not the digest|unknown joint"):
            contract.check_layout(layout | change)


def test_a_missing_limit_is_null_in_the_file_and_infinite_in_python(tmp_path):
    policy = make_policy("humanoid-hill")
    sections = sections_of(policy, load_experiment("humanoid-hill"))
    contract = make_contract(policy, Trained(policy, "humanoid-hill", sections=sections), b"model")
    assert contract.control.velocity_limits == (math.inf,) * 21
    policy.save(tmp_path)
    contract.save(tmp_path)
    written = json.loads((tmp_path / "policy.json").read_text())["contract"]
    assert written["control"]["velocity_limits"] == written["exported"]["velocity_limits"] == [None] * 21
    assert Contract.read(tmp_path) == contract


# -- refused files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("kp", 3, "unknown key 'kp'"),
        ("control.kpp", 3, "control: unknown key 'kpp'; did you mean 'kp'"),
        ("control.filter.typ", 3, "control.filter: unknown key 'typ'"),
        ("obs.4.unit", "rad", r"obs\[4\]: unknown key 'unit'"),
        ("training.mood", "good", "training: unknown key 'mood'"),
        (".format_version", 3, "has format version 3, .* reads versions up to 2"),
        (".format_version", "2", "has format version '2'"),
        (".format", "body_transformer.contract", "an older version of the package: export the policy again"),
        (".format", "policy", "does not describe a policy"),
        (".note", "mine", "unknown key 'note'"),
        (".contract", 3, "contract must be a mapping .*; got 3"),
        ("model_sha256", "0" * 64, "unknown key 'model_sha256'; it belongs outside the contract"),
        ("control.kp", 100, "control.kp must be a list; got 100"),
        ("control.kp.3", "100", r"control.kp\[3\] must be a finite number; got '100'"),
        ("control.kp.3", True, r"control.kp\[3\] must be a finite number; got True"),
        ("control.kp.3", None, r"control.kp\[3\] must be a finite number; got None"),
        ("control.kp.3", -1, "control: kp of 'FR_hip_joint' must be 0 or above; got -1"),
        ("control.kp", [100.0] * 11, "kp must have 12 entries, one per joint; got 11"),
        ("control.hz", 0, "hz must be above 0"),
        ("control.kind", "speed", "control.kind: unknown value 'speed'"),
        ("control.torque_clip.kp", [50.0] * 11, "torque, kp and kd must have one number per joint each"),
        ("control.torque_clip.kp.3", 0, "torque and kp must be above 0"),
        ("control.torque_clip.kd.3", -1, "kd 0 or above"),
        ("control.kind", "torque", "a torque_clip is for positions"),
        ("control.filter.order", 2.0, "control.filter.order must be a whole number"),
        ("control.filter.cutoff_hz", 25, "cutoff must be below half of 50"),
        ("control.position_limits.0", [1, -1], "position_limits of 'FL_hip_joint' must be"),
        ("control.position_limits.0", [0.2, 0.8], "default_pose of 'FL_hip_joint' is 0.1, outside of 0.2 to 0.8"),
        ("control.torque_limits.2", 0, "torque_limits of 'FL_calf_joint' must be above 0"),
        ("control.command", [0.5], "'command' takes 3 entries; the command has 1"),
        ("control.joints.0", "FL_hip", "control.joints must be the layout's, in its order"),
        ("obs.4.source", "joint_position", r"obs\[4\].source: unknown value 'joint_position'; did you mean 'joint_pos"),
        ("obs.3.source", "joint_vel", "obs term 'command' must be of the actuated joints"),
        ("obs.1.history", 2, r"checks.obs\[0\] must have 51 entries; got 48"),
        ("obs.1.scale", [0.25], "scale must have 3 entries"),
        ("obs.1.clip", 0, "clip must be above 0"),
        ("obs.0.name", "velocity", "obs must have the layout's terms"),
        (".policy.layout.graph.extra_edges", [["FL_hip", "FR_hip"]], "layout_sha256 is not the digest of the policy's"),
        (".policy.layout.obs.0.name", "velocity", "layout_sha256 is not the digest of the policy's layout"),
        (".policy.layout.obs", 3, "layout.obs must be a list; got 3"),
        ("training.seed", "4", "training.seed must be a whole number; got '4'"),
        ("checks.obs.2", [0.0], r"checks.obs\[2\] must have 48 entries; got 1"),
        ("checks.actions", [], "as many actions as obs"),
        (".model_sha256", "0" * 64, "policy.onnx' is not the file that policy.json was written with"),
        (".model_sha256", 3, "model_sha256 must be a string; got 3"),
    ],
)  # fmt: skip
def test_unknown_keys_and_wrong_values_are_refused_with_the_reason(copy, path, value, message):
    change(copy, path, value)
    with pytest.raises(ValueError, match=message) as error:
        Contract.load(copy)
    assert len(str(error.value)) < 1500


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("control", "missing key: 'control'"),
        ("control.hz", "control: missing key: 'hz'"),
        ("control.filter", "control: missing key: 'filter'"),
        ("control.torque_clip", "control: missing key: 'torque_clip'"),
        ("obs.0.history", r"obs\[0\]: missing key: 'history'"),
        ("checks.actions", "checks: missing key: 'actions'"),
        ("training.seed", "training: missing key: 'seed'"),
        (".format_version", "has format version None"),
        (".format", "does not describe a policy"),
        (".policy", "does not describe a policy: KeyError"),
        (".contract", "no exported policy in .* `bot export .* --out DIR` exports it"),
        (".model_sha256", "model_sha256 must be a string; got None"),
    ],
)
def test_a_missing_key_is_refused(copy, path, message):
    change(copy, path, remove=True)
    with pytest.raises(ValueError, match=message):
        Contract.load(copy)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"hz": 50.0', '"hz": NaN', "NaN is not a JSON number"),
        ('"hz": 50.0', '"hz": 1e999', "control.hz must be a finite number; got inf"),
        ('"hz": 50.0', '"hz": 50.0, "hz": 500.0', "keys given more than once: 'hz'"),
        ('"hz": 50.0', '"hz": ', "is not valid JSON"),
    ],
)
def test_invalid_json_is_refused(copy, old, new, message):
    file = copy / "policy.json"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(ValueError, match=message):
        Contract.load(copy)


def test_swapped_joints_are_refused(copy, control):
    first, second, *rest = control.joints
    change(copy, "control.joints", [second, first, *rest])
    with pytest.raises(ValueError, match="in its order"):
        Contract.load(copy)


@pytest.mark.parametrize(
    "spoil", [lambda b: b[:-1], lambda b: b + b"\0", lambda b: b[:500] + bytes([b[500] ^ 1]) + b[501:]]
)
@pytest.mark.parametrize("name", ["policy.onnx", "robot.xml"])
def test_a_network_or_robot_with_a_changed_bit_or_length_is_refused(copy, spoil, name):
    file = copy / name
    file.write_bytes(spoil(file.read_bytes()))
    with pytest.raises(ValueError, match=f"{name}' is not the file .*: truncated, changed or swapped"):
        Contract.load(copy)


def test_a_robots_computer_needs_no_model_of_the_robot(copy):
    (copy / "robot.xml").unlink()
    assert Contract.load(copy).robot_sha256 is not None


@pytest.mark.parametrize("name", ["policy.json", "policy.onnx"])
def test_a_folder_without_one_of_the_files_is_refused(copy, name):
    (copy / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"{name} is missing"):
        Contract.load(copy)


def test_an_export_of_an_older_version_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "policy.json").write_text('{"format": "body_transformer.contract", "version": 3}')
    for load in (Policy.load, Contract.load):
        with pytest.raises(ValueError, match="an older version of the package: export the policy again"):
            load(tmp_path)


# -- edits: the fixed part is refused, the tunable part is reported ----------------------------------------------------


def test_every_part_of_a_control_is_either_fixed_or_tunable():
    assert sorted((*FIXED, *TUNABLE)) == sorted(field.name for field in fields(Control))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("obs.1.scale", [0.5] * 3),
        ("obs.4.offset.3", 0.25),
        ("obs.5.clip", 5.0),
        ("obs.0.source", "angular_velocity"),
        ("control.scale", [50.0] * 12),
        ("control.offset.0", 0.2),
        ("control.clip", None),
        ("control.torque_clip", None),
        ("control.torque_clip.torque.0", 30.0),
        ("control.default_pose.1", 0.9),
        ("control.hz", 100.0),
        ("exported.kp", [50.0] * 12),
        ("exported.torque_limits", [1e9] * 12),
        ("trained_sha256", "0" * 64),
    ],
)
def test_a_value_fixed_by_the_training_cannot_be_changed(copy, path, value):
    change(copy, path, value)
    with pytest.raises(ValueError, match=r"trained_sha256 is not the digest of the fixed part .* was changed since"):
        OnnxPolicy(copy)


@pytest.mark.parametrize("value", [None, {"kp": [1.0] * 12}])
def test_an_exported_section_with_other_keys_is_refused(copy, value):
    change(copy, "exported", value)
    with pytest.raises(ValueError, match="exported must have the keys"):
        Contract.load(copy)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("control.kp", [50.0] * 12, "kp 50.0 (exported: 100.0)"),
        ("control.kd.2", 2, "kd [1.0, 1.0, 2.0, 1.0, 1.0, 1.0, ...] (exported: 1.0)"),
        ("control.torque_limits", [20.0] * 12, "torque_limits 20.0 (exported: 33.5)"),
        ("control.position_limits.0", [-0.5, 0.5], "position_limits ["),
        ("control.filter", None, "filter None (exported: {'cutoff_hz': 13.0, 'order': 2})"),
        ("control.command.0", 0.3, "command [0.3, 0.0, 0.0] (exported: [0.5, 0.0, 0.0])"),
    ],
)
def test_values_set_for_a_robot_are_named_in_one_line(copy, path, value, said):
    change(copy, path, value)
    with pytest.warns(UserWarning, match="was edited since its export") as warned:
        contract = OnnxPolicy(copy).contract
    assert len(warned) == 1
    assert said in str(warned[0].message)
    assert "\n" not in str(warned[0].message)
    (edit,) = contract.edits()
    assert edit.startswith(said)


def test_an_export_without_edits_gives_no_warning(folder, copy):
    content = json.loads((copy / "policy.json").read_text())
    content["contract"]["control"]["hz"] = 50  # the same number, written as an integer
    (copy / "policy.json").write_text(json.dumps(content, indent=4, sort_keys=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert OnnxPolicy(copy).contract == Contract.load(folder)
    assert Contract.load(folder).edits() == ()


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("control.torque_limits.3", 33.6, "torque_limits of 'FR_hip_joint' is 33.6; exported was 33.5, and a limit"),
        ("control.velocity_limits.0", None, "velocity_limits of 'FL_hip_joint' is None; exported was 52.4"),
        ("control.position_limits.1", [-1.05, 4.0], r"position_limits of 'FL_thigh_joint' is \[-1.05, 4.0\]; exported"),
        ("control.position_limits.1", [-1.0, None], r"position_limits of 'FL_thigh_joint' is \[-1.0, None\]"),
    ],
)
def test_a_limit_can_only_be_tightened(copy, path, value, message):
    change(copy, path, value)
    with pytest.raises(ValueError, match=message):
        Contract.load(copy)


def test_bot_deploy_names_the_edits(copy, capsys):
    change(copy, "control.kp", [50.0] * 12)
    assert main(["deploy", str(copy), "--robot", "dog"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("bot deploy: ")
    assert lines[0].endswith("policy.json' was edited since its export: kp 50.0 (exported: 100.0)")
    assert lines[1].startswith("bot deploy: unknown robot 'dog'")


def test_a_contract_that_was_edited_and_saved_again_still_warns(tmp_path):
    contract = a1_contract()
    save_contract(contract, tmp_path)
    change(tmp_path, "control.kd", [2.0] * 12)
    with pytest.warns(UserWarning, match="kd 2.0"):
        edited = Contract.read(tmp_path)
    edited.save(tmp_path)
    with pytest.warns(UserWarning, match="kd 2.0"):
        assert Contract.read(tmp_path) == edited
