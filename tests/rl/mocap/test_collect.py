"""`bot collect mocapact`: files of an expert's rollouts in MoCapAct's layout."""

import csv
import io
import json
import shutil
from contextlib import redirect_stdout

import h5py
import numpy as np
import pytest

from body_transformer import Policy, PolicyConfig
from body_transformer.cli.main import main
from body_transformer.experiment import load_experiment
from body_transformer.imitation.readers import open_episodes
from body_transformer.rl.mocap.dm_control import play
from body_transformer.rl.mocap.trained import CLIPS, Expert

from .test_mocap_commands import QUICK, SMALL, flags

TRAINING = ["CMU_900_01", "CMU_900_02", "CMU_900_04"]
FEW = ["--start-rollouts", "1", "--random-rollouts", "1", "--workers", "1"]


@pytest.fixture(scope="session")
def expert_run(tmp_path_factory, options):
    """An expert after one iteration, which falls late enough to track a short clip."""
    folder = tmp_path_factory.mktemp("experts") / "expert"
    args = ["train", "mocap-expert", *SMALL, *QUICK, *flags(options), "--out", str(folder)]
    assert main([*args, "--rl.max-iterations", "1"]) == 0
    return folder


@pytest.fixture(scope="module")
def recorded(expert_run, tmp_path_factory):
    """Return the folder of files, and what the command printed."""
    out = tmp_path_factory.mktemp("files") / "train"
    with redirect_stdout(io.StringIO()) as printed:
        assert main(["collect", "mocapact", "--policy", str(expert_run), "--out", str(out), *FEW, "--json"]) == 0
    return out, json.loads(printed.getvalue())


def test_there_is_one_file_per_training_clip_and_a_table(recorded):
    out, found = recorded
    assert sorted(path.name for path in out.iterdir()) == [*(f"{clip}.hdf5" for clip in TRAINING), "clips.csv"]
    rows = list(csv.DictReader((out / "clips.csv").open()))
    assert [(row["clip"], row["split"], row["snippets"], row["rollouts"]) for row in rows] == [
        ("CMU_900_01", "train", "1", "2"),
        ("CMU_900_02", "train", "1", "2"),
        ("CMU_900_04", "train", "2", "4"),
    ]
    assert [row["transitions"] for row in found["clips"]] == [int(row["transitions"]) for row in rows]


def test_the_reader_reads_the_complete_rollouts(recorded):
    out, found = recorded
    episodes = open_episodes("mocapact", str(out), load_experiment("mocapact").layout())
    by_clip = {row["clip"]: 0 for row in found["clips"]}
    for info in episodes.infos:
        by_clip[info.clip] += info.num_steps
    assert by_clip == {row["clip"]: row["transitions"] for row in found["clips"]}
    assert sum(by_clip.values()) > 0
    assert episodes.read(0).obs.shape == (episodes.infos[0].num_steps, 1294)


def test_executed_controls_have_noise_around_the_mean_controls(recorded):
    out, _ = recorded
    with h5py.File(out / "CMU_900_04.hdf5") as file:
        rollout = file["CMU_900_04-0-141/0"]
        mean, executed = rollout["mean_actions"][:], rollout["actions"][:]
    free = np.abs(mean) < 0.6
    assert (executed - mean)[free].std() == pytest.approx(0.1, rel=0.1)
    assert np.abs(executed).max() <= 1


def test_without_noise_the_rollouts_are_those_of_an_evaluation(expert_run, tmp_path):
    """Of `bot eval --simulator mujoco`: same starts, same controls, same physics."""
    given = ["--policy", str(expert_run), "--out", str(tmp_path), "--noise", "0", "--workers", "1"]
    assert main(["collect", "mocapact", *given, "--start-rollouts", "1", "--random-rollouts", "0"]) == 0
    expert = Expert.load(str(expert_run), dict.fromkeys(CLIPS))
    evaluated = play(expert.policy(), expert.options, 100, lambda **progress: None).by_clip()
    for clip in TRAINING:
        with h5py.File(tmp_path / f"{clip}.hdf5") as file:
            snippets = [name for name in file if name.startswith(clip)]
            lengths = [file[f"{name}/start_metrics/episode_lengths"][0] for name in snippets]
            returns = [file[f"{name}/start_metrics/norm_episode_returns"][0] for name in snippets]
        assert np.mean(lengths) == evaluated[clip]["length"]
        assert np.mean(returns) == pytest.approx(evaluated[clip]["normalized_return"], abs=1e-4)


def test_a_second_command_keeps_the_files_and_other_settings_are_refused(recorded, expert_run, tmp_path, capsys):
    out = shutil.copytree(recorded[0], tmp_path / "files")
    times = {path: path.stat().st_mtime_ns for path in out.glob("*.hdf5")}
    (out / "CMU_900_01.hdf5").unlink()
    again = ["collect", "mocapact", "--policy", str(expert_run), "--out", str(out)]
    assert main([*again, *FEW]) == 0
    assert "train: 3 clips, 4 snippets, 8 rollouts" in capsys.readouterr().out
    assert (out / "CMU_900_01.hdf5").is_file()
    kept = {path: path.stat().st_mtime_ns for path in times if path.name != "CMU_900_01.hdf5"}
    assert all(times[path] == time for path, time in kept.items())
    assert main([*again, *FEW, "--noise", "0.2"]) == 1
    assert "was made with other settings" in capsys.readouterr().err


def test_validation_clips_have_a_folder_of_their_own(recorded, expert_run, tmp_path, capsys):
    given = ["collect", "mocapact", "--policy", str(expert_run), "--split", "validation", *FEW]
    assert main([*given, "--out", str(recorded[0])]) == 1
    assert "holds clips that are not in the split 'validation'" in capsys.readouterr().err
    assert main([*given, "--out", str(tmp_path)]) == 0
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["CMU_900_03.hdf5", "clips.csv"]


def test_files_of_another_expert_are_refused(recorded, expert_run, tmp_path, capsys):
    """They would be rollouts of two policies under one name."""
    out = shutil.copytree(recorded[0], tmp_path / "files")
    other = shutil.copytree(expert_run, tmp_path / "run", symlinks=True)
    policy = Policy.load(other)
    next(policy.parameters()).data.add_(1.0)
    shutil.rmtree(other / "checkpoints")
    policy.save(other / "checkpoints/1")
    assert main(["collect", "mocapact", "--policy", str(other), "--out", str(out), *FEW]) == 1
    assert "was made by another controller" in capsys.readouterr().err


def test_mistakes_are_reported_before_any_work(expert_run, clips_file, tmp_path, capsys):
    short, foreign = tmp_path / "short.hdf5", tmp_path / "foreign.hdf5"
    for path in (short, foreign):
        shutil.copy(clips_file, path)
    with h5py.File(foreign, "r+") as file:
        file["CMU_900_01/walkers/walker_0"].attrs["model"] = 3
    with h5py.File(short, "r+") as file:
        group = file["CMU_900_01"]
        group.attrs["num_steps"] = 10
        walker = group["walkers/walker_0"]
        for name in [*walker]:
            if isinstance(walker[name], h5py.Dataset):
                values = walker[name][:, :10]
                del walker[name]
                walker[name] = values
    clone, wrong = tmp_path / "clone", shutil.copytree(expert_run, tmp_path / "wrong", symlinks=True)
    shutil.rmtree(wrong / "checkpoints")
    for folder in (clone, wrong / "checkpoints/1"):
        Policy(load_experiment("mocapact").layout(), PolicyConfig(variant="mlp", embed_dim=4, mlp_dim=4)).save(folder)
    expert = str(expert_run)
    for experiment, policy, more, message in (
        (
            "mocapact",
            "pretrained:humanoid-mod",
            [],
            "is not an expert of mocap-expert: it was trained for humanoid-mod",
        ),
        ("mocapact", str(clone), [], "is not an expert of mocap-expert: it was trained for an unknown task"),
        ("mocapact", str(tmp_path / "no"), [], "no policy in"),
        ("mocapact", str(wrong), [], "the expert does not fit the experiment 'mocap-expert'"),
        ("mocapact", expert, ["--clips", str(foreign)], "is for dm_control's walker number 3; it must be number 4"),
        ("mocapact", expert, ["--clips", str(short)], "have fewer than 16 frames: 'CMU_900_01'"),
        ("mocapact", expert, ["--clips", str(tmp_path / "no.hdf5")], "no such clip file"),
        ("mocapact", expert, ["--only", "CMU_900_03"], "1 of 1 clips are not in the split 'train'"),
        ("mocapact", expert, ["--clips", str(clips_file), "--split", "validation"], "is in the split 'validation'"),
        ("mocapact", expert, ["--noise", "-1"], "noise_std must be from 0 to 1; got -1"),
        ("mocapact", expert, ["--start-rollouts", "0", "--random-rollouts", "0"], "at least one rollout per snippet"),
    ):
        out = tmp_path / "out"
        assert main(["collect", experiment, "--policy", policy, "--out", str(out), "--workers", "1", *more]) == 1
        assert message in capsys.readouterr().err, message
        assert not out.exists() or not [*out.iterdir()]
