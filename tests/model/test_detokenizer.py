import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from body_transformer.model.detokenizer import Detokenizer, SharedDetokenizer

from .bodies import some

BOTH = pytest.mark.parametrize("kind", [Detokenizer, SharedDetokenizer])
NUM_NODES = 7

node_ids = st.lists(st.integers(0, NUM_NODES - 1), min_size=1, max_size=20)


def outputs_of(ids: list[int]) -> dict[int, list[int]]:
    """Return the outputs of each node, ascending."""
    return {node: [j for j, owner in enumerate(ids) if owner == node] for node in range(NUM_NODES)}


def node_by_node(ids: list[int], weights: dict[int, Tensor], biases: dict[int, Tensor], tokens: Tensor) -> Tensor:
    """Compute [B, A] with one nn.Linear per node, in a loop."""
    actions = torch.full((len(tokens), len(ids)), float("nan"))
    for node, outputs in outputs_of(ids).items():
        linear = nn.Linear(tokens.shape[2], len(outputs))
        linear.load_state_dict({"weight": weights[node], "bias": biases[node]})
        actions[:, outputs] = linear(tokens[:, node])
    return actions


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@some
@given(node_ids)
def test_the_detokenizer_equals_one_linear_layer_per_node(ids):
    detokenizer, tokens = Detokenizer(ids, 6, NUM_NODES), torch.randn(4, NUM_NODES, 6)
    weights = {node: detokenizer.weight[outputs] for node, outputs in outputs_of(ids).items()}
    biases = {node: detokenizer.bias[outputs] for node, outputs in outputs_of(ids).items()}
    expected = node_by_node(ids, weights, biases, tokens)
    torch.testing.assert_close(detokenizer(tokens), expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(detokenizer._dense_product(tokens), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@some
@given(node_ids)
def test_the_shared_detokenizer_gives_every_node_the_first_rows_of_one_linear_layer(ids):
    detokenizer, tokens = SharedDetokenizer(ids, 6, NUM_NODES), torch.randn(4, NUM_NODES, 6)
    counts = {node: len(outputs) for node, outputs in outputs_of(ids).items()}
    assert detokenizer.weight.shape == (max(counts.values()), 6)
    weights = {node: detokenizer.weight[:count] for node, count in counts.items()}
    biases = {node: detokenizer.bias[:count] for node, count in counts.items()}
    expected = node_by_node(ids, weights, biases, tokens)
    torch.testing.assert_close(detokenizer(tokens), expected, atol=1e-6, rtol=1e-5)


@BOTH
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_token_stays_in_its_own_nodes_outputs(kind, bad):
    ids, tokens = [3, 0, 3, 6], torch.randn(4, NUM_NODES, 6)
    detokenizer = kind(ids, 6, NUM_NODES)
    good = detokenizer(tokens)
    tokens[:, 3] = bad
    actions = detokenizer(tokens)
    assert not actions[:, [0, 2]].isfinite().any()
    assert torch.equal(actions[:, [1, 3]], good[:, [1, 3]])


@BOTH
def test_it_is_initialised_like_a_linear_layer(kind):
    torch.manual_seed(0)
    detokenizer = kind([0] * 100, 64, 1)
    for drawn in (detokenizer.weight, detokenizer.bias):
        assert 0.9 / 8 < drawn.abs().max() <= 1 / 8
        assert drawn.std().item() == pytest.approx(1 / 8 / 3**0.5, rel=0.15)
