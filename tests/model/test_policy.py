import math
import re

import pytest
import torch
from torch.distributions import MultivariateNormal

from body_transformer import Critic, Policy
from body_transformer.model.variants import VARIANTS

from .bodies import ENCODERS, chain, make_policy, ops_of, random_obs, small

ALL = pytest.mark.parametrize("variant", VARIANTS)


def make_critic(layout, **changes) -> Critic:
    torch.manual_seed(0)
    return Critic(layout, small(**changes))


@ALL
def test_an_observation_becomes_an_action_that_depends_on_no_other_sample(variant, layout, obs):
    policy = make_policy(layout, variant=variant)
    actions = policy(obs)
    assert actions.shape == (5, 7)
    one_by_one = torch.cat([policy(row[None]) for row in obs])
    torch.testing.assert_close(actions, one_by_one, atol=1e-6, rtol=1e-5)


@ALL
@pytest.mark.parametrize("shared", [False, True])
def test_an_empty_batch_gives_no_actions(variant, shared, layout):
    policy = make_policy(layout, variant=variant, shared_tokenizer=shared)
    assert policy(torch.zeros(0, layout.obs_dim)).shape == (0, layout.action_dim)


@ALL
@pytest.mark.parametrize("shared", [False, True])
def test_a_policy_is_the_composition_of_its_parts(variant, shared, layout, obs):
    policy = make_policy(layout, variant=variant, shared_tokenizer=shared).double()
    upstream = torch.randn(5, layout.action_dim, dtype=torch.float64)
    whole = policy(obs.double())
    tokens = policy.tokenizer(policy.normalizer(obs.double()), policy.encoder.position)
    in_parts = policy.detokenizer(policy.encoder(tokens))
    torch.testing.assert_close(whole, in_parts)
    parameters = [parameter for parameter in policy.parameters() if parameter is not policy.log_std]
    for ours, theirs in zip(
        *(torch.autograd.grad(out, parameters, upstream) for out in (whole, in_parts)), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


@ALL
def test_a_policy_gives_the_same_actions_in_single_and_double_precision(variant, layout, obs):
    policy = make_policy(layout, variant=variant)
    single = policy(obs)
    double = policy.double()(obs.double())
    assert double.dtype == torch.float64
    torch.testing.assert_close(double, single.double(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("shape", [(13,), (5, 16), (5, 18), (17,), (1, 5, 17), (), (17, 5)])
def test_an_observation_of_another_shape_is_an_error_with_both_shapes(shape, layout):
    for module in (make_policy(layout), make_critic(layout)):
        with pytest.raises(ValueError, match=re.escape(f"obs must be [B, {layout.obs_dim}]; got {list(shape)}")):
            module(torch.zeros(shape))


@ALL
def test_the_normalizer_is_applied_inside_the_policy(variant, layout, obs):
    policy = make_policy(layout, variant=variant)
    plain = policy(obs)
    mean, var = torch.randn(layout.obs_dim), torch.rand(layout.obs_dim) + 0.5
    policy.normalizer.set_statistics(mean, var)
    torch.testing.assert_close(policy(obs * var.sqrt() + mean), plain, atol=1e-4, rtol=1e-4)


def test_obs_clip_bounds_the_input_of_the_tokenizer(layout, obs):
    policy = make_policy(layout, obs_clip=0.5)
    assert torch.equal(policy(obs.sign() * 100), policy(obs.sign() * 0.5))


@ALL
def test_unused_entries_have_no_effect_even_if_they_are_nan(variant, layout, obs):
    policy = make_policy(layout, variant=variant)
    broken = obs.clone()
    broken[:, torch.from_numpy(layout.obs_node_ids < 0)] = float("nan")
    assert torch.equal(policy(broken), policy(obs))


@ALL
def test_every_parameter_gets_a_gradient(variant, layout, obs):
    policy = make_policy(layout, variant=variant, head="gaussian")
    policy.distribution(obs).log_prob(torch.ones(5, 7)).sum().backward()
    without = [name for name, parameter in policy.named_parameters() if parameter.grad is None]
    assert without == []


@pytest.mark.parametrize("changes", [{}, {"shared_tokenizer": True}, {"variant": "bot-soft"}], ids=str)
def test_no_part_loops_over_the_nodes(changes):
    counts = [ops_of(make_policy(chain(size), **changes), random_obs(chain(size))) for size in (2, 30)]
    assert counts[0] == counts[1]


def test_forward_is_deterministic_in_training_mode_too(layout, obs):
    policy = make_policy(layout, head="gaussian").train()
    assert torch.equal(policy(obs), policy(obs))


def test_without_a_config_a_policy_has_the_papers_reinforcement_learning_setting(layout):
    policy = Policy(layout)
    assert (policy.config.variant, len(policy.encoder.layers)) == ("bot-mix", 10)


# -- the Gaussian head -------------------------------------------------------------------------------------------------


def test_a_learned_std_is_a_parameter(layout):
    policy = make_policy(layout, head="gaussian", std="learned", init_std=0.5)
    assert "log_std" in dict(policy.named_parameters())
    torch.testing.assert_close(policy.log_std.exp(), torch.full((7,), 0.5))


def test_a_fixed_std_is_a_buffer_that_is_saved_but_not_trained(layout):
    policy = make_policy(layout, head="gaussian", std="fixed", init_std=0.1)
    assert "log_std" not in dict(policy.named_parameters())
    assert "log_std" in policy.state_dict()
    torch.testing.assert_close(policy.log_std.exp(), torch.full((7,), 0.1))


@pytest.mark.parametrize("init_std", [1, 2, 0.5])
def test_a_whole_number_is_a_standard_deviation_too(init_std, layout):
    log_std = make_policy(layout, head="gaussian", init_std=init_std).log_std
    assert log_std.dtype == torch.float32
    assert log_std[0].item() == pytest.approx(math.log(init_std))


@pytest.mark.parametrize("std", ["learned", "fixed"])
@pytest.mark.parametrize("squash", ["none", "tanh"])
def test_the_distribution_is_a_gaussian_around_the_action(std, squash, layout, obs):
    policy = make_policy(layout, head="gaussian", std=std, init_std=0.3, squash=squash)
    with torch.no_grad():
        policy.log_std.add_(torch.linspace(-1, 1, 7))
        distribution, sample = policy.distribution(obs), torch.randn(5, 7)
        expected = MultivariateNormal(policy(obs), policy.log_std.exp().diag() ** 2)
    assert distribution.batch_shape == (5,)
    assert torch.equal(distribution.mean, policy(obs))
    torch.testing.assert_close(distribution.log_prob(sample), expected.log_prob(sample), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(distribution.entropy(), expected.entropy())


def test_samples_have_the_standard_deviation_of_the_head(layout, obs):
    policy = make_policy(layout, head="gaussian", init_std=0.3)
    torch.manual_seed(0)
    samples = policy.distribution(obs[:1]).sample((4000,))
    torch.testing.assert_close(samples.std(0), torch.full((1, 7), 0.3), atol=0, rtol=0.06)


def test_a_deterministic_policy_has_no_standard_deviation_and_no_distribution(layout, obs):
    policy = make_policy(layout, head="deterministic")
    assert policy.log_std is None
    assert "log_std" not in policy.state_dict()
    with pytest.raises(ValueError, match=r"this policy is deterministic.*head='gaussian'"):
        policy.distribution(obs)


@ALL
def test_tanh_bounds_the_action(variant, layout, obs):
    plain, squashed = (make_policy(layout, variant=variant, squash=squash) for squash in ("none", "tanh"))
    for policy in (plain, squashed):
        with torch.no_grad():
            for parameter in policy.detokenizer.parameters():
                parameter.mul_(20)
    assert plain(obs).abs().max() > 1
    assert squashed(obs).abs().max() <= 1
    torch.testing.assert_close(squashed(obs), plain(obs).tanh())


# -- the critic ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("variant", ENCODERS)
def test_a_critics_value_is_the_mean_of_one_linear_value_per_node(variant, shared, layout, obs):
    critic = make_critic(layout, variant=variant, shared_tokenizer=shared)
    tokens = critic.encoder(critic.tokenizer(obs, critic.encoder.position))
    weight, bias = critic.detokenizer.weight, critic.detokenizer.bias
    assert weight.shape == ((1, 8) if shared else (6, 8))
    values = [tokens[:, k] @ weight[0 if shared else k] + bias[0 if shared else k] for k in range(6)]
    torch.testing.assert_close(critic(obs), sum(values) / 6)


def test_the_mlp_critic_has_one_value_for_all_nodes(layout, obs):
    critic = make_critic(layout, variant="mlp")
    tokens = critic.encoder(critic.tokenizer(obs, critic.encoder.position))
    assert critic.detokenizer.linear.weight.shape == (1, 6 * 8)
    torch.testing.assert_close(critic(obs), critic.detokenizer.linear(tokens.flatten(1)).squeeze(1))


@ALL
def test_a_critic_gives_one_value_per_sample_even_in_an_empty_or_single_batch(variant, layout, obs):
    critic = make_critic(layout, variant=variant)
    assert critic(obs).shape == (5,)
    assert critic(obs[:1]).shape == (1,)
    assert critic(obs[:0]).shape == (0,)
    torch.testing.assert_close(critic(obs)[2:3], critic(obs[2:3]))


def test_the_critic_reads_nodes_without_actions_too(layout, obs):
    changed = obs.clone()
    changed[:, layout.obs_ids("foot")] += 1
    critic = make_critic(layout, variant="bot-hard", num_layers=1)
    assert (critic(changed) != critic(obs)).all()


def test_a_critics_observations_are_normalized_and_clipped(layout, obs):
    critic = make_critic(layout, obs_clip=0.5)
    assert torch.equal(critic(obs.sign() * 100), critic(obs.sign() * 0.5))
    critic.normalizer.set_statistics(obs.mean(0), obs.var(0))
    assert not torch.equal(critic(obs.sign() * 100), critic(obs.sign() * 0.5))


def test_the_critic_shares_no_weights_with_the_policy_of_the_same_config(layout):
    policy, critic = make_policy(layout), make_critic(layout)
    pointers = {parameter.data_ptr() for parameter in policy.parameters()}
    assert pointers.isdisjoint(parameter.data_ptr() for parameter in critic.parameters())


def test_a_gaussian_config_gives_the_critic_no_standard_deviation(layout):
    assert "log_std" not in make_critic(layout, head="gaussian").state_dict()


def test_normal_init_applies_to_the_critic(layout):
    critic = make_critic(layout, init="normal", embed_dim=64)
    assert critic.detokenizer.weight.std().item() == pytest.approx(0.02, rel=0.2)
    assert not critic.detokenizer.bias.any()
