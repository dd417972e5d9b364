"""Policies in Python: statistics of observations, wrong arguments, and the documentation of fields."""

import inspect
from typing import get_args

import numpy as np
import pytest
import torch

from body_transformer import BodyGraph, Critic, Layout, Policy, PolicyConfig, Term
from body_transformer.model.variants import VARIANTS, VariantName

GRAPH = BodyGraph.from_edges(["torso", "arm"], [("torso", "arm")], joints={"elbow": "arm"})
LAYOUT = Layout(GRAPH, [Term.root("gravity", 3), Term.joints("joint_pos", ["elbow"])], Term.joints("ctrl", ["elbow"]))
SMALL = PolicyConfig(embed_dim=8, num_layers=1, num_heads=2, ff_dim=8)


@pytest.fixture
def policy():
    return Policy(LAYOUT, SMALL)


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor, lambda obs: obs.astype(np.float32)])
def test_the_normaliser_is_fitted_to_arrays_and_tensors(policy, convert):
    obs = np.random.default_rng(0).normal(3, 2, (500, 4))
    policy.fit_normalizer(convert(obs))
    normal = policy.normalizer(torch.as_tensor(obs))
    torch.testing.assert_close(normal.mean(0), torch.zeros(4), atol=1e-5, rtol=0)
    torch.testing.assert_close(normal.std(0, correction=0), torch.ones(4), atol=1e-5, rtol=0)


def test_observations_that_are_not_finite_are_no_statistics(policy):
    with pytest.raises(ValueError, match=r"mean has entries that are not finite: \[1\]"):
        policy.fit_normalizer(np.array([[0, np.nan, 0, 0]]))
    with pytest.raises(ValueError, match=r"obs must be \[B, 4\]; got \[2, 5\]"):
        policy.fit_normalizer(np.zeros((2, 5)))


def test_a_numpy_observation_is_refused_in_one_sentence(policy):
    message = r"^obs must be a torch.Tensor \[B, 4\]; got ndarray: torch.as_tensor\(obs\) converts arrays$"
    for model in (policy, Critic(LAYOUT, SMALL)):
        with pytest.raises(ValueError, match=message):
            model(np.zeros((2, 4)))


@pytest.mark.parametrize("kind", [Policy, Critic])
def test_arguments_of_a_wrong_type_are_named(kind):
    name = kind.__name__
    with pytest.raises(ValueError, match=rf"^{name} takes a Layout; got BodyGraph: Layout.proprioceptive\(graph\) is"):
        kind(GRAPH)
    with pytest.raises(
        ValueError, match=rf"^{name} takes a PolicyConfig; got dict: write {name}\(layout, PolicyConfig"
    ):
        kind(LAYOUT, {"variant": "mlp"})


def test_the_type_of_a_variant_names_every_variant():
    assert get_args(VariantName) == tuple(VARIANTS)


@pytest.mark.parametrize("kind", [PolicyConfig, BodyGraph, Layout, Term])
def test_help_shows_the_documentation_of_every_field(kind):
    text = inspect.getdoc(kind)
    for name in kind.__dataclass_fields__:
        assert f"    {name}: " in text
    assert "Number of attention heads; it must divide embed_dim." in inspect.getdoc(PolicyConfig)
