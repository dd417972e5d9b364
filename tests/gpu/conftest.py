"""Collect the kernel tests too for `pytest tests/gpu` on a GPU; without one, Triton's interpreter runs them."""

from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
KERNELS = ("ops", "model/test_encoder_backends.py", "bench/test_harness_on_cuda.py")


def pytest_configure(config: pytest.Config) -> None:
    if torch.cuda.is_available() and [Path(arg).resolve() for arg in config.args] == [HERE]:
        config.args += [str(HERE.parent / name) for name in KERNELS]
