"""Latency of one observation: percentiles, runners, missing packages."""

import numpy as np
import pytest
import torch

from body_transformer.bench.latency import ALL, RUNNERS, LatencyJob, percentiles, run
from body_transformer.deploy import onnx_file
from body_transformer.experiment import load_experiment
from body_transformer.model.policy import Policy


def test_percentiles_of_known_samples() -> None:
    assert percentiles(list(range(101))) == {"p50": 50.0, "p99": 99.0}
    assert percentiles(None) == {"p50": "failed", "p99": "failed"}


def test_onnx_runtime_gives_the_policys_action() -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    experiment = load_experiment("a1-walk")
    layout = experiment.layout()
    policy, obs = Policy(layout, experiment.policy_config()).eval(), torch.randn(1, layout.obs_dim)
    (action,) = RUNNERS["onnx"].make(policy, obs)()
    np.testing.assert_allclose(action, RUNNERS["eager"].make(policy, obs)().numpy(), atol=1e-5)


def test_a_missing_onnx_runtime_is_a_failed_row_with_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(onnx_file, "import_module", missing)
    job = LatencyJob(device="cpu", rows=["a1-walk"], variants=["mlp"], quick=True)
    (table,), _ = run(job)
    (row,) = table.rows
    assert row["onnx_p50"] == row["onnx_p99"] == "failed"
    assert row["eager_p50"] > 0
    reason = "ValueError: the export needs onnx: pip install -c constraints.txt -e '.[deploy]' in a clone"
    assert f"a1-walk mlp, ONNX Runtime: {reason}" in job.notes


def test_all_variants_are_three_rows_and_the_thread_count_is_restored() -> None:
    threads = torch.get_num_threads()
    (table,), chart = run(LatencyJob(device="cpu", rows=["a1-walk"], variants=ALL, quick=True))
    assert [row["variant"] for row in table.rows] == ["mlp", "transformer", "bot-hard"]
    assert torch.get_num_threads() == threads
    assert chart.panels[0].labels == ["a1-walk mlp", "a1-walk transformer", "a1-walk bot-hard"]
