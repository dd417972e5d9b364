"""Tests on a GPU are shared among processes: benchmarks/gpu_check.py."""

import pytest

from .gpu.conftest import share_of


@pytest.mark.parametrize("count", [1, 3, 8])
def test_the_shares_together_are_all_tests_once(count: int) -> None:
    shares = [share_of(list(range(7)), f"{number + 1}/{count}") for number in range(count)]
    assert sorted(item for share in shares for item in share) == list(range(7))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("share", ["0/3", "4/3", "2", "a/b", "-1/3"])
def test_a_share_that_does_not_exist_is_refused(share: str) -> None:
    with pytest.raises(pytest.UsageError, match="K from 1 to N"):
        share_of([], share)


def test_the_outcome_of_every_test_is_read(benchmark_script) -> None:
    log = "tests/gpu/test_a.py::test_b[B512 H2-x] PASSED [ 50%]\ntests/ops/test_c.py::test_d SKIPPED (needs CUDA)\n"
    found = benchmark_script("gpu_check").OUTCOME.findall(log)
    assert found == [("tests/gpu/test_a.py::test_b[B512 H2-x]", "PASSED"), ("tests/ops/test_c.py::test_d", "SKIPPED")]
