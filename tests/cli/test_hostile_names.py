"""Names from files reach neither a terminal nor a page with characters that drive it, whichever command prints them."""

import json
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np
import pytest
import yaml

pytest.importorskip("gymnasium_robotics", reason="needs the extra 'imitation'")

from body_transformer import Policy
from body_transformer.cli import eval as eval_command
from body_transformer.cli.main import main
from body_transformer.cli.output import bars, complain, console, say
from body_transformer.training.evaluation import Estimate
from body_transformer.training.progress import Progress

from ..report.run_folders import write_run

HOSTILE = "\x1b[2J\x1b]0;title\x07\x9b31m\u202egnp\u2066<script>alert(1)</script>[/red]\r\nFORGED \u2028\x85 line"
"""Clears the screen, sets a title, reverses the text, runs a script, ends a style, and begins a line of its own."""
SEEN = "<script>alert(1)</script>"
"""The part of the name that a terminal shows as it is."""
SIZES = ["--policy.embed-dim", "8", "--policy.num-layers", "1", "--policy.ff-dim", "8"]
QUICK = [*SIZES, "--imitation.num-steps", "2", "--imitation.batch-size", "4", "--cpu"]


def xml(name: str) -> str:
    """Return a name as MuJoCo reads it from an attribute; expat would refuse its control characters."""
    return "".join(one if one.isprintable() else f"&#{ord(one)};" for one in escape(name, {'"': "&quot;"}))


ROBOT = (
    f'<mujoco model="{xml(HOSTILE)}"><worldbody><body name="{xml(HOSTILE)}"><geom size=".1"/><body name="arm">'
    f'<joint name="{xml("j" + HOSTILE)}"/><geom size=".1"/></body></body></worldbody><actuator>'
    f'<motor name="{xml("m" + HOSTILE)}" joint="{xml("j" + HOSTILE)}"/></actuator></mujoco>'
)


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch):
    """Tables of this width do not break names."""
    monkeypatch.setenv("COLUMNS", "3000")


@pytest.fixture
def robot(tmp_path):
    (tmp_path / "robot.xml").write_text(ROBOT)
    return str(tmp_path / "robot.xml")


@pytest.fixture
def demos(tmp_path):
    arrays = {"joint_pos": np.zeros((8, 1), np.float32), f"term{HOSTILE}": np.zeros((8, 2), np.float32)}
    ends = {"actions": np.zeros((8, 1), np.float32), "episode_ends": np.array([4, 8])}
    np.savez(tmp_path / "demos.npz", **arrays, **ends, **{f"image{HOSTILE}": np.zeros((8, 2, 2, 2))})
    return str(tmp_path / "demos.npz")


def check(text: str, where: str = "the terminal") -> str:
    """Check that a text drives nothing and forges no line of a terminal; return it."""
    wrong = {one for one in text if not one.isprintable()} - {"\n"}
    assert not wrong, f"{where} gets {wrong}"
    is_page = where == "the page"  # in HTML, a new line is a space
    assert is_page or not [line for line in text.splitlines() if line.strip().startswith("FORGED")]
    return text


def run(capfd, *args, status=0) -> str:
    """Run a command and return what it prints, after the checks."""
    assert main(list(args)) == status, capfd.readouterr().err
    out, err = capfd.readouterr()
    check(err)
    if "--json" in args:
        json.loads(out)
    return check(out) + err


def test_inspect(capfd, robot, tmp_path):
    assert SEEN in run(capfd, "inspect", robot)
    run(capfd, "inspect", robot, "--json")
    run(capfd, "inspect", robot, "--out", str(tmp_path / "pictures"), "--format", "svg")
    assert SEEN in run(capfd, "inspect", robot, "--root", "nobody", status=1)


def test_new_train_export_and_report(capfd, robot, demos, tmp_path):
    mine, folder = str(tmp_path / "mine.yaml"), str(tmp_path / "run")
    assert "\\x1b[2J" in run(capfd, "new", robot, "--data", demos, "--out", mine)  # a table of 140 columns
    assert SEEN in run(capfd, "inspect", mine)
    trained = run(capfd, "train", "--robot", robot, "--data", demos, "--out", folder, *QUICK)
    assert "\\x1b[2J" in trained
    run(capfd, "train", "--robot", robot, "--data", demos, "--out", folder, *QUICK, status=1)
    run(capfd, "export", folder, "--out", str(tmp_path / "exported"))
    page = tmp_path / "page.html"
    run(capfd, "report", folder, "--out", str(page))
    assert SEEN not in check(page.read_text(encoding="utf-8").replace("\u202f", " "), "the page")


def test_the_settings_of_an_experiment(capfd, tmp_path):
    mine = {"base": "demo", "title": HOSTILE, "imitation": {"data": HOSTILE, "reader": "npz", "options": {}}}
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(mine))
    with pytest.raises(SystemExit):
        main(["train", str(path), "--help"])
    assert "\\x1b[2J" in check(capfd.readouterr().out)
    run(capfd, "train", str(path), *QUICK, "--out", str(tmp_path / "run"), status=1)
    mine["policy"] = {HOSTILE: 1}
    path.write_text(yaml.safe_dump(mine))
    assert SEEN in run(capfd, "inspect", str(path), status=1)
    path.write_text(f'"{HOSTILE.encode("unicode_escape").decode()}": 1')
    assert SEEN in run(capfd, "inspect", str(path), status=1)


def test_a_report_on_runs_of_hostile_files(capfd, tmp_path):
    text = HOSTILE.replace("/", "|")
    folder = write_run(tmp_path / text, title=text, note=text, git_commit=text, command=text, **{text: text})
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 400, f"train/{text}": 1.0, f"eval/{text}/{text}": {"mean": 1.0}}) + "\n")
    evaluation = json.loads((folder / "evaluation.json").read_text())
    evaluation["splits"][text] = {text: {"mean": 0.5, "low": 0.4, "high": 0.6, "num_episodes": 3}}
    (folder / "evaluation.json").write_text(json.dumps(evaluation))
    described = yaml.safe_load((folder / "experiment.yaml").read_text())
    (folder / "experiment.yaml").write_text(yaml.safe_dump({**described, "label": text, "name": text}))
    unfinished = write_run(tmp_path / text / "more", steps_done=100, evaluated=False, checkpoint=False)
    page = tmp_path / "page.html"
    out = run(capfd, "report", str(tmp_path / text), "--out", str(page))
    assert "unfinished" in out
    assert unfinished.is_dir()
    content = check(page.read_text(encoding="utf-8").replace("\u202f", " ").replace("\xa0", " "), "the page")
    assert "<script>alert" not in content
    assert "&lt;script&gt;alert" in content


def test_a_table_of_an_evaluation(capfd):
    estimate = Estimate(0.5, 0.4, 0.6, 3)
    eval_command.show({HOSTILE: {HOSTILE: estimate}})
    assert SEEN in check(capfd.readouterr().out)


def test_progress_bars(capfd):
    with bars() as shown:
        shown.add_task("plain", total=1)
    progress = Progress(HOSTILE)
    progress.reading(1, 2)
    progress.start(0, 2)
    progress.advance(2)
    progress.close()
    check(capfd.readouterr().err)


def test_the_places_where_every_command_prints(capfd):
    complain(f"bot: {HOSTILE}")
    assert capfd.readouterr().err.count("\n") == 1
    say(HOSTILE)
    assert capfd.readouterr().out.count("\n") == 1
    console().print(HOSTILE)
    out = capfd.readouterr().out
    assert {one for one in out if not one.isprintable()} == {"\n"}
    assert SEEN in out


def test_a_policys_files(capfd, tmp_path, robot):
    """Names in a policy's description, and of its tensors."""
    from body_transformer import BodyGraph, Layout

    folder = tmp_path / "policy"
    Policy(Layout.proprioceptive(BodyGraph.from_file(robot))).save(folder)
    content = json.loads((folder / "policy.json").read_text())
    for change in ({"format": HOSTILE}, {"package_version": HOSTILE}, {HOSTILE: HOSTILE}, {"policy": {HOSTILE: 1}}):
        Path(folder / "policy.json").write_text(json.dumps({**content, **change}))
        for verb in (["export", str(folder), "--out", str(tmp_path / "out")], ["eval", str(folder)]):
            run(capfd, *verb, status=1)
