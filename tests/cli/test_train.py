"""`bot train` with an experiment of the user's: a YAML file, with a robot file beside it."""

import json

import numpy as np
import pytest
import yaml

from body_transformer import Policy
from body_transformer.cli.main import main
from body_transformer.run import Run

ROBOT = """<mujoco><worldbody><body name='cart'><joint name='slide' type='slide'/><geom size='1'/>
<body name='pole'><joint name='hinge'/><geom size='1'/></body></body></worldbody></mujoco>"""
TERMS = [{"name": "joints", "kind": "joints", "of": ["slide", "hinge"]}]


@pytest.fixture
def mine(tmp_path):
    """Return an experiment file; its robot and data.npz lie beside it."""
    (tmp_path / "pole.xml").write_text(ROBOT, encoding="utf-8")
    experiment = {"title": "Mine", "robot": {"file": "pole.xml"}, "critic": False}
    experiment |= {"obs_dim": 2, "obs": TERMS, "action_dim": 2, "actions": TERMS}
    policy = {"variant": "bot-hard", "embed_dim": 8, "num_layers": 1, "num_heads": 2, "ff_dim": 8}
    experiment |= {"policy": policy, "variants": {"mlp": {"mlp_dim": 4}}}
    experiment |= {"imitation": {"reader": "npz", "num_steps": 4, "batch_size": 8}}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(experiment), encoding="utf-8")
    obs = np.random.default_rng(0).standard_normal((40, 2)).astype(np.float32)
    np.savez(tmp_path / "data.npz", obs=obs, actions=obs, episode_ends=[20, 40])
    return tmp_path / "mine.yaml"


def test_an_experiment_file_is_trained_resumed_and_exported(mine, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    quick = ["--imitation.data", str(tmp_path / "data.npz"), "--cpu", "--quiet"]
    assert main(["train", "mine.yaml", *quick]) == 0
    folder = tmp_path / "runs" / "mine" / "bot-hard" / "seed0"
    assert Run.open(folder).description()["name"] == str(mine)
    assert Policy.load(folder).layout.graph.nodes == ("cart", "pole")
    monkeypatch.chdir("/")
    assert main(["train", str(mine), "--resume", str(folder), "--cpu", "--quiet"]) == 0
    assert main(["train", "demo", "--resume", str(folder)]) == 1
    assert f"is a run of '{mine}', not of 'demo'" in capsys.readouterr().err
    for refused in ("--seed=1", "--imitation.num-steps"):
        assert main(["train", "--resume", str(folder), refused, "9"]) == 1
        name = refused.split("=")[0]
        assert f"a resumed run keeps its settings, so '{name}' is refused" in capsys.readouterr().err
    assert main(["export", str(folder), "--out", str(tmp_path / "out")]) == 0
    assert main(["eval", str(folder)]) == 1
    assert (
        "set imitation.task to one of: 'adroit', 'gym', 'mocap', 'tracking', or MODULE:CLASS" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("demo --imitation.lr 1e-3", "--imitation.learning-rate"),
        ("demo --lr=1e-3", "--imitation.learning-rate"),
        ("demo --policy.nh 4", "--policy.num-heads"),
        ("humanoid-mod --rl.lr 1e-3", "--rl.learning-rate"),
    ],
)
def test_a_setting_given_by_its_initials_is_named(line, meant, capsys):
    assert main(["train", *line.split()]) == 1
    flag = line.split()[1].split("=")[0]
    assert f"unknown flag '{flag}'; did you mean '{meant}'?" in capsys.readouterr().err


def test_any_other_unknown_flag_is_explained_by_tyro(capsys):
    with pytest.raises(SystemExit) as end:
        main(["train", "demo", "--policy.layers", "3"])
    assert end.value.code == 2
    assert "--policy.num-layers" in capsys.readouterr().err


def test_the_flags_of_a_resumed_run_have_a_help_text(capsys):
    with pytest.raises(SystemExit) as end:
        main(["train", "--resume", "--help"])
    assert end.value.code == 0
    assert "--no-eval" in capsys.readouterr().out


def test_an_experiment_file_is_inspected(mine, capsys):
    assert main(["inspect", str(mine), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["nodes"], found["obs_dim"], found["variant"]) == (["cart", "pole"], 2, "bot-hard")


def test_a_missing_experiment_file_is_named(tmp_path, capsys):
    assert main(["train", str(tmp_path / "yours.yaml")]) == 1
    assert f"no experiment at '{tmp_path / 'yours.yaml'}'" in capsys.readouterr().err
