"""What the training fixed cannot be edited in policy.json; what is set for a robot is told."""

import json
import warnings
from dataclasses import fields

import pytest

from body_transformer.cli.main import main
from body_transformer.deploy.contract import FIXED, TUNABLE, Contract
from body_transformer.deploy.control import Control
from body_transformer.deploy.policy import OnnxPolicy

from .test_contract import change
from .virtual_robot import a1_contract, save_contract


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
def test_what_the_training_fixed_cannot_be_changed(copy, path, value):
    change(copy, path, value)
    with pytest.raises(ValueError, match=r"trained_sha256 is not the digest of the fixed part .* was changed since"):
        OnnxPolicy(copy)


@pytest.mark.parametrize("value", [None, {"kp": [1.0] * 12}])
def test_a_copy_of_other_keys_is_refused(copy, value):
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
def test_what_is_set_for_a_robot_is_told_in_one_line(copy, path, value, said):
    change(copy, path, value)
    with pytest.warns(UserWarning, match="was edited since its export") as told:
        contract = OnnxPolicy(copy).contract
    assert len(told) == 1
    assert said in str(told[0].message)
    assert "\n" not in str(told[0].message)
    (edit,) = contract.edits()
    assert edit.startswith(said)


def test_an_export_that_nobody_touched_says_nothing(folder, copy):
    content = json.loads((copy / "policy.json").read_text())
    content["contract"]["control"]["hz"] = 50  # another way to write the same number
    (copy / "policy.json").write_text(json.dumps(content, indent=4, sort_keys=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert OnnxPolicy(copy).contract == Contract.load(folder)
    assert Contract.load(folder).edits() == ()


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            "control.torque_limits.3",
            33.6,
            r"torque_limits of 'FR_hip_joint' is 33.6; exported was 33.5, and a limit can",
        ),
        ("control.velocity_limits.0", None, "velocity_limits of 'FL_hip_joint' is None; exported was 52.4"),
        ("control.position_limits.1", [-1.05, 4.0], r"position_limits of 'FL_thigh_joint' is \[-1.05, 4.0\]; exported"),
        ("control.position_limits.1", [-1.0, None], r"position_limits of 'FL_thigh_joint' is \[-1.0, None\]"),
    ],
)
def test_a_limit_can_only_be_tightened(copy, path, value, message):
    change(copy, path, value)
    with pytest.raises(ValueError, match=message):
        Contract.load(copy)


def test_bot_deploy_tells_what_was_edited(copy, capsys):
    change(copy, "control.kp", [50.0] * 12)
    assert main(["deploy", str(copy), "--robot", "dog"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("bot deploy: ")
    assert lines[0].endswith("policy.json' was edited since its export: kp 50.0 (exported: 100.0)")
    assert lines[1].startswith("bot deploy: unknown robot 'dog'")


def test_a_contract_that_was_edited_and_saved_again_still_tells(tmp_path):
    contract = a1_contract()
    save_contract(contract, tmp_path)
    change(tmp_path, "control.kd", [2.0] * 12)
    with pytest.warns(UserWarning, match="kd 2.0"):
        edited = Contract.read(tmp_path)
    edited.save(tmp_path)
    with pytest.warns(UserWarning, match="kd 2.0"):
        assert Contract.read(tmp_path) == edited
