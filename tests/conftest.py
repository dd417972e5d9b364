"""Settings for all tests."""

import os
import signal
from collections.abc import Callable
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import settings

from . import triton_interpreter

settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")  # a change fails, or it does not; `--hypothesis-profile default` looks further
os.environ.setdefault("MUJOCO_GL", "disabled")  # dm_control looks for a display when it is imported
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # a shell in the background: what tests start would not hear Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
if not torch.cuda.is_available() and find_spec("triton"):
    os.environ["TRITON_INTERPRET"] = "1"
    triton_interpreter.use()


@pytest.fixture(autouse=True)
def seeded() -> None:
    """What a test draws does not depend on those before it."""
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002


@pytest.fixture(scope="session")
def device() -> str:
    """Where kernels run: on the GPU if there is one, else in Triton's interpreter."""
    return "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(scope="session")
def benchmark_script() -> Callable[[str], ModuleType]:
    """Loads benchmarks/NAME.py, which is no part of the package."""

    def load(name: str) -> ModuleType:
        spec = spec_from_file_location(name, Path(__file__).parents[1] / "benchmarks" / f"{name}.py")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load
