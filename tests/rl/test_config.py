"""Settings of PPO: those of the authors' trainings, and those of runs under their former names."""

from dataclasses import fields

import pytest

from body_transformer.experiment import load_experiment
from body_transformer.rl.config import FORMER_NAMES, RlConfig
from body_transformer.schema import build, plain

SHARED = {"gamma": 0.99, "lam": 0.95, "clip_param": 0.2, "max_grad_norm": 1.0, "num_learning_epochs": 5}
SHARED |= {"entropy_coef": 0.0, "max_iterations": 10_000, "schedule": "adaptive", "max_learning_rate": 1e-2}
RL_GAMES = {
    "num_envs": 2048,
    "num_steps_per_env": 32,
    "num_mini_batches": 8,
    "minibatch_by_env": True,
    "learning_rate": 5e-4,
    "desired_kl": 0.008,
    "min_learning_rate": 1e-6,
    "kl_reference": "rollout",
    "value_loss_coef": 0.5 * 4,
    "use_clipped_value_loss": True,
    "joint_grad_norm": True,
    "action_bound": 1.1,
    "action_bound_coef": 1e-4,
    "reward_scale": 0.01,
    "random_initial_step": False,
    "obs_normalization": True,
    "normalize_values": True,
    "normalize_advantage_per_mini_batch": False,
    "final_std": None,
}
"""Those of the humanoids. rl_games changes the learning rate at twice and half of 0.008: 0.016 and 0.004."""
RSL_RL = {
    "num_envs": 4096,
    "num_steps_per_env": 24,
    "num_mini_batches": 4,
    "minibatch_by_env": False,
    "learning_rate": 1e-3,
    "desired_kl": 0.01,
    "min_learning_rate": 1e-5,
    "value_loss_coef": 1.0,
    "entropy_coef": 0.01,
    "action_bound_coef": 0.0,
    "reward_scale": 1.0,
    "obs_normalization": False,
    "normalize_values": False,
}
"""Those of the A1."""
AUTHORS = {"humanoid-mod": RL_GAMES, "humanoid-hill": RL_GAMES, "humanoid-board": RL_GAMES, "a1-walk": RSL_RL}


@pytest.mark.parametrize("name", AUTHORS)
def test_a_task_is_trained_with_the_authors_settings(name):
    experiment = load_experiment(name)
    expected = {"task": name} | SHARED | AUTHORS[name]
    assert {setting: getattr(experiment.rl, setting) for setting in expected} == expected
    if name != "a1-walk":
        assert experiment.policy_config("bot-hard").obs_clip == 5.0
        assert experiment.policy_config("bot-hard").init_std == 1.0


# -- former names ------------------------------------------------------------------------------------------------------

FORMER = {
    "task": "humanoid-board",
    "by_hand": {"contact_force": "root"},
    "options": {"gentle": "true", "told": "true"},
    "num_steps": 16,
    "num_minibatches": 4,
    "blocks": False,
    "divergence_from": "epoch",
    "learning_rate": 1e-3,
}


def test_settings_of_an_older_run_are_read_under_their_current_names():
    config = RlConfig.from_run(FORMER)
    assert (config.num_steps_per_env, config.num_mini_batches, config.minibatch_by_env) == (16, 4, False)
    assert (config.kl_reference, config.learning_rate) == ("epoch", 1e-3)
    assert config.layout_overrides == {"contact_force": "root"}
    assert config.options == {"start_noise_curriculum": "true", "privileged_critic": "true"}
    assert RlConfig.from_run(plain(config)) == config
    names = {item.name for item in fields(RlConfig)}
    assert set(FORMER_NAMES.values()) <= names
    assert names.isdisjoint(FORMER_NAMES)


def test_an_experiment_has_the_current_names():
    with pytest.raises(ValueError, match="unknown key 'num_minibatches'; did you mean 'num_mini_batches'"):
        build(RlConfig, {"task": "humanoid-mod", "num_minibatches": 4})
