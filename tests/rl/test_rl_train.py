"""A training by PPO logs, evaluates, runs in several processes and refuses settings out of range."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("mjlab", reason="needs the extra 'rl'")

from body_transformer import Critic, Policy
from body_transformer.checkpoint import newest_checkpoint
from body_transformer.rl.config import RlConfig
from body_transformer.run import Run
from body_transformer.training.ranks import Ranks

from .jobs import SMALL, job, lines, run, started


@pytest.fixture(scope="module")
def often(tmp_path_factory):
    """A run of three iterations with an evaluation after each."""
    folder = tmp_path_factory.mktemp("runs") / "often"
    run(job(folder, 3, eval_every=1))
    return folder


def test_a_training_logs_every_iteration_and_saves_the_policy(tmp_path):
    policy = run(job(tmp_path / "run", 3, eval_every=2, num_steps_per_env=24))
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


def test_the_final_evaluation_marks_the_run_as_finished_and_its_starts_do_not_depend_on_the_length_of_training(
    tmp_path, often
):
    run(job(tmp_path / "run", 1))
    short, long = (json.loads((folder / "evaluation.json").read_text()) for folder in (tmp_path / "run", often))
    assert short["num_episodes"] == 2
    assert short["seed"] == long["seed"]
    last = lines(often)[-1]
    assert last["step"] == 3
    assert long["splits"]["rollouts"]["length"] == last["eval/rollouts/length"]
    described = Run.open(often).description()
    policy = newest_checkpoint(often).policy
    assert described["num_parameters"] == policy.num_parameters + Critic(policy.layout, SMALL).num_parameters


def test_evaluations_do_not_change_the_training(tmp_path, often):
    run(job(tmp_path / "none", 3, eval_every=None))
    without, with_evaluations = (
        [line["train/value"] for line in lines(folder) if "train/value" in line]
        for folder in (tmp_path / "none", often)
    )
    assert without == with_evaluations


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_mini_batches": 3}, "num_mini_batches must divide num_envs; got 3 and 2048"),
        (
            {"num_envs": 1, "num_steps_per_env": 1, "num_mini_batches": 1},
            "num_envs x num_steps_per_env must be 2 or more",
        ),
        ({"gamma": 1.5}, "gamma must be from 0 to 1; got 1.5"),
        ({"learning_rate": 0}, "learning_rate must be above 0; got 0"),
        ({"final_std": math.inf}, "final_std must be a finite number; got inf"),
        ({"final_std": 0}, "final_std must be above 0; got 0"),
        ({"std_iterations": 0}, "std_iterations must be above 0; got 0"),
        ({"entropy_coef": -1}, "entropy_coef must be 0 or above; got -1"),
        ({"num_steps_per_env": 31.5}, "num_steps_per_env must be a whole number; got 31.5"),
        ({"min_learning_rate": 0.1}, "min_learning_rate must not be above max_learning_rate; got 0.1 and 0.01"),
    ],
)
def test_settings_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        RlConfig("humanoid-mod", **options)


def test_two_processes_train_one_policy(tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = Path(__file__).with_name("two_processes.py")
    subprocess.run(
        [*torchrun, str(script), str(tmp_path)], check=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    first, second = ((tmp_path / f"actions{rank}.txt").read_text() for rank in (0, 1))
    assert first == second
    assert [line["env_steps"] for line in lines(tmp_path / "run")] == [32, 64, 64]
    assert newest_checkpoint(tmp_path / "run").step == 2


def test_processes_begin_with_the_same_weights_and_explore_differently(tmp_path):
    begun, weights, drawn = job(tmp_path / "run", 1), [], []
    for rank in (0, 1):
        with started(begun, Ranks(rank, rank, 2)) as loop:
            drawn.append(torch.rand(3).tolist())
            weights.append(loop.learner.actor.network.net.state_dict())
    assert drawn[0] != drawn[1]
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=0)


@pytest.mark.parametrize("std_type", ["log", "scalar"])
def test_the_standard_deviation_of_actions_falls_to_the_final_one(tmp_path, std_type):
    bounds = {"final_std": 0.04, "std_iterations": 2, "std_type": std_type}
    found = []
    with started(job(tmp_path / "run", 3, **bounds)) as loop:
        for _ in range(3):
            loop.iterate(None)
            found.append(loop.learner.policy().log_std.exp().max().item())
    half_way, _, at_the_end = found
    first = SMALL.init_std
    assert 0.9 * math.sqrt(0.04 * first) < half_way <= math.sqrt(0.04 * first) * (1 + 1e-6)
    assert 0.9 * 0.04 < at_the_end <= 0.04 * (1 + 1e-6)


@pytest.mark.parametrize("std_type", ["log", "scalar"])
def test_a_deviation_below_the_bound_is_unchanged_and_without_a_bound_any_deviation_is(tmp_path, std_type):
    for final, expected in ((0.5, 0.3), (0.1, 0.1), (None, 0.3)):
        settings = job(tmp_path / f"run{final}", 1, final_std=final, std_iterations=10, std_type=std_type)
        with started(settings) as loop:
            (parameter,) = loop.learner.actor.distribution.parameters()
            parameter.data.fill_(0.3 if std_type == "scalar" else math.log(0.3))
            loop.learner.limit_std(1000)  # long after std_iterations, the bound is the final one
            assert loop.learner.policy().log_std.exp().tolist() == pytest.approx([expected] * 21)
