"""`bot train` and `bot eval` for reinforcement learning, by the real commands."""

import json
import shlex
import shutil
import sys

import numpy as np
import pytest

pytest.importorskip("mjlab", reason="needs the extra 'rl'")

from body_transformer import Policy
from body_transformer.cli.main import main
from body_transformer.policy_folder import find_policy
from body_transformer.rl.registry import MOTION, NO_MJLAB
from body_transformer.run import Run

SMALL = ["--policy.embed-dim", "8", "--policy.num-layers", "2", "--policy.ff-dim", "8", "--cpu"]
QUICK = ["--rl.num-envs", "4", "--rl.num-steps-per-env", "4", "--rl.num-mini-batches", "2", "--rl.max-iterations", "1"]
TRACKING = "mjlab:Mjlab-Tracking-Flat-Unitree-G1"
QUICK += ["--rl.eval-episodes", "2"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "board"
    assert (
        main(["train", "humanoid-board", "--variant", "bot-hard", *SMALL, *QUICK, "--out", str(folder), "--quiet"]) == 0
    )
    return folder


@pytest.fixture
def evaluated(monkeypatch):
    """Shorten evaluations and record the number of robots, the noise and the episode length of each."""
    from body_transformer.rl import evaluate as module
    from body_transformer.rl import train

    rollouts, seen = module.rollouts, []

    def watched(act, env, seed, *watch):
        seen.append((env.num_envs, env.cfg.observations["actor"].enable_corruption, env.max_episode_length))
        env.cfg.episode_length_s = 0.5
        return rollouts(act, env, seed, *watch)

    for user in (module, train):
        monkeypatch.setattr(user, "rollouts", watched)
    return seen


def test_a_run_is_evaluated(run, capsys):
    assert main(["eval", str(run), "--episodes", "2", "--cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["splits"]["rollouts"]
    assert found["length"]["num_episodes"] == 2
    assert 1 <= found["length"]["mean"] <= 1000


def test_a_finished_run_continues_with_more_iterations(run):
    assert main(["train", "--resume", str(run), "--rl.max-iterations", "2", "--quiet"]) == 0
    assert Run.open(run).description()["rl"]["max_iterations"] == 2
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert steps == [1, 1, 2, 2]


def test_a_resumed_run_takes_other_settings_and_records_them(run, tmp_path, monkeypatch):
    longer = shutil.copytree(run, tmp_path / "longer", symlinks=True)
    args = ["train", "--resume", str(longer), "--rl.max-iterations", "3", "--rl.final-std", "0.01"]
    args += ["--rl.std-iterations", "3", "--rl.options", "start_noise_curriculum", "true", "--quiet"]
    monkeypatch.setattr("sys.argv", ["bot", *args])
    begun = Run.open(run).description()
    assert main(args) == 0
    found = Run.open(longer).description()
    asked = {"max_iterations": 3, "final_std": 0.01, "std_iterations": 3, "options": {"start_noise_curriculum": "true"}}
    assert (found["rl"], found["num_steps"]) == ({**begun["rl"], **asked}, 3)
    step = find_policy(run).step
    assert found["changes"][-1] == {"step": step, "command": shlex.join(["bot", *args])}
    assert found["command"] == begun["command"]
    assert Policy.load(longer).log_std.exp().max() < 0.05, "1 at first; the limit of iteration 2 of 3"
    assert main(["train", "--resume", str(longer), "--quiet"]) == 0
    assert Run.open(longer).description() == found, "without new settings the description is unchanged"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["--rl.task", "humanoid-mod"], "--rl.task cannot change in a resumed run: the run uses 'humanoid-board'"),
        (
            ["--rl.learning-rate", "1e-4"],
            "--rl.learning-rate cannot change in a resumed run: the run uses 0.0005, got 0.0001",
        ),
        (["--rl.no-obs-normalization"], "--rl.obs-normalization cannot change in a resumed run"),
        (["--rl.layout-overrides", "obs", "root"], "--rl.layout-overrides cannot change in a resumed run"),
        (["--rl.options", "height", "2"], "'height'"),
        (
            ["--rl.max-iterations", "5", "--rl.options", "privileged_critic", "true"],
            "the checkpoint's critic does not fit this run",
        ),
    ],
)
def test_a_change_that_a_resumed_run_cannot_take_is_refused_and_changes_nothing(run, capsys, asked, message):
    before = (run / "experiment.yaml").read_text(), (run / "metrics.jsonl").read_text()
    assert main(["train", "--resume", str(run), *asked, "--quiet"]) == 1
    assert message in " ".join(capsys.readouterr().err.split())
    assert ((run / "experiment.yaml").read_text(), (run / "metrics.jsonl").read_text()) == before


@pytest.mark.parametrize("name", ["policy", "seed", "cpu"])
def test_an_incomplete_description_of_a_run_is_refused_with_the_missing_keys(run, tmp_path, capsys, name):
    found = Run.open(run).description()
    spoiled = Run.create(tmp_path / "run", {key: value for key, value in found.items() if key != name})
    assert main(["train", "--resume", str(spoiled.folder), "--quiet"]) == 1
    assert f"its experiment.yaml has no '{name}'" in capsys.readouterr().err


def test_a_run_of_another_experiment_is_not_resumed(run, capsys):
    assert main(["train", "humanoid-mod", "--resume", str(run), "--quiet"]) == 1
    assert f"'{run}' is a run of 'humanoid-board', not of 'humanoid-mod'" in capsys.readouterr().err
    assert main(["train", "humanoid-board", "--resume", str(run), "--quiet"]) == 0


def test_a_run_is_not_resumed_with_fewer_iterations_than_it_has(run, capsys):
    assert main(["train", "--resume", str(run), "--rl.max-iterations", "2", "--quiet"]) == 0  # if it has not yet
    assert main(["train", "--resume", str(run), "--rl.max-iterations", "1", "--quiet"]) == 1
    assert "this run is at iteration 2 already; got 1" in capsys.readouterr().err


def test_resuming_a_finished_run_reports_that_it_is_finished(run, capsys):
    before = (run / "metrics.jsonl").read_text()
    assert main(["train", "--resume", str(run), "--quiet"]) == 0
    assert "is finished" in " ".join(capsys.readouterr().out.split())
    assert (run / "metrics.jsonl").read_text() == before


def test_resuming_without_mjlab_is_an_error_with_the_command_that_installs_it(run, tmp_path, capsys, monkeypatch):
    unfinished = shutil.copytree(run, tmp_path / "unfinished", symlinks=True)
    (unfinished / "evaluation.json").unlink()
    monkeypatch.setitem(sys.modules, "mjlab", None)
    monkeypatch.setattr("body_transformer.cli.train_rl.run_training", lambda *_, **__: pytest.fail("it imports mjlab"))
    assert main(["train", "--resume", str(unfinished), "--quiet"]) == 1
    assert f"bot train: {NO_MJLAB}" in capsys.readouterr().err


def test_layout_overrides_of_an_mjlab_task_are_used_and_the_layout_is_printed(tmp_path, capsys, evaluated):
    name = "mjlab:Mjlab-Cartpole-Balance"
    overrides = ["--rl.layout-overrides", "cart_pos", "pole_1"]
    assert (
        main(["train", name, "--variant", "bot-mix", *SMALL, *QUICK, *overrides, "--out", str(tmp_path / "run")]) == 0
    )
    said = capsys.readouterr().err
    assert "observation entries" in said
    assert "no GPU" not in said, "--cpu was given"
    policy = Policy.load(tmp_path / "run")
    assert policy.config.variant == "bot-mix"
    assert "cart" in policy.layout.graph.nodes
    first = policy.layout.obs[0]
    assert (first.name, policy.layout.graph.nodes[policy.layout.obs_node_ids[0]]) == ("cart_pos", "pole_1")
    assert main(["eval", str(tmp_path / "run"), "--episodes", "2", "--json"]) == 0  # with the same overrides


def test_a_policy_with_layout_overrides_is_evaluated_in_plain_mujoco_too(tmp_path, capsys):
    folder = str(tmp_path / "run")
    overrides = ["--rl.layout-overrides", "contact_force", "root", "joint_vel", "unused"]
    assert main(["train", "humanoid-mod", *SMALL, *QUICK, *overrides, "--out", folder, "--quiet"]) == 0
    capsys.readouterr()
    assert main(["eval", folder, "--episodes", "2", "--simulator", "mujoco", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["splits"]["rollouts"]["length"]["num_episodes"] == 2


def test_an_mjlab_task_is_evaluated_with_mjlabs_configuration_for_playing(tmp_path, evaluated):
    folder = str(tmp_path / "run")
    assert main(["train", "mjlab:Mjlab-Cartpole-Balance", *SMALL, *QUICK, "--out", folder, "--quiet"]) == 0
    assert main(["eval", folder, "--episodes", "3", "--cpu", "--json"]) == 0
    assert evaluated == [(2, False, 1000), (3, False, 1000)], "one episode per robot"
    assert main(["train", "mjlab:Mjlab-Cartpole-Balance", "--resume", folder, "--quiet"]) == 0, "the task may be named"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mjlab:Mjlab-Nothing"], "unknown task 'mjlab:Mjlab-Nothing'"),
        (["Mjlab-Cartpole-Balance"], "'mocapact'; or give a YAML file, or mjlab:NAME for a task of mjlab"),
        (["humanoid-mod", "--variant", "bot-fast"], "unknown variant 'bot-fast'"),
        (
            ["humanoid-mod", "--rl.task", "humanoid-board"],
            "--rl.task cannot change the task of an experiment: use bot train humanoid-board",
        ),
        (["humanoid-mod", "--rl.task", "nothing"], "unknown task 'nothing'"),
        (["humanoid-mod", "--rl.motion", "walk.npz"], "humanoid-mod does not follow a recorded motion"),
        ([TRACKING], "follows a recorded motion: name it with --rl.motion FILE.npz"),
        ([TRACKING, "--rl.motion", "nothing.npz"], "nothing.npz' does not exist"),
        (
            ["mjlab:Mjlab-Lift-Cube-Yam-Depth"],
            "its actor observes actor, camera; bot train supports only actor, and no images",
        ),
        (["mjlab:Mjlab-Cartpole-Balance", "--rl.layout-overrides", "cart_po", "root"], "unknown term 'cart_po'"),
        (["mjlab:Mjlab-Cartpole-Balance", "--rl.layout-overrides", "cart_pos", "wheel"], "'wheel'"),
    ],
)
def test_an_impossible_training_is_refused_before_a_run_begins(tmp_path, capsys, arguments, message):
    assert main(["train", *arguments, "--out", str(tmp_path / "run")]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("damage", ["cut off", "text", "an array", "one part", "other lengths"])
def test_a_damaged_motion_is_refused_before_a_run_begins(tmp_path, capsys, damage):
    file = tmp_path / "walk.npz"
    parts = {name: np.zeros((5, 3)) for name in MOTION}
    if damage == "one part":
        parts = {"joint_pos": np.zeros((5, 3))}
    if damage == "other lengths":
        parts["body_pos_w"] = np.zeros((4, 3))
    np.savez(file, **parts)
    if damage == "cut off":
        file.write_bytes(file.read_bytes()[:-100])
    if damage == "text":
        file.write_text("time,x,y")
    if damage == "an array":
        with file.open("wb") as opened:
            np.save(opened, np.zeros(3))
    assert main(["train", TRACKING, "--rl.motion", str(file), "--out", str(tmp_path / "run")]) == 1
    assert "walk.npz' is not a motion" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_out_of_range_is_a_usage_error(tmp_path, capsys, seed):
    with pytest.raises(SystemExit) as stop:
        main(["train", "humanoid-mod", *SMALL, *QUICK, "--seed", str(seed), "--out", str(tmp_path / "run")])
    assert stop.value.code == 2
    assert f"--seed must be 0 or more and less than 2**32; got {seed}" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("processes", "message"),
    [
        ("3", "num_envs must be divisible by the number of processes; got 4 and 3"),
        ("4", "in each process, num_mini_batches must divide num_envs; got 2 and 1"),
    ],
)
def test_robots_that_cannot_be_shared_among_processes_are_refused_before_a_run_begins(
    tmp_path, capsys, monkeypatch, processes, message
):
    monkeypatch.setenv("WORLD_SIZE", processes)
    assert main(["train", "humanoid-mod", *QUICK, "--out", str(tmp_path / "run")]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_without_a_gpu_one_warning_says_that_training_is_slow_and_what_to_do(tmp_path, capsys, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    asked = ["train", "humanoid-mod", *SMALL, *QUICK, "--out", str(tmp_path / "run")]
    assert main([word for word in asked if word != "--cpu"]) == 0
    said = capsys.readouterr().err
    assert said.count("bot train: no GPU was found, so this runs on the CPU, hundreds of times slower") == 1
    assert "pip install --force-reinstall torch" in said or "nvidia-smi" in said
