"""Every reader answers hostile files with success or one sentence, within its limits, and does nothing else."""

import pytest

pytest.importorskip("h5py", reason="needs the extra 'imitation'")
pytest.importorskip("onnx", reason="needs the extra 'deploy'")
pytest.importorskip("onnxruntime", reason="needs the extra 'deploy'")

from .cases import CASES
from .harness import Harness
from .readers import READERS

NUM_INPUTS = 40
"""Inputs per reader; `benchmarks/fuzz.py` reads 20,000."""
SEED = 0


@pytest.fixture(scope="module")
def harness():
    with Harness() as made:
        yield made


@pytest.mark.parametrize("name", READERS)
def test_a_changed_input_ends_in_success_or_one_sentence(harness, name):
    tally = harness.run(name, NUM_INPUTS // READERS[name].cost, SEED)
    assert tally.faults == {}


@pytest.mark.parametrize("name", CASES)
def test_an_input_that_once_was_a_fault_is_handled(harness, name):
    case = CASES[name]
    found = harness.case(case.reader, name)
    assert found["outcome"] == ("refusal" if case.refusal else "success"), found["text"]
    assert case.refusal in found["text"]
