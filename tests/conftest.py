"""Settings for all tests."""

import gc
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings

from . import triton_interpreter

settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")  # the same examples in every run; `--hypothesis-profile default` draws others
torch.set_num_threads(1)  # the models are small, so more threads only cost time
os.environ.setdefault("MUJOCO_GL", "disabled")  # dm_control looks for a display at its import
os.environ.pop("COLUMNS", None)  # the width of the window in which tests run; pytest-xdist sets 80
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a background shell, subprocesses would ignore Ctrl-C, too
    signal.signal(signal.SIGINT, signal.default_int_handler)
if not torch.cuda.is_available() and find_spec("triton"):
    os.environ["TRITON_INTERPRET"] = "1"
    triton_interpreter.use()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=3, help="kills per training by PPO; from 20 on, of every task")


@pytest.fixture(scope="session")
def kills(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--kills"))


@pytest.fixture(scope="module", autouse=True)
def collected() -> None:
    """Exempt what lives before the tests of a file from garbage collection: imported modules are a million objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Make the random numbers of a test independent of the tests before it."""
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Return a function that mounts an empty disk of so many kilobytes; it needs the rights to do so."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def unmount() -> None:
        subprocess.run(["umount", str(folder)], capture_output=True, check=False)

    def mount(kilobytes: int) -> Path:
        unmount()
        command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"a disk cannot be mounted here: {error}")
        return folder

    yield mount
    unmount()


@pytest.fixture(scope="session")
def device() -> str:
    """Return the device of kernels: the GPU if there is one, else the CPU, in Triton's interpreter."""
    return "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(scope="session")
def a1_urdf() -> Path:
    """Return the A1 description that the paper's authors simulate; it is not part of the project."""
    path = Path(__file__).parents[2] / "shared" / "data" / "unitree_a1" / "a1_legged_gym_BoT.urdf"
    if not path.is_file():
        pytest.skip(f"the authors' URDF is not part of the project, and not at {path}")
    return path


@pytest.fixture(scope="session")
def cmu_walker() -> Any:
    """Return dm_control's CMU humanoid, the walker of MoCapAct."""
    pytest.importorskip("dm_control")
    from dm_control.locomotion.walkers import cmu_humanoid

    return cmu_humanoid.CMUHumanoidPositionControlledV2020()


@pytest.fixture(scope="session")
def benchmark_script() -> Callable[[str], ModuleType]:
    """Return a function that loads benchmarks/NAME.py, which is not part of the package."""

    def load(name: str) -> ModuleType:
        spec = spec_from_file_location(name, Path(__file__).parents[1] / "benchmarks" / f"{name}.py")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load
