"""Rollouts store the steps of the environments, and every episode is counted once."""

from contextlib import closing
from dataclasses import replace

import pytest
import torch

pytest.importorskip("mjlab", reason="needs the extra 'rl'")

from body_transformer import PolicyConfig
from body_transformer.rl.config import RlConfig
from body_transformer.rl.envs.mjlab import MjlabEnv
from body_transformer.rl.learner import Learner
from body_transformer.rl.ppo import Collector
from body_transformer.rl.registry import make_env, make_env_cfg, quiet
from body_transformer.rl.rollout import EpisodeStats, grouped

SMALL = PolicyConfig(variant="bot-hard", embed_dim=8, num_layers=2, ff_dim=8, head="gaussian", init="normal")
CONFIG = RlConfig("humanoid-mod", num_envs=4, num_steps_per_env=40, num_mini_batches=2, normalize_values=False)


@pytest.fixture(scope="module")
def env():
    with closing(make_env("humanoid-mod", 4, 0, "cpu")) as made:
        yield made


def collector(env, **options) -> Collector:
    obs = grouped(env.reset()[0])
    torch.manual_seed(0)
    return Collector(env, obs, Learner(env, obs, SMALL, replace(CONFIG, **options)).ppo)


def test_observations_actions_and_rewards_are_stored_step_by_step(env, monkeypatch):
    found, steps = collector(env), []
    step = env.step

    def watched(actions):
        steps.append((actions.clone(), *step(actions)))
        return steps[-1][1:]

    monkeypatch.setattr(env, "step", watched)
    first = found.obs["actor"].clone()
    found.collect()
    stored = found.ppo.rollout
    assert len(steps) == 40
    torch.testing.assert_close(stored.observations["actor"][0], first)
    for k, (actions, obs, rewards, died, timed_out, _) in enumerate(steps):
        torch.testing.assert_close(stored.actions[k], actions)
        torch.testing.assert_close(stored.dones[k, :, 0], died | timed_out)
        expected = 0.01 * rewards + 0.99 * stored.values[k, :, 0] * timed_out
        torch.testing.assert_close(stored.rewards[k, :, 0], expected)
        if k + 1 < len(steps):
            torch.testing.assert_close(stored.observations["actor"][k + 1], obs["actor"])
    assert stored.dones.any(), "random robots fall within 40 steps"
    torch.testing.assert_close(found.obs["actor"], steps[-1][1]["actor"])


def test_a_time_out_adds_the_value_of_the_state(env):
    found = collector(env, num_steps_per_env=1)
    env.episode_length_buf = torch.full((4,), 999)
    values = found.ppo.critic(found.obs).detach()
    found.collect()
    stored = found.ppo.rollout
    assert stored.dones.all()
    bare = found.episodes.sums[0] / 4 * 0.01
    torch.testing.assert_close(stored.rewards[0].mean() - 0.99 * values.mean(), bare, rtol=1e-4, atol=1e-5)


def test_a_time_out_of_a_finite_horizon_is_an_end_like_any_other(env, monkeypatch):
    monkeypatch.setattr(env, "is_finite_horizon", True)
    found = collector(env, num_steps_per_env=1)
    env.episode_length_buf = torch.full((4,), 999)
    found.collect()
    bare = found.episodes.sums[0] / 4 * 0.01
    torch.testing.assert_close(found.ppo.rollout.rewards[0].mean(), bare)


def test_a_task_of_mjlab_states_whether_its_horizon_is_finite():
    for is_finite in (True, False):
        cfg = make_env_cfg("mjlab:Mjlab-Cartpole-Balance", 1, 0)
        cfg.is_finite_horizon = is_finite
        with quiet(), closing(MjlabEnv(cfg, "cpu")) as made:
            assert made.is_finite_horizon == is_finite


def test_returns_and_lengths_are_summed_over_whole_episodes():
    episodes = EpisodeStats(2, "cpu")
    for rewards, dones in (([1.0, 10.0], [0, 0]), ([2.0, 20.0], [0, 1]), ([3.0, 40.0], [1, 0])):
        episodes.add(torch.tensor(rewards), torch.tensor(dones))
    assert episodes.means() == {"train/return": (6 + 30) / 2, "train/length": (3 + 2) / 2, "train/episodes": 2.0}
    assert episodes.means() == {}, "means are reported once"
    episodes.add(torch.tensor([5.0, 50.0]), torch.tensor([0, 1]))
    assert episodes.means() == {"train/return": 90.0, "train/length": 2.0, "train/episodes": 1.0}
