"""Invariants of every body: the reach of influence, the order of nodes, and seeds."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from body_transformer import BodyGraph, Layout, Policy, Term
from body_transformer.body.layout import UNUSED
from body_transformer.model.mask import random_mask
from body_transformer.model.variants import VARIANTS

from ..random_graphs import graphs
from .bodies import ENCODERS, chain, few, layouts, make_policy, random_obs, some

layers = st.integers(1, 3)


def influence(policy: Policy, layout: Layout) -> np.ndarray:
    """Return where the gradient of an action with respect to an entry is not exactly zero: [A, O]."""
    obs = random_obs(layout, batch=1, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(policy.double(), obs)  # [1, A, 1, O]
    return jacobian[0, :, 0].numpy() != 0


def within(layout: Layout, reach: np.ndarray) -> np.ndarray:
    """Return where an entry should influence an action [A, O], given `reach` [N, N] between nodes."""
    influenced = reach[layout.action_node_ids[:, None], layout.obs_node_ids[None, :]]
    return influenced & (layout.obs_node_ids != UNUSED)


def hops_along(mask: np.ndarray, num_hops: int) -> np.ndarray:
    """Return which pairs of nodes are at most `num_hops` apart: [N, N]."""
    return np.linalg.matrix_power(mask.astype(float), num_hops) > 0


@some
@given(layouts(), layers, st.sampled_from(["post", "pre"]))
def test_exactly_the_nodes_within_the_receptive_field_have_a_gradient(layout, num_layers, norm):
    policy = make_policy(layout, variant="bot-hard", num_layers=num_layers, norm=norm)
    assert (influence(policy, layout) == within(layout, layout.graph.hops <= num_layers)).all()


@some
@given(layouts(), layers, st.data())
def test_a_node_beyond_the_receptive_field_cannot_change_the_action_and_one_within_can(layout, num_layers, data):
    policy = make_policy(layout, variant="bot-hard", num_layers=num_layers).double()
    observing = sorted(set(layout.obs_node_ids.tolist()) - {UNUSED})
    assume(observing)
    node = data.draw(st.sampled_from(observing))
    obs = random_obs(layout, dtype=torch.float64)
    changed = obs.clone()
    changed[:, layout.obs_ids(layout.graph.nodes[node])] += 3.0
    before, after = policy(obs), policy(changed)
    near = torch.from_numpy(layout.graph.hops[layout.action_node_ids, node] <= num_layers)
    assert torch.equal(before[:, ~near], after[:, ~near])  # bit by bit
    assert (before[:, near] != after[:, near]).all()


@some
@given(layouts(), st.integers(1, 4))
def test_in_mix_every_node_reaches_every_other_from_the_second_layer_on(layout, num_layers):
    policy = make_policy(layout, variant="bot-mix", num_layers=num_layers)
    reach = layout.graph.hops <= (1 if num_layers == 1 else np.inf)
    assert (influence(policy, layout) == within(layout, reach)).all()


@few
@given(layouts(), st.sampled_from(["transformer", "bot-soft"]))
def test_without_a_mask_every_node_reaches_every_other_in_one_layer(layout, variant):
    policy = make_policy(layout, variant=variant, num_layers=1)
    assert (influence(policy, layout) == within(layout, layout.graph.hops >= 0)).all()


@some
@given(layouts(), layers, st.integers(0, 2**32 - 1))
def test_in_the_random_variant_the_random_mask_determines_the_receptive_field(layout, num_layers, mask_seed):
    policy = make_policy(layout, variant="bot-hard-random", num_layers=num_layers, mask_seed=mask_seed)
    reach = hops_along(random_mask(layout.graph, mask_seed), num_layers)
    assert (influence(policy, layout) == within(layout, reach)).all()


@some
@given(layouts(), st.sampled_from(["bot-hard-random", "bot-mix-random"]), st.integers(0, 2**32 - 1))
def test_the_random_variants_never_give_nan_not_even_in_a_gradient(layout, variant, mask_seed):
    policy = make_policy(layout, variant=variant, mask_seed=mask_seed)
    actions = policy(random_obs(layout))
    actions.square().sum().backward()
    assert actions.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in policy.parameters())


# -- node order --------------------------------------------------------------------------------------------------------


def reordered(layout: Layout, order: list[int]) -> Layout:
    """Return the body with its nodes in another order; entries and actions stay in place."""
    graph = layout.graph
    nodes = [graph.nodes[k] for k in order]
    same = BodyGraph.from_edges(nodes, graph.edges, graph.root, graph.extra_edges)
    return Layout(same, layout.obs, layout.actions)


def reordered_weights(policy: Policy, order: list[int]) -> dict[str, Tensor]:
    """Return the policy's weights for the reordered body: everything with one row per node is reordered."""
    weights = dict(policy.state_dict())
    num_nodes, width = len(order), policy.config.embed_dim
    for name in ("tokenizer.bias", "encoder.position"):
        if name in weights:
            weights[name] = weights[name][order]
    if policy.config.variant == "mlp":
        flat = torch.arange(num_nodes * width).view(num_nodes, width)[order].flatten()
        for name, dim in (("encoder.layers.1.weight", 1), ("encoder.layers.5.weight", 0), ("encoder.layers.5.bias", 0)):
            weights[name] = weights[name].index_select(dim, flat)
        weights["detokenizer.linear.weight"] = weights["detokenizer.linear.weight"][:, flat]
    return weights


@some
@given(layouts(), st.sampled_from(["mlp", "transformer", "bot-hard", "bot-mix", "bot-soft"]), st.data())
def test_the_order_of_the_nodes_does_not_matter(layout, variant, data):
    order = data.draw(st.permutations(range(layout.graph.num_nodes)))
    original = make_policy(layout, variant=variant)
    moved = Policy(reordered(layout, order), original.config)
    moved.load_state_dict(reordered_weights(original, order))
    obs = random_obs(layout)
    torch.testing.assert_close(moved(obs), original(obs), atol=1e-5, rtol=1e-5)


def test_reordered_entries_only_reorder_the_weights_and_the_actions(layout, obs):
    original = make_policy(layout, variant="bot-hard")
    backwards = Layout(layout.graph, layout.obs[::-1], layout.actions[::-1])
    slices = list(layout.obs_slices.values())[::-1]
    entries = [entry for part in slices for entry in range(part.start, part.stop)]
    actions = [6, *range(6)]
    used = np.flatnonzero(layout.obs_node_ids != UNUSED).tolist()
    moved, weights = Policy(backwards, original.config), dict(original.state_dict())
    weights["tokenizer.weight"] = weights["tokenizer.weight"][[used.index(entry) for entry in entries if entry in used]]
    weights["detokenizer.weight"] = weights["detokenizer.weight"][actions]
    weights["detokenizer.bias"] = weights["detokenizer.bias"][actions]
    moved.load_state_dict(weights)
    torch.testing.assert_close(moved(obs[:, entries]), original(obs)[:, actions], atol=1e-5, rtol=1e-5)


# -- comparison of variants --------------------------------------------------------------------------------------------


def complete_body() -> Layout:
    nodes = ["a", "b", "c", "d"]
    edges = [("a", "b"), ("a", "c"), ("a", "d")]
    graph = BodyGraph.from_edges(nodes, edges, extra_edges=[("b", "c"), ("b", "d"), ("c", "d")])
    return Layout(graph, [Term.bodies("pos", nodes, 2)], [Term.bodies("ctrl", nodes, 1)])


def test_mix_hard_soft_and_transformer_differ_on_a_body():
    layout = chain(6)
    actions = [make_policy(layout, variant=variant)(random_obs(layout)) for variant in ENCODERS]
    for i, first in enumerate(actions):
        for second in actions[:i]:
            assert (first - second).abs().max() > 1e-3


@some
@given(graphs(min_nodes=3, loops=False))
def test_mix_differs_from_hard_and_from_transformer_on_any_body(graph):
    layout = Layout(graph, [Term.bodies("pos", graph.nodes, 2)], [Term.bodies("ctrl", graph.nodes, 1)])
    obs = random_obs(layout)
    mix, hard, everywhere = (
        make_policy(layout, variant=variant)(obs) for variant in ("bot-mix", "bot-hard", "transformer")
    )
    assert (mix - hard).abs().max() > 1e-5
    assert (mix - everywhere).abs().max() > 1e-5


@pytest.mark.parametrize("variant", ["bot-hard", "bot-mix", "bot-hard-random", "bot-mix-random"])
def test_every_masked_variant_is_a_transformer_on_a_complete_body(variant):
    layout = complete_body()
    obs = random_obs(layout)
    assert torch.equal(make_policy(layout, variant=variant)(obs), make_policy(layout, variant="transformer")(obs))


def test_soft_with_equal_scalars_is_a_transformer(layout, obs):
    soft = make_policy(layout, variant="bot-soft")
    with torch.no_grad():
        soft.encoder.hop_bias.fill_(0.7)
    expected = make_policy(layout, variant="transformer")(obs)
    torch.testing.assert_close(soft(obs), expected, atol=1e-6, rtol=1e-5)


def test_soft_with_very_low_scalars_beyond_one_hop_is_hard(layout, obs):
    soft = make_policy(layout, variant="bot-soft")
    with torch.no_grad():
        soft.encoder.hop_bias.copy_(torch.tensor([0.0, 0.0] + [-1e4] * (layout.graph.diameter - 1)))
    expected = make_policy(layout, variant="bot-hard")(obs)
    torch.testing.assert_close(soft(obs), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("init", ["torch", "normal", "normal-encoder"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_same_seed_gives_every_variant_the_same_weights_where_they_share_parts(variant, init, shared, layout):
    reference = make_policy(layout, 3, variant="transformer", init=init, shared_tokenizer=shared).state_dict()
    weights = make_policy(layout, 3, variant=variant, init=init, shared_tokenizer=shared).state_dict()
    parts = "tokenizer." if variant == "mlp" else ("tokenizer.", "encoder.", "detokenizer.")
    common = [name for name in reference if name.startswith(parts)]
    assert common
    assert [name for name in common if not torch.equal(weights[name], reference[name])] == []


def test_another_seed_gives_other_weights(layout, obs):
    assert not torch.equal(make_policy(layout, 0)(obs), make_policy(layout, 1)(obs))
