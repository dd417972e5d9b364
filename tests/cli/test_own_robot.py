"""A robot and demonstrations of the user's: `bot train --robot FILE --data PATH`, `bot new`, and what follows."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

pytest.importorskip("gymnasium_robotics", reason="needs the extra 'imitation'")

import h5py
from minari.dataset.minari_storage import MinariStorage

from body_transformer import Policy
from body_transformer.cli.main import main
from body_transformer.experiment import load_experiment
from body_transformer.imitation.readers import open_episodes
from body_transformer.run import Run

FINGER = '<body name="{0}_finger"><joint name="{0}_finger" type="slide"/><geom size=".1"/></body>'
ARM = f"""<mujoco><worldbody><body name="base"><geom size=".1"/><body name="upper"><joint name="shoulder"/>
  <geom size=".1"/><body name="lower"><joint name="elbow"/><geom size=".1"/><body name="palm"><geom size=".1"/>
  {FINGER.format("left")}{FINGER.format("right")}</body></body></body></body></worldbody>
<equality><joint joint1="left_finger" joint2="right_finger"/></equality><actuator><motor name="m0" joint="shoulder"/>
<motor name="m1" joint="elbow"/><position name="m2" joint="right_finger"/></actuator></mujoco>"""
ARRAYS = {"joint_pos": (4,), "gripper_qvel": (2,), "palm_force": (3,), "colour": (2,)}
SMALL = ["--policy.embed-dim", "8", "--policy.num-layers", "1", "--policy.ff-dim", "8"]
QUICK = [*SMALL, "--imitation.num-steps", "3", "--imitation.batch-size", "8", "--cpu"]
ENDS = (10, 30)


def episodes():
    """Return observations and actions of 30 steps; `rewards` and `image` are not observed."""
    rng = np.random.default_rng(0)
    obs = {name: rng.standard_normal((30, *shape)).astype(np.float32) for name, shape in ARRAYS.items()}
    return obs, rng.standard_normal((30, 3)).astype(np.float32)


def write_npz(place, flat=False):
    obs, actions = episodes()
    obs = {"obs": np.concatenate(list(obs.values()), axis=1)} if flat else {**obs, "rewards": actions[:, 0]}
    np.savez(place, **obs, actions=actions, episode_ends=ENDS)
    return place


def write_flat(place):
    sizes = {name: shape[0] for name, shape in ARRAYS.items()}
    place.with_suffix(".terms.yaml").write_text(yaml.safe_dump({"obs": sizes}, sort_keys=False))
    return write_npz(place, flat=True)


def write_folder(place):
    place.mkdir()
    write_npz(place / "part.npz")
    return place


def write_arrays(place):
    place.mkdir()
    obs, actions = episodes()
    for name, array in {**obs, "actions": actions, "episode_ends": np.array(ENDS)}.items():
        np.save(place / name, array)
    return place


def write_robomimic(place):
    obs, actions = episodes()
    with h5py.File(place, "w") as file:
        for k, rows in enumerate((slice(0, 10), slice(10, 30))):
            demo = file.create_group(f"data/demo_{k}")
            demo["actions"] = actions[rows]
            demo["obs/image"] = np.zeros((rows.stop - rows.start, 4, 4, 3), np.uint8)
            for name, array in obs.items():
                demo[f"obs/{name}"] = array[rows]
    return place


def write_minari(place):
    from gymnasium import spaces

    obs, actions = episodes()
    box = {name: spaces.Box(-np.inf, np.inf, shape) for name, shape in ARRAYS.items()}
    action_space = spaces.Box(-np.inf, np.inf, (3,))
    MinariStorage.new(place, observation_space=spaces.Dict(box), action_space=action_space)
    (place / "metadata.json").write_text(json.dumps({"total_episodes": 1, "data_format": "hdf5"}))
    with h5py.File(place / "main_data.hdf5", "w") as file:
        file["episode_0/actions"] = actions[:-1]
        for name, array in obs.items():
            file[f"episode_0/observations/{name}"] = array
    return place


WRITERS = {
    "demos.npz": write_npz,
    "flat.npz": write_flat,
    "folder": write_folder,
    "arrays": write_arrays,
    "robomimic.hdf5": write_robomimic,
    "minari": write_minari,
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the current folder, which has the robot's file."""
    (tmp_path / "arm.xml").write_text(ARM)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", WRITERS)
def test_a_robot_is_trained_on_demonstrations_of_any_format(folder, name, capsys):
    WRITERS[name](folder / name)
    assert main(["train", "--robot", "arm.xml", "--data", name, "--variant", "bot-hard", *QUICK]) == 0
    shown = capsys.readouterr().err
    assert "unknown terms 'colour' go to the root; `bot new arm.xml --data" in shown
    assert [line for line in shown.splitlines() if "palm_force 3" in line]
    layout = Policy.load("runs/arm/bot-hard/seed0").layout
    owners = {term.name: term.of for term in (*layout.obs, *layout.actions)}
    fingers = ("left_finger", "right_finger")
    assert owners["joint_pos"] == ("shoulder", "elbow", *fingers)
    assert owners["gripper_qvel"] == fingers
    assert (owners["palm_force"], owners["colour"], owners["actions"]) == (("palm",), (), ("m0", "m1", "m2"))
    obs, actions = episodes()
    config = load_experiment("runs/arm/bot-hard/seed0").imitation
    read = open_episodes(config.reader, config.data, layout, **config.options)
    names = [term.name for term in layout.obs]
    steps = [read.read(index) for index in range(len(read))]
    num_steps = sum(len(step.obs) for step in steps)
    wanted = np.concatenate([obs[name] for name in names], axis=1)[:num_steps]
    np.testing.assert_array_equal(np.concatenate([step.obs for step in steps]), wanted)
    np.testing.assert_array_equal(np.concatenate([step.actions for step in steps]), actions[:num_steps])


def test_such_a_run_is_resumed_exported_and_reported_from_any_folder(folder, monkeypatch, capsys):
    pytest.importorskip("onnx", reason="needs the extra 'deploy'")
    write_npz(folder / "demos.npz")
    assert main(["train", "--robot", "arm.xml", "--data", "demos.npz", "--out", "run", "--quiet", *QUICK]) == 0
    monkeypatch.chdir("/")
    run = str(folder / "run")
    assert main(["train", "--resume", run, "--cpu", "--quiet"]) == 0
    assert main(["export", run, "--out", f"{folder}/export", "--json"]) == 0
    assert main(["report", run, "--out", f"{folder}/page.html"]) == 0
    shown = capsys.readouterr()
    (exported,) = (json.loads(line) for line in shown.out.splitlines() if line.startswith("{"))
    assert exported["experiment"] == "arm"
    assert "unfinished" not in shown.err
    assert main(["eval", run]) == 1
    assert "the experiment has no task: set imitation.task" in capsys.readouterr().err
    assert main(["inspect", f"{run}/experiment.yaml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["obs_dim"] == 11


TASK = """import gymnasium as gym
import numpy as np

class Reach(gym.Env):
    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gym.spaces.Box(-1, 1, (3,))
    def reset(self, *, seed=None, options=None):
        return np.zeros(2), {}
    def step(self, action):
        return np.full(2, FAULT), 1.0, False, False, {"done": 1.0}

gym.register("OwnReach-v0", Reach, max_episode_steps=3)
"""


def test_such_a_run_is_evaluated_and_recorded_in_a_task_that_flags_name(folder, monkeypatch, capsys):
    (folder / "own_reach.py").write_text(TASK.replace("FAULT", "0.5"))
    np.savez("demos.npz", gripper_qpos=np.eye(2, dtype=np.float32), actions=np.ones((2, 3)), episode_ends=[2])
    task = ["--imitation.task", "gym", "--imitation.task-options", "id", "own_reach:OwnReach-v0", "success", "done"]
    given = ["--imitation.eval-episodes", "2", "--out", "run", "--quiet"]
    assert main(["train", "--robot", "arm.xml", "--data", "demos.npz", *QUICK, *task, *given]) == 0
    found = json.loads(Path("run", "evaluation.json").read_text())
    assert found["splits"]["validation"]["success"]["mean"] == 1
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    monkeypatch.setattr("sys.path", [path for path in __import__("sys").path if path != str(folder)])
    assert main(["eval", "../run", "--episodes", "2", "--cpu"]) == 0
    assert main(["collect", "../run", "--policy", "../run", "--episodes", "1", "--out", "set"]) == 0
    assert "wrote set: 1 episodes, 3 steps; success in 100.0% of 1 played" in capsys.readouterr().out
    assert yaml.safe_load(Path("set", "terms.yaml").read_text()) == {"obs": {"gripper_qpos": 2}}
    assert main(["train", "--robot", "../arm.xml", "--data", "set", *QUICK, "--quiet"]) == 0
    assert Policy.load("runs/arm/bot-mix/seed0").layout == Policy.load("../run").layout


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"joint_pos": (5,)}, "'joint_pos' has 5 entries, which do not fit joints (4: 'shoulder', 'elbow', "),
        ({"joint_pos": (5,)}, "; `bot new arm.xml --data demos.npz --out mine.yaml` writes an experiment, in which"),
        ({"obs": (5,)}, "the array 'obs' has 5 entries, and demos.terms.yaml does not exist: name them in order"),
        ({"rewards": ()}, "demos.npz: there is no array of observations; have: 'actions', 'rewards'"),
        ({"rewards": ()}, "; an observation has a row of numbers per action"),
    ],
)
def test_what_cannot_be_matched_is_an_error_that_says_what_to_do(folder, arrays, message, capsys):
    np.savez("demos.npz", actions=np.ones((2, 3)), episode_ends=[2], **{k: np.ones((2, *v)) for k, v in arrays.items()})
    assert main(["train", "--robot", "arm.xml", "--data", "demos.npz", *QUICK]) == 1
    assert message in capsys.readouterr().err
    assert not Path("runs").exists()


def test_arrays_without_a_row_of_numbers_per_action_are_listed(folder, capsys):
    more = {"joint_vel": np.ones((3, 4)), "label": np.array(["a", "b"])}
    np.savez("demos.npz", actions=np.ones((2, 3)), episode_ends=[2], joint_pos=np.ones((2, 4)), **more)
    assert main(["train", "--robot", "arm.xml", "--data", "demos.npz", *QUICK]) == 0
    assert "not observed: joint_vel, label" in capsys.readouterr().err


def test_an_array_of_objects_is_named(folder, capsys):
    objects = np.array([{}, {}], dtype=object)
    np.savez("demos.npz", actions=np.ones((2, 3)), episode_ends=[2], joint_pos=np.ones((2, 4)), note=objects)
    assert main(["train", "--robot", "arm.xml", "--data", "demos.npz", *QUICK]) == 1
    assert "demos.npz: note: Object arrays cannot be loaded" in capsys.readouterr().err


def test_a_folder_without_demonstrations_is_named(folder, capsys):
    Path("empty").mkdir()
    assert main(["train", "--robot", "arm.xml", "--data", "empty", *QUICK]) == 1
    assert "'empty' has no .npz file, no actions.npy and no Minari dataset" in capsys.readouterr().err


def test_a_sidecar_may_name_the_parts_of_the_actions(folder):
    write_npz(folder / "demos.npz")
    Path("demos.terms.yaml").write_text("actions: {arm_joint_target: 2, gripper_joint_target: 1}")
    given = ["--robot", "arm.xml", "--data", "demos.npz", "--out", "run", "--quiet"]
    assert main(["train", *given, *QUICK]) == 0
    actions = [(term.name, term.of) for term in Policy.load("run").layout.actions]
    assert actions == [("arm_joint_target", ("shoulder", "elbow")), ("gripper_joint_target", ("right_finger",))]


def test_a_sidecar_must_add_up(folder, capsys):
    write_flat(folder / "demos.npz")
    Path("demos.terms.yaml").write_text("obs: {joint_pos: 4}")
    assert main(["train", "--robot", "arm.xml", "--data", "demos.npz", *QUICK]) == 1
    assert "has 11 entries, and demos.terms.yaml names 4 of them" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--robot arm.xml", "give a robot's file and its demonstrations: bot train --robot FILE --data PATH"),
        ("--robot arm.xml --data demos.csv", "demonstrations are an .npz file, a folder of them"),
        ("--robot leg.xml --data demos.npz", "no robot file at 'leg.xml'"),
        ("--robot arm.xml --data demos.npz --variant bot-hrad", "unknown variant 'bot-hrad'"),
        ("--robot arm.xml --data demos.npz --imitation.lr 1", "did you mean '--imitation.learning-rate'?"),
        (
            "--robot arm.xml --data demos.npz --root palm",
            "'actions' has 3 entries, which do not fit actuators (1: ",
        ),
    ],
)
def test_a_wrong_flag_is_one_line(folder, line, message, capsys):
    write_npz(folder / "demos.npz")
    Path("demos.csv").touch()
    assert main(["train", *line.split()]) == 1
    assert message in capsys.readouterr().err


def test_observations_that_are_not_finite_are_refused_before_training(folder, capsys):
    obs = np.ones((2, 3))
    obs[1, 2] = np.nan
    np.savez("demos.npz", palm_force=obs, actions=obs, episode_ends=[2])
    assert main(["train", "--robot", "arm.xml", "--data", "demos.npz", *QUICK]) == 1
    assert "has observations that are not finite: 'palm_force[palm].2'" in capsys.readouterr().err


# -- bot new -----------------------------------------------------------------------------------------------------------


def test_a_new_experiment_is_edited_and_trained_from_any_folder(folder, monkeypatch, capsys):
    write_npz(folder / "demos.npz")
    (folder / "mine").mkdir()
    assert main(["new", "arm.xml", "--data", "demos.npz", "--out", "mine/arm.yaml"]) == 0
    file = folder / "mine" / "arm.yaml"
    text = file.read_text()
    assert "robot: {file: ../arm.xml}" in text
    assert "data: ../demos.npz" in text
    comment, term = "  # unknown name: its owner may be another one\n", "  - {name: colour, kind: root, dim: 2}\n"
    assert comment + term in text
    monkeypatch.chdir("/")
    assert main(["inspect", str(file)]) == 0
    assert "colour 2" in capsys.readouterr().out
    file.write_text(text.replace(comment + term, "  - {name: colour, kind: node, of: [palm], dim: 2}\n"))
    assert main(["train", str(file), *QUICK, "--quiet", "--out", str(folder / "run")]) == 0
    layout = Policy.load(folder / "run").layout
    assert layout.obs_ids("palm") == [6, 7, 8, 9, 10]
    assert Run.open(folder / "run").description()["imitation"]["data"] == str(folder / "demos.npz")


def test_a_new_experiment_without_demonstrations_has_a_usual_layout(folder, capsys):
    assert main(["new", "arm.xml", "--out", "arm.yaml"]) == 0
    assert [term.name for term in load_experiment("arm.yaml").obs] == ["joint_pos", "joint_vel"]
    given = ["--quick", "--device", "cpu", "--rows", "arm.yaml", "--json"]
    assert main(["bench", "latency", *given]) == 0
    assert '"experiment": "arm.yaml"' in capsys.readouterr().out
    assert main(["new", "arm.xml", "--out", "arm.yaml"]) == 1
    assert "'arm.yaml' exists: give another --out, or --overwrite" in capsys.readouterr().err
    assert main(["new", "a1", "--out", "arm.yaml", "--overwrite"]) == 0
    assert load_experiment("arm.yaml").robot.file == "a1"
    assert main(["new", "arm.xml", "--out", "arm.xml"]) == 1
    assert "--out must end with .yaml or .yml" in capsys.readouterr().err


def test_an_ambiguous_array_is_explained_in_the_new_experiment(folder):
    arrays = {"joint_pos": np.ones((2, 5)), "qpos": np.ones((2, 3)), "actions": np.ones((2, 3))}
    np.savez("demos.npz", **arrays, episode_ends=[2])
    assert main(["new", "arm.xml", "--data", "demos.npz", "--out", "arm.yaml"]) == 0
    text = Path("arm.yaml").read_text()
    assert "  # ambiguous: 'joint_pos' has 5 entries, which do not fit joints (4: 'shoulder', " in text
    assert load_experiment("arm.yaml").obs[1].of == ("shoulder", "elbow", "right_finger")


def test_parts_of_one_array_are_terms_of_their_own_and_one_may_be_unused(folder):
    walker = ARM.replace('<body name="base">', '<body name="base"><freejoint name="root"/>')
    (folder / "walker.xml").write_text(walker)
    qpos = np.random.default_rng(0).standard_normal((20, 11)).astype(np.float32)
    np.savez("demos.npz", qpos=qpos, actions=qpos[:, :3], episode_ends=[20])
    assert main(["new", "walker.xml", "--data", "demos.npz", "--out", "walker.yaml"]) == 0
    text = Path("walker.yaml").read_text()
    base = yaml.safe_load(text)["obs"][0]
    assert (base["name"], base["kind"], base["dim"]) == ("qpos.0", "bodies", 7)
    content = yaml.safe_load(text)
    content["obs"][0] = {"name": "qpos.0", "kind": "unused", "dim": 7}
    Path("walker.yaml").write_text(yaml.safe_dump(content))
    assert main(["train", "walker.yaml", *QUICK, "--quiet", "--out", "run"]) == 0
    made = load_experiment("walker.yaml")
    read = open_episodes("npz", made.imitation.data, made.layout(), **made.imitation.options)
    np.testing.assert_array_equal(read.read(0).obs, qpos[:, 7:])
