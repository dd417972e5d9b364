"""`bot inspect`: table, JSON, pictures, errors."""

import json
from pathlib import Path
from typing import Any

import pytest

from body_transformer.cli.main import main

TWO_TREES = """<mujoco><worldbody>
  <body name="table"/>
  <body name="arm"><joint name="lift"/><body name="plate"/><body name="[hand]"><joint name="grip"/></body></body>
</worldbody><actuator><motor name="m" joint="grip"/></actuator></mujoco>"""


@pytest.fixture
def robot(tmp_path: Path) -> str:
    file = tmp_path / "robot.xml"
    file.write_text(TWO_TREES)
    return str(file)


def inspect(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main(["inspect", *args]) == 0
    return capsys.readouterr().out


def inspect_json(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(inspect(capsys, *args, "--json"))
    return content


def test_json_of_a_robot_file_is_its_graph(capsys: pytest.CaptureFixture[str], robot: str) -> None:
    assert inspect_json(capsys, robot, "--root", "arm", "--fixed", "merge") == {
        "nodes": ["arm", "[hand]"],
        "root": "arm",
        "edges": [["arm", "[hand]"]],
        "extra_edges": [],
        "num_nodes": 2,
        "num_ones": 4,
        "sparsity": 0.0,
        "diameter": 1,
        "joints": {"lift": "arm", "grip": "[hand]"},
        "actuators": {"m": "[hand]"},
    }


def test_json_of_a_robot_file_with_a_variant_counts_its_parameters(
    capsys: pytest.CaptureFixture[str], robot: str
) -> None:
    content = inspect_json(capsys, robot, "--root", "arm", "--variant", "mlp")
    assert content["variant"] == "mlp"
    assert (content["obs_dim"], content["used_obs_dim"], content["action_dim"]) == (4, 4, 1)
    flat = 3 * 64  # nodes x token
    tokenizer, encoder = 4 * 64 + flat, (flat + 1) * 150 + 151 * 150 + 151 * flat
    assert content["parameters"] == tokenizer + encoder + flat + 1


def test_a_critic_is_counted_with_its_own_observations(capsys: pytest.CaptureFixture[str]) -> None:
    assert "bot-mix: 547,749 parameters (policy 273,304, critic 274,445)" in inspect(capsys, "a1-walk")


def test_without_a_given_variant_an_experiment_is_counted_with_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert inspect_json(capsys, "humanoid-mod")["variant"] == "bot-mix"
    assert inspect_json(capsys, "adroit-door")["variant"] == "bot-hard"


def test_the_table_has_a_row_for_each_node_and_the_summary_line(capsys: pytest.CaptureFixture[str], robot: str) -> None:
    out = inspect(capsys, robot, "--root", "arm")
    rows = {cells[1].strip(): cells for line in out.splitlines() if len(cells := line.split("│")) == 7}
    assert list(rows) == ["arm", "plate", "[hand]"]
    assert [cell.strip() for cell in rows["[hand]"][2:6]] == ["arm", "grip", "2: joint_pos 1, joint_vel 1", "1: ctrl 1"]
    assert "3 nodes, 7 ones in the mask, sparsity 0.2222, diameter 2, 2 joints, 1 actuators" in out


def test_several_roots_and_the_world_are_roots(capsys: pytest.CaptureFixture[str], robot: str) -> None:
    assert inspect_json(capsys, robot, "--root", "arm", "table")["other_roots"] == ["table"]
    assert inspect_json(capsys, "--root", "table", "arm", "--fixed", "keep", robot)["root"] == "table"
    assert inspect_json(capsys, robot, "--root", "world")["edges"][:2] == [["world", "table"], ["world", "arm"]]
    out = inspect(capsys, robot, "--root", "arm", "table")
    assert "2 trees, whose roots are neighbours of each other: 'arm', 'table'" in out
    assert "fixed base: the file has no free joint, so there are no gravity and velocity terms of the base" in out


def test_a_follower_is_shown_with_its_leader(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "gripper.xml"
    coupling = '<equality><joint joint1="grip" joint2="lift"/></equality></mujoco>'
    file.write_text(TWO_TREES.replace("</mujoco>", coupling).replace('joint="grip"/></act', 'joint="lift"/></act'))
    out = inspect(capsys, str(file), "--root", "arm")
    assert "grip (follows lift)" in out
    assert "2 joints, 1 of which follow another, 1 actuators" in out
    assert inspect_json(capsys, str(file), "--root", "arm")["mimics"] == {"grip": "lift"}


def test_masked_layers_that_do_not_reach_across_the_body_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "snake.xml"
    file.write_text(f"<mujoco><worldbody>{'<body><joint/>' * 13}{'</body>' * 13}</worldbody></mujoco>")
    note = "10 masked layers: nodes more than 10 hops apart do not see each other"
    assert note in inspect(capsys, str(file), "--variant", "bot-hard")
    assert note not in inspect(capsys, str(file), "--variant", "bot-mix")


def test_pictures_are_written_and_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "pictures"
    out = inspect(capsys, "a1", "--out", str(folder))
    assert sorted(file.name for file in folder.iterdir()) == ["body.png", "mask.png"]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in folder.iterdir())
    assert str(folder / "body.png") in out
    assert inspect_json(capsys, "a1", "--out", str(folder), "--format", "pdf")["num_nodes"] == 13  # and nothing else
    assert (folder / "mask.pdf").read_bytes().startswith(b"%PDF")


def test_a_robot_that_cannot_move_is_still_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "rock.urdf"
    file.write_text('<robot name="rock"><link name="rock"/></robot>')
    assert "nothing to control" in inspect(capsys, str(file))
    assert inspect_json(capsys, str(file))["num_nodes"] == 1
    assert main(["inspect", str(file), "--json", "--variant", "mlp"]) == 1


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["missing.xml"], "no robot file at 'missing.xml', and no experiment or shipped robot of that name; have: "),
        (["{robot}"], "has several top-level bodies; choose the robot's with root= (--root): 'table', 'arm'"),
        (["{robot}", "--root", "amr"], "unknown root body 'amr'; did you mean 'arm'? have: 'table', 'arm'"),
        (["humanoid", "--variant", "bot-hrad"], "unknown variant 'bot-hrad'; did you mean 'bot-hard'?"),
        (["humanoid-mod", "--root", "torso"], "'humanoid-mod' is an experiment and sets its own root"),
        (["{folder}"], "is not a file; give an MJCF (.xml) or URDF (.urdf) file"),
        (["{noise}"], "is not an MJCF or URDF description that MuJoCo can read"),
    ],
)
def test_bad_input_is_one_sentence_and_a_non_zero_status(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, robot: str, args: list[str], message: str
) -> None:
    noise = tmp_path / "noise.xml"
    noise.write_bytes(b"\x00\x01 this is not XML <<<")
    args = [arg.format(robot=robot, folder=tmp_path, noise=noise) for arg in args]
    assert main(["inspect", *args]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_a_folder_that_cannot_be_written_is_an_error_after_the_table(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    taken = tmp_path / "taken"
    taken.write_text("")
    assert main(["inspect", "a1", "--out", str(taken)]) == 1
    captured = capsys.readouterr()
    assert "13 nodes, 37 ones" in captured.out
    assert captured.err == f"bot inspect: cannot write {str(taken / 'body.png')!r}: File exists\n"
