"""Readers of robot files, experiments, runs, their evaluations and deployment logs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from pathlib import Path
from random import Random

import numpy as np
import yaml

from body_transformer import BodyGraph, Layout, robots
from body_transformer.cli.main import main
from body_transformer.experiment import Experiment, load_experiment
from body_transformer.model.policy import Policy

from ..body.test_malformed_files import ARM, SINK, URDF
from ..deploy.conftest import make_policy, make_run
from ..report.deployment_folders import deploy
from ..report.run_folders import write_evaluation, write_run
from .demonstrations import arrays
from .inputs import Files, Reader
from .policies import seal_checkpoint

# -- robots ------------------------------------------------------------------------------------------------------------


def _mjcf(folder: Path) -> None:
    for name, content in {
        "sink": SINK,
        **{name: robots.path(name).read_bytes() for name in ("humanoid", "a1")},
    }.items():
        (folder / name).mkdir()
        (folder / name / "robot.xml").write_bytes(content)
        (folder / name / "arm.xml").write_bytes(ARM)
    hand = folder / "hand"
    hand.mkdir()
    shutil.copy(robots.path("adroit_door"), hand / "robot.xml")
    for part in Path(robots.__file__).parent.glob("adroit_hand_*.xml"):
        shutil.copy(part, hand)


def _urdf(folder: Path) -> None:
    (folder / "one").mkdir()
    (folder / "one" / "robot.urdf").write_bytes(URDF)


def _read_robot(file: Path) -> None:
    graph = BodyGraph.from_file(file)
    if graph.actuators or graph.independent_joints:
        Layout.proprioceptive(graph)
    _ = graph.mask, graph.diameter, graph.to_dict()


# -- experiments -------------------------------------------------------------------------------------------------------

ROBOT = """<mujoco><worldbody><body name="torso"><freejoint/><geom size="1"/>
<body name="arm"><joint name="shoulder"/><geom size="1"/>
<body name="hand"><joint name="wrist"/><geom size="1"/></body></body></body></worldbody>
<actuator><motor joint="shoulder"/><motor joint="wrist"/></actuator></mujoco>"""
DEMOS = {"gravity": 3, "joint_pos": 2, "joint_vel": 2}


def _own_robot(folder: Path) -> None:
    """Write a robot's file and demonstrations for it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "robot.xml").write_text(ROBOT)
    rng, given = np.random.default_rng(0), arrays()
    rows = len(given["actions"])
    terms = {name: rng.normal(size=(rows, size)).astype(np.float32) for name, size in DEMOS.items()}
    np.savez(folder / "demos.npz", actions=given["actions"], episode_ends=given["episode_ends"], **terms)


def _experiments(folder: Path) -> None:
    own = folder / "own"
    _own_robot(own)
    main(["new", str(own / "robot.xml"), "--data", str(own / "demos.npz"), "--out", str(own / "experiment.yaml")])
    for name in ("a1-walk", "adroit-door"):
        (folder / name).mkdir()
        source = Path(robots.__file__).parents[1] / "experiments"
        shutil.copy(source / f"{name}.yaml", folder / name / "experiment.yaml")
        (folder / name / "adroit-hammer.yaml").write_bytes((source / "adroit-hammer.yaml").read_bytes())


def _read_experiment(folder: Path) -> Experiment:
    known = load_experiment(folder / "experiment.yaml")
    known.layout()
    for variant in ("mlp", "bot-mix"):
        known.policy_config(variant)
    if known.critic:
        known.critic_layout()
    return known


def _use_experiment(folder: Path) -> None:
    """Build the policy of an experiment, and the parts of a contract."""
    from body_transformer.deploy.config import contract_sections

    known = _read_experiment(folder)
    policy = Policy(known.layout(), known.policy_config())
    if known.deploy is not None:
        contract_sections(known.deploy, known.robot.path, policy.layout, 1.0)


# -- runs --------------------------------------------------------------------------------------------------------------


def _reported_runs(folder: Path) -> None:
    write_run(folder / "demo", num_steps=400).rename(folder / "imitation")
    shutil.rmtree(folder / "demo")
    _reinforcement_run(folder)


def _reinforcement_run(folder: Path) -> None:
    run = make_run(folder / "reinforcement", make_policy())
    lines = [{"step": k, "time_s": 2.0 * k, "env_steps": 640 * k, "train/value": 1 / k} for k in range(1, 6)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_evaluation(run, {"unseen": 0.5})


def _trained_run(folder: Path) -> None:
    own = folder / "one"
    _own_robot(own)
    args = ["train", "--robot", str(own / "robot.xml"), "--data", str(own / "demos.npz"), "--out", str(own / "run")]
    small = ["embed-dim", "num-layers", "num-heads", "ff-dim"]
    sizes = [f"--policy.{name}={size}" for name, size in zip(small, (8, 1, 2, 8), strict=True)]
    assert main([*args, *sizes, "--imitation.num-steps=2", "--imitation.batch-size=4", "--quiet", "--cpu"]) == 0
    for unneeded in (*own.rglob("events.*"), *own.rglob("last"), own / "run" / ".at_work"):
        unneeded.unlink(missing_ok=True)
    file = own / "run" / "experiment.yaml"
    described = yaml.safe_load(file.read_text())
    described["robot"]["file"], described["imitation"]["data"] = "robot.xml", "demos.npz"  # in the current folder
    file.write_text(yaml.safe_dump(described, sort_keys=False))


def _readable_runs(folder: Path) -> None:
    _trained_run(folder)
    (folder / "one" / "run").rename(folder / "imitation")
    shutil.rmtree(folder / "one")
    _own_robot(folder / "imitation")
    _reinforcement_run(folder)


def _read_run(folder: Path) -> None:
    """Read a run as `bot eval` and `bot export` do before they simulate or write."""
    from body_transformer.cli.eval import find
    from body_transformer.cli.run_options import EvalOptions
    from body_transformer.deploy.export import find_trained

    find(EvalOptions(folder))
    find_trained(folder)


RUN_FILES = ("experiment.yaml", "metrics.jsonl", "evaluation.json", ".json", ".safetensors", ".webp")

# -- deployments -------------------------------------------------------------------------------------------------------


def _logs(folder: Path) -> None:
    deploy(folder / "whole", seconds=0.4, ramp_s=0.2, hold_s=0.1)
    deploy(folder / "unfiltered", without_filter=True, seconds=0.4, ramp_s=0.2, hold_s=0.1)


def _read_log(folder: Path) -> None:
    from body_transformer.deploy.replay import replay
    from body_transformer.report.deployment import read_deployments

    from ..deploy.virtual_robot import SinePolicy, a1_contract

    (found,) = read_deployments([folder])
    _ = found.spans, found.work_ms, found.targets, found.tilt_rad, found.fell, found.filter, found.stop_s
    found.overall_roughness(found.commanded)
    replay(folder, a1_contract(), SinePolicy())


def _seal_log(chance: Random, files: Files) -> None:
    with contextlib.suppress(ValueError, TypeError, AttributeError, KeyError, RecursionError):
        content = json.loads(files["log.json"] or b"")
        content["arrays_sha256"] = hashlib.sha256(files["log.npz"] or b"").hexdigest()
        files["log.json"] = json.dumps(content).encode()


def _summarise(folder: Path) -> None:
    """Read runs and compare them, as a page about them does before it is drawn."""
    from body_transformer.report.aggregate import compare, group_runs
    from body_transformer.report.load import find_folders, read_run

    runs, _ = find_folders([folder])
    groups = group_runs([read_run(run) for run in runs])
    compare(groups)
    _ = [
        (group.label, group.variant, run.total_env_steps, run.num_parameters) for group in groups for run in group.runs
    ]


def _page(folder: Path) -> list[str]:
    return ["report", str(folder), "--out", str(folder / "tmp" / "page.html")]


RUNS = {
    "robot-mjcf": Reader(_mjcf, lambda folder: _read_robot(folder / "robot.xml"), only=(".xml",)),
    "robot-urdf": Reader(_urdf, lambda folder: _read_robot(folder / "robot.urdf"), only=(".urdf",)),
    "inspect": Reader(_mjcf, command=lambda folder: ["inspect", str(folder / "robot.xml")], only=(".xml",), cost=10),
    "experiment": Reader(_experiments, _read_experiment, only=(".yaml",)),
    "experiment-use": Reader(_experiments, _use_experiment, only=(".yaml",), cost=4),
    "run-summary": Reader(_reported_runs, _summarise, only=RUN_FILES[:3]),
    "run-page": Reader(_reported_runs, command=_page, seal=seal_checkpoint, only=RUN_FILES, cost=5),
    "run-read": Reader(_readable_runs, _read_run, seal=seal_checkpoint, only=RUN_FILES),
    "run-resume": Reader(
        _trained_run,
        command=lambda folder: ["train", "--resume", str(folder / "run"), "--quiet"],
        seal=seal_checkpoint,
        only=RUN_FILES,
        cost=4,
    ),
    "log": Reader(_logs, _read_log, seal=_seal_log),
    "log-page": Reader(_logs, command=_page, seal=_seal_log, cost=5),
}
