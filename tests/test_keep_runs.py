"""benchmarks/keep_runs.py: runs without their large files."""

import json

import pytest
import yaml

from body_transformer.run import Run


@pytest.fixture(scope="module")
def keep_runs(benchmark_script):
    return benchmark_script("keep_runs")


@pytest.mark.parametrize("place", ["--out /somewhere/run", "--out=/somewhere/run"])
def test_evaluations_and_every_tenth_iteration_are_kept(tmp_path, keep_runs, capsys, place):
    runs, kept = tmp_path / "runs", tmp_path / "kept"
    folder = runs / "humanoid-mod" / "mlp" / "seed0"
    changes = [{"step": 7, "command": "bot train --resume /somewhere/run --rl.final-std 0.1"}]
    command = f"bot train humanoid-mod {place} --seed 0"
    Run.create(folder, {"name": "humanoid-mod", "command": command, "changes": changes})
    lines = [json.dumps({"step": step, "train/kl": 0.01}) for step in range(1, 25)]
    lines.insert(5, json.dumps({"step": 5, "eval/rollouts/length": {"mean": 3.0}}))
    (folder / "metrics.jsonl").write_text("\n".join(lines) + '\n{"step": 25, "tra')
    (folder / "evaluation.json").write_text("{}")
    (folder / "checkpoints").mkdir()
    keep_runs.main([str(runs), str(kept)])
    target = kept / "humanoid-mod" / "mlp" / "seed0"
    assert capsys.readouterr().out.split() == [str(target)]
    assert sorted(file.name for file in target.iterdir()) == ["evaluation.json", "experiment.yaml", "metrics.jsonl"]
    assert [line["step"] for line in Run(target).metrics()] == [5, 10, 20]
    found = yaml.safe_load((target / "experiment.yaml").read_text())
    assert found["command"] == "bot train humanoid-mod --seed 0"
    assert found["changes"] == [{"step": 7, "command": "bot train --resume RUN --rl.final-std 0.1"}]


def test_a_folder_without_runs_is_an_error(tmp_path, keep_runs):
    with pytest.raises(SystemExit, match="no run under"):
        keep_runs.main([str(tmp_path), str(tmp_path / "kept")])
