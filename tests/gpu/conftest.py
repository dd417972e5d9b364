"""On a GPU, `pytest tests/gpu` collects the kernel tests too. Without a GPU, they run in Triton's interpreter.

`--share 2/8` runs the second of eight shares, so that eight processes run all tests without pytest-xdist.
"""

from pathlib import Path
from typing import TypeVar

import pytest
import torch

T = TypeVar("T")
HERE = Path(__file__).parent
KERNELS = ("ops", "model/test_encoder_backends.py", "bench/test_harness_on_cuda.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--share", metavar="K/N", default="1/1", help="run the K-th of N shares of the tests")


def pytest_configure(config: pytest.Config) -> None:
    if torch.cuda.is_available() and [Path(arg).resolve() for arg in config.args] == [HERE]:
        config.args += [str(HERE.parent / name) for name in KERNELS]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items[:] = share_of(items, config.getoption("--share", "1/1"))  # not registered when all of tests/ is run


def share_of(items: list[T], share: str) -> list[T]:
    """Return every N-th item from the K-th on, so that the cases of a long test go to different shares."""
    number, _, count = share.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise pytest.UsageError(f"--share must be K/N with K from 1 to N, such as 2/8; got {share}")
    return items[int(number) - 1 :: int(count)]
