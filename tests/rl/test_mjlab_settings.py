"""Settings of mjlab's tasks are taken from mjlab; a setting that is not supported is refused, not ignored."""

from contextlib import closing

import pytest
import torch

pytest.importorskip("mjlab", reason="needs the extra 'rl'")

from tensordict import TensorDict

from body_transformer.rl.learner import Learner
from body_transformer.rl.mjlab_settings import mjlab_settings
from body_transformer.rl.registry import make_env, names

from .environments import CARTPOLE, G1, GO1, ROUGH_GO1, TRACKING, YAM

TASK = f"mjlab:{CARTPOLE}"


@pytest.fixture
def theirs(monkeypatch):
    """mjlab's settings of the cartpole, which a test may change."""
    from mjlab.tasks.registry import _REGISTRY, load_rl_cfg

    names()  # fills it
    cfg = load_rl_cfg(CARTPOLE)
    monkeypatch.setattr(_REGISTRY[CARTPOLE], "rl_cfg", cfg)
    return cfg


@pytest.mark.parametrize("task", [f"mjlab:{name}" for name in (CARTPOLE, GO1, ROUGH_GO1, G1, YAM, TRACKING)])
def test_every_task_with_vector_observations_has_settings(task):
    policy, rl = mjlab_settings(task)
    assert (policy.variant, policy.head, policy.init_std, policy.std) == ("bot-mix", "gaussian", 1.0, "learned")
    assert (rl.task, rl.std_type, rl.num_learning_epochs, rl.learning_rate) == (task, "scalar", 5, 1e-3)
    assert (rl.joint_grad_norm, rl.kl_reference, rl.action_bound_coef) == (False, "rollout", 0.0)  # as in rsl_rl


def test_settings_of_mjlab_are_taken(theirs):
    theirs.num_steps_per_env, theirs.algorithm.gamma, theirs.algorithm.num_mini_batches = 7, 0.5, 2
    theirs.algorithm.use_clipped_value_loss, theirs.algorithm.normalize_advantage_per_mini_batch = False, True
    theirs.actor.obs_normalization = theirs.critic.obs_normalization = True
    policy, rl = mjlab_settings(TASK, "bot-hard")
    assert (rl.num_steps_per_env, rl.gamma, rl.num_mini_batches, rl.obs_normalization) == (7, 0.5, 2, True)
    assert (rl.use_clipped_value_loss, rl.normalize_advantage_per_mini_batch) == (False, True)
    assert policy.variant == "bot-hard"


@pytest.mark.parametrize(("std_type", "parameter"), [("scalar", "std_param"), ("log", "log_std_param")])
def test_the_deviation_of_actions_is_that_of_mjlab(theirs, std_type, parameter):
    gaussian = {"class_name": "GaussianDistribution", "init_std": 0.25, "std_type": std_type, "learn_std": False}
    theirs.actor.distribution_cfg = gaussian
    policy, rl = mjlab_settings(TASK)
    with closing(make_env(TASK, 4, 0, "cpu")) as env:
        obs, _ = env.reset()
        actor = Learner(env, TensorDict(obs, batch_size=[4]), policy, rl).actor
    assert not getattr(actor.distribution, parameter).requires_grad
    torch.testing.assert_close(actor.policy().log_std.exp(), torch.tensor([0.25]))


@pytest.mark.parametrize(("clip_actions", "seen"), [(None, 3.0), (0.5, 0.5)])
def test_actions_are_clipped_as_by_the_runner_of_mjlab(theirs, clip_actions, seen):
    theirs.clip_actions = clip_actions
    with closing(make_env(TASK, 2, 0, "cpu")) as env:
        env.reset()
        env.step(torch.tensor([[3.0], [-3.0]]))
        assert env.action_manager.action.flatten().tolist() == [seen, -seen]


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("algorithm", {"optimizer": "sgd"}, "algorithm.optimizer = 'sgd'; bot train supports only 'adam'"),
        (
            "algorithm",
            {"class_name": "Distillation"},
            "algorithm.class_name = 'Distillation'; bot train supports only 'PPO'",
        ),
        ("critic", {"obs_normalization": True}, "critic.obs_normalization = True; bot train supports only False"),
        ("actor", {"distribution_cfg": None}, "distribution.class_name = None; bot train supports only 'Gauss"),
        (
            "actor",
            {"distribution_cfg": {"class_name": "BetaDistribution"}},
            "distribution.class_name = 'BetaDistribution'",
        ),
        (
            "actor",
            {"distribution_cfg": {"class_name": "GaussianDistribution", "std_range": (0.1, 1.0)}},
            r"distribution.std_range = \(0.1, 1.0\); bot train supports only None",
        ),
    ],
)
def test_settings_that_are_not_supported_are_refused(theirs, part, change, message):
    for name, value in change.items():
        setattr(getattr(theirs, part), name, value)
    with pytest.raises(ValueError, match=f"^{TASK}: .*{message}"):
        mjlab_settings(TASK)


@pytest.mark.parametrize(
    ("obs_groups", "message"),
    [
        (
            {"actor": ("actor", "camera")},
            "its actor observes actor, camera; bot train supports only actor, and no images",
        ),
        ({"actor": ("critic",)}, "its actor observes critic; bot train supports only actor"),
        ({"critic": ("actor", "critic")}, "its critic observes actor, critic; bot train supports only critic"),
        ({"critic": ("actor",)}, "its critic observes actor; bot train supports only critic"),
    ],
)
def test_groups_of_observations_that_would_be_left_out_are_refused(theirs, obs_groups, message):
    theirs.obs_groups = {"actor": ("actor",), "critic": ("critic",)} | obs_groups
    with pytest.raises(ValueError, match=message):
        mjlab_settings(TASK)


def test_an_unknown_task_lists_what_exists():
    with pytest.raises(ValueError, match="unknown task 'mjlab:Mjlab-Nothing'"):
        mjlab_settings("mjlab:Mjlab-Nothing")
