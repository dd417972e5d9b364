import pytest
from torch import Tensor

from body_transformer import Layout

from .bodies import random_obs, uneven_body


@pytest.fixture(scope="module")
def layout() -> Layout:
    return uneven_body()


@pytest.fixture(scope="module")
def obs(layout: Layout) -> Tensor:
    return random_obs(layout)
