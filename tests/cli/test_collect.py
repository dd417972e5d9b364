"""`bot collect`: from a policy on disk to a dataset."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import minari
import numpy as np
import pytest
import torch

from body_transformer import Policy, PolicyConfig
from body_transformer.cli.collect import collectable
from body_transformer.cli.main import main
from body_transformer.experiment import load_experiment
from body_transformer.imitation.actors import SHAPES

EXPERTS = Path(__file__).parents[2] / "../shared/data/adroit_experts"


def save_policy(folder: Path, experiment: str = "adroit-door", **options: str) -> Path:
    torch.manual_seed(0)
    config = PolicyConfig(variant="mlp", embed_dim=4, mlp_dim=8, **options)  # type: ignore[arg-type]
    Policy(load_experiment(experiment).layout(), config).save(folder)
    return folder


def save_expert(file: Path, obs_dim: int = 39, action_dim: int = 28) -> Path:
    lengths = {"obs": obs_dim, "action": action_dim, "hidden 0": 3, "hidden 1": 3}
    arrays = {name: np.full([lengths[axis] for axis in axes], 0.1, np.float32) for name, axes in SHAPES.items()}
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file


def test_a_saved_policy_is_rolled_out_and_json_summarises_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder, out = save_policy(tmp_path / "policy"), tmp_path / "set"
    args = ["collect", "adroit-door", "--policy", str(folder), "--episodes", "2", "--out", str(out), "--json"]
    assert main([*args, "--noise", "0.2", "--labels", "clean"]) == 0
    output = capsys.readouterr()
    content = json.loads(output.out)
    assert content["dataset"] == str(out)
    assert (content["num_episodes"], content["num_steps"], content["success_rate"]) == (2, 400, 0.0)
    assert "2/2 episodes, success 0.0%" in output.err
    episode = minari.MinariDataset(out)[0]
    policy = Policy.load(folder)
    with torch.no_grad():
        expected = policy(torch.from_numpy(episode.observations[:-1].astype(np.float32))).clamp(-1, 1)
    np.testing.assert_allclose(episode.actions, expected, atol=1e-5)


def test_the_last_line_names_the_dataset(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    save_policy(run / "checkpoints" / "100", head="gaussian")
    (run / "checkpoints" / "last").symlink_to("100")
    out = tmp_path / "set"
    assert (
        main(["collect", "adroit-door", "--policy", str(run), "--episodes", "1", "--out", str(out), "--sampled"]) == 0
    )
    assert capsys.readouterr().out == f"wrote {out}: 1 episodes, 200 steps; success in 0.0% of 1 played\n"
    assert minari.MinariDataset(out).total_episodes == 1


@pytest.mark.skipif(not EXPERTS.is_dir(), reason="the DAPG experts are not available")
def test_a_dapg_expert_solves_its_task(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    args = ["--policy", str(EXPERTS / "relocate.npz"), "--episodes", "2", "--out", str(tmp_path / "set")]
    assert main(["collect", "adroit-relocate", *args]) == 0
    assert capsys.readouterr().out.endswith("2 episodes, 400 steps; success in 100.0% of 2 played\n")


def test_every_experiment_whose_task_can_be_recorded_is_listed() -> None:
    assert collectable() == ["adroit-door", "adroit-hammer", "adroit-relocate", "demo"]


@pytest.mark.parametrize(
    ("experiment", "policy", "message"),
    [
        ("adroit-dor", "expert.npz", "unknown experiment 'adroit-dor'; did you mean 'adroit-door'?"),
        (
            "a1-walk",
            "expert.npz",
            "'a1-walk' has no task that can be recorded; choose one of: 'adroit-door'",
        ),
        ("adroit-relocate", "expert.npz", "has 39 observation entries and 28 actions; adroit-relocate has 39 and 30"),
        ("adroit-hammer", "policy", "has 39 observation entries and 28 actions; adroit-hammer has 46 and 26"),
        ("adroit-door", "nowhere", "the folder does not exist; expected a folder with policy.json, a run folder"),
        ("adroit-door", "nowhere.npz", "nowhere.npz: no such file"),
        ("adroit-door", "empty", "policy.json is missing; expected a folder with policy.json, a run folder"),
    ],
)
def test_bad_arguments_are_refused_before_any_episode(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, experiment: str, policy: str, message: str
) -> None:
    save_expert(tmp_path / "expert.npz")
    save_policy(tmp_path / "policy")
    (tmp_path / "empty").mkdir()
    args = ["--policy", str(tmp_path / policy), "--episodes", "1", "--out", str(tmp_path / "set")]
    assert main(["collect", experiment, *args]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert message in output.err
    assert not (tmp_path / "set").exists()


def test_a_deterministic_policy_cannot_be_sampled(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = save_policy(tmp_path / "policy")
    args = ["--policy", str(folder), "--episodes", "1", "--out", str(tmp_path / "set"), "--sampled"]
    assert main(["collect", "adroit-door", *args]) == 1
    assert "is deterministic and has no noise" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_leaves_no_dataset_and_no_simulator(tmp_path: Path, number: signal.Signals) -> None:
    expert = save_expert(tmp_path / "expert.npz")
    out = tmp_path / "sets" / "one"
    command = [sys.executable, "-m", "body_transformer.cli.main", "collect", "adroit-door", "--policy", str(expert)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.Popen(
        [*command, "--episodes", "500", "--out", str(out)],
        env=environment,
        start_new_session=True,  # a group of its own, as a shell gives to what it starts
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 60
        while not list(out.parent.glob(".one.*/main_data.hdf5")) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1.0)
        os.killpg(process.pid, number)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 128 + number
    assert output == ""
    assert errors.endswith("bot collect: stopped\n")
    assert "Traceback" not in errors
    assert list(out.parent.iterdir()) == []
