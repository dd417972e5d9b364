"""Clips -> files of MoCapAct's layout -> training -> evaluation, with the real commands."""

import json

from body_transformer.cli.main import main
from body_transformer.imitation.tasks.mocap.generate import RolloutSettings, generate
from body_transformer.run import Run


def test_a_policy_is_trained_and_evaluated_on_generated_files(clips_file, motions, tmp_path, capsys):
    settings = RolloutSettings(start_rollouts=1, random_rollouts=1, max_steps=50)
    assert len(list(generate(clips_file, tmp_path / "rollouts", settings=settings))) == 2
    train, validation = sorted(motions)
    (tmp_path / "train.txt").write_text(f"{train}\n")
    (tmp_path / "validation.txt").write_text(f"{validation}\n")
    lists = ["train_clips", str(tmp_path / "train.txt"), "validation_clips", str(tmp_path / "validation.txt")]
    run = tmp_path / "run"
    data = ["--imitation.data", str(tmp_path / "rollouts")]
    task = ["--imitation.task-options", "clips", str(clips_file), *lists]
    small = ["--policy.num-layers", "1", "--policy.embed-dim", "20", "--policy.ff-dim", "16"]
    few = [
        "--imitation.num-epochs",
        "2",
        "--imitation.batch-size",
        "16",
        "--imitation.eval-episodes",
        "1",
        "--cpu",
        "--quiet",
        "--out",
        str(run),
    ]
    assert main(["train", "mocapact", *data, *task, *small, *few]) == 0
    options = Run.open(run).description()["imitation"]["options"]  # no validation clip is in the training data
    assert (options["train_clips"], options["validation_clips"]) == (lists[1], lists[3])
    capsys.readouterr()
    assert main(["eval", str(run), "--episodes", "1", "--split", "validation", "--json", "--cpu"]) == 0
    found = json.loads(capsys.readouterr().out)["splits"]
    assert list(found) == ["validation"]
    assert 0 < found["validation"]["normalized_length"]["mean"] <= 1
    assert list(json.loads((run / "evaluation.json").read_text())["splits"]) == ["train", "validation"]
