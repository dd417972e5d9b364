"""`bot eval` in plain MuJoCo, of the package's policies, and with films; adding a policy to the package."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from PIL import Image

from body_transformer import Policy, PolicyConfig, pretrained
from body_transformer.cli.main import main
from body_transformer.experiment import load_experiment
from body_transformer.video import opengl

REPOSITORY = Path(__file__).parents[2]
SMALL = PolicyConfig(variant="mlp", mlp_dim=8, num_layers=2, head="gaussian")


def small_policy(experiment: str, config: PolicyConfig = SMALL) -> Policy:
    torch.manual_seed(0)
    return Policy(load_experiment(experiment).layout(), config)


def run_folder(folder: Path, policy: Policy, task: str = "humanoid-mod", checkpoint: str = "checkpoints/3") -> Path:
    """Write the files of a run that these tests read."""
    from body_transformer.run import Run

    about = {
        "name": task,
        "title": "A test",
        "variant": "mlp",
        "seed": 4,
        "command": f"bot train {task} --seed 4",
        "machine": "a machine",
        "date": "2025-01-02 03:04 UTC",
        "changes": [{"step": 7, "command": "bot train --resume runs/x --rl.final-std 0.1"}],
    }
    Run.create(folder, {**about, "rl": {"task": task, "num_envs": 64, "num_steps": 10}})
    policy.save(folder / checkpoint)
    return folder


@pytest.fixture
def package_folder(tmp_path, monkeypatch):
    """The folder of the package's policies."""
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path / "pretrained")
    (tmp_path / "pretrained").mkdir()
    return tmp_path / "pretrained"


@pytest.fixture(scope="module")
def ship_policy(benchmark_script):
    return benchmark_script("ship_policy")


def evaluate(capsys, *arguments: str) -> dict:
    assert main(["eval", *arguments, "--cpu", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


# -- policies of the package -------------------------------------------------------------------------------------------


def test_an_unknown_policy_is_refused_and_the_known_names_are_listed(package_folder, capsys):
    small_policy("humanoid-mod").save(package_folder / "humanoid-mod")
    (package_folder / "unfinished").mkdir()
    assert pretrained.names() == ["humanoid-mod"]
    assert pretrained.path("humanoid-mod") == package_folder / "humanoid-mod"
    assert main(["eval", "pretrained:humanoid-mad"]) == 1
    assert "did you mean 'humanoid-mod'? have: 'humanoid-mod'" in capsys.readouterr().err


def test_every_policy_that_comes_with_the_package_is_small_and_fits_its_task():
    from body_transformer.body.compare import check_same

    for name in pretrained.names():
        check_same(Policy.load(pretrained.path(name)).layout, load_experiment(pretrained.task(name)).layout())
        assert sum(file.stat().st_size for file in pretrained.path(name).iterdir()) < 3_100_000
        card = (pretrained.path(name) / "card.md").read_text()
        assert "commit" in card
        assert "| episodes | seed | machine |" in card


def test_every_page_that_offers_the_a1_policy_says_that_it_walks_in_a_curve():
    card = pretrained.path("a1-walk") / "card.md"
    for page in (card, REPOSITORY / "README.md", REPOSITORY / "docs/a1.md"):
        assert "in a curve" in page.read_text(encoding="utf-8"), page


def test_the_wheel_holds_the_policies(tmp_path):
    """The wheel is built from a copy of the repository with one more policy."""
    pytest.importorskip("hatchling")
    listed = subprocess.run(["git", "ls-files", "-z", "src", "pyproject.toml", "README.md", "LICENSE"],
                            cwd=REPOSITORY, capture_output=True, text=True, check=False)  # fmt: skip
    if listed.returncode:
        pytest.skip("not a git working tree")
    for name in filter(None, listed.stdout.split("\0")):
        if (REPOSITORY / name).is_file():
            (tmp_path / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "copy" / name).write_bytes((REPOSITORY / name).read_bytes())
    package_folder = tmp_path / "copy" / "src" / "body_transformer" / "pretrained"
    small_policy("humanoid-mod").save(package_folder / "some-task")
    (package_folder / "some-task" / "card.md").write_text("# some-task\n")
    program = f"from hatchling.build import build_wheel; print(build_wheel({str(tmp_path)!r}))"
    built = subprocess.run([sys.executable, "-c", program], cwd=tmp_path / "copy", capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    held = zipfile.ZipFile(tmp_path / built.stdout.split()[-1]).namelist()
    for file in ("policy.safetensors", "policy.json", "card.md"):
        assert f"body_transformer/pretrained/some-task/{file}" in held


# -- evaluations -------------------------------------------------------------------------------------------------------


class TestWithMjlab:
    @pytest.fixture(autouse=True)
    def _mjlab(self):
        pytest.importorskip("mjlab", reason="needs the extra 'rl'")

    @pytest.mark.parametrize("name", ["humanoid-mod", "humanoid-mod.mlp"])
    def test_a_pretrained_policy_has_nearly_the_same_results_in_plain_mujoco_and_in_mjlab(
        self, package_folder, capsys, name
    ):
        small_policy("humanoid-mod").save(package_folder / name)
        asked = [f"pretrained:{name}", "--episodes", "4", "--seed", "1"]
        plain = evaluate(capsys, *asked, "--simulator", "mujoco")
        assert plain["simulator"] == "mujoco"
        assert plain["task"] == "humanoid-mod"
        warp = evaluate(capsys, *asked)
        assert warp["simulator"] == "warp"
        ours, theirs = (found["splits"]["rollouts"] for found in (plain, warp))
        assert list(ours) == list(theirs) == ["total_reward", "length", "survived", "forward_speed"]
        assert ours["length"]["num_episodes"] == 4
        assert ours["length"]["mean"] == pytest.approx(theirs["length"]["mean"], abs=2)
        assert ours["total_reward"]["mean"] == pytest.approx(theirs["total_reward"]["mean"], rel=0.15)
        assert ours["forward_speed"]["mean"] == pytest.approx(theirs["forward_speed"]["mean"], abs=0.2)

    def test_a_run_is_evaluated_in_plain_mujoco(self, tmp_path, capsys):
        folder = run_folder(tmp_path / "run", small_policy("humanoid-board"), "humanoid-board")
        assert main(["eval", str(folder), "--episodes", "2", "--simulator", "mujoco", "--cpu"]) == 0
        assert "forward speed" in capsys.readouterr().out

    @pytest.mark.parametrize("simulator", ["warp", "mujoco"])
    def test_a_policy_of_another_robot_is_refused_with_the_difference(self, tmp_path, capsys, simulator):
        folder = run_folder(tmp_path / "run", small_policy("a1-walk"))
        assert main(["eval", str(folder), "--episodes", "2", "--simulator", simulator, "--cpu"]) == 1
        said = capsys.readouterr().err
        assert "the policy does not fit the task" in said
        assert "nodes that only the policy has: 'trunk'" in said
        assert "observation entries: 48 for the policy, 100 for the task" in said

    def test_a_task_without_plain_mujoco_is_refused(self, tmp_path, capsys):
        folder = run_folder(tmp_path / "run", small_policy("humanoid-mod"), "mjlab:Mjlab-Cartpole-Balance")
        assert main(["eval", str(folder), "--simulator", "mujoco"]) == 1
        assert "--simulator mujoco supports the tasks humanoid-mod, humanoid-hill" in capsys.readouterr().err

    def test_a_film_is_written(self, tmp_path, monkeypatch):
        monkeypatch.delenv("MUJOCO_GL", raising=False)
        try:
            with opengl():
                pass
        except ValueError as error:
            pytest.skip(str(error))
        folder, file = run_folder(tmp_path / "run", small_policy("humanoid-mod")), tmp_path / "film.webp"
        asked = ["--episodes", "1", "--simulator", "mujoco", "--cpu", "--video", str(file)]
        assert main(["eval", str(folder), *asked]) == 0
        with Image.open(file) as film:
            assert film.size == (480, 360)
            assert film.n_frames > 5

    def test_a_film_that_cannot_be_rendered_is_refused_before_the_rollouts(self, tmp_path, monkeypatch, capsys):
        monkeypatch.setenv("MUJOCO_GL", "off")
        folder = run_folder(tmp_path / "run", small_policy("humanoid-mod"))
        assert main(["eval", str(folder), "--video", str(tmp_path / "film.webp")]) == 1
        assert "no film: MuJoCo cannot render here" in capsys.readouterr().err

    def test_a_checkpoint_of_another_task_is_not_resumed(self, tmp_path, capsys):
        folder = tmp_path / "run"
        small = ["--policy.mlp-dim", "8", "--policy.num-layers", "2", "--cpu", "--quiet", "--rl.max-iterations", "1"]
        quick = ["--rl.num-envs", "2", "--rl.num-steps-per-env", "2", "--rl.num-mini-batches", "1"]
        assert main(["train", "humanoid-mod", "--variant", "mlp", *small, *quick, "--out", str(folder)]) == 0
        text = (folder / "experiment.yaml").read_text()
        text = text.replace("task: humanoid-mod", "task: mjlab:Mjlab-Cartpole-Balance")
        (folder / "experiment.yaml").write_text(text.replace("max_iterations: 1", "max_iterations: 2"))
        assert main(["train", "--resume", str(folder), "--quiet"]) == 1
        said = capsys.readouterr().err
        assert "the checkpoint does not fit the task: nodes that only the checkpoint has: 'torso'" in said
        assert "action entries: 21 for the checkpoint, 1 for the task" in said


def test_without_mjlab_an_evaluation_is_an_error_with_the_command_that_installs_it(package_folder, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mjlab", None)
    small_policy("humanoid-mod").save(package_folder / "humanoid-mod")
    assert main(["eval", "pretrained:humanoid-mod", "--simulator", "mujoco"]) == 1
    assert "pip install -c constraints.txt -e '.[rl]'" in capsys.readouterr().err


def test_the_simulator_cannot_be_chosen_for_a_run_of_imitation(tmp_path, capsys):
    from body_transformer.run import Run

    imitation = {"task": "tracking", "reader": "tracking", "num_epochs": 1}
    Run.create(tmp_path / "run", {"name": "demo", "imitation": imitation})
    small_policy("demo").save(tmp_path / "run" / "checkpoints" / "1")
    assert main(["eval", str(tmp_path / "run"), "--simulator", "mujoco"]) == 1
    assert "--simulator is for policies of reinforcement learning" in capsys.readouterr().err


# -- adding a policy to the package ------------------------------------------------------------------------------------

NUMBERS = {"mean": 1234.5, "low": 1200.25, "high": 1300.0, "num_episodes": 100}


def evaluation(simulator: str, task: str = "humanoid-mod") -> dict:
    about = {"task": task, "simulator": simulator, "machine": "H200", "seed": 12345}
    return {**about, "splits": {"rollouts": {"total_reward": NUMBERS}}}


def test_the_policy_of_a_run_is_added_with_its_card(tmp_path, package_folder, ship_policy):
    policy = small_policy("humanoid-mod")
    folder = run_folder(tmp_path / "run", policy)
    files = []
    for simulator in ("warp", "mujoco"):
        files.append(str(tmp_path / f"{simulator}.json"))
        Path(files[-1]).write_text(json.dumps(evaluation(simulator)))
    for _ in range(2):  # the second replaces the first
        ship_policy.main([str(folder), "humanoid-mod", "--evaluation", *files, "--note", "It runs in a curve."])
    assert sorted(file.name for file in package_folder.iterdir()) == ["humanoid-mod"]
    obs = torch.randn(3, 100)
    assert torch.equal(Policy.load(pretrained.path("humanoid-mod"))(obs), policy(obs))
    card = (package_folder / "humanoid-mod" / "card.md").read_text()
    ship_policy.main([str(folder), "humanoid-mod.mlp"])
    assert pretrained.names() == ["humanoid-mod", "humanoid-mod.mlp"]
    for line in (
        "\n\nIt runs in a curve.\n\n- command: ",
        "- command: `bot train humanoid-mod --seed 4`",
        "- from iteration 7: `bot train --resume RUN --rl.final-std 0.1`",
        "- variant: mlp,",
        "- seed: 4",
        "- environment steps: 1,920",
        "- machine: a machine",
        "- date: 2025-01-02 03:04 UTC",
        "| MuJoCo Warp (mjlab) | total reward | 1234.50 | 1200.25 to 1300.00 | 100 | 12345 | H200 |",
        "| plain MuJoCo | total reward | 1234.50 | 1200.25 to 1300.00 | 100 | 12345 | H200 |",
    ):
        assert line in card


def test_a_policy_that_is_too_large_or_of_another_task_is_not_added(tmp_path, package_folder, ship_policy, monkeypatch):
    folder = run_folder(tmp_path / "run", small_policy("humanoid-mod"))
    with pytest.raises(SystemExit, match=r"must be 'humanoid-mod' or 'humanoid-mod\.mlp'; got 'humanoid-hill'"):
        ship_policy.main([str(folder), "humanoid-hill"])
    with pytest.raises(SystemExit, match=r"got 'humanoid-mod\.bot-mix'"):  # it is an MLP
        ship_policy.main([str(folder), "humanoid-mod.bot-mix"])
    with pytest.raises(ValueError, match="must be the output of bot eval --json for 'humanoid-mod'"):
        ship_policy.ship(folder, "humanoid-mod", [evaluation("warp", "humanoid-hill")])
    monkeypatch.setattr(ship_policy, "MAX_BYTES", 1000)
    with pytest.raises(SystemExit, match=r"the policy has [\d,]+ bytes; a shipped policy may have at most 1,000"):
        ship_policy.main([str(folder), "humanoid-mod"])
    assert list(package_folder.iterdir()) == []
