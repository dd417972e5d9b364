"""Robots of mjlab's tasks, simulated from the files of an export: they move as in mjlab, and `bot deploy` runs them."""

import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("mjlab", reason="needs the extra 'rl'")
pytest.importorskip("onnxruntime", reason="needs the extra 'deploy'")

from body_transformer import Policy, PolicyConfig
from body_transformer.cli.main import main
from body_transformer.deploy.contract import Contract
from body_transformer.deploy.export import Trained, export
from body_transformer.deploy.robot import Command
from body_transformer.deploy.robots.sim import SimRobot
from body_transformer.deploy.robots.sim_body import MotionRecorder, SimBody
from body_transformer.deploy.robots.sim_model import sim_model
from body_transformer.deploy.robots.sim_options import SimOptions
from body_transformer.deploy.saved_log import SavedLog
from body_transformer.rl.env_deploy import sections_of
from body_transformer.rl.infer_layout import infer_layout

from ..deploy.real_time import in_real_time
from .environments import G1, GO1, make_env

TASKS = {"go1": GO1, "g1": G1}


@pytest.fixture(scope="module")
def exports(tmp_path_factory) -> dict[str, Path]:
    """Return exports of policies that hardly leave the default pose."""
    folder, found = tmp_path_factory.mktemp("exports"), {}
    for name, task in TASKS.items():
        with closing(make_env(task, num_envs=1)) as env:
            layout = infer_layout(env, ["actor"]).layout
            torch.manual_seed(0)
            policy = Policy(layout, PolicyConfig(variant="bot-mix", embed_dim=8, num_layers=1, ff_dim=8))
            for parameter in policy.detokenizer.parameters():
                parameter.data *= 0.01
            found[name] = export(
                Trained(policy, f"mjlab:{task}", sections=sections_of(env, layout)), folder / name
            ).folder
    return found


def hold(body: SimBody, target: np.ndarray) -> Command:
    zeros = np.zeros(len(body.joints))
    return Command(target, zeros, np.array(body.robot.kp), np.array(body.robot.kd), zeros)


def without_randomization(cfg) -> None:
    cfg.events = {name: event for name, event in cfg.events.items() if event.mode == "reset"}


@pytest.mark.parametrize(("lift_m", "tolerance_rad"), [(1.0, 0.01), (0.0, 0.1)], ids=["in the air", "on the ground"])
@pytest.mark.parametrize("name", TASKS)
def test_the_robot_moves_as_in_mjlab(exports, name, lift_m, tolerance_rad):
    control = Contract.load(exports[name]).control
    body = SimBody(SimOptions(), sim_model(exports[name]))
    with closing(make_env(TASKS[name], without_randomization, num_envs=1)) as env:
        env.sim.data.qpos[0, 2] += lift_m
        start = env.sim.data.qpos[0].numpy().copy()
        body.data.qpos[:], body.data.qvel[:] = start, 0.0
        for step in range(20):
            action = 0.5 * np.sin(0.4 * step + np.arange(len(control.joints)))
            env.step(torch.tensor(action, dtype=torch.float32)[None])
            for _ in range(20):
                body.step(hold(body, np.array(control.offset) + np.array(control.scale) * action))
            theirs = env.sim.data.qpos[0].numpy()
            np.testing.assert_allclose(body.data.qpos[7:], theirs[7:], atol=tolerance_rad)
            np.testing.assert_allclose(body.data.qpos[:3], theirs[:3], atol=0.01)
        assert np.abs(theirs[7:] - start[7:]).max() > 0.1


@pytest.mark.parametrize("name", TASKS)
def test_a_held_robot_stands_still_until_it_is_released(exports, name):
    body = SimBody(SimOptions(start="held"), sim_model(exports[name]))
    recorder, height = MotionRecorder(body), body.robot.height_m
    for _ in range(3000):
        body.step(body.idle())
        recorder.watch()
    assert body.pose().position == pytest.approx([0.0, 0.0, height], abs=0.01)
    assert not recorder.outcome().fell
    body.release()
    for _ in range(3000):
        body.step(body.idle())
        recorder.watch()
    assert recorder.outcome().fell == (name == "g1"), "a humanoid does not stand with the gains of its policy alone"
    body.reset()
    assert body.pose().position[2] == height
    assert body.data.eq_active.all()


def test_the_linear_velocity_is_measured_in_the_bodys_frame(exports):
    body = SimBody(SimOptions(), sim_model(exports["go1"]))
    body.data.qpos[3:7] = np.sqrt(0.5), 0, 0, np.sqrt(0.5)  # turned left by 90 degrees
    body.data.qvel[:3] = 0.0, 0.5, 0.1
    np.testing.assert_allclose(body.measure(1, np.random.default_rng(0)).linear_velocity, [0.5, 0.0, 0.1], atol=1e-12)


def test_a_robot_without_a_known_lying_pose_sinks_down_and_lies_still(exports):
    body = SimBody(SimOptions(start="lying"), sim_model(exports["go1"]))
    assert body.time_s == 0
    assert body.pose().position[2] < body.robot.height_m / 2
    before = body.data.qpos.copy()
    for _ in range(500):
        body.step(body.idle())
    np.testing.assert_allclose(body.data.qpos, before, atol=0.05)


def test_an_export_without_its_robot_is_not_simulated(exports, tmp_path):
    import shutil

    copy = shutil.copytree(exports["go1"], tmp_path / "copy")
    (copy / "robot.xml").unlink()
    with pytest.raises(FileNotFoundError, match=r"robot.xml' is missing: export the policy again"):
        sim_model(copy)


# -- across UDP, in real time ------------------------------------------------------------------------------------------


@pytest.mark.alone
@in_real_time
@pytest.mark.parametrize(("name", "seconds"), [("go1", 1.0), ("g1", 0.3)])
def test_bot_deploy_runs_the_robot_of_the_export(exports, name, seconds, tmp_path, capsys, benchmark_script):
    capsys.readouterr()  # of an earlier attempt
    asked = ["deploy", str(exports[name]), "--robot", "sim", "--seconds", str(seconds), "--command", "0.5", "0", "0.2"]
    assert main([*asked, "--stale-ms", "1000", "--out", str(tmp_path / "log"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["stop"], said["report"]["fell"]) == (None, False)
    assert said["policy_seconds"] == pytest.approx(seconds, abs=0.1)  # missed deadlines do not count
    assert main(["deploy", str(exports[name]), "--replay", str(tmp_path / "log")]) == 0
    film, robot, log = benchmark_script("film_deployment"), sim_model(exports[name]), SavedLog.load(tmp_path / "log")
    shown = film.poses(log, robot, film.drawn(robot))
    assert len(shown) == pytest.approx(25 * seconds, abs=2)
    assert shown[-1, 0] - shown[0, 0] == pytest.approx(said["report"]["distance_m"], abs=0.03)


def test_bot_deploy_refuses_a_command_beyond_the_training_with_the_range(exports, tmp_path, capsys):
    asked = ["deploy", str(exports["g1"]), "--robot", "sim", "--out", str(tmp_path / "log")]
    assert main([*asked, "--command", "2.5", "0", "0"]) == 1
    assert "trained with commands of -1.5 to 2, -1 to 1, -0.7 to 0.7; got 2.5, 0, 0" in capsys.readouterr().err
    assert not (tmp_path / "log").exists()


def test_commands_to_a_go1_are_not_cut_to_the_bounds_of_an_a1_whose_joints_have_the_same_names(exports):
    joints = Contract.load(exports["go1"]).control.joints
    beyond = np.full(12, -2.8)
    with SimRobot(expected=joints, policy=exports["go1"], model="go1") as robot:
        zeros = np.zeros(12)
        assert robot.send(Command(beyond, zeros, np.ones(12), zeros, zeros)).position.tolist() == beyond.tolist()
