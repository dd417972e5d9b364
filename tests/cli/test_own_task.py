"""Tasks of the user's own, in a YAML file outside the package: recorded, trained, evaluated and filmed."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

pytest.importorskip("gymnasium_robotics", reason="needs the extra 'imitation'")

import imageio.v3 as iio
import minari
from gymnasium.envs import mujoco as simulators

from body_transformer import Policy
from body_transformer.cli.main import main
from body_transformer.experiment import load_experiment
from body_transformer.imitation.tasks import make_task
from body_transformer.run import Run

TESTS = Path(__file__).parents[1]
ARM = """<mujoco><worldbody><body name='upper'><joint name='shoulder'/><geom size='1'/>
<body name='lower'><joint name='elbow'/><geom size='1'/></body></body></worldbody></mujoco>"""
JOINTS = {"kind": "joints", "of": ["shoulder", "elbow"]}
POLICY = {"variant": "bot-hard", "embed_dim": 8, "num_layers": 1, "num_heads": 2, "ff_dim": 8}
QUICK = {"reader": "minari", "num_steps": 3, "batch_size": 8, "eval_episodes": 2}


def experiment(robot, obs, actions, task, **settings):
    """Return the content of an experiment's file."""
    sizes = {"obs_dim": sum(term.pop("size") for term in obs), "action_dim": len(actions["of"])}
    whole = {"title": "Mine", "robot": {"file": robot}, "critic": False, "policy": POLICY, **sizes, "obs": obs}
    return {**whole, "actions": [{"name": "ctrl", **actions}], "imitation": {"task": task, **QUICK, **settings}}


def write(file, content):
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with an experiment `mine.yaml`, its robot and the module of its environment."""
    folder = tmp_path_factory.mktemp("project")
    code = (TESTS / "imitation" / "tasks" / "own" / "my_pkg.py").read_text(encoding="utf-8")
    (folder / "arm_envs.py").write_text(code.replace('register("', 'register("Arm'), encoding="utf-8")
    (folder / "arm.xml").write_text(ARM, encoding="utf-8")
    obs = [{"name": name, **JOINTS, "size": 2} for name in ("joint_pos", "joint_vel")]
    obs.append({"name": "target", "kind": "node", "of": ["lower"], "dim": 2, "size": 2})
    task = {"gym": "arm_envs:ArmReach-v0", "success": "reached", "options": {"length_m": 0.5}, "num_processes": 2}
    write(folder / "mine.yaml", experiment("arm.xml", obs, JOINTS, task))
    return folder


@pytest.fixture(scope="module")
def collected(folder, tmp_path_factory):
    """Return a dataset of two real episodes, recorded from another folder."""
    made = load_experiment(folder / "mine.yaml")
    Policy(made.layout(), made.policy_config()).save(folder / "untrained")
    away = tmp_path_factory.mktemp("away")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(away)
        patch.setattr(sys, "path", [*sys.path])
        given = ["--policy", str(folder / "untrained"), "--episodes", "2", "--noise", "0.5", "--out", "set"]
        assert main(["collect", f"{folder}/mine.yaml", *given]) == 0
    return away / "set"


@pytest.fixture(autouse=True)
def _own_path(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.fixture
def trained(folder, collected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train = ["train", f"{folder}/mine.yaml", "--imitation.data", str(collected), "--cpu", "--quiet"]
    return lambda *more: main([*train, *more])


def test_an_environment_is_recorded_trained_on_evaluated_and_filmed_from_any_folder(
    collected, trained, tmp_path, monkeypatch, capsys
):
    episode = minari.MinariDataset(collected)[0]
    assert episode.observations.shape == (21, 6)
    assert np.abs(np.diff(episode.observations[:, :2], axis=0) - 0.05 * episode.actions).max() < 1e-6
    assert trained() == 0
    run = tmp_path / "runs" / "mine" / "bot-hard" / "seed0"
    found = json.loads((run / "evaluation.json").read_text())
    assert list(found["splits"]["validation"]) == ["success", "success_any", "total_reward"]
    assert Run.open(run).description()["imitation"]["task_options"]["options"] == {"length_m": 0.5}
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    capsys.readouterr()
    assert main(["eval", str(run), "--episodes", "2", "--video", "arm.gif", "--json", "--cpu"]) == 0
    assert json.loads(capsys.readouterr().out)["splits"] == found["splits"]
    assert iio.imread("arm.gif").shape == (11, 64, 64, 3)
    assert main(["train", "--resume", str(run), "--cpu", "--quiet"]) == 0


def test_the_module_of_a_task_may_lie_in_the_current_folder(folder, tmp_path, monkeypatch):
    elsewhere = yaml.safe_load((folder / "mine.yaml").read_text()) | {"robot": {"file": str(folder / "arm.xml")}}
    elsewhere["imitation"]["task"] = "here_tasks:Here"
    write(tmp_path / "mine.yaml", elsewhere)
    (tmp_path / "current").mkdir()
    monkeypatch.chdir(tmp_path / "current")
    lines = (
        "from arm_envs import *",
        "from body_transformer.imitation.tasks.gym import GymTask",
        "class Here(GymTask):",
    )
    body = "    def __init__(self, layout):\n        super().__init__(layout, 'arm_envs:ArmReach-v0')\n"
    Path("here_tasks.py").write_text("\n".join((*lines, body)), encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    given = ["--policy", str(folder / "untrained"), "--episodes", "1", "--out", "set"]
    assert main(["collect", "../mine.yaml", *given]) == 0


def test_no_task_is_a_task_in_a_file_and_as_a_flag(folder, collected, trained, tmp_path, capsys):
    assert trained("--imitation.task", "none", "--out", "flag") == 0
    assert not Path("flag", "evaluation.json").exists()
    assert main(["eval", "flag"]) == 1
    assert "the experiment has no task: set imitation.task to one of" in capsys.readouterr().err
    none = {"base": f"{folder}/mine.yaml", "robot": {"file": f"{folder}/arm.xml"}, "imitation": {"task": "none"}}
    found = load_experiment(write(tmp_path / "none.yaml", none)).imitation
    assert (found.task, found.task_options) == (None, {})
    assert main(["train", "none.yaml", "--imitation.data", str(collected), "--cpu", "--quiet", "--out", "file"]) == 0
    assert Run.open("file").description()["imitation"]["task"] is None


def test_the_task_and_its_options_are_flags(trained, capsys):
    given = ["--imitation.task", "gym", "--imitation.task-options", "id", "arm_envs:ArmReach-v0"]
    assert trained(*given, "options", "{length_m: 2.0}", "max_steps", "4", "--out", "other") == 0
    found = json.loads(Path("other", "evaluation.json").read_text())["splits"]["validation"]
    assert found["success"]["num_episodes"] == 2  # options of the same task are merged
    assert trained("--imitation.task-options", "id", "Pendulum-v1", "options", "{}", "--out", "wrong") == 1
    assert "has 3 observation entries and 1 actions; the layout has 6 and 2" in capsys.readouterr().err
    assert not Path("wrong").exists()


@pytest.mark.parametrize(
    ("task", "more", "message"),
    [
        ({"gymn": "Reach-v0"}, {}, "imitation.task must be a name, or a mapping that holds `gym: ENVIRONMENT`"),
        ({"gym": "Reach-v0"}, {"task_options": {"success": "x"}}, "and all other options of the task; got task"),
        ("gymnasium", {}, "unknown task 'gymnasium'; have: 'adroit', 'gym', 'mocap', 'tracking', or MODULE:CLASS"),
        ("no_such_module:Task", {}, "the task 'no_such_module:Task' cannot be imported: ModuleNotFoundError"),
        ({"gym": "arm_envs:ArmReach-v0", "options": {"fault": "nan"}}, {}, "is not finite (NaN or infinite) at step 2"),
    ],
)
def test_a_wrong_task_is_one_line(folder, tmp_path, capsys, task, more, message):
    own = {"imitation": {"task": task, **more}, "robot": {"file": f"{folder}/arm.xml"}}
    file = write(tmp_path / "wrong.yaml", {"base": f"{folder}/mine.yaml", **own})
    sys.path.append(str(folder))
    given = ["--policy", str(folder / "untrained"), "--episodes", "1", "--out", str(tmp_path / "set")]
    assert main(["collect", str(file), *given]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("bot collect:") == 1
    assert "Traceback" not in error
    assert not (tmp_path / "set").exists()


def test_a_film_that_cannot_be_drawn_is_refused_before_the_evaluation(folder, tmp_path, capsys):
    own = {"imitation": {"task": {"gym": "arm_envs:ArmBlind-v0"}}, "robot": {"file": f"{folder}/arm.xml"}}
    file = write(tmp_path / "blind.yaml", {"base": f"{folder}/mine.yaml", **own})
    sys.path.append(str(folder))
    given = ["--experiment", str(file), "--episodes", "100000", "--video", str(tmp_path / "a.gif")]
    assert main(["eval", str(folder / "untrained"), *given, "--cpu"]) == 1
    assert "must support the render mode rgb_array; its modes: none" in capsys.readouterr().err


def test_ant_maze_is_recorded_trained_on_and_evaluated(tmp_path, monkeypatch, capsys):
    """The robot's file is that of Gymnasium; the observation has the ant's state and the goal."""
    monkeypatch.chdir(tmp_path)
    legs = [f"{joint}_{leg}" for leg in (1, 2, 3, 4) for joint in ("hip", "ankle")]
    bodies = ["torso", "front_left_leg", "aux_1", "body_4", "front_right_leg", "aux_2", "body_7", "back_leg", "aux_3"]
    bodies += ["body_10", "right_back_leg", "aux_4", "body_13"]
    obs = [
        {"name": "height_and_rotation", "kind": "root", "dim": 5, "size": 5},
        {"name": "joint_pos", "kind": "joints", "of": legs, "size": 8},
        {"name": "root_vel", "kind": "root", "dim": 6, "size": 6},
        {"name": "joint_vel", "kind": "joints", "of": legs, "size": 8},
        {"name": "contact", "kind": "bodies", "of": bodies, "dim": 6, "size": 78},
        {"name": "goal", "kind": "root", "dim": 2, "size": 2},
    ]
    actions = {"kind": "joints", "of": [*legs[6:], *legs[:6]]}
    task = {"gym": "AntMaze_UMaze-v5", "success": "success", "obs_keys": ["observation", "desired_goal"]}
    task |= {"options": {"continuing_task": False}, "max_steps": 30}
    robot = Path(simulators.__file__).parent / "assets" / "ant.xml"
    made = load_experiment(write(tmp_path / "ant.yaml", experiment(str(robot), obs, actions, task)))
    Policy(made.layout(), made.policy_config()).save("untrained")
    assert (
        main(["collect", "ant.yaml", "--policy", "untrained", "--episodes", "1", "--noise", "1", "--out", "set"]) == 0
    )
    assert main(["train", "ant.yaml", "--imitation.data", "set", "--cpu", "--quiet", "--out", "run"]) == 0
    assert Path("run", "evaluation.json").exists()
    env = make_task("gym", made.layout(), made.imitation.task_options)._make().env.unwrapped.ant_env.unwrapped
    assert [env.model.joint(k).name for k in range(1, 9)] == legs
    assert [env.model.joint(env.model.actuator(k).trnid[0]).name for k in range(8)] == actions["of"]
