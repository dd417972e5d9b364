"""The reader `rollouts`: demonstrations that are made in the simulator at the start of a training."""

import csv
import json
import shutil

import h5py
import numpy as np
import pytest
import torch

from body_transformer.cli.main import main
from body_transformer.experiment import load_experiment
from body_transformer.imitation.batches import Batches
from body_transformer.imitation.demonstrations import obs_mean_and_var
from body_transformer.imitation.on_device import DeviceBatches
from body_transformer.imitation.readers import mocapact, open_episodes
from body_transformer.imitation.tasks.mocap.generate import RolloutSettings
from body_transformer.rl.mocap import rollouts
from body_transformer.rl.mocap.recorder import Recorder, planned
from body_transformer.rl.mocap.rollouts import trimmed
from body_transformer.rl.mocap.trained import CLIPS, Expert
from body_transformer.run import Run

from .test_collect import TRAINING, expert_run  # noqa: F401  (a fixture)

FEW = {"start_rollouts": 1, "random_rollouts": 1, "num_worlds": 4}
BF16 = {"atol": 1e-30, "rtol": 2**-8}


@pytest.fixture(scope="module")
def layout():
    return load_experiment("mocapact").layout()


@pytest.fixture(scope="module")
def expert(expert_run):  # noqa: F811
    return Expert.load(str(expert_run), dict.fromkeys(CLIPS))


@pytest.fixture(scope="module")
def episodes(expert_run, layout):  # noqa: F811
    return open_episodes("rollouts", str(expert_run), layout, **FEW)


@pytest.fixture(scope="module")
def waves(expert):
    """The rollouts of `episodes` in float32, with those that ended early."""
    settings = RolloutSettings(1, 1)
    plan = planned(expert.options.clip_file(), "train", settings)
    return plan, list(Recorder(expert, 4, "cpu", 0, torch.float32).waves(plan, 0.1, mean_actions=False))


@pytest.fixture(scope="module")
def files(waves, layout, tmp_path_factory):
    """Return a folder of files in MoCapAct's layout with the same rollouts."""
    folder = tmp_path_factory.mktemp("files")
    plan, parts = waves
    used = np.flatnonzero(layout.obs_node_ids != -1)
    rollouts = [(wave, column) for wave in parts for column in range(len(wave.lengths))]
    numbers: dict[str, int] = {}
    for planned_one, (wave, column) in zip(plan, rollouts, strict=True):
        snippet, steps = planned_one.snippet, int(wave.lengths[column])
        number = numbers[snippet.name] = numbers.get(snippet.name, -1) + 1
        with h5py.File(folder / f"{snippet.clip}.hdf5", "a") as file:
            obs = np.zeros((steps + 1, layout.obs_dim), np.float32)
            obs[:steps, used] = wave.obs[:steps, column]
            file[f"{snippet.name}/{number}/observations/proprioceptive"] = obs
            file[f"{snippet.name}/{number}/actions"] = wave.actions[:steps, column].numpy()
            early = file.require_dataset(f"{snippet.name}/early_termination", (2,), bool)
            early[number] = bool(wave.failed[column])
            if "n_start_rollouts" not in file:
                file["n_start_rollouts"], file["n_rsi_rollouts"] = np.int64(1), np.int64(1)
                for name, place in layout.obs_slices.items():
                    file[f"observable_indices/walker/{name}"] = np.arange(place.start, place.stop)
    return folder


def test_simulator_and_files_give_the_same_batches_to_rounding(episodes, files, layout):
    """Early-terminated rollouts are in neither; the order is the same, also after a resume in the second epoch."""
    stored = mocapact.open_episodes(str(files), layout)
    assert [(info.clip, info.num_steps) for info in stored.infos] == [
        (info.clip, info.num_steps) for info in episodes.infos
    ]
    for seed, epoch, first in ((0, 0, 0), (1, 1, 2)):
        theirs = list(Batches(stored, 16, seed).epoch(epoch, first))
        mine = list(DeviceBatches(episodes, 16, seed).epoch(epoch, first))
        assert len(mine) == len(theirs) > 1
        for (obs, actions), (their_obs, their_actions) in zip(mine, theirs, strict=True):
            assert obs.dtype == actions.dtype == torch.float32
            torch.testing.assert_close(obs, torch.from_numpy(their_obs), **BF16)
            torch.testing.assert_close(actions, torch.from_numpy(their_actions), **BF16)


def test_statistics_are_those_of_the_files_to_rounding(episodes, files, layout):
    stored = mocapact.open_episodes(str(files), layout)
    (mean, var), (their_mean, their_var) = obs_mean_and_var(episodes), obs_mean_and_var(stored)
    scale = (their_var + their_mean.square()).sqrt()
    assert ((mean - their_mean).abs() <= 2**-8 * scale + 1e-12).all()
    assert ((var - their_var).abs() <= 2**-6 * scale.square() + 1e-12).all()
    unused = np.setdiff1d(np.arange(layout.obs_dim), stored.obs_ids)
    assert (mean[unused] == 0).all()
    assert (var[unused] == 1).all()


def test_some_rollouts_end_early_and_are_dropped(waves, episodes):
    plan, parts = waves
    failed = torch.cat([wave.failed for wave in parts])
    assert 0 < failed.sum() < len(plan) == 8
    assert len(episodes) == (~failed).sum()


def test_the_same_seed_makes_the_same_data(expert_run, episodes, layout):  # noqa: F811
    again = open_episodes("rollouts", str(expert_run), layout, **FEW)
    assert torch.equal(again.obs, episodes.obs)
    assert torch.equal(again.actions, episodes.actions)
    other = open_episodes("rollouts", str(expert_run), layout, **FEW, seed=1)
    assert not torch.equal(other.actions[:5], episodes.actions[:5])


def test_data_are_bf16_and_noise_is_around_the_mean_controls(expert_run, episodes, layout):  # noqa: F811
    assert episodes.obs.dtype == episodes.actions.dtype == torch.bfloat16
    assert episodes.obs.shape == (episodes.num_steps, 1294)
    mean = open_episodes("rollouts", str(expert_run), layout, **FEW, actions="mean")
    assert torch.equal(mean.obs, episodes.obs)
    noise = (episodes.actions - mean.actions).float()[(mean.actions.abs() < 0.6)]
    assert noise.std().item() == pytest.approx(0.1, rel=0.1)
    assert episodes.actions.abs().max() <= 1


def test_both_simulators_begin_with_the_same_observations_and_controls(expert, waves, episodes, tmp_path):
    """Without noise, at the start of a snippet; touch and torque sensors are 0 there in MuJoCo Warp."""
    plan, _ = waves
    still = next(iter(Recorder(expert, 2, "cpu", 0, torch.float32).waves(plan[:2], 0.0, mean_actions=False)))
    given = ["--out", str(tmp_path), "--noise", "0", "--workers", "1", "--only", plan[0].snippet.clip]
    assert main(["collect", "mocapact", "--policy", str(expert.folder), *given, "--random-rollouts", "0"]) == 0
    with h5py.File(tmp_path / f"{plan[0].snippet.clip}.hdf5") as file:
        rollout = file[f"{plan[0].snippet.name}/0"]
        obs, actions = rollout["observations/proprioceptive"][0], rollout["actions"][0]
    used = np.ones(1294, dtype=bool)
    layout = load_experiment("mocap-expert").layout()
    for name in ("sensors_touch", "sensors_torque"):
        used[layout.obs_slices[name]] = False
    np.testing.assert_allclose(still.obs[0, 0].numpy()[used], obs[episodes.obs_ids][used], atol=2e-3)
    np.testing.assert_allclose(still.actions[0, 0].numpy(), actions, atol=2e-3)


def test_a_number_of_transitions_is_kept_exactly(episodes):
    for number in (1, episodes.num_steps // 2, episodes.num_steps):
        few = trimmed(episodes, number, seed=3)
        assert few.num_steps == len(few.obs) == len(few.actions) == number
    with pytest.raises(ValueError, match="raise start_rollouts or random_rollouts"):
        trimmed(episodes, episodes.num_steps + 1, seed=0)


def test_no_clip_of_the_validation_list_is_recorded(episodes):
    assert {info.clip for info in episodes.infos} <= set(TRAINING)
    rows = list(csv.DictReader(episodes.files["rollouts.csv"].splitlines()))
    assert [row["clip"] for row in rows] == TRAINING
    assert sum(int(row["transitions"]) for row in rows) == episodes.num_steps


def test_kept_rollouts_are_loaded_by_the_next_training(expert_run, layout, episodes, tmp_path, monkeypatch):  # noqa: F811
    given = {**FEW, "transitions": episodes.num_steps - 3, "keep": str(tmp_path)}
    made = open_episodes("rollouts", str(expert_run), layout, **given)
    assert len([*tmp_path.glob("*.safetensors")]) == 1
    with monkeypatch.context() as patched:
        patched.setattr(rollouts, "_simulated", lambda *args: pytest.fail("these rollouts exist already"))
        loaded = open_episodes("rollouts", str(expert_run), layout, **given)
        with pytest.raises(pytest.fail.Exception):
            open_episodes("rollouts", str(expert_run), layout, **given, seed=1)
    assert loaded.infos == made.infos
    assert loaded.files == made.files == episodes.files
    assert torch.equal(loaded.obs, made.obs)
    assert torch.equal(loaded.actions, made.actions)
    (file,) = tmp_path.glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ValueError, match="not a file of rollouts, or damaged: remove it"):
        open_episodes("rollouts", str(expert_run), layout, **given)


def test_demonstrations_can_be_drawn(episodes):
    drawn = episodes.draw(1, seed=0)
    (number,) = [k for k in range(len(episodes)) if np.array_equal(episodes.read(k).obs, drawn.read(0).obs)]
    assert drawn.infos == (episodes.infos[number],)
    assert torch.equal(drawn.obs.float(), torch.from_numpy(episodes.read(number).obs))


# -- the command -------------------------------------------------------------------------------------------------------


OPTIONS = ["start_rollouts", "1", "random_rollouts", "1", "num_worlds", "8", "transitions", "40"]
SMALL = [
    "--policy.embed-dim",
    "20",
    "--policy.num-layers",
    "1",
    "--policy.ff-dim",
    "16",
    "--imitation.batch-size",
    "16",
]
FAST = ["--imitation.num-epochs", "2", "--imitation.eval-every", "1", "--imitation.eval-episodes", "1"]


def train(expert_run, out, *more: str, steps: list[str] = FAST) -> int:  # noqa: F811
    data = ["--imitation.reader", "rollouts", "--imitation.data", str(expert_run), "--imitation.options", *OPTIONS]
    return main(["train", "mocapact", *data, *more, *SMALL, *steps, "--cpu", "--quiet", "--out", str(out)])


def test_a_clone_is_trained_from_rollouts_and_evaluated_in_dm_control(expert_run, options, tmp_path):  # noqa: F811
    given = [word for item in options.items() for word in item]
    assert train(expert_run, tmp_path / "run", *given) == 0
    run = Run.open(tmp_path / "run")
    description = run.description()
    assert description["num_steps"] == 2 * 3
    assert description["imitation"]["task_options"] == options, "the evaluation uses the clips of the rollouts"
    evaluated = [line for line in run.metrics() if "eval/validation/normalized_length" in line]
    assert [line["step"] for line in evaluated] == [3, 6]
    assert set(json.loads((run.folder / "evaluation.json").read_text())["splits"]) == {"train", "validation"}
    assert (run.folder / "rollouts.csv").read_text().startswith("clip,split,snippets")


def test_a_resumed_run_has_the_same_data(expert_run, options, tmp_path):  # noqa: F811
    """Two runs that both stop after an epoch and continue would differ if the data did."""
    given = [word for item in options.items() for word in item]
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    many = [
        "--no-eval",
        "--imitation.log-every",
        "1",
        "--imitation.keep-checkpoints",
        "9",
        "--imitation.num-epochs",
        "3",
    ]
    assert train(expert_run, whole, *given, steps=[*many, "--imitation.checkpoint-every-s", "0.0001"]) == 0
    shutil.copytree(whole, resumed, symlinks=True)
    checkpoints = resumed / "checkpoints"
    steps = sorted(int(path.name) for path in checkpoints.iterdir() if path.name.isdigit())
    for step in steps[4:]:
        shutil.rmtree(checkpoints / str(step))
    (checkpoints / "last").unlink()
    (checkpoints / "last").symlink_to(str(steps[3]))
    assert main(["train", "--resume", str(resumed), "--quiet"]) == 0
    losses = [[line["train/loss"] for line in Run.open(run).metrics()] for run in (whole, resumed)]
    assert losses[0] == losses[1]


def test_table_1_is_reproduced_from_rollouts(expert_run, options, tmp_path, capsys):  # noqa: F811
    """With one arm, one seed and a small policy; the rollouts are kept for further runs."""
    given = [word for item in options.items() for word in item]
    data = ["--imitation.reader", "rollouts", "--imitation.data", str(expert_run), "--imitation.options", *OPTIONS]
    small = ["--policy.embed-dim", "20", "--policy.mlp-dim", "16", "--imitation.batch-size", "16", "--cpu"]
    small += ["--imitation.num-epochs", "None", "--imitation.num-steps", "4", "--imitation.eval-every-steps", "2"]
    small += ["--imitation.eval-episodes", "1"]
    own = ["reproduce", "table1", "--seeds", "1", "--only", "mlp", "--out", str(tmp_path / "runs")]
    assert main([*own, "--", *data, *given, "keep", str(tmp_path / "kept"), *small]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("| mlp "))
    assert "0.623 / 0.572 ± 0.022" in row, "the paper's number"
    assert len([*(tmp_path / "kept").glob("*.safetensors")]) == 1
    (run,) = (tmp_path / "runs").glob("mocapact/*/seed0")
    assert [line["step"] for line in Run.open(run).metrics() if "eval/train/normalized_return" in line] == [2, 4]


def test_mistakes_are_reported_before_a_run_begins(expert_run, clips_file, tmp_path, capsys):  # noqa: F811
    out = tmp_path / "run"
    for data, more, message in (
        ("pretrained:humanoid-mod", [], "is not an expert of mocap-expert: it was trained for humanoid-mod"),
        (expert_run, ["clips", str(tmp_path / "no.hdf5")], "no such clip file"),
        (expert_run, ["actions", "best"], "unknown kind of actions 'best'"),
        (expert_run, ["num_worlds", "0"], "num_worlds and transitions must be 1 or more; got 0"),
        (expert_run, ["transitions", "1000000"], "raise start_rollouts or random_rollouts"),
        (expert_run, ["speed", "1"], "unknown option 'speed'"),
    ):
        assert train(data, out, *more, "--no-eval") == 1
        assert message in capsys.readouterr().err
        assert not out.exists()
    args = ["train", "adroit-door", "--imitation.reader", "rollouts", "--imitation.data", str(expert_run), "--no-eval"]
    assert main([*args, "--cpu", "--out", str(out)]) == 1
    assert "record the observation of the experiment mocapact" in capsys.readouterr().err
