"""The code gives the numbers in `values.json`, which `make.py` computes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from . import make

EXPECTED = json.loads(make.VALUES.read_text())
ACTIONS_TOLERANCE = 1e-6
TRAINING_TOLERANCE = 1e-4
"""Tolerances of actions, and of the sum of a trained tensor relative to its sum of magnitudes. They allow for another
PyTorch or processor than the one that wrote the values."""
NOISE = "attention.in_proj.bias"
"""A tensor that is not compared. The keys' part of it cannot change an action, so its gradient is rounding noise, which
Adam turns into large steps."""


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


@pytest.fixture(scope="module")
def tables() -> dict[str, Any]:
    return as_json(make.tables())


@pytest.fixture(scope="module")
def state_dicts() -> dict[str, Any]:
    return as_json(make.state_dicts())


@pytest.fixture(scope="module")
def actions() -> dict[str, Any]:
    return as_json(make.actions())


@pytest.mark.parametrize("experiment", EXPECTED["tables"])
def test_inspect_prints_the_same_graph_and_counts(tables, experiment):
    assert tables[experiment] == EXPECTED["tables"][experiment]


def test_no_experiment_is_gone(tables):
    assert tables.keys() == EXPECTED["tables"].keys()


def test_state_dicts_have_the_same_keys_and_shapes_in_the_same_order(state_dicts):
    def shapes(found: dict[str, Any]) -> dict[str, Any]:
        return {case: found["shapes"][digest] for case, digest in found["cases"].items()}

    now, then = shapes(state_dicts), shapes(EXPECTED["state_dicts"])
    assert now.keys() == then.keys()
    for case in then:
        assert now[case] == then[case], case


@pytest.mark.parametrize("case", EXPECTED["actions"])
def test_actions_are_the_same(actions, case):
    if case == "golden" and not make.GOLDEN.is_file():
        pytest.skip(f"no recorded model at {make.GOLDEN}")
    then, now = EXPECTED["actions"][case], actions[case]
    for now_row, then_row in zip(_rows(now["actions"]), _rows(then["actions"]), strict=True):
        assert now_row == pytest.approx(then_row, abs=ACTIONS_TOLERANCE, rel=0)
    if "gradient" in then:
        assert now["gradient"] == pytest.approx(then["gradient"], rel=1e-4)


def _rows(actions: list[Any]) -> list[list[float]]:
    return actions if isinstance(actions[0], list) else [actions]


@pytest.mark.parametrize("name", make.TRAININGS)
def test_a_seeded_training_ends_with_the_same_weights(tmp_path, name):
    if name.startswith("PPO"):
        pytest.importorskip("mjlab", reason="needs the extra 'rl'")
    then, now = EXPECTED["trainings"][name], as_json(make.training(name, tmp_path / "run"))
    if make.machine() == EXPECTED["machine"]:
        assert now["sha256"] == then["sha256"]
    assert now["sums"].keys() == then["sums"].keys()
    for tensor, (total, magnitude) in then["sums"].items():
        tolerance = TRAINING_TOLERANCE * max(1.0, magnitude)
        assert tensor.endswith(NOISE) or now["sums"][tensor] == pytest.approx([total, magnitude], abs=tolerance), tensor
    for now_row, then_row in zip(now["actions"], then["actions"], strict=True):
        assert now_row == pytest.approx(then_row, abs=TRAINING_TOLERANCE)
    for split, metrics in then.get("evaluation", {}).items():
        assert now["evaluation"][split] == pytest.approx(metrics, rel=1e-3, abs=1e-4), split


@pytest.fixture(scope="module")
def contracts() -> dict[str, Any]:
    pytest.importorskip("onnx", reason="needs the extra 'deploy'")
    return as_json(make.contracts())


@pytest.mark.parametrize("source", EXPECTED["contracts"])
@pytest.mark.parametrize("part", EXPECTED["contracts"]["demo"])
def test_a_contract_has_the_same_content(contracts, source, part):
    then, now = EXPECTED["contracts"][source][part], contracts[source][part]
    if part != "checks":
        assert now == then
        return
    for key, rows in then.items():
        assert now[key]["rows"] == rows["rows"]
        for row in ("first", "last"):
            largest = max(1.0, *map(abs, rows[row]))
            assert now[key][row] == pytest.approx(rows[row], abs=ACTIONS_TOLERANCE * largest)
