"""A resumed training by PPO continues with the whole saved state."""

import shutil
from dataclasses import replace

import pytest
import torch

pytest.importorskip("mjlab", reason="needs the extra 'rl'")

from body_transformer.checkpoint import newest_checkpoint
from body_transformer.rl.envs.fast import FastEnv
from body_transformer.rl.episode_state import episode_state
from body_transformer.rl.train import TrainingLoop
from body_transformer.training.random_state import random_state
from body_transformer.training.ranks import Ranks
from body_transformer.training.stopping import StopRequest

from .jobs import SMALL, check_exact_resume, job, lines, run, started


@pytest.fixture(scope="module")
def _trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    run(job(folder, 2))
    return folder


@pytest.fixture
def folder(_trained, tmp_path):
    """A finished run of two iterations."""
    return shutil.copytree(_trained, tmp_path / "run", symlinks=True)


def test_a_resumed_run_continues_its_steps_its_log_and_its_optimizer(folder):
    before = newest_checkpoint(folder)
    run(job(folder, 3, resume=True))
    after = newest_checkpoint(folder)
    assert [line["step"] for line in lines(folder)] == [1, 2, 2, 3, 3]
    assert (before.step, after.step) == (2, 3)
    steps = [float(state.state.tensors["optimizer.0.step"]) for state in (before, after)]
    assert steps == [8.0, 12.0]
    counts = [state.state.values["common_step_counter"] for state in (before, after)]
    assert counts[1] > counts[0]


def test_a_resumed_run_restores_everything_that_was_saved(folder):
    saved = newest_checkpoint(folder).state
    with started(job(folder, 3, resume=True)) as loop:
        ppo = loop.learner.ppo
        found = ppo.training_state()
        found |= episode_state(loop.collector) | random_state("cpu")
        assert saved.tensors.keys() == found.keys()
        for name, value in found.items():
            torch.testing.assert_close(value, saved.tensors[name], rtol=0, atol=0, msg=name)
        assert float(ppo.learning_rate) != pytest.approx(loop.config.learning_rate), "the learning rate has changed"
        assert all(group["lr"] is ppo.learning_rate for group in ppo.optimizer.param_groups), "it can change again"
        assert (loop.iteration, loop.env_steps, loop.elapsed_s) == (2, 32, saved.values["elapsed_s"])
        assert loop.env.common_step_counter == saved.values["common_step_counter"]


EXACT = {
    "humanoid-mod": {},
    "humanoid-hill": {},
    "humanoid-board": {"options": {"privileged_critic": "true"}},
    "a1-walk": {"options": {"latency": "[0, 4]", "push_every_s": "0.1"}},
    "mjlab:Mjlab-Cartpole-Balance": {"random_initial_step": True},
    "mjlab:Mjlab-Velocity-Flat-Unitree-Go1": {"random_initial_step": True},
}


@pytest.mark.parametrize("task", EXACT)
def test_a_resumed_run_ends_in_the_state_of_an_uninterrupted_one(tmp_path, task):
    check_exact_resume(tmp_path, task=task, **EXACT[task])


def test_a_run_with_a_checkpoint_without_episodes_continues_in_new_ones_and_says_so(folder, monkeypatch):
    monkeypatch.setattr(FastEnv, "episode_state", lambda env: {})
    with (
        pytest.warns(UserWarning, match=r"continues in new episodes.*checkpoints/2 was read, but it has no states of"),
        started(job(folder, 3, resume=True)) as loop,
    ):
        assert loop.env.episode_length_buf.tolist() == [0] * 4


def test_robots_of_a_resumed_run_start_on_the_saved_terrain_levels(tmp_path, monkeypatch):
    """The checkpoint is an older one, without the states of episodes."""
    folder, put = tmp_path / "run", []
    monkeypatch.setattr(FastEnv, "episode_state", lambda env: {})

    def restore(env, tensors):
        put.append(tensors["terrain_levels"].tolist())
        return True

    monkeypatch.setattr(FastEnv, "training_state", lambda env: {"terrain_levels": torch.tensor([3, 1, 4, 1])})
    monkeypatch.setattr(FastEnv, "restore", restore)
    run(job(folder, 1))
    assert put == []
    with started(job(folder, 2, resume=True)) as loop:
        assert put == [[3, 1, 4, 1]]
        assert loop.env.episode_length_buf.tolist() == [0] * 4, "a reset puts them there"


@pytest.mark.parametrize("std_type", ["log", "scalar"])
def test_a_run_with_a_fixed_deviation_can_be_resumed(tmp_path, std_type):
    folder, fixed = tmp_path / "run", replace(SMALL, std="fixed", init_std=0.5)
    for resume in (False, True):
        settings = replace(job(folder, 2, resume=resume, std_type=std_type), policy=fixed)
        with started(settings) as loop:
            loop.iterate(None)
            loop.save()
    assert newest_checkpoint(folder).step == 2
    assert newest_checkpoint(folder).policy.log_std.exp().tolist() == pytest.approx([0.5] * 21)


def test_the_count_of_steps_stays_right_if_a_run_is_resumed_with_more_robots(folder):
    with pytest.warns(UserWarning, match="its states of episodes do not fit this run"):
        run(job(folder, 3, resume=True, num_envs=8))
    assert [line["env_steps"] for line in lines(folder)] == [16, 32, 32, 64, 64]


def test_a_run_killed_before_its_final_evaluation_is_evaluated_when_it_is_resumed(tmp_path, monkeypatch):
    folder = tmp_path / "run"

    def die(*args: object) -> None:
        raise KeyboardInterrupt

    whole = TrainingLoop.finish
    monkeypatch.setattr(TrainingLoop, "finish", die)
    with pytest.raises(KeyboardInterrupt):
        run(job(folder, 2))
    assert newest_checkpoint(folder).step == 2
    assert not (folder / "evaluation.json").exists()
    monkeypatch.setattr(TrainingLoop, "finish", whole)
    run(job(folder, 2, resume=True))
    assert [line["step"] for line in lines(folder)] == [1, 2, 2]
    assert (folder / "evaluation.json").is_file()


def test_a_run_resumed_beyond_its_end_is_not_marked_as_finished_meanwhile(folder):
    longer = job(folder, 3, resume=True)
    message = (
        r"actor does not fit this run: 6 tensors differ, such as .*is \[8\] in the checkpoint and \[16\] in this run"
    )
    with pytest.raises(ValueError, match=message):
        run(replace(longer, policy=replace(SMALL, ff_dim=16)))  # before it continues
    assert (folder / "evaluation.json").is_file()
    with started(longer) as loop:
        loop.iterate = lambda log: (_ for _ in ()).throw(KeyboardInterrupt)  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt), StopRequest() as stop:
            loop.run(stop)
    assert not (folder / "evaluation.json").exists()


def test_a_run_resumed_only_for_its_final_evaluation_does_not_rewrite_the_checkpoint(folder):
    """Other processes may be reading it."""
    (folder / "evaluation.json").unlink()
    files = sorted((folder / "checkpoints" / "2").iterdir())
    before = [file.stat().st_ino for file in files]
    run(job(folder, 2, resume=True))
    assert (folder / "evaluation.json").exists()
    assert [file.stat().st_ino for file in files] == before


def test_a_checkpoint_of_another_architecture_is_refused_in_one_line(folder):
    other = replace(job(folder, 3, resume=True), policy=replace(SMALL, variant="mlp"))
    with pytest.raises(ValueError, match=r"the checkpoint's actor does not fit .* and missing in this run") as error:
        run(other)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600


def test_every_process_of_a_resumed_run_has_its_own_random_numbers(folder):
    drawn = []
    for rank in (0, 1, 1):
        with started(job(folder, 3, resume=True), Ranks(rank, rank, 2)):
            drawn.append(torch.rand(3).tolist())
    assert drawn[0] != drawn[1]
    assert drawn[1] == drawn[2]
