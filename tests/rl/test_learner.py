"""The learner of the paper's humanoid experiments has the numbers of the authors' PPO (rl_games)."""

from contextlib import closing
from dataclasses import replace

import pytest
import torch

pytest.importorskip("mjlab", reason="needs the extra 'rl'")

from tensordict import TensorDict

from body_transformer.experiment import load_experiment
from body_transformer.rl.learner import Learner
from body_transformer.rl.registry import make_env


@pytest.mark.parametrize("name", ["humanoid-mod", "humanoid-hill", "humanoid-board"])
def test_the_humanoids_are_trained_with_the_authors_settings(name):
    config = load_experiment(name).rl
    assert config.task == name
    assert (config.num_envs, config.num_steps_per_env, config.max_iterations) == (2048, 32, 10_000)
    assert config.num_envs * config.num_steps_per_env // config.num_mini_batches == 8192
    assert config.reward_scale == 0.01
    assert not config.random_initial_step
    assert config.final_std is None


def test_the_settings_reach_the_algorithm():
    experiment = load_experiment("humanoid-mod")
    with closing(make_env("humanoid-mod", 8, 0, "cpu")) as env:
        obs, _ = env.reset()
        config = replace(experiment.rl, num_envs=8)
        learner = Learner(env, TensorDict(obs, batch_size=[8]), experiment.policy_config("bot-hard"), config)
    ppo = learner.ppo
    found = ppo.config
    assert (found.num_learning_epochs, found.num_mini_batches) == (5, 8)
    assert (found.gamma, found.lam, found.clip_param) == (0.99, 0.95, 0.2)
    assert float(ppo.learning_rate) == pytest.approx(5e-4)
    assert (found.schedule, found.min_learning_rate, found.max_learning_rate) == ("adaptive", 1e-6, 1e-2)
    assert (2 * found.desired_kl, found.desired_kl / 2) == pytest.approx((0.016, 0.004))
    assert (found.value_loss_coef, found.use_clipped_value_loss, found.entropy_coef) == (0.5 * 4, True, 0.0)
    assert (found.action_bound, found.action_bound_coef, found.max_grad_norm) == (1.1, 1e-4, 1.0)
    assert (found.joint_grad_norm, found.minibatch_by_env, found.kl_reference) == (True, True, "rollout")
    assert not found.normalize_advantage_per_mini_batch
    assert ppo.value_scale is not None
    assert isinstance(ppo.optimizer, torch.optim.Adam)
    assert ppo.optimizer.defaults["eps"] == 1e-8
    assert ppo.rollout.num_steps == 32
    for model in (learner.actor, learner.critic):
        assert model.statistics is not None
        assert model.network.net.config.obs_clip == 5.0
    assert learner.actor.distribution.log_std_param.tolist() == [0.0] * 21
