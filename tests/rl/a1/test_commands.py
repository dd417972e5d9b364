"""`bot train a1-walk` and `bot eval`, by the real commands."""

import json

import pytest

pytest.importorskip("mjlab", reason="needs the extra 'rl'")

from body_transformer import Policy
from body_transformer.checkpoint import newest_checkpoint
from body_transformer.cli.main import main

SMALL = ["--policy.embed-dim", "8", "--policy.num-layers", "2", "--policy.ff-dim", "8", "--cpu"]
QUICK = ["--rl.num-envs", "8", "--rl.num-steps-per-env", "4", "--rl.num-mini-batches", "2", "--rl.max-iterations", "3"]
QUICK += ["--rl.eval-episodes", "2"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "a1"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("body_transformer.rl.a1.walk.MAX_STEPS", 100)  # of the evaluation at the end
        options = ["--rl.options", "latency", "[0, 2]", "push_every_s", "1"]
        begun = ["train", "a1-walk", "--variant", "bot-mix", *SMALL, *QUICK, *options, "--out", str(folder), "--quiet"]
        assert main(begun) == 0
    return folder


def test_the_critic_of_a_run_observes_more_than_the_actor(run):
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in found] == [1, 2, 3, 3]
    tensors = newest_checkpoint(run).state.tensors
    of_critic = [value for name, value in tensors.items() if name.startswith("critic.") and ".tokenizer" in name]
    assert sum(value.numel() for value in of_critic) == 8 * (65 + 13)
    policy = Policy.load(run)
    assert policy.layout.obs_dim == 48
    assert policy.config.squash == "tanh"


@pytest.mark.parametrize(
    ("task", "option", "error"),
    [
        ("a1-walk", ["pushes", "1"], "options of a1-walk: unknown option 'pushes'"),
        ("a1-walk", ["latency", "[2, 1]"], "latency must be 0 <= low <= high, in physics steps; got (2, 1)"),
        ("a1-walk", ["latency", "[2,"], "option latency of a1-walk must be YAML; got '[2,'"),
        ("humanoid-mod", ["noise", "false"], "humanoid-mod has no options; got 'noise'"),
    ],
)
def test_an_option_that_a_task_does_not_have_is_refused_before_a_run_begins(tmp_path, capsys, task, option, error):
    asked = [
        "train",
        task,
        "--variant",
        "mlp",
        "--cpu",
        *QUICK,
        "--rl.options",
        *option,
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(asked) == 1
    assert error in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("simulator", ["warp", "mujoco"])
def test_a_run_is_evaluated_in_either_simulator(run, capsys, simulator, monkeypatch):
    monkeypatch.setattr("body_transformer.rl.a1.walk.MAX_STEPS", 100)  # standing robots live for all steps
    assert main(["eval", str(run), "--episodes", "2", "--cpu", "--json", "--simulator", simulator]) == 0
    found = json.loads(capsys.readouterr().out)["splits"]["rollouts"]
    assert found["length"]["num_episodes"] == 2
    assert 1 <= found["length"]["mean"] <= 100
    assert abs(found["forward_speed"]["mean"]) < 5
    assert found["speed_error"]["mean"] >= abs(found["forward_speed"]["mean"] - 0.5) - 1e-6
    assert 0 <= found["survived"]["mean"] <= 1
