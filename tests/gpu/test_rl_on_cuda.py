"""Reinforcement learning on a GPU: recorded steps and updates equal eager ones."""

from dataclasses import replace

import pytest
import torch

from body_transformer.experiment import load_experiment

pytest.importorskip("mjlab", reason="mjlab is not installed")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")

NUM_ENVS = 64


def make_collector(variant: str, recorded: bool, task: str = "humanoid-mod"):
    from body_transformer.rl.learner import Learner
    from body_transformer.rl.ppo import Collector
    from body_transformer.rl.registry import make_env
    from body_transformer.rl.rollout import grouped

    experiment = load_experiment(task)
    config = replace(experiment.rl, num_envs=NUM_ENVS, num_steps_per_env=8, num_mini_batches=4, num_learning_epochs=2)
    env = make_env(task, NUM_ENVS, 0, "cuda:0")
    obs = grouped(env.reset()[0])
    torch.manual_seed(0)
    learner = Learner(env, obs, experiment.policy_config(variant), config)
    if not recorded:
        env.record(lambda compute: compute)
        learner.ppo._decide, learner.ppo._train_step = learner.ppo.decide, learner.ppo.train_step
    return Collector(env, obs, learner.ppo)


@torch.inference_mode()
def copy(ours, theirs) -> None:
    """Copy the rollout `ours` to `theirs`."""
    for name in ("actions", "values", "advantages", "returns", "log_probs"):
        getattr(theirs, name).copy_(getattr(ours, name))
    for name, group in theirs.observations.items():
        group.copy_(ours.observations[name])
    for mine, other in zip(theirs.distribution_params, ours.distribution_params, strict=True):
        mine.copy_(other)


def parameters(collector) -> torch.Tensor:
    ppo = collector.ppo
    return torch.cat([p.detach().flatten() for m in (ppo.actor, ppo.critic) for p in m.parameters()])


@pytest.mark.parametrize("task", ["humanoid-mod", "humanoid-hill"])
def test_a_recorded_step_of_the_environment_equals_an_eager_one(task):
    from body_transformer.rl.registry import make_env

    found = []
    actions = torch.rand(12, NUM_ENVS, 21, device="cuda", generator=torch.Generator("cuda").manual_seed(0)) * 2 - 1
    for recorded in (True, False):
        env = make_env(task, NUM_ENVS, 0, "cuda:0")
        if not recorded:
            env.record(lambda compute: compute)
        with torch.inference_mode():
            env.reset(seed=0)
            env.episode_length_buf.fill_(995)  # some episodes reach their time limit
            steps = [env.step(action) for action in actions]
        found.append(
            [torch.cat([s[0]["actor"] for s in steps]), *(torch.cat([s[k].float() for s in steps]) for k in (1, 2, 3))]
        )
        env.close()
    # contact forces are summed in an arbitrary order
    for recorded, plain in zip(*found, strict=True):
        torch.testing.assert_close(recorded, plain, rtol=1e-3, atol=1e-2)
    assert found[0][3].sum() >= NUM_ENVS // 2


@pytest.mark.parametrize("variant", ["mlp", "bot-mix"])
def test_recorded_updates_equal_eager_ones(variant):
    recorded, plain = make_collector(variant, True), make_collector(variant, False)
    for _ in range(3):
        recorded.collect()
        recorded.compute_returns()
        theirs, ours = plain.ppo, recorded.ppo
        if not theirs.rollout.distribution_params:
            plain.collect()  # allocates them; the collected values are overwritten by the copy
        copy(ours.rollout, theirs.rollout)
        losses = [collector.ppo.update() for collector in (recorded, plain)]
        assert losses[0] == pytest.approx(losses[1], rel=5e-2, abs=1e-3)
    before = parameters(make_collector(variant, False))
    moved = (parameters(plain) - before).norm()
    assert moved > 0
    assert (parameters(recorded) - parameters(plain)).norm() < 0.1 * moved
    for collector in (recorded, plain):
        collector.env.close()


@pytest.mark.parametrize("task", ["humanoid-mod", "humanoid-hill", "humanoid-board", "a1-walk"])
def test_iterations_stay_finite_and_every_step_draws_new_actions(task):
    collector = make_collector("bot-mix", True, task)
    for _ in range(3):
        collector.collect()
        actions = collector.ppo.rollout.actions
        assert actions.isfinite().all()
        assert (actions[0] != actions[1]).all()
        collector.compute_returns()
        assert all(torch.isfinite(torch.tensor(value)) for value in collector.ppo.update().values())
    collector.env.close()


@pytest.mark.parametrize("task", ["humanoid-hill", "a1-walk", "mjlab:Mjlab-Cartpole-Balance"])
def test_a_resumed_training_continues_from_the_saved_states(tmp_path, task):
    from body_transformer.rl.episode_state import episode_state

    from ..rl.jobs import iterate, job, started

    with started(replace(job(tmp_path, 3, task=task), device="cuda:0")) as loop:
        iterate(loop, 2)
        expected = episode_state(loop.collector)
    with started(replace(job(tmp_path, 3, resume=True, task=task), device="cuda:0")) as loop:
        found = episode_state(loop.collector)
        assert [name for name in expected if not found[name].equal(expected[name])] == []
        iterate(loop, 1)
