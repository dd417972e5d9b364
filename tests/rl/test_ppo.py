"""PPO has the results it had as a subclass of rsl_rl's; without its additions it has those of rsl_rl's own."""

import copy
import math
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("mjlab", reason="needs the extra 'rl'")

import rsl_rl.algorithms
from rsl_rl.modules import EmpiricalNormalization
from rsl_rl.storage import RolloutStorage

from body_transformer.rl.normalization import ValueScale
from body_transformer.rl.ppo import PPO
from body_transformer.rl.rollout import RolloutBuffer

from .ppo_trainings import (
    ACTIONS,
    AS_RSL_RL,
    FROZEN,
    NUM_ENVS,
    NUM_STEPS,
    config,
    make_ppo,
    models,
    observations,
    parameters,
    play,
    train,
)

FROZEN_VALUES = Path(__file__).with_name("ppo_frozen.safetensors")
OURS_ALONE = ("min_learning_rate", "action_bound_coef", "normalize_values", "minibatch_by_env", "joint_grad_norm")


@pytest.mark.parametrize("name", FROZEN)
def test_a_training_has_the_frozen_results(name):
    frozen = load_file(FROZEN_VALUES)
    for key, value in train(name).items():
        torch.testing.assert_close(value, frozen[f"{name}.{key}"], rtol=1e-5, atol=1e-6, msg=lambda m, key=key: key + m)


def make_rsl_rl_ppo(**options) -> rsl_rl.algorithms.PPO:
    obs = observations(torch.Generator().manual_seed(0))
    storage = RolloutStorage("rl", NUM_ENVS, NUM_STEPS, obs, [ACTIONS], "cpu")
    settings = {name: value for name, value in AS_RSL_RL.items() if name not in OURS_ALONE} | options
    return rsl_rl.algorithms.PPO(*copy.deepcopy(models()), storage, **settings)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"schedule": "fixed"},
        {"normalize_advantage_per_mini_batch": True},
        {"use_clipped_value_loss": False, "entropy_coef": 0.0, "value_loss_coef": 2.0},
        {"desired_kl": 1e-7},
        {"desired_kl": 10.0},
    ],
)
def test_without_its_additions_ppo_has_the_results_of_rsl_rl(options):
    theirs, ours = make_rsl_rl_ppo(**options), make_ppo(**options)
    for iteration in range(3):
        for ppo in (theirs, ours):
            play(ppo, iteration)
        torch.testing.assert_close(ours.rollout.returns, theirs.storage.returns)
        torch.testing.assert_close(ours.rollout.advantages, theirs.storage.advantages)
        losses = []
        for ppo in (theirs, ours):
            torch.manual_seed(100 + iteration)
            losses.append(ppo.update())
        torch.testing.assert_close(parameters(ours), parameters(theirs), rtol=1e-4, atol=1e-6)
        assert float(ours.learning_rate) == pytest.approx(theirs.learning_rate, rel=1e-5)
        for name, value in losses[0].items():
            assert losses[1][name] == pytest.approx(value, rel=1e-4, abs=1e-6)


def test_the_learning_rate_stays_within_its_bounds():
    ppo = make_ppo(desired_kl=1e-9, min_learning_rate=1e-6, learning_rate=1e-3)
    rates = []
    for iteration in range(4):
        play(ppo, iteration)
        ppo.update()
        rates.append(float(ppo.learning_rate))
    assert min(rates) * (1 + 1e-6) >= 1e-6
    assert min(rates) < 1e-5  # rsl_rl's own bound


def test_mean_actions_beyond_the_bound_are_penalised():
    excess = {}
    for coef in (0.0, 100.0):
        ppo = make_ppo(
            action_bound=0.05, action_bound_coef=coef, schedule="fixed", num_learning_epochs=40, value_loss_coef=0.0
        )
        play(ppo)
        ppo.update()
        obs = observations(torch.Generator().manual_seed(5))
        excess[coef] = float((ppo.actor(obs).detach().abs() - 0.05).clamp(min=0).mean())
    assert excess[100.0] < 0.5 * excess[0.0]


def test_a_minibatch_can_be_all_steps_of_some_environments():
    ppo = make_ppo(minibatch_by_env=True)
    play(ppo)
    ppo.rollout.actions[:] = torch.arange(NUM_ENVS)[None, :, None]
    batches = list(ppo.minibatches())
    assert len(batches) == 12
    seen = [batch[2][:, 0].unique().tolist() for batch in batches]
    assert seen == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]] * 3


def test_gradients_can_be_clipped_together():
    norms = []
    for joint in (False, True):
        ppo = make_ppo(max_grad_norm=1e-3, joint_grad_norm=joint)
        play(ppo)
        ppo.update()
        grads = [p.grad.flatten() for model in (ppo.actor, ppo.critic) for p in model.parameters()]
        norms.append(float(torch.cat(grads).norm()))
    assert norms == pytest.approx([math.sqrt(2) * 1e-3, 1e-3], rel=1e-2)


def test_the_value_loss_does_not_depend_on_the_scale_of_rewards():
    losses = []
    for scale in (1.0, 1000.0):
        ppo = make_ppo(normalize_values=True)
        play(ppo)
        for tensor in (ppo.rollout.rewards, ppo.rollout.values, ppo.rollout.returns):
            tensor *= scale
        torch.manual_seed(3)
        losses.append(ppo.update()["value"])
    assert losses[1] == pytest.approx(losses[0], rel=0.05)


def test_the_critic_gives_values_on_the_scale_of_returns():
    """In every step of a rollout, and for the observations that follow it."""
    ppo = make_ppo(normalize_values=True)
    ppo.value_scale.update(torch.randn(50, 1) * 3 + 7)
    obs = observations(torch.Generator().manual_seed(5))
    expected = ppo.value_scale.inverse(ppo.critic(obs).detach())
    ppo.act(obs)
    ppo.process_env_step(torch.zeros(NUM_ENVS), torch.zeros(NUM_ENVS), None)
    torch.testing.assert_close(ppo.rollout.values[0], expected)
    ppo.rollout.clear()
    play(ppo)
    with torch.inference_mode():
        ppo.rollout.dones[-1] = False
        ppo.compute_returns(obs)
    torch.testing.assert_close(ppo.rollout.returns[-1], ppo.rollout.rewards[-1] + ppo.config.gamma * expected)


def test_the_value_scale_is_that_of_all_returns_together():
    scale, parts = ValueScale(), [torch.randn(7, 1) * 3 + 1, torch.randn(5, 10, 1) - 4, torch.randn(1, 1)]
    for part in parts:
        scale.update(part)
    whole = torch.cat([part.reshape(-1, 1) for part in parts])
    scaled = scale(whole)
    assert float(scaled.mean()) == pytest.approx(0, abs=1e-5)
    assert float(scaled.var(correction=0)) == pytest.approx(1, rel=1e-4)
    torch.testing.assert_close(scale.inverse(scaled), whole)


def test_a_restored_ppo_continues_like_the_saved_one():
    options = {"normalize_values": True, "action_bound_coef": 1e-4}
    first, second = make_ppo(**options), make_ppo(**options)
    play(first)
    first.update()
    second.restore(copy.deepcopy(first.training_state()))
    assert float(second.learning_rate) == float(first.learning_rate)
    for ppo in (first, second):
        play(ppo, 1)
        torch.manual_seed(9)
        ppo.update()
    torch.testing.assert_close(parameters(second), parameters(first), rtol=0, atol=0)
    assert float(second.learning_rate) == float(first.learning_rate)


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("learning_rate", None, "one number as learning_rate"),
        ("learning_rate", torch.zeros(2), "one number as learning_rate"),
        ("optimizer.0.exp_avg", None, "optimizer.0.* does not fit this run: 1 tensors differ, such as 'exp_avg'"),
        ("optimizer.0.step", torch.zeros(3), "such as 'step'"),
    ],
)
def test_a_training_state_that_does_not_fit_is_refused(name, tensor, message):
    first, second = make_ppo(), make_ppo()
    play(first)
    first.update()
    state = copy.deepcopy(first.training_state())
    state.pop(name)
    with pytest.raises(ValueError, match=re.escape(message)):
        second.restore(state if tensor is None else {**state, name: tensor})


def test_observation_statistics_are_updated_after_the_update_with_the_whole_rollout():
    theirs, ours = make_rsl_rl_ppo(), make_ppo()
    for ppo in (theirs, ours):
        for model in (ppo.actor, ppo.critic):
            model.obs_normalization, model.obs_normalizer = True, EmpiricalNormalization(model.obs_dim)
        play(ppo)
    assert int(ours.actor.obs_normalizer.count) == 0
    ours.update()
    seen = ours.rollout.observations["policy"].flatten(0, 1)
    assert int(ours.actor.obs_normalizer.count) == NUM_ENVS * NUM_STEPS
    torch.testing.assert_close(ours.actor.obs_normalizer.mean, seen.mean(0))
    assert int(theirs.actor.obs_normalizer.count) == NUM_ENVS * NUM_STEPS


def test_the_divergence_can_be_measured_from_the_previous_epoch():
    """For a policy that keeps moving, the divergence per epoch is smaller than that since the rollout."""
    found = {}
    for reference in ("rollout", "epoch"):
        ppo = make_ppo(kl_reference=reference, minibatch_by_env=True, learning_rate=1e-2, num_learning_epochs=8)
        play(ppo)
        divergences = []
        ppo._adapt_learning_rate = lambda kl, seen=divergences: seen.append(float(kl))
        ppo.update()
        found[reference] = divergences
        assert divergences[0] == pytest.approx(0, abs=1e-6), "nothing has moved yet"
    assert found["epoch"][:4] == pytest.approx(found["rollout"][:4]), "the first epoch is alike"
    assert all(near < far for near, far in zip(found["epoch"][8:], found["rollout"][8:], strict=True))


def test_a_minibatch_can_be_a_single_environment():
    """Its tensors are then those of the rollout, which were written in inference mode."""
    obs = observations(torch.Generator().manual_seed(0))[:1]
    settings = config(num_envs=1, num_mini_batches=1, minibatch_by_env=True, kl_reference="epoch")
    ppo = PPO(*models(), RolloutBuffer(obs, NUM_STEPS, ACTIONS, "cpu"), settings)
    with torch.inference_mode():
        for _ in range(NUM_STEPS):
            ppo.act(obs)
            ppo.process_env_step(torch.randn(1), torch.zeros(1, dtype=torch.long), None)
        ppo.compute_returns(obs)
    assert math.isfinite(ppo.update()["kl"])


def test_calls_in_the_wrong_order_are_refused():
    ppo = make_ppo()
    step = (torch.zeros(NUM_ENVS), torch.zeros(NUM_ENVS), None)
    with pytest.raises(RuntimeError, match=r"process_env_step\(\) needs an act\(\) before it"):
        ppo.process_env_step(*step)
    play(ppo)
    ppo.act(observations(torch.Generator().manual_seed(0)))
    with pytest.raises(OverflowError, match=r"the rollout is full: it holds 8 steps; call clear\(\) first"):
        ppo.process_env_step(*step)
