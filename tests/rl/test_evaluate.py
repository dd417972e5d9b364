"""Evaluations in mjlab's environment, and the metrics of episodes in any."""

from contextlib import closing

import pytest
import torch

pytest.importorskip("mjlab", reason="needs the extra 'rl'")

from body_transformer.rl.envs.cpu import CpuEnv
from body_transformer.rl.envs.interface import RlEnv
from body_transformer.rl.envs.mjlab import MjlabEnv
from body_transformer.rl.evaluate import rollouts
from body_transformer.rl.registry import make_env, make_env_cfg, quiet

from .environments import ROUGH_GO1, task_cfg


@pytest.fixture(scope="module")
def env():
    with closing(make_env("humanoid-mod", 4, 0, "cpu")) as made:
        yield made


def still(obs):
    return torch.zeros(len(obs), 21)


def test_an_evaluation_has_a_mean_of_each_metric(env):
    found = rollouts(still, env, seed=1).summary()["rollouts"]
    assert list(found) == ["total_reward", "length", "survived", "forward_speed"]
    assert all(value.num_episodes == 4 for value in found.values())
    assert found == rollouts(still, env, seed=1).summary()["rollouts"], "the same seed gives the same starts"
    assert found != rollouts(still, env, seed=2).summary()["rollouts"]


def test_the_same_seed_gives_the_same_starts_on_mjlabs_random_ground_too():
    """mjlab places the robots at a reset on ground that the previous reset has drawn."""
    starts = []
    cfg = make_env_cfg(f"mjlab:{ROUGH_GO1}", 4, 0, play=True)
    cfg.scene.terrain.terrain_generator.num_rows = cfg.scene.terrain.terrain_generator.num_cols = 3  # for a fast test
    cfg.episode_length_s = 0.01  # one step
    with quiet():
        rough = MjlabEnv(cfg, "cpu")
    with closing(rough):

        def act(obs):
            starts.append(rough.sim.data.qpos[:].clone())
            return torch.zeros(4, 12)

        for seed in (1, 2, 1):
            rollouts(act, rough, seed)
    first, other, again = starts
    torch.testing.assert_close(again, first, rtol=0, atol=0)
    assert (other != first).any()


def test_episode_lengths_set_by_the_caller_end_episodes_in_time(env):
    """rsl_rl starts robots at any step of their episodes, and the recorded step must use these lengths."""
    env.reset(seed=0)
    tensor = env.episode_length_buf
    given = torch.tensor([0, 500, 998, 999])
    env.episode_length_buf = given
    assert env.episode_length_buf is tensor, "a recorded step reads this tensor"
    late = [env.step(torch.zeros(4, 21))[3].tolist() for _ in range(2)]
    assert late == [[False, False, False, True], [False, False, True, False]]
    assert env.episode_length_buf.tolist() == [2, 502, 0, 1]
    assert given.tolist() == [0, 500, 998, 999], "the given tensor stays as it was"


# -- metrics -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["humanoid-mod", "humanoid-hill", "a1-walk"])
def test_the_number_of_threads_of_plain_mujoco_changes_nothing(name):
    def act(obs):
        return torch.tanh(3 * torch.sin(9 * obs["actor"][:, :num_actions]))

    found = []
    for num_threads in (1, 3):
        with closing(CpuEnv(task_cfg(name), num_threads)) as env:
            num_actions = env.task.actions.size
            found.append(rollouts(act, env, seed=5).values)
    for metric, values in found[0].items():
        assert torch.equal(values, found[1][metric])


class Scripted(RlEnv):
    """Two robots, of which one survives all 4 steps and the other dies in the second step."""

    num_envs, device, max_episode_length = 2, "cpu", 4

    def reset(self, seed):
        self.step_number = 0
        return {"actor": torch.zeros(2, 1)}, {}

    def step(self, action):
        self.step_number += 1
        died = torch.tensor([False, self.step_number == 2])
        late = torch.tensor([self.step_number == 4, False])
        return {"actor": torch.zeros(2, 1)}, torch.tensor([2.0, 5.0]), died, late, {}


class Walking(Scripted):
    commanded_speed = torch.tensor([0.5, 0.5])

    @property
    def forward_speed(self):
        """0.45 and 0.6 m/s on average over the episodes."""
        return torch.tensor([[0.3, 0.8], [0.6, 0.4], [0.5, 9.0], [0.4, 9.0]])[self.step_number - 1]


def means(env):
    found = rollouts(lambda obs: torch.zeros(len(obs), 1), env, seed=0).summary()["rollouts"]
    return {name: pytest.approx(value.mean) for name, value in found.items()}


def test_a_death_is_not_survival_later_steps_do_not_count_and_speed_errors_are_absolute():
    expected = {"total_reward": 9.0, "length": 3.0, "survived": 0.5, "forward_speed": 0.525, "speed_error": 0.075}
    assert means(Walking()) == expected


def test_a_speed_that_an_environment_does_not_report_is_not_a_metric():
    assert means(Scripted()) == {"total_reward": 9.0, "length": 3.0, "survived": 0.5}
