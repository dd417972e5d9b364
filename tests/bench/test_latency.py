"""Latency of one observation: percentiles, runners, missing packages."""

import sys

import numpy as np
import pytest
import torch

from body_transformer.bench.harness import Bench
from body_transformer.bench.latency import ALL, RUNNERS, percentiles, run
from body_transformer.errors import install
from body_transformer.experiment import load_experiment
from body_transformer.model.policy import Policy


def test_percentiles_of_known_samples() -> None:
    assert percentiles(list(range(101))) == {"p50": 50.0, "p99": 99.0}
    assert percentiles(()) == {"p50": "failed", "p99": "failed"}


def test_onnx_runtime_gives_the_policys_action() -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    experiment = load_experiment("a1-walk")
    layout = experiment.layout()
    policy, obs = Policy(layout, experiment.policy_config()).eval(), torch.randn(1, layout.obs_dim)
    (_, eager), (_, onnx) = RUNNERS["cpu"].values()
    (action,) = onnx(policy, obs)()
    np.testing.assert_allclose(action, eager(policy, obs)().numpy(), atol=1e-5)


def test_without_onnx_its_rows_fail_with_the_command_that_installs_it_and_the_thread_count_is_restored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)  # its import is an ImportError
    threads, bench = torch.get_num_threads(), Bench(device="cpu", quick=True)
    (table,) = run(bench, ["a1-walk"], ALL)
    assert torch.get_num_threads() == threads
    assert [table.label.format(**row) for row in table.rows] == [f"a1-walk {variant}" for variant in ALL]
    for row in table.rows:
        assert row["onnx_p50"] == row["onnx_p99"] == "failed"
        assert row["eager_p50"] > 0
    assert len(bench.notes) == 1 + len(ALL)
    assert bench.notes[1].startswith("a1-walk mlp, ONNX Runtime: ValueError: import of onnx halted")
    assert install("deploy") in bench.notes[1]
