"""Settings of runs that were recorded under their former names."""

from dataclasses import fields

import pytest

from body_transformer.rl.config import FORMER_NAMES, RlConfig
from body_transformer.schema import build, plain

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
