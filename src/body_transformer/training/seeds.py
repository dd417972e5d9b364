"""Seeds that follow from others."""

import numpy as np


def derived_seed(*numbers: int) -> int:
    """The same numbers give the same seed, others another: of a run and one of its steps or processes."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])
