"""Outputs of a run's metrics."""

import json
import sys
from types import SimpleNamespace

import pytest

from body_transformer.metrics import MetricsLog

NUMBERS = {"train/loss": 0.5, "eval/train/success": {"mean": 0.25, "low": 0.0, "high": 0.5}}


@pytest.fixture
def wandb(monkeypatch):
    """Return a stand-in that records its calls."""
    calls = SimpleNamespace(runs=[], logged=[])

    def init(**options):
        calls.runs.append(options)
        return SimpleNamespace(log=lambda numbers, step: calls.logged.append((step, numbers)), finish=lambda: None)

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    return calls


def test_each_call_writes_one_line(tmp_path):
    log = MetricsLog(tmp_path)
    log.write(3, NUMBERS)
    log.close()
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"step": 3, **NUMBERS}


def test_weights_and_biases_gets_means_and_a_resumed_run_is_the_same_one_there(tmp_path, wandb):
    for number, folder in enumerate((tmp_path / "a", tmp_path / "a", tmp_path / "b")):
        folder.mkdir(exist_ok=True)
        log = MetricsLog(folder, number, "project", {"date": "today"})
        log.write(3, NUMBERS)
        log.close()
    assert wandb.logged[0] == (3, {"train/loss": 0.5, "eval/train/success": 0.25})
    first, resumed, other = (run["id"] for run in wandb.runs)
    assert first == resumed != other


def test_a_missing_weights_and_biases_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ValueError, match="pip install wandb"):
        MetricsLog(tmp_path, wandb_project="project")


def test_tensorboard_reads_the_numbers_and_forgets_those_that_a_resumed_run_repeats(tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for first_step, steps in ((0, (1, 2, 3)), (2, (3, 4))):
        log = MetricsLog(tmp_path, first_step)
        for step in steps:
            log.write(step, {"train/loss": step + first_step / 10, "eval/reward": {"mean": 1.0, "low": 0.0}})
        log.close()
    events = reader.EventAccumulator(str(tmp_path))
    events.Reload()
    assert sorted(events.Tags()["scalars"]) == ["eval/reward", "train/loss"]
    found = {event.step: round(event.value, 3) for event in events.Scalars("train/loss")}
    assert found == {1: 1.0, 3: 3.2, 4: 4.2}
