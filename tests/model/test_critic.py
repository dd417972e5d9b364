import pytest
import torch

from body_transformer import Critic
from body_transformer.model.variants import VARIANTS

from .bodies import ENCODERS, make_policy, small


def make_critic(layout, **changes) -> Critic:
    torch.manual_seed(0)
    return Critic(layout, small(**changes))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("variant", ENCODERS)
def test_the_value_is_the_mean_of_one_linear_value_a_node(variant, shared, layout, obs):
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


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_value_a_sample_even_in_an_empty_or_single_batch(variant, layout, obs):
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


def test_an_observation_of_another_shape_is_an_error_that_says_both(layout):
    with pytest.raises(ValueError, match=rf"obs must be \[B, {layout.obs_dim}\]; got \[3, 4\]"):
        make_critic(layout)(torch.zeros(3, 4))


def test_observations_are_normalized_and_clipped(layout, obs):
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


def test_normal_init_reaches_the_critic(layout):
    critic = make_critic(layout, init="normal", embed_dim=64)
    assert critic.detokenizer.weight.std().item() == pytest.approx(0.02, rel=0.2)
    assert not critic.detokenizer.bias.any()


def test_num_parameters_counts_what_an_optimizer_would_get(layout):
    critic = make_critic(layout)
    assert critic.num_parameters == sum(parameter.numel() for parameter in critic.parameters())
