"""Training by PPO: it runs, stops, goes on, and says what is wrong."""

import json
import math
import os
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("mjlab", reason="needs the extra 'rl'")

from body_transformer import Critic, Policy, PolicyConfig
from body_transformer.checkpoint import newest_checkpoint
from body_transformer.rl.config import RlConfig
from body_transformer.rl.train import Job, _Loop, train
from body_transformer.run import Run
from body_transformer.training.progress import Progress
from body_transformer.training.ranks import Ranks
from body_transformer.training.stopping import StopRequest

SMALL = PolicyConfig(
    variant="bot-mix", embed_dim=8, num_layers=2, ff_dim=8, head="gaussian", init="normal", obs_clip=5.0
)
QUICK = {"num_envs": 4, "num_steps": 4, "num_minibatches": 2, "num_epochs": 2, "eval_episodes": 2}


def job(folder, num_iterations, resume=False, task="humanoid-mod", **options) -> Job:
    config = RlConfig(task, num_iterations=num_iterations, **QUICK | {"eval_every": None} | options)
    run = Run.open(folder) if resume else Run.create(folder, {"name": task, "rl": config.to_dict()})
    return Job(run, SMALL, config, seed=0, device="cpu", resume=resume)


def lines(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_it_learns_something_and_writes_down_how(tmp_path):
    policy = train(job(tmp_path / "run", 3, eval_every=2, num_steps=24), Progress(quiet=True))
    found = lines(tmp_path / "run")
    assert [line["step"] for line in found] == [1, 2, 2, 3, 3]
    assert [line["env_steps"] for line in found] == [96, 192, 192, 288, 288]
    assert found[2]["time_s"] == found[1]["time_s"]
    assert found[2]["eval/rollouts/length"]["num_episodes"] == 2
    assert {"train/value", "train/surrogate", "train/kl", "train/learning_rate", "collect_s", "learn_s"} <= found[
        0
    ].keys()
    saved = newest_checkpoint(tmp_path / "run")
    assert saved.step == 3
    obs = torch.randn(5, 100)
    torch.testing.assert_close(saved.policy(obs), policy(obs))
    assert isinstance(saved.policy, Policy)
    assert saved.policy.config.head == "gaussian"
    assert float(saved.policy.normalizer.shift.abs().sum()) > 0


def test_resumed_it_goes_on_with_weights_optimizer_rate_and_statistics(tmp_path):
    folder = tmp_path / "run"
    train(job(folder, 2), Progress(quiet=True))
    before = newest_checkpoint(folder)
    train(job(folder, 3, resume=True), Progress(quiet=True))
    after = newest_checkpoint(folder)
    assert [line["step"] for line in lines(folder)] == [1, 2, 2, 3, 3]
    assert (before.step, after.step) == (2, 3)
    steps = [float(state.state.tensors["optimizer.0.step"]) for state in (before, after)]
    assert steps == [8.0, 12.0]
    counts = [state.state.values["common_step_counter"] for state in (before, after)]
    assert counts[1] > counts[0]


def test_resumed_it_has_everything_that_was_saved(tmp_path):
    folder = tmp_path / "run"
    train(job(folder, 2), Progress(quiet=True))
    saved = newest_checkpoint(folder).state
    with closing(_Loop(job(folder, 3, resume=True), Ranks(), Progress(quiet=True))) as loop:
        assert torch.equal(torch.get_rng_state(), saved.tensors["random.cpu"])
        found, ppo = loop.learner.tensors(), loop.learner.ppo
        assert saved.tensors.keys() == found.keys() | {"random.cpu"}
        for name, value in found.items():
            torch.testing.assert_close(value, saved.tensors[name], rtol=0, atol=0, msg=name)
        assert ppo.learning_rate != pytest.approx(loop.config.learning_rate), "it has moved; else this shows nothing"
        assert all(group["lr"] is ppo._rate for group in ppo.optimizer.param_groups), "and moves on"
        assert (loop.iteration, loop.env_steps, loop.elapsed_s) == (2, 32, saved.values["elapsed_s"])
        assert loop.env.unwrapped.common_step_counter == saved.values["common_step_counter"]


def test_resumed_robots_are_on_ground_of_the_levels_that_were_saved(tmp_path, monkeypatch):
    folder, put = tmp_path / "run", []
    monkeypatch.setattr("body_transformer.rl.train.terrain_levels", lambda env: torch.tensor([3, 1, 4, 1]))
    monkeypatch.setattr("body_transformer.rl.train.use_terrain_levels", lambda env, levels: put.append(levels.tolist()))
    train(job(folder, 1), Progress(quiet=True))
    assert put == []
    with closing(_Loop(job(folder, 2, resume=True), Ranks(), Progress(quiet=True))) as loop:
        assert put == [[3, 1, 4, 1]]
        assert loop.env.unwrapped.episode_length_buf.tolist() == [0] * 4, "a reset puts them there"


@pytest.mark.parametrize("std_type", ["log", "scalar"])
def test_a_run_with_a_fixed_deviation_goes_on_with_it(tmp_path, std_type):
    folder, fixed = tmp_path / "run", replace(SMALL, std="fixed", init_std=0.5)
    train(replace(job(folder, 1, std_type=std_type), policy=fixed), Progress(quiet=True))
    policy = train(replace(job(folder, 2, resume=True, std_type=std_type), policy=fixed), Progress(quiet=True))
    assert newest_checkpoint(folder).step == 2
    assert policy.log_std.exp().tolist() == pytest.approx([0.5] * 21)


def test_steps_are_counted_as_they_were_taken_where_a_run_goes_on_with_more_robots(tmp_path):
    folder = tmp_path / "run"
    train(job(folder, 2), Progress(quiet=True))
    train(job(folder, 3, resume=True, num_envs=8), Progress(quiet=True))
    assert [line["env_steps"] for line in lines(folder)] == [16, 32, 32, 64, 64]


def test_the_last_evaluation_marks_the_run_as_finished_and_starts_alike_however_long_training_was(tmp_path):
    for length in (1, 2):
        train(job(tmp_path / f"run{length}", length, eval_every=1), Progress(quiet=True))
    short, long = (json.loads((tmp_path / f"run{length}" / "evaluation.json").read_text()) for length in (1, 2))
    assert short["num_episodes"] == 2
    assert short["seed"] == long["seed"]
    last = lines(tmp_path / "run2")[-1]
    assert last["step"] == 2
    assert long["splits"]["rollouts"]["length"] == last["eval/rollouts/length"]
    described = Run.open(tmp_path / "run2").description()
    policy = newest_checkpoint(tmp_path / "run2").policy
    assert described["num_parameters"] == policy.num_parameters + Critic(policy.layout, SMALL).num_parameters


def test_evaluations_leave_training_as_it_is(tmp_path):
    for every in (None, 1):
        train(job(tmp_path / f"every{every}", 3, eval_every=every), Progress(quiet=True))
    none, often = (
        [line["train/value"] for line in lines(tmp_path / f"every{every}") if "train/value" in line]
        for every in (None, 1)
    )
    assert none == often


def test_a_run_that_died_before_its_last_evaluation_makes_up_for_it(tmp_path, monkeypatch):
    folder = tmp_path / "run"

    def die(*args: object) -> None:
        raise KeyboardInterrupt

    whole = _Loop._finish
    monkeypatch.setattr(_Loop, "_finish", die)
    with pytest.raises(KeyboardInterrupt):
        train(job(folder, 2), Progress(quiet=True))
    assert newest_checkpoint(folder).step == 2
    assert not (folder / "evaluation.json").exists()
    monkeypatch.setattr(_Loop, "_finish", whole)
    train(job(folder, 2, resume=True), Progress(quiet=True))
    assert [line["step"] for line in lines(folder)] == [1, 2, 2]
    assert (folder / "evaluation.json").is_file()


def test_a_run_that_goes_on_beyond_its_end_is_not_finished_meanwhile(tmp_path):
    folder = tmp_path / "run"
    train(job(folder, 1), Progress(quiet=True))
    spoiled = job(folder, 2, resume=True)
    with pytest.raises(
        ValueError, match=r"actor does not fit this run: .*is \[8, 8\] in the checkpoint and \[16, 8\] in"
    ):
        train(replace(spoiled, policy=replace(SMALL, ff_dim=16)), Progress(quiet=True))  # before it goes on
    assert (folder / "evaluation.json").is_file()
    with closing(_Loop(spoiled, Ranks(), Progress(quiet=True))) as loop:
        loop._iterate = lambda log: (_ for _ in ()).throw(KeyboardInterrupt)  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt), StopRequest() as stop:
            loop.run(stop)
    assert not (folder / "evaluation.json").exists()


def test_resumed_for_its_last_evaluation_alone_it_leaves_the_checkpoint_as_it_is(tmp_path):
    """Other processes may be reading it."""
    folder = tmp_path / "run"
    train(job(folder, 1), Progress(quiet=True))
    (folder / "evaluation.json").unlink()
    files = sorted((folder / "checkpoints" / "1").iterdir())
    before = [file.stat().st_ino for file in files]
    train(job(folder, 1, resume=True), Progress(quiet=True))
    assert (folder / "evaluation.json").exists()
    assert [file.stat().st_ino for file in files] == before


def test_a_checkpoint_of_another_architecture_is_refused_in_one_line(tmp_path):
    folder = tmp_path / "run"
    train(job(folder, 1), Progress(quiet=True))
    other = replace(job(folder, 2, resume=True), policy=replace(SMALL, variant="mlp"))
    with pytest.raises(ValueError, match=r"the checkpoint's actor does not fit this run: only the .* has ") as error:
        train(other, Progress(quiet=True))
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600


def test_a_state_that_is_not_a_number_ends_it_and_is_kept(tmp_path, monkeypatch):
    from body_transformer.rl.humanoid.lean import LeanEnv

    step = LeanEnv.step

    def spoiled(self, action):
        if self.common_step_counter == 6:
            self.robots.memory.qvel[2] = torch.nan
        return step(self, action)

    monkeypatch.setattr(LeanEnv, "step", spoiled)
    message = r"physics gave values that .* in 1 of 4 environments at iteration 2; .*broken_states_0\.safetensors"
    with pytest.raises(ValueError, match=message):
        train(job(tmp_path / "run", 3, checkpoint_every_s=1e-9), Progress(quiet=True))
    kept = load_file(tmp_path / "run" / "broken_states_0.safetensors")
    assert kept["env_ids"].tolist() == [2]
    assert kept["obs.actor"].shape == (4, 1, 100)
    assert (kept["qpos"].shape, kept["qvel"].shape) == ((1, 28), (1, 27))
    assert kept["qvel"].isnan().all(), "it has begun anew by now, but this is how it ended"
    assert newest_checkpoint(tmp_path / "run").step == 1


def test_a_state_of_mjlabs_that_is_not_a_number_is_kept_too(tmp_path):
    with closing(_Loop(job(tmp_path / "run", 1, task="mjlab:Mjlab-Cartpole-Balance"), Ranks(), Progress())) as loop:
        data = loop.env.unwrapped.sim.data
        data.qvel[1] = torch.nan
        loop.collector.collect()
        with pytest.raises(ValueError, match="1 of 4 environments"):
            loop._check_physics()
        kept = load_file(tmp_path / "run" / "broken_states_0.safetensors")
        assert kept["env_ids"].tolist() == [1]
        torch.testing.assert_close(kept["qpos"], data.qpos[1:2], equal_nan=True)
        torch.testing.assert_close(kept["qvel"], data.qvel[1:2], equal_nan=True)


def test_what_breaks_in_the_last_step_of_a_rollout_is_kept_too(tmp_path):
    with closing(_Loop(job(tmp_path / "run", 1, task="mjlab:Mjlab-Cartpole-Balance"), Ranks(), Progress())) as loop:
        env = loop.env.unwrapped
        step, taken = env.step, []

        def spoiled(action):
            taken.append(action)
            if len(taken) == QUICK["num_steps"]:
                env.sim.data.qvel[2] = torch.nan
            return step(action)

        env.step = spoiled
        with pytest.raises(ValueError, match="1 of 4 environments at iteration 1"):
            loop._iterate(None)
    assert load_file(tmp_path / "run" / "broken_states_0.safetensors")["env_ids"].tolist() == [2]


def test_weights_that_are_not_numbers_are_not_blamed_on_the_physics(tmp_path):
    """The last minibatch's step may break them; the loss before it is a number."""
    with closing(_Loop(job(tmp_path / "run", 1), Ranks(), Progress(quiet=True))) as loop:
        loop.learner.actor.network.net.detokenizer.bias.data[3] = torch.nan
        with pytest.raises(ValueError, match="the policy gave actions that are not finite in 4 of 4 environments at "):
            loop._iterate(None)


@pytest.mark.parametrize(("robots", "said"), [([2], "1 of 4"), ([], "4 of 4")])
def test_a_loss_that_is_not_a_number_ends_it_and_what_it_was_computed_from_is_kept(tmp_path, robots, said):
    """If nothing of what was collected explains it, all of it is kept."""
    with closing(_Loop(job(tmp_path / "run", 1), Ranks(), Progress(quiet=True))) as loop:
        loop._save()
        ppo = loop.learner.ppo
        update = ppo.update

        def spoiled() -> dict[str, float]:
            with torch.inference_mode():
                ppo.storage.returns[:, robots] = torch.nan
            return update() | {"value": math.nan}

        ppo.update = spoiled
        message = rf"the loss is not finite at iteration 1: .*nan.*; {said} environments .*broken_states_0.safetensors'"
        with pytest.raises(ValueError, match=message + r"; the last good checkpoint is '.*/checkpoints/0'"):
            loop._iterate(None)
    kept = load_file(tmp_path / "run" / "broken_states_0.safetensors")
    assert kept["env_ids"].tolist() == (robots or [0, 1, 2, 3])
    assert kept["obs.actor"].shape == (4, len(robots) or 4, 100)


def test_every_process_keeps_its_own_broken_states(tmp_path):
    begun = job(tmp_path / "run", 1)
    for rank, robot in ((0, 1), (1, 0)):
        with closing(_Loop(begun, Ranks(rank, rank, 2), Progress(quiet=True))) as loop:
            loop.env.unwrapped.robots.memory.qvel[robot] = torch.nan
            loop.collector.collect()
            with pytest.raises(ValueError, match=f"1 of 2 environments .*broken_states_{rank}"):
                loop._check_physics()
    found = [load_file(tmp_path / "run" / f"broken_states_{rank}.safetensors")["env_ids"].tolist() for rank in (0, 1)]
    assert found == [[1], [0]]


def test_an_episode_that_the_simulator_breaks_is_counted_and_training_goes_on(tmp_path, monkeypatch):
    from body_transformer.rl.humanoid.lean import LeanEnv

    step = LeanEnv.step

    def spoiled(self, action):
        if self.common_step_counter == 6:
            self.robots.memory.qvel[0, 10] = 1e4
        return step(self, action)

    monkeypatch.setattr(LeanEnv, "step", spoiled)
    train(job(tmp_path / "run", 3), Progress(quiet=True))
    assert [line["train/broken"] for line in lines(tmp_path / "run") if "train/broken" in line] == [0, 1, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_minibatches": 3}, "num_minibatches must divide num_envs; got 3 and 2048"),
        ({"gamma": 1.5}, "gamma must be from 0 to 1; got 1.5"),
        ({"learning_rate": 0}, "learning_rate must be above 0; got 0"),
        ({"num_envs": "many"}, "num_envs must be a number; got 'many'"),
        ({"num_envs": None}, "num_envs must be a number; got None"),
        ({"gamma": "most"}, "gamma must be a number; got 'most'"),
        ({"num_steps": 31.5}, "num_steps must be a whole number; got 31.5"),
        ({"min_learning_rate": 0.1}, "min_learning_rate must not be above max_learning_rate; got 0.1 and 0.01"),
        ({"schedule": "cosine"}, "unknown schedule 'cosine'; have: 'adaptive', 'fixed'"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        RlConfig("humanoid-mod", **options)


def test_two_processes_learn_one_policy(tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = Path(__file__).with_name("two_processes.py")
    subprocess.run(
        [*torchrun, str(script), str(tmp_path)], check=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    first, second = ((tmp_path / f"actions{rank}.txt").read_text() for rank in (0, 1))
    assert first == second
    assert [line["env_steps"] for line in lines(tmp_path / "run")] == [32, 64, 64]
    assert newest_checkpoint(tmp_path / "run").step == 2


def test_of_many_checkpoints_the_last_good_one_is_the_newest(tmp_path):
    """By its number: as text, 9 comes after 10."""
    folder = tmp_path / "run"
    with closing(_Loop(job(folder, 1), Ranks(), Progress(quiet=True))) as loop:
        for iteration in (9, 10):
            loop.iteration = iteration
            loop._save()
        assert loop._last_good() == f"the last good checkpoint is {str(folder / 'checkpoints' / '10')!r}"


def test_weights_that_are_not_numbers_are_never_saved(tmp_path):
    folder = tmp_path / "run"
    with closing(_Loop(job(folder, 2), Ranks(), Progress(quiet=True))) as loop:
        loop.iteration = 1
        loop._save()
        next(loop.learner.critic.parameters()).data.fill_(float("nan"))
        loop.iteration = 2
        with pytest.raises(ValueError, match=r"weights are not finite after iteration 2: 'critic\..*checkpoints/1'"):
            loop._save()
    assert newest_checkpoint(folder).step == 1


def test_processes_begin_with_the_same_weights_and_explore_differently(tmp_path):
    begun, weights, drawn = job(tmp_path / "run", 1), [], []
    for rank in (0, 1):
        with closing(_Loop(begun, Ranks(rank, rank, 2), Progress(quiet=True))) as loop:
            drawn.append(torch.rand(3).tolist())
            weights.append(loop.learner.actor.network.net.state_dict())
    assert drawn[0] != drawn[1]
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=0)


def test_resumed_every_process_goes_on_with_random_numbers_of_its_own(tmp_path):
    folder = tmp_path / "run"
    train(job(folder, 1), Progress(quiet=True))
    drawn = []
    for rank in (0, 1, 1):
        with closing(_Loop(job(folder, 2, resume=True), Ranks(rank, rank, 2), Progress(quiet=True))):
            drawn.append(torch.rand(3).tolist())
    assert drawn[0] != drawn[1]
    assert drawn[1] == drawn[2]


@pytest.mark.parametrize("std_type", ["log", "scalar"])
def test_the_actions_deviation_is_led_down_to_the_final_one(tmp_path, std_type):
    bounds = {"final_std": 0.04, "std_iterations": 2, "std_type": std_type}
    policies = [train(job(tmp_path / f"run{n}", n, **bounds), Progress(quiet=True)) for n in (1, 3)]
    half_way, at_the_end = (policy.log_std.exp().max().item() for policy in policies)
    first = SMALL.init_std
    assert 0.9 * math.sqrt(0.04 * first) < half_way <= math.sqrt(0.04 * first) * (1 + 1e-6)
    assert 0.9 * 0.04 < at_the_end <= 0.04 * (1 + 1e-6)


@pytest.mark.parametrize("std_type", ["log", "scalar"])
def test_a_deviation_below_the_bound_is_left_alone_and_without_a_bound_any_is(tmp_path, std_type):
    for final, expected in ((0.5, 0.3), (0.1, 0.1), (None, 0.3)):
        settings = job(tmp_path / f"run{final}", 1, final_std=final, std_iterations=10, std_type=std_type)
        with closing(_Loop(settings, Ranks(), Progress(quiet=True))) as loop:
            (parameter,) = loop.learner.actor.distribution.parameters()
            parameter.data.fill_(0.3 if std_type == "scalar" else math.log(0.3))
            loop.learner.limit_std(1000)  # long after std_iterations: no lower than the final one
            assert loop.learner.policy().log_std.exp().tolist() == pytest.approx([expected] * 21)


@pytest.mark.parametrize("name", ["final_std", "std_iterations"])
@pytest.mark.parametrize("value", [0, -0.1, math.nan, math.inf])
def test_a_bound_of_the_deviation_that_is_not_positive_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be above 0; got "):
        RlConfig("humanoid-mod", **{name: value})
