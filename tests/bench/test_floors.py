"""Floors against numbers counted by hand."""

from dataclasses import replace

import pytest
import torch

from body_transformer import BodyGraph
from body_transformer.bench.clocks import QUICK
from body_transformer.bench.floors import (
    attention_bytes,
    copy_rate,
    encoder_flops,
    floor_ms,
    matmul_rate,
    policy_flops,
    read_ms,
)
from body_transformer.experiment import load_experiment
from body_transformer.model.config import PolicyConfig
from body_transformer.model.policy import Policy


def test_attention_moves_four_tensors_forward_and_twelve_with_gradients() -> None:
    one = 8192 * 2 * 16 * 32 * 2  # bytes of one tensor in bf16
    assert attention_bytes((8192, 2, 16, 32), 2, backward=False) == 4 * one
    assert attention_bytes((8192, 2, 16, 32), 2, backward=True) == 12 * one


def test_the_floor_on_the_h200_is_the_published_one() -> None:
    """16 microseconds for this row at 4.3 TB/s."""
    assert floor_ms(attention_bytes((8192, 2, 16, 32), 2, backward=False), 4.3e12) == pytest.approx(0.016, abs=5e-4)


def test_encoder_flops_equal_a_count_by_hand_in_which_masked_layers_count_only_the_ones() -> None:
    nodes, width, hidden, pairs = 3, 4, 8, 7
    graph = BodyGraph.from_edges(["a", "b", "c"], [("a", "b"), ("b", "c")])
    products = [
        (nodes, width, 3 * width),  # queries, keys, values
        (nodes, width, width),  # output
        (nodes, width, hidden),  # feed-forward
        (nodes, hidden, width),
    ]
    expected = sum(2 * a * b * c for a, b, c in products) + 2 * pairs * width + 2 * pairs * width  # scores, values
    config = PolicyConfig(variant="bot-hard", embed_dim=width, ff_dim=hidden, num_heads=1, num_layers=1)
    assert encoder_flops(graph, config) == expected
    assert encoder_flops(graph, replace(config, num_layers=2)) == 2 * expected
    more = 2 * 2 * (nodes**2 - pairs) * width
    assert encoder_flops(graph, replace(config, variant="bot-mix", num_layers=2)) == 2 * expected + more


@pytest.mark.parametrize("variant", ["mlp", "transformer"])
def test_policy_flops_equal_pytorchs_count(variant: str) -> None:
    """PyTorch's counter includes the zeros that pad the products of tokenizer and detokenizer."""
    from torch.utils.flop_counter import FlopCounterMode

    experiment = load_experiment("a1-walk")
    layout, config = experiment.layout(), experiment.policy_config(variant)
    policy = Policy(layout, config)
    with FlopCounterMode(display=False) as counter:
        policy(torch.zeros(1, layout.obs_dim))
    entries = policy.tokenizer.max_entries * layout.graph.num_nodes - layout.used_obs_dim
    outputs = 0 if variant == "mlp" else policy.detokenizer.max_outputs * layout.graph.num_nodes - layout.action_dim
    padding = 2 * (entries + outputs) * config.embed_dim
    assert policy_flops(layout, config) == counter.get_total_flops() - padding


def test_rates_are_measured_on_the_cpu() -> None:
    assert copy_rate("cpu", QUICK, 2**20) > 1e6
    assert matmul_rate("cpu", "fp32", QUICK, 32) > 1e6
    assert 0 < read_ms(4, "cpu", QUICK) < read_ms(2**24, "cpu", QUICK)
