"""`bot train mocap-expert` and `bot eval`: a run, its resume, its evaluations in both simulators, and errors."""

import io
import json
import shutil
from contextlib import closing, redirect_stdout

import pytest
import torch
from safetensors.torch import load_file

from body_transformer import Policy, PolicyConfig
from body_transformer.cli.main import main
from body_transformer.experiment import load_experiment
from body_transformer.rl.envs.mjlab import task_of
from body_transformer.rl.infer_layout import infer_layout
from body_transformer.rl.registry import make_env, make_env_cfg, with_absolute_paths
from body_transformer.run import Run

from ..jobs import check_exact_resume

SMALL = ["--policy.mlp-dim", "16", "--policy.embed-dim", "8", "--cpu", "--quiet"]
QUICK = ["--rl.num-envs", "4", "--rl.num-steps-per-env", "4", "--rl.num-mini-batches", "2", "--rl.eval-episodes", "2"]


def flags(options: dict[str, str]) -> list[str]:
    return ["--rl.options", *(word for item in options.items() for word in item)]


@pytest.fixture(scope="module")
def run(tmp_path_factory, options):
    folder = tmp_path_factory.mktemp("runs") / "expert"
    args = ["train", "mocap-expert", *SMALL, *QUICK, *flags(options), "--out", str(folder)]
    assert main([*args, "--rl.max-iterations", "2", "--rl.eval-every", "1"]) == 0
    return folder


def lines(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_training_logs_evaluates_by_split_and_saves(run):
    logged = lines(run)
    assert [line["step"] for line in logged] == [1, 1, 2, 2]
    assert {"train/learning_rate", "train/std", "train/broken", "steps_per_s"} <= set(logged[0])
    assert {
        f"eval/{split}/{name}" for split in ("train", "validation") for name in ("normalized_length", "survived")
    } <= {name for line in logged for name in line}
    splits = json.loads((run / "evaluation.json").read_text())["splits"]
    assert {name: found["length"]["num_episodes"] for name, found in splits.items()} == {"train": 2, "validation": 1}
    assert Policy.load(run).layout.obs_dim == 1294


def test_a_resumed_run_continues_with_the_sampling_statistics(run, tmp_path):
    """The sum of visits falls by 0.1 % per step and rises by one per environment and step."""
    resumed = shutil.copytree(run, tmp_path / "run", symlinks=True)
    assert main(["train", "--resume", str(resumed), "--rl.max-iterations", "3", "--quiet"]) == 0
    sums = []
    for step in (2, 3):
        tensors = load_file(resumed / f"checkpoints/{step}/training_state.safetensors")
        assert tensors["task.visits"].shape == tensors["task.failures"].shape == (12,)
        sums.append(tensors["task.visits"].sum().item())
    expected = sums[0]
    for _ in range(4):
        expected = expected * 0.999 + 4
    assert sums[1] == pytest.approx(expected)
    assert Run.open(resumed).is_evaluated


def test_a_resumed_run_ends_in_the_state_of_an_uninterrupted_one(tmp_path, options):
    check_exact_resume(tmp_path, task="mocap-expert", options=options)


def test_a_resume_on_other_clips_is_refused(run, tmp_path, options, capsys):
    resumed = shutil.copytree(run, tmp_path / "run", symlinks=True)
    args = ["train", "--resume", str(resumed), "--rl.max-iterations", "3", "--quiet", "--rl.options", "only"]
    assert main([*args, "[CMU_900_01]"]) == 1
    assert "the checkpoint's visits belong to other clips" in capsys.readouterr().err


@pytest.fixture(scope="module")
def evaluations(run):
    """Return the output of `bot eval --json` for each simulator."""
    found = {}
    for simulator in ("warp", "mujoco"):
        with redirect_stdout(io.StringIO()) as out:
            assert main(["eval", str(run), "--simulator", simulator, "--episodes", "10", "--cpu", "--json"]) == 0
        found[simulator] = json.loads(out.getvalue())
    return found


@pytest.mark.parametrize("simulator", ["warp", "mujoco"])
def test_an_evaluation_reports_splits_and_clips(evaluations, simulator):
    found = evaluations[simulator]
    assert found["simulator"] == simulator
    assert {clip: (row["split"], row["episodes"]) for clip, row in found["clips"].items()} == {
        "CMU_900_01": ("train", 1),
        "CMU_900_02": ("train", 1),
        "CMU_900_03": ("validation", 1),
        "CMU_900_04": ("train", 2),
    }
    train = found["splits"]["train"]
    rows = [row for row in found["clips"].values() if row["split"] == "train"]
    for name in ("normalized_length", "normalized_return", "survived"):
        assert train[name]["mean"] == pytest.approx(sum(row[name] * row["episodes"] for row in rows) / 4)
    assert 0 < train["normalized_length"]["mean"] <= 1
    assert train["normalized_return"]["mean"] < 1.45


def test_both_simulators_give_nearly_the_same_lengths_and_returns(evaluations):
    """An untrained policy's episodes are short, so that small differences do not add up."""
    warp, dm_control = (evaluations[simulator]["clips"] for simulator in ("warp", "mujoco"))
    for clip, row in warp.items():
        assert row["length"] == pytest.approx(dm_control[clip]["length"], abs=3), clip
        assert row["normalized_return"] == pytest.approx(dm_control[clip]["normalized_return"], abs=0.06), clip


def test_mistakes_are_reported_before_a_run_begins(tmp_path, options, capsys, monkeypatch):
    train = ["train", "mocap-expert", *SMALL, *QUICK, "--out", str(tmp_path / "run")]
    for given, message in (
        ({}, "mocap-expert needs a file of motion clips: --rl.options clips FILE.hdf5"),
        ({"clips": str(tmp_path / "no.hdf5")}, "no.hdf5: no such clip file"),
        ({**options, "train_clips": str(tmp_path / "no.txt")}, "no.txt: no such list of clips"),
        ({**options, "validation_clips": options["train_clips"]}, "clips are in both"),
        ({**options, "only": "[CMU_1]"}, "1 of 1 clips are not in"),
        ({**options, "action_scale": "-1"}, "action_scale must be above 0; got -1"),
        ({**options, "rewind": "2"}, "rewind must be from 0 to 1; got 2"),
        ({**options, "cone": "round"}, "unknown value 'round'"),
        ({**options, "speed": "1"}, "options of mocap-expert: unknown option 'speed'"),
    ):
        assert main([*train, *(flags(given) if given else [])]) == 1, given
        assert message in capsys.readouterr().err
        assert not (tmp_path / "run").exists()


def test_the_paths_of_a_run_are_absolute(tmp_path, options, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = {"clips": "some.hdf5", "action_scale": "0.2"}
    assert with_absolute_paths("mocap-expert", given) == {"clips": str(tmp_path / "some.hdf5"), "action_scale": "0.2"}
    assert with_absolute_paths("humanoid-mod", {}) == {}


def test_an_expert_of_another_layout_is_refused(tmp_path, run, capsys):
    """Such as a policy for MoCapAct's whole vector."""
    other = shutil.copytree(run, tmp_path / "run", symlinks=True)
    clone = Policy(load_experiment("mocapact").layout(), PolicyConfig(variant="mlp", embed_dim=4, mlp_dim=4))
    shutil.rmtree(other / "checkpoints")
    clone.save(other / "checkpoints/2")
    for simulator in ("warp", "mujoco"):
        assert main(["eval", str(other), "--simulator", simulator, "--episodes", "1", "--cpu"]) == 1
        assert (
            "the policy does not fit the task: observation entries: 2868 for the policy, 1294"
            in capsys.readouterr().err
        )


def test_any_variant_can_be_an_expert(options):
    """Each reads the same environment, through the graph of the whole robot."""
    experiment = load_experiment("mocap-expert")
    with closing(make_env("mocap-expert", 2, 0, "cpu", options=options)) as env:
        assert infer_layout(env, ["actor"]).layout.to_dict() == experiment.layout().to_dict()
        assert infer_layout(env, ["critic"]).layout.to_dict() == experiment.critic_layout().to_dict()
        obs = env.reset()[0]["actor"]
    policy = Policy(experiment.layout(), experiment.policy_config("bot-hard"))
    with torch.no_grad():
        assert policy(obs).shape == (2, 56)


def test_an_evaluation_has_dm_controls_reward_and_threshold_alone(options):
    given = options | {"max_error": "0.2", "alive_weight": "0.5"}
    training = task_of(make_env_cfg("mocap-expert", 4, 0, options=given))
    playing = task_of(make_env_cfg("mocap-expert", 4, 0, options=given, play=True))
    assert set(training.rewards) > set(playing.rewards) == {"comic"}
    assert [task.failures[0].keywords["max_error"] for task in (training, playing)] == [0.2, 0.3]
    assert len(playing.snippets) == 5, "four of the training clips and one for validation"
