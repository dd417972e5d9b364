"""The commands of docs/your_robot.md and the scripts of examples/ run, in their order, in a copy of examples/."""

import re
import shlex
import shutil
import subprocess
import sys
from contextlib import chdir, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

import pytest
import yaml

pytest.importorskip("gymnasium_robotics", reason="needs the extra 'imitation'")
pytest.importorskip("onnx", reason="needs the extra 'deploy'")

from body_transformer import Policy
from body_transformer.cli.main import main
from body_transformer.video import opengl

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "your_robot.md").read_text(encoding="utf-8")
LINES = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
SIDECAR, ADDITIONS = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
SMALL = "--policy.embed-dim 8 --policy.num-layers 1 --policy.ff-dim 8 --imitation.num-steps 5 --cpu --quiet"
QUICK = {
    "train": f"{SMALL} --imitation.eval-episodes 2",
    "eval": "--episodes 2 --cpu",
    "collect": "--episodes 2",
    "deploy": "--seconds 0.5",
}
"""Flags that make a command quick; they replace those of the page."""
SHORTER = {"demos.npz 200": "demos.npz 3", "my-policy 2000": "my-policy 3"}


@cache
def can_draw():
    try:
        with opengl():
            return True
    except ValueError:
        return False


def command(line):
    """Return the arguments of a `bot` command, with few steps and episodes."""
    words = shlex.split(line)[1:]
    if "--video" in words and not can_draw():
        at = words.index("--video")
        del words[at : at + 2]
    if "--resume" in words:
        return [*words, "--cpu", "--quiet"]
    given = shlex.split(QUICK.get(words[0], ""))
    for flag in given:
        if flag in words and flag.startswith("--"):
            del words[words.index(flag) : words.index(flag) + 2]
    return [*words, *given]


def run(line):
    """Run a command of the page and return its output."""
    if line.startswith("bot "):
        shown = StringIO()
        with redirect_stdout(shown):
            assert main(command(line)) == 0
        return shown.getvalue()
    for long, short in SHORTER.items():
        line = line.replace(long, short)
    words = [sys.executable, *shlex.split(line)[1:]]
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=120).stdout


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Return the copied folder, and the output of each command in it."""
    folder = tmp_path_factory.mktemp("user") / "my-arm"
    shutil.copytree(ROOT / "examples", folder)
    shown = {}
    with pytest.MonkeyPatch.context() as patch, chdir(folder):
        patch.setattr(sys, "path", [*sys.path])
        patch.delenv("MUJOCO_GL", raising=False)
        for line in LINES[1:]:
            if "bot deploy" not in line:
                shown[line] = run(line)
            if line.startswith("bot new"):
                content = yaml.safe_load(Path("arm.yaml").read_text())
                content["imitation"] |= ADDITIONS["imitation"]
                content["deploy"] = ADDITIONS["deploy"]
                Path("arm.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return folder, shown


def test_the_page_begins_with_a_copy_of_the_examples():
    assert LINES[0] == "cp -r examples my-arm && cd my-arm"
    assert sorted(path.name for path in (ROOT / "examples").glob("*.py")) == [
        "arm_task.py",
        "driver.py",
        "record_demos.py",
        "run_exported.py",
        "train_in_python.py",
    ]


def test_every_command_runs(outputs):
    folder, shown = outputs
    assert len(shown) == len(LINES) - 2
    assert "3 of which reach the goal" in shown["python record_demos.py demos.npz 200"]
    assert "success" in shown["bot eval runs/arm/bot-mix/seed0 --episodes 100 --video reach.gif"]
    assert "of 20 episodes reach the goal" in shown["python run_exported.py exported"]
    for name in ("more-demos", "arm.html", "exported/policy.onnx", "my-policy/policy.json"):
        assert (folder / name).exists()
    assert (folder / "reach.gif").exists() or not can_draw()


def test_the_inferred_layout_is_that_of_the_example_in_python(outputs):
    folder, _ = outputs
    inferred, edited, written = (Policy.load(folder / name).layout for name in ("runs/first", "exported", "my-policy"))
    assert inferred == edited == written
    assert {term.name: term.size for term in inferred.obs} == SIDECAR["obs"]


@pytest.mark.alone
def test_the_exported_policy_runs_on_the_simulated_arm(outputs, monkeypatch):
    folder, _ = outputs
    monkeypatch.chdir(folder)
    (line,) = (line for line in LINES if "bot deploy" in line)
    assert "arm on sim: 0.5 s" in run(line)
