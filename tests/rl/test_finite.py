"""A value that is not finite ends the training with a message, and the environments concerned are saved."""

import math

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("mjlab", reason="needs the extra 'rl'")

from body_transformer.checkpoint import newest_checkpoint
from body_transformer.training.ranks import Ranks

from .jobs import QUICK, job, lines, run, started


def test_a_state_that_is_not_finite_ends_the_training_and_is_saved(tmp_path, monkeypatch):
    from body_transformer.rl.envs.fast import FastEnv

    step = FastEnv.step

    def spoiled(self, action):
        if self.common_step_counter == 6:
            self.robots.world.qvel[2] = torch.nan
        return step(self, action)

    monkeypatch.setattr(FastEnv, "step", spoiled)
    message = r"physics gave values that .* in 1 of 4 environments at iteration 2; .*broken_states_0\.safetensors"
    with pytest.raises(ValueError, match=message):
        run(job(tmp_path / "run", 3, checkpoint_every_s=1e-9))
    kept = load_file(tmp_path / "run" / "broken_states_0.safetensors")
    assert kept["env_ids"].tolist() == [2]
    assert kept["obs.actor"].shape == (4, 1, 100)
    assert (kept["qpos"].shape, kept["qvel"].shape) == ((1, 28), (1, 27))
    assert kept["qvel"].isnan().all(), "the state is that of the end of the episode"
    assert newest_checkpoint(tmp_path / "run").step == 1


def test_a_state_of_an_mjlab_task_that_is_not_finite_is_saved(tmp_path):
    with started(job(tmp_path / "run", 1, task="mjlab:Mjlab-Cartpole-Balance")) as loop:
        data = loop.env.sim.data
        data.qvel[1] = torch.nan
        loop.collector.collect()
        with pytest.raises(ValueError, match="1 of 4 environments"):
            loop.check.check_rollout(loop.collector.obs, 1)
        kept = load_file(tmp_path / "run" / "broken_states_0.safetensors")
        assert kept["env_ids"].tolist() == [1]
        torch.testing.assert_close(kept["qpos"], data.qpos[1:2], equal_nan=True)
        torch.testing.assert_close(kept["qvel"], data.qvel[1:2], equal_nan=True)


def test_a_state_that_breaks_in_the_last_step_of_a_rollout_is_saved(tmp_path):
    with started(job(tmp_path / "run", 1, task="mjlab:Mjlab-Cartpole-Balance")) as loop:
        env = loop.env
        step, taken = env.step, []

        def spoiled(action):
            taken.append(action)
            if len(taken) == QUICK["num_steps_per_env"]:
                env.sim.data.qvel[2] = torch.nan
            return step(action)

        env.step = spoiled
        with pytest.raises(ValueError, match="1 of 4 environments at iteration 1"):
            loop.iterate(None)
    assert load_file(tmp_path / "run" / "broken_states_0.safetensors")["env_ids"].tolist() == [2]


def test_actions_that_are_not_finite_are_attributed_to_the_policy(tmp_path):
    """The last optimizer step may break the weights although the loss before it was finite."""
    with started(job(tmp_path / "run", 1)) as loop:
        loop.learner.actor.network.net.detokenizer.bias.data[3] = torch.nan
        with pytest.raises(ValueError, match="the policy gave actions that are not finite in 4 of 4 environments at "):
            loop.iterate(None)


@pytest.mark.parametrize(("robots", "said"), [([2], "1 of 4"), ([], "4 of 4")])
def test_a_loss_that_is_not_finite_ends_the_training_and_its_data_are_saved(tmp_path, robots, said):
    """If no environment is the cause, all of them are saved."""
    with started(job(tmp_path / "run", 1)) as loop:
        loop.save()
        ppo = loop.learner.ppo
        update = ppo.update

        def spoiled() -> dict[str, float]:
            with torch.inference_mode():
                ppo.rollout.returns[:, robots] = torch.nan
            return update() | {"value": math.nan}

        ppo.update = spoiled
        message = rf"the loss is not finite at iteration 1: .*nan.*; {said} environments .*broken_states_0.safetensors'"
        with pytest.raises(ValueError, match=message + r"; the last good checkpoint is '.*/checkpoints/0'"):
            loop.iterate(None)
    kept = load_file(tmp_path / "run" / "broken_states_0.safetensors")
    assert kept["env_ids"].tolist() == (robots or [0, 1, 2, 3])
    assert kept["obs.actor"].shape == (4, len(robots) or 4, 100)


def test_every_process_saves_its_own_broken_states(tmp_path):
    begun = job(tmp_path / "run", 1)
    for rank, robot in ((0, 1), (1, 0)):
        with started(begun, Ranks(rank, rank, 2)) as loop:
            loop.env.robots.world.qvel[robot] = torch.nan
            loop.collector.collect()
            with pytest.raises(ValueError, match=f"1 of 2 environments .*broken_states_{rank}"):
                loop.check.check_rollout(loop.collector.obs, 1)
    found = [load_file(tmp_path / "run" / f"broken_states_{rank}.safetensors")["env_ids"].tolist() for rank in (0, 1)]
    assert found == [[1], [0]]


def test_an_episode_that_the_simulator_breaks_is_counted_and_training_continues(tmp_path, monkeypatch):
    from body_transformer.rl.envs.fast import FastEnv

    step = FastEnv.step

    def spoiled(self, action):
        if self.common_step_counter == 6:
            self.robots.world.qvel[0, 10] = 1e4
        return step(self, action)

    monkeypatch.setattr(FastEnv, "step", spoiled)
    run(job(tmp_path / "run", 3))
    assert [line["train/broken"] for line in lines(tmp_path / "run") if "train/broken" in line] == [0, 1, 0]


def test_the_last_good_checkpoint_is_the_newest(tmp_path):
    """The newest has the largest number; as text, 9 would come after 10."""
    folder = tmp_path / "run"
    with started(job(folder, 1)) as loop:
        for iteration in (9, 10):
            loop.iteration = iteration
            loop.save()
        assert loop.check.last_good() == f"the last good checkpoint is {str(folder / 'checkpoints' / '10')!r}"


def test_weights_that_are_not_finite_are_never_saved(tmp_path):
    folder = tmp_path / "run"
    with started(job(folder, 2)) as loop:
        loop.iteration = 1
        loop.save()
        next(loop.learner.critic.parameters()).data.fill_(float("nan"))
        loop.iteration = 2
        with pytest.raises(ValueError, match=r"weights are not finite after iteration 2: 'critic\..*checkpoints/1'"):
            loop.save()
    assert newest_checkpoint(folder).step == 1
