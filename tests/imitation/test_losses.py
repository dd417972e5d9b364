"""Losses of behaviour cloning."""

import pytest
import torch

from body_transformer import Policy, PolicyConfig
from body_transformer.experiment import load_experiment
from body_transformer.imitation.losses import CloningLoss, negative_likelihood, squared_error

LAYOUT = load_experiment("adroit-door").layout()
SMALL = {"variant": "bot-hard", "embed_dim": 8, "num_layers": 1, "num_heads": 2, "ff_dim": 8}


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(5, LAYOUT.obs_dim), torch.randn(5, LAYOUT.action_dim)


def test_squared_error_is_the_mean_over_batch_and_actions():
    policy = Policy(LAYOUT, PolicyConfig(**SMALL))
    obs, actions = batch()
    with torch.no_grad():
        expected = float((policy(obs) - actions).square().mean())
        assert float(squared_error(policy, obs, actions)) == pytest.approx(expected)


@pytest.mark.parametrize("std", ["fixed", "learned"])
def test_the_likelihood_is_that_of_the_policys_distribution(std):
    policy = Policy(LAYOUT, PolicyConfig(**SMALL, head="gaussian", std=std, init_std=0.3))
    obs, actions = batch()
    loss = negative_likelihood(policy, obs, actions)
    expected = -policy.distribution(obs).log_prob(actions).mean()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    loss.backward()
    if std == "learned":
        assert policy.log_std.grad.abs().min() > 0


def test_a_deterministic_policy_has_no_likelihood():
    with pytest.raises(ValueError, match="needs a policy with a Gaussian head"):
        CloningLoss(Policy(LAYOUT, PolicyConfig(**SMALL)), "likelihood", torch.arange(LAYOUT.obs_dim))


def test_a_loss_that_does_not_train_the_standard_deviation_is_refused():
    policy = Policy(LAYOUT, PolicyConfig(**SMALL, head="gaussian"))
    with pytest.raises(ValueError, match="loss 'mse' does not train a learned std"):
        CloningLoss(policy, "mse", torch.arange(LAYOUT.obs_dim))
    fixed = Policy(LAYOUT, PolicyConfig(**SMALL, head="gaussian", std="fixed"))
    CloningLoss(fixed, "mse", torch.arange(LAYOUT.obs_dim))


def test_entries_that_are_not_read_are_zero():
    policy = Policy(LAYOUT, PolicyConfig(**SMALL))
    obs, actions = batch()
    used = torch.arange(3, LAYOUT.obs_dim)
    full = obs.clone()
    full[:, :3] = 0
    assert torch.equal(CloningLoss(policy, "mse", used)(obs[:, used], actions), squared_error(policy, full, actions))
