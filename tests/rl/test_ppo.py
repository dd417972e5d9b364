"""Our PPO is rsl_rl's, but for what it says it adds."""

import copy
import math

import pytest
import torch

pytest.importorskip("rsl_rl", reason="needs the extra 'rl'")

from rsl_rl.algorithms import PPO
from rsl_rl.models import MLPModel
from rsl_rl.modules import EmpiricalNormalization
from rsl_rl.storage import RolloutStorage
from tensordict import TensorDict

from body_transformer.rl.ppo import RecordedPPO, ValueScale

NUM_ENVS, NUM_STEPS, OBS, ACTIONS = 12, 8, 5, 3
GROUPS = {"actor": ["policy"], "critic": ["policy", "privileged"]}


def observations(generator: torch.Generator) -> TensorDict:
    sizes = {"policy": OBS, "privileged": 2}
    values = {key: torch.randn(NUM_ENVS, size, generator=generator) for key, size in sizes.items()}
    return TensorDict(values, batch_size=[NUM_ENVS])


def models() -> tuple[MLPModel, MLPModel]:
    torch.manual_seed(0)
    obs = observations(torch.Generator().manual_seed(0))
    gaussian = {"class_name": "rsl_rl.modules.distribution:GaussianDistribution", "init_std": 0.7, "std_type": "log"}
    actor = MLPModel(obs, GROUPS, "actor", ACTIONS, hidden_dims=(16,), distribution_cfg=gaussian)
    return actor, MLPModel(obs, GROUPS, "critic", 1, hidden_dims=(16,))


def made(kind: type[PPO], **options) -> PPO:
    obs = observations(torch.Generator().manual_seed(0))
    storage = RolloutStorage("rl", NUM_ENVS, NUM_STEPS, obs, [ACTIONS], "cpu")
    common = {"num_learning_epochs": 3, "num_mini_batches": 4, "learning_rate": 3e-3, "desired_kl": 0.01}
    return kind(*copy.deepcopy(models()), storage, **common | options)


def play(algorithm: PPO, seed: int = 0) -> None:
    """A rollout in a world of random numbers, some episodes ending and some running out of time."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    obs = observations(generator)
    with torch.inference_mode():
        for _ in range(NUM_STEPS):
            algorithm.act(obs)
            obs = observations(generator)
            rewards = torch.randn(NUM_ENVS, generator=generator)
            dones = torch.rand(NUM_ENVS, generator=generator) < 0.2
            late = dones & (torch.rand(NUM_ENVS, generator=generator) < 0.5)
            algorithm.process_env_step(obs, rewards, dones.long(), {"time_outs": late})
        algorithm.compute_returns(obs)


def parameters(algorithm: PPO) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for m in (algorithm.actor, algorithm.critic) for p in m.parameters()])


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
def test_without_additions_it_is_rsl_rls(options):
    theirs, ours = made(PPO, **options), made(RecordedPPO, **options)
    for iteration in range(3):
        for algorithm in (theirs, ours):
            play(algorithm, iteration)
        torch.testing.assert_close(ours.storage.returns, theirs.storage.returns)
        torch.testing.assert_close(ours.storage.advantages, theirs.storage.advantages)
        losses = []
        for algorithm in (theirs, ours):
            torch.manual_seed(100 + iteration)
            losses.append(algorithm.update())
        torch.testing.assert_close(parameters(ours), parameters(theirs), rtol=1e-4, atol=1e-6)
        assert ours.learning_rate == pytest.approx(theirs.learning_rate, rel=1e-5)
        for name, value in losses[0].items():
            assert losses[1][name] == pytest.approx(value, rel=1e-4, abs=1e-6)


def test_the_learning_rate_stays_within_its_bounds():
    ours = made(RecordedPPO, desired_kl=1e-9, learning_rate_bounds=(1e-6, 1e-2), learning_rate=1e-3)
    rates = []
    for iteration in range(4):
        play(ours, iteration)
        ours.update()
        rates.append(ours.learning_rate)
    assert min(rates) * (1 + 1e-6) >= 1e-6
    assert min(rates) < 1e-5  # rsl_rl's own bound


def test_mean_actions_beyond_the_bound_are_drawn_back():
    rewarded = {"schedule": "fixed", "num_learning_epochs": 40, "value_loss_coef": 0.0}
    reach = {}
    for coef in (0.0, 100.0):
        algorithm = made(RecordedPPO, bound=0.05, bound_coef=coef, **rewarded)
        play(algorithm)
        algorithm.update()
        obs = observations(torch.Generator().manual_seed(5))
        reach[coef] = float((algorithm.actor(obs).detach().abs() - 0.05).clamp(min=0).mean())
    assert reach[100.0] < 0.5 * reach[0.0]


def test_blocks_are_all_steps_of_some_environments():
    algorithm = made(RecordedPPO, blocks=True)
    play(algorithm)
    algorithm.storage.actions[:] = torch.arange(NUM_ENVS)[None, :, None]
    batches = list(algorithm.minibatches())
    assert len(batches) == 12
    seen = [batch[2][:, 0].unique().tolist() for batch in batches]
    assert seen == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]] * 3


def test_gradients_can_be_clipped_together():
    apart, together = made(RecordedPPO, max_grad_norm=1e-3), made(RecordedPPO, max_grad_norm=1e-3, joint_norm=True)
    norms = []
    for algorithm in (apart, together):
        play(algorithm)
        algorithm.update()
        grads = [p.grad.flatten() for m in (algorithm.actor, algorithm.critic) for p in m.parameters()]
        norms.append(float(torch.cat(grads).norm()))
    assert norms == pytest.approx([math.sqrt(2) * 1e-3, 1e-3], rel=1e-2)


def test_values_are_learned_on_one_scale_whatever_the_rewards_are():
    losses = []
    for scale in (1.0, 1000.0):
        algorithm = made(RecordedPPO, normalize_values=True)
        play(algorithm)
        algorithm.storage.rewards *= scale
        algorithm.storage.values *= scale
        algorithm.storage.returns *= scale
        torch.manual_seed(3)
        losses.append(algorithm.update()["value"])
    assert losses[1] == pytest.approx(losses[0], rel=0.05)


def test_the_critic_says_values_on_the_scale_of_returns():
    """Whoever acts, and what comes after the rollout's end, too."""
    algorithm = made(RecordedPPO, normalize_values=True)
    algorithm.value_scale.update(torch.randn(50, 1) * 3 + 7)
    obs = observations(torch.Generator().manual_seed(5))
    expected = algorithm.value_scale.inverse(algorithm.critic(obs).detach())
    algorithm.act(obs)
    torch.testing.assert_close(algorithm.transition.values, expected)
    play(algorithm)
    stored = algorithm.storage
    with torch.inference_mode():
        stored.dones[-1] = 0
        algorithm.compute_returns(obs)
    torch.testing.assert_close(stored.returns[-1], stored.rewards[-1] + algorithm.gamma * expected)


def test_the_value_scale_is_that_of_all_returns_together():
    scale, parts = ValueScale(), [torch.randn(7, 1) * 3 + 1, torch.randn(5, 10, 1) - 4, torch.randn(1, 1)]
    for part in parts:
        scale.update(part)
    whole = torch.cat([part.reshape(-1, 1) for part in parts])
    scaled = scale(whole)
    assert float(scaled.mean()) == pytest.approx(0, abs=1e-5)
    assert float(scaled.var(correction=0)) == pytest.approx(1, rel=1e-4)
    torch.testing.assert_close(scale.inverse(scaled), whole)


def test_saved_and_loaded_it_goes_on_alike():
    options = {"normalize_values": True, "bound_coef": 1e-4}
    first, second = made(RecordedPPO, **options), made(RecordedPPO, **options)
    play(first)
    first.update()
    second.load(copy.deepcopy(first.save()), None, strict=True)
    assert second.learning_rate == first.learning_rate
    for algorithm in (first, second):
        play(algorithm, 1)
        torch.manual_seed(9)
        algorithm.update()
    torch.testing.assert_close(parameters(second), parameters(first), rtol=0, atol=0)
    assert second.learning_rate == first.learning_rate


def test_statistics_that_move_after_the_updates_are_those_of_the_whole_rollout():
    theirs, ours = made(PPO), made(RecordedPPO, normalize_after=True)
    for algorithm in (theirs, ours):
        for model in (algorithm.actor, algorithm.critic):
            model.obs_normalization, model.obs_normalizer = True, EmpiricalNormalization(model.obs_dim)
        play(algorithm)
    assert int(ours.actor.obs_normalizer.count) == 0
    ours.update()
    seen = ours.storage.observations["policy"].flatten(0, 1)
    assert int(ours.actor.obs_normalizer.count) == NUM_ENVS * NUM_STEPS
    torch.testing.assert_close(ours.actor.obs_normalizer.mean, seen.mean(0))
    assert int(theirs.actor.obs_normalizer.count) == NUM_ENVS * NUM_STEPS


def test_the_divergence_can_be_measured_from_the_epoch_before():
    """Of a policy that moves on and on, the way since the epoch before is shorter than that since the rollout."""
    found = {}
    for origin in ("rollout", "epoch"):
        ours = made(RecordedPPO, divergence_from=origin, blocks=True, learning_rate=1e-2, num_learning_epochs=8)
        play(ours)
        divergences = []
        ours._adapt = lambda value, seen=divergences: seen.append(float(value))
        ours.update()
        found[origin] = divergences
        assert divergences[0] == pytest.approx(0, abs=1e-6), "nothing has moved yet"
    assert found["epoch"][:4] == pytest.approx(found["rollout"][:4]), "the first epoch is alike"
    assert all(near < far for near, far in zip(found["epoch"][8:], found["rollout"][8:], strict=True))


def test_one_environment_can_be_a_minibatch_by_itself():
    """Its tensors are then those of the storage, which were collected in inference mode."""
    obs = observations(torch.Generator().manual_seed(0))[:1]
    storage = RolloutStorage("rl", 1, NUM_STEPS, obs, [ACTIONS], "cpu")
    ours = RecordedPPO(*models(), storage, num_mini_batches=1, blocks=True, divergence_from="epoch")
    with torch.inference_mode():
        for _ in range(NUM_STEPS):
            ours.act(obs)
            ours.process_env_step(obs, torch.randn(1), torch.zeros(1, dtype=torch.long), {})
        ours.compute_returns(obs)
    assert math.isfinite(ours.update()["kl"])
