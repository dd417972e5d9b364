import pytest
import torch
from hypothesis import example, given
from torch import Tensor, nn

from body_transformer import BodyGraph, Layout, Term
from body_transformer.body.layout import UNUSED
from body_transformer.model.tokenizer import SharedTokenizer, Tokenizer

from .bodies import layouts, random_obs, some

UNUSED_OBS = Layout(BodyGraph.from_edges(["ball"], []), [Term.unused("clock", 2)], [Term.root("push", 1)])
BOTH = pytest.mark.parametrize("kind", [Tokenizer, SharedTokenizer])


def node_by_node(tokenizer: Tokenizer, layout: Layout, obs: Tensor) -> Tensor:
    """Compute [B, N, E] with one nn.Linear per node, in a loop."""
    used = [entry for entry, node in enumerate(layout.obs_node_ids) if node != UNUSED]
    tokens = []
    for k, node in enumerate(layout.graph.nodes):
        entries = layout.obs_ids(node)
        linear = nn.Linear(len(entries), tokenizer.weight.shape[1])
        with torch.no_grad():
            linear.weight.copy_(tokenizer.weight[[used.index(entry) for entry in entries]].T)
            linear.bias.copy_(tokenizer.bias[k])
        tokens.append(linear(obs[:, entries]))
    return torch.stack(tokens, dim=1)


def padded_node_by_node(tokenizer: SharedTokenizer, layout: Layout, obs: Tensor) -> Tensor:
    """Compute [B, N, E] with the shared nn.Linear on each node's entries and zeros after them, in a loop."""
    width = tokenizer.linear.in_features
    tokens = []
    for node in layout.graph.nodes:
        entries = obs[:, layout.obs_ids(node)]
        tokens.append(tokenizer.linear(torch.cat([entries, entries.new_zeros(len(obs), width - entries.shape[1])], 1)))
    return torch.stack(tokens, dim=1)


@some
@given(layouts())
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_the_tokenizer_equals_one_linear_layer_per_node(layout):
    tokenizer, obs = Tokenizer(layout, 6), random_obs(layout)
    torch.testing.assert_close(tokenizer(obs), node_by_node(tokenizer, layout, obs), atol=1e-6, rtol=1e-5)


@some
@given(layouts())
@example(UNUSED_OBS)
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_the_dense_product_gives_the_same_tokens_and_gradients(layout):
    tokenizer, obs = Tokenizer(layout, 6), random_obs(layout)
    whole, usual = tokenizer._dense_product(obs, tokenizer.bias), tokenizer(obs)
    torch.testing.assert_close(whole, usual, atol=1e-6, rtol=1e-5)
    upstream = torch.randn(whole.shape)
    parameters = [tokenizer.weight, tokenizer.bias]
    for ours, theirs in zip(
        *(torch.autograd.grad(tokens, parameters, upstream) for tokens in (whole, usual)), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


@some
@given(layouts())
def test_the_shared_tokenizer_equals_one_linear_layer_on_padded_entries(layout):
    tokenizer, obs = SharedTokenizer(layout, 6), random_obs(layout)
    expected = padded_node_by_node(tokenizer, layout, obs)
    torch.testing.assert_close(tokenizer(obs), expected, atol=1e-6, rtol=1e-5)


def test_the_tokenizer_has_the_parameters_of_one_linear_layer_per_node(layout):
    shapes = {name: list(parameter.shape) for name, parameter in Tokenizer(layout, 6).named_parameters()}
    assert shapes == {"weight": [layout.used_obs_dim, 6], "bias": [layout.graph.num_nodes, 6]}
    assert layout.used_obs_dim == 13


def test_the_shared_tokenizer_has_as_many_inputs_as_the_node_with_most_entries(layout):
    assert SharedTokenizer(layout, 6).linear.weight.shape == (6, 5)  # foot: three contacts, two positions


@BOTH
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_bad_entry_stays_in_its_own_nodes_token(kind, bad, layout, obs):
    tokenizer = kind(layout, 6)
    good = tokenizer(obs)
    for entry, owner in enumerate(layout.obs_node_ids):
        broken = obs.clone()
        broken[:, entry] = bad
        tokens = tokenizer(broken)
        for node in range(layout.graph.num_nodes):
            if node == owner:
                assert not tokens[:, node].isfinite().any()
            else:
                assert torch.equal(tokens[:, node], good[:, node])


@BOTH
def test_no_gradient_flows_to_entries_of_other_nodes_or_to_unused_ones(kind, layout, obs):
    tokenizer = kind(layout, 6)
    for node in range(layout.graph.num_nodes):
        entries = obs.clone().requires_grad_()
        tokenizer(entries)[:, node].square().sum().backward()
        assert ((entries.grad != 0).all(0).numpy() == (layout.obs_node_ids == node)).all()


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@BOTH
def test_a_body_without_used_observations_still_has_tokens(kind):
    layout = Layout(BodyGraph.from_edges(["only"], []), [Term.unused("clock", 2)], [Term.root("ctrl", 1)])
    tokens = kind(layout, 6)(torch.full((3, 2), float("nan")))
    assert tokens.shape == (3, 1, 6)
    assert tokens.isfinite().all()


def test_each_node_is_initialised_like_its_own_linear_layer():
    nodes = ["one", "four", "hundred", "none"]
    graph = BodyGraph.from_edges(nodes, [("one", "four"), ("one", "hundred"), ("one", "none")])
    sizes = {"one": 1, "four": 4, "hundred": 100}
    obs = [Term.node(f"o_{name}", name, dim) for name, dim in sizes.items()]
    torch.manual_seed(0)
    tokenizer = Tokenizer(Layout(graph, obs, [Term.root("ctrl", 1)]), 400)
    rows = tokenizer.weight.split(list(sizes.values()))
    for node, (weight, count) in enumerate(zip(rows, sizes.values(), strict=True)):
        bound = count**-0.5
        for drawn in (weight, tokenizer.bias[node]):
            assert 0.9 * bound < drawn.abs().max() <= bound
            assert drawn.std().item() == pytest.approx(bound / 3**0.5, rel=0.15)
            assert drawn.mean().abs() < 0.15 * bound
