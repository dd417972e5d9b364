"""The policy on a robot's computer, which has only ONNX Runtime and NumPy."""

import gc
import subprocess
import sys
import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
from body_transformer.deploy.policy import OnnxPolicy, deviation

WITHOUT_TORCH = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked}:
            raise ImportError(name + " is not installed here")

sys.meta_path.insert(0, Blocked())
import numpy as np
from body_transformer.deploy.contract import Contract
from body_transformer.deploy.policy import OnnxPolicy
from body_transformer.deploy.robot import Command

contract = Contract.load({folder!r})
policy = OnnxPolicy({folder!r})
actions = policy(np.zeros(contract.obs_dim, np.float32))
assert actions.shape == (contract.action_dim,) == (12,), actions.shape
assert Command.damping(12, 5.0).kd.tolist() == [5.0] * 12
loaded = {{name.split(".")[0] for name in sys.modules}}
assert loaded.isdisjoint({blocked}), loaded
print(policy.verify())
"""
HEAVY = {"torch", "mujoco", "yaml", "tyro", "rich", "safetensors", "matplotlib", "scipy"}
BLOCKED = HEAVY | {"onnx", "onnxscript", "mjlab"}


@pytest.fixture(scope="module")
def run(folder: Path) -> OnnxPolicy:
    return OnnxPolicy(folder)


def without(blocked: set[str], folder: Path) -> subprocess.CompletedProcess[str]:
    code = WITHOUT_TORCH.format(folder=str(folder), blocked=blocked)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_neither_torch_nor_mujoco_is_needed(folder):
    found = without(BLOCKED, folder)
    assert found.returncode == 0, found.stderr
    assert float(found.stdout) <= 1e-5


def test_without_onnx_runtime_the_error_names_the_package_to_install(folder):
    found = without(BLOCKED | {"onnxruntime"}, folder)
    assert "ValueError: running an exported policy needs ONNX Runtime: pip install onnxruntime" in found.stderr


def test_every_action_is_returned_in_the_same_memory(run):
    first = run(np.zeros(48, np.float32))
    kept = first.copy()
    second = run(np.ones(48, np.float32))
    assert first.dtype == np.float32
    assert np.shares_memory(first, second)
    assert not np.array_equal(kept, second)
    assert np.array_equal(run(np.zeros(48, np.float32)), kept)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_observation_is_not_changed_and_need_not_be_contiguous_or_single(run, kind):
    wide = np.random.default_rng(0).normal(size=(48, 2)).astype(kind)
    before = wide.copy()
    found = run(wide[:, 0]).copy()
    assert np.array_equal(wide, before)
    assert np.array_equal(found, run(np.ascontiguousarray(wide[:, 0], np.float32)))


@pytest.mark.parametrize("shape", [(), (1,), (47,), (1, 48), (48, 1)])
def test_an_observation_of_another_shape_is_refused(run, shape):
    with pytest.raises(ValueError, match=r"obs must be \[48\]; got \["):
        run(np.zeros(shape, np.float32))


def test_the_memory_does_not_grow_with_the_number_of_calls(run):
    obs, num_calls = np.zeros(48, np.float32), 1000

    def memory_after() -> tuple[int, int]:
        for _ in range(num_calls):
            run(obs)
        gc.collect()
        return tracemalloc.get_traced_memory()[0], _resident_kb()

    tracemalloc.start()
    rounds = [memory_after() for _ in range(5)]
    tracemalloc.stop()
    # a leak shows in every round; occasional growth of the interpreter's or runtime's tables does not
    traced, resident = (min(b - a for a, b in pairwise(numbers)) for numbers in zip(*rounds, strict=True))
    assert traced < num_calls  # one object per call would be sixteen times that
    assert resident < 50


def _resident_kb() -> int:
    file = Path("/proc/self/statm")
    return int(file.read_text().split()[1]) * 4 if file.exists() else 0


def test_nan_is_an_infinite_deviation():
    right = np.zeros((1, 3), np.float32)
    assert deviation(np.full((1, 3), np.nan, np.float32), right) == np.inf
    assert deviation(right, np.full((1, 3), np.nan, np.float32)) == np.inf


def test_deviation_is_relative_to_the_largest_action_if_that_is_beyond_one():
    expected = np.array([[0.5, 0.0], [100.0, 0.0]], np.float32)
    assert deviation(expected + np.float32(0.25), expected).tolist() == [0.25, 0.0025]
