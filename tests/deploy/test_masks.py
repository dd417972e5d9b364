import numpy as np
import pytest

from body_transformer.deploy.masks import all_true, any_true


@pytest.mark.parametrize("mask", [[False] * 12, [True] * 12, [False] * 11 + [True], [True] * 11 + [False], []])
def test_masks_are_answered_as_numpy_answers(mask):
    given = np.array(mask, bool)
    assert any_true(given) == given.any()
    assert all_true(given) == given.all()


def test_a_comparison_with_nan_is_false():
    assert not any_true(np.array([np.nan]) <= 1.0)
    assert not all_true(np.array([0.0, np.nan]) <= 1.0)
