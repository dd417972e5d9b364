"""docs/mjlab.md: its module registers a task, which mjlab's own commands and ours train, play, film and export."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("mjlab", reason="needs the extra 'rl'")
pytest.importorskip("onnxruntime", reason="needs the extra 'deploy'")

from ..forks import forking

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "mjlab.md").read_text(encoding="utf-8")
SMALL = ["--rl.num-envs", "2", "--rl.num-steps-per-env", "4", "--rl.num-mini-batches", "2", "--rl.max-iterations", "1"]
SMALL += ["--policy.embed-dim", "8", "--policy.num-layers", "1", "--policy.ff-dim", "8", "--rl.eval-episodes", "1"]
TRAIN = ["--env.scene.num-envs", "2", "--agent.max-iterations", "1", "--agent.num-steps-per-env", "4"]
PLAY = """
import sys
import mjlab.scripts.play as play

class Viewer:
    def __init__(self, env, policy, checkpoint_manager):
        self.env, self.policy = env, policy

    def run(self):
        obs = self.env.get_observations()
        for _ in range(3):
            obs, *_ = self.env.step(self.policy(obs))
        print("PLAYED", type(self.policy.__self__ if hasattr(self.policy, "__self__") else self.policy).__name__)

play.ViserPlayViewer = Viewer
play.main()
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Return a folder with the page's module, installed as a package with the page's entry point."""
    folder = tmp_path_factory.mktemp("own")
    module = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]
    assert len(re.findall("    cfg.commands", module)) == 1
    shorter = module.replace("    cfg.commands", "    cfg.episode_length_s = 0.2\n    cfg.commands")
    (folder / "my_tasks.py").write_text(shorter, encoding="utf-8")
    about = folder / "my_tasks-0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-tasks\nVersion: 0.1\n", encoding="utf-8")
    group, name, value = re.search(r'entry-points\."(.*?)"\]\n(\w+) = "(.*?)"', PAGE).groups()
    (about / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n", encoding="utf-8")
    return folder


def environment(place: Path) -> dict[str, str]:
    path = os.pathsep.join([str(place), str(ROOT / "src")])
    return {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", "MJLAB_WARP_QUIET": "1"}


@pytest.fixture(scope="module")
def run(place, tmp_path_factory) -> Iterator[Callable[..., str]]:
    """Return a function that runs a command in the folder and returns its output."""
    output = tmp_path_factory.mktemp("output") / "output.txt"
    modules = ("cli.train", "rl.train", "rl.env_deploy", "deploy.onnx_file")
    with forking(output, modules, place, **environment(place)) as forks:

        def run(*words: str) -> str:
            forks.start([*words])
            status, said = forks.wait()
            assert status == 0, said[-3000:]
            return output.read_text()

        yield run


@pytest.fixture(scope="module")
def trained(place, run) -> Path:
    """Return the folder with a run of `bot train`."""
    run("train", "mjlab:My-Go1", *SMALL, "--cpu", "--quiet", "--out", "run")
    return place


def test_mjlabs_own_train_and_play_run_the_registered_task(place, run):
    said = run("python", "mjlab.scripts.train", "My-Go1", *TRAIN, "--gpu-ids", "None")
    assert "BodyNetwork" in said
    (checkpoint,) = place.glob("logs/rsl_rl/my_go1/*/model_0.pt")
    assert list(checkpoint.parent.glob("*.onnx")), "mjlab's runner exports it, too"
    shown = ["--checkpoint-file", str(checkpoint), "--viewer", "viser", "--num-envs", "1"]
    (place / "play.py").write_text(PLAY, encoding="utf-8")
    assert "PLAYED BodyModel" in run("python", "play.py", "My-Go1", *shown)


def test_our_commands_train_evaluate_report_and_export_it(trained, run):
    place = trained
    found = json.loads(run("eval", "run", "--episodes", "1", "--cpu", "--json"))
    assert found["splits"]["rollouts"]["length"]["mean"] <= 10
    run("report", "run", "--out", "run.html")
    assert "My-Go1" in (place / "run.html").read_text(encoding="utf-8")
    said = json.loads(run("export", "run", "--out", "go1", "--json").splitlines()[-1])
    assert (said["experiment"], said["control"]) == ("mjlab:My-Go1", "position")
    contract = json.loads((place / "go1" / "policy.json").read_text(encoding="utf-8"))["contract"]
    assert contract["environment"]["command_range"] == [[-1.0, 1.0], [-0.5, 0.5], [-0.5, 0.5]]


def test_an_episode_is_filmed(trained, monkeypatch):
    from body_transformer.video import opengl

    monkeypatch.delenv("MUJOCO_GL", raising=False)  # mjlab sets it
    try:
        with opengl():
            command = [sys.executable, "-m", "body_transformer.cli.main", "eval", "run", "--episodes", "1", "--cpu"]
            env = {**os.environ, **environment(trained)}  # OpenGL is chosen at an import
            subprocess.run([*command, "--video", "go1.gif"], cwd=trained, env=env, check=True)
    except ValueError as error:
        pytest.skip(str(error))
    assert (trained / "go1.gif").stat().st_size > 10_000
