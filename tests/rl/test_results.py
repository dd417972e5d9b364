"""What rollouts say together."""

import pytest
import torch

pytest.importorskip("mjlab")

from body_transformer.rl.results import means, results


def test_who_died_did_not_survive_and_a_speed_is_off_in_either_direction():
    found = results(
        torch.tensor([1000, 400]),
        torch.tensor([50.0, 10.0]),
        torch.tensor([False, True]),
        torch.tensor([0.45, 0.6]),
        torch.tensor([0.5, 0.5]),
    )
    assert [result.survived for result in found] == [1.0, 0.0]
    assert [result.speed_error for result in found] == pytest.approx([0.05, 0.1])
    assert {name: value.mean for name, value in means(found).items()} == pytest.approx(
        {"total_reward": 30.0, "length": 700.0, "survived": 0.5, "forward_speed": 0.525, "speed_error": 0.075}
    )


def test_what_an_environment_does_not_say_is_no_metric():
    found = results(torch.tensor([3]), torch.tensor([1.0]), torch.tensor([True]))
    assert list(means(found)) == ["total_reward", "length", "survived"]
