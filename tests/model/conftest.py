from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from body_transformer import Layout

from .bodies import random_obs, uneven_body


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """The models are small: more threads only cost."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def layout() -> Layout:
    return uneven_body()


@pytest.fixture(scope="module")
def obs(layout: Layout) -> Tensor:
    return random_obs(layout)
