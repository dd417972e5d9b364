"""`bot train EXPERIMENT` and `bot train --robot FILE --data PATH`: train a policy from demonstrations.

`train_rl.py` trains by reinforcement learning.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from .. import robots
from ..body.graph import Fixed
from ..errors import unknown
from ..experiment import (
    SUFFIXES,
    Experiment,
    RobotSpec,
    described_experiment,
    experiment_names,
    load_experiment,
)
from ..files import atomic_write
from ..imitation.config import ImitationConfig, without_other_options
from ..model.config import PolicyConfig
from ..model.variants import variant_name
from ..rl.registry import MJLAB
from ..run import Run
from ..schema import build, plain
from . import train_rl
from .inspect import find_robot
from .output import console, say
from .run_options import Flag, ResumeOptions, RunOptions, device_of, experiment_id, is_first_process, value_of
from .train_flags import parse

ROBOT = "--robot"
PATHS = ("clips", "train_clips", "validation_clips", "keep")
"""Options of readers and tasks that are paths."""


@dataclass(kw_only=True)
class Train(RunOptions):
    """Train the policy of an experiment. Flags override the experiment's settings.

    `bot train EXPERIMENT --help` lists the flags of that experiment; without a name, those of the demo.
    `bot train --resume RUN` resumes a stopped run; `bot train --resume --help` lists its flags.
    """

    imitation: ImitationConfig
    """Settings of the training."""
    no_eval: Flag = False
    """Do not evaluate the policy."""


@dataclass(kw_only=True)
class TrainOwn(Train):
    """Train a policy for a robot of your own from demonstrations.

    The terms of the observation are matched by name and size to the robot's joints, actuators, bodies and sites.
    `bot new` writes the same as an experiment that you can edit.
    """

    experiment: tyro.conf.Suppress[str]
    """Name of the run's folder."""
    robot: Annotated[str, tyro.conf.arg(metavar="FILE")]
    """An MJCF or URDF file, or the name of a shipped robot."""
    data: Annotated[str, tyro.conf.arg(metavar="PATH")]
    """Demonstrations: an .npz file, a folder, a Minari dataset, or a robomimic file."""
    root: Annotated[tuple[str, ...], tyro.conf.arg(metavar="BODY ...")] = ()
    """The robot's root body, several of them, or `world`; needed if the file holds several trees."""
    fixed: Annotated[Fixed, tyro.conf.arg(metavar="keep|merge")] = "keep"
    """Whether a body without a joint keeps its own node or merges into its parent."""
    allow_outside: Flag = False
    """Allow the robot's file to name files outside its folder: included ones, meshes and the like."""


@dataclass(kw_only=True)
class Resume(ResumeOptions):
    """Resume a stopped run from its newest complete checkpoint, with the settings it was started with."""

    no_eval: Flag = False
    """Do not evaluate the policy."""


def main(args: list[str]) -> None:
    """Start or resume training."""
    if any(arg.split("=")[0] == "--resume" for arg in args):
        is_named = bool(args) and not args[0].startswith("-")
        resume(args[1:] if is_named else args, args[0] if is_named else None)
    elif any(arg.split("=")[0] == ROBOT for arg in args):
        start_own(args)
    elif args and args[0].startswith(MJLAB):
        train_rl.main_mjlab(args)
    elif (experiment := find_experiment(args)).rl is not None:
        train_rl.main(args, experiment)
    else:
        start(args, experiment)


def find_experiment(args: list[str]) -> Experiment:
    """Return the experiment that the first argument names; the demo for --help."""
    if not args or (args[0].startswith("-") and args[0] not in ("-h", "--help")):
        raise ValueError(
            f"name the experiment first: bot train EXPERIMENT …; have: {', '.join(trainable())}; "
            f"or train a robot of your own: bot train {ROBOT} FILE --data PATH"
        )
    if args[0] in ("-h", "--help"):
        return load_experiment("demo")
    if args[0] not in experiment_names() and not args[0].endswith(SUFFIXES):
        have = unknown("experiment", args[0], experiment_names())
        raise ValueError(
            f"{have}; or give a YAML file, or {MJLAB}NAME for a task of mjlab (bot train {MJLAB} lists them)"
        )
    return load_experiment(args[0])


def trainable() -> list[str]:
    """Return the names of the shipped experiments that can be trained."""
    return [name for name in experiment_names() if (found := load_experiment(name)).imitation or found.rl]


def start(args: list[str], experiment: Experiment) -> None:
    """Start a new run, with the experiment's settings and those in `args`."""
    own = experiment.imitation
    if own is None:
        raise ValueError(
            f"experiment {experiment.name!r} has neither an 'imitation' nor an 'rl' section to train with; "
            f"those that have: {', '.join(trainable())}"
        )
    default = Train(
        experiment=experiment.name,
        policy=experiment.policy_config(value_of("--variant", args)),
        imitation=without_options(own),
    )
    options = parse(Train, args, default)
    options.check_variant(default.policy.variant)
    start_run(options, experiment.title, own)


def start_own(args: list[str]) -> None:
    """Start a new run for a robot's file and demonstrations."""
    from ..imitation.own_robot import own_robot, training_settings
    from ..imitation.readers.stored import find_reader

    is_asked = any(arg in ("-h", "--help") for arg in args)
    robot, data = ("FILE", "PATH.npz") if is_asked else (value_of(ROBOT, args), value_of("--data", args))
    if robot is None or data is None:
        raise ValueError(f"give a robot's file and its demonstrations: bot train {ROBOT} FILE --data PATH")
    own = training_settings(find_reader(data), data)
    policy = PolicyConfig(variant=variant_name(value_of("--variant", args) or PolicyConfig.variant))
    default = TrainOwn(experiment=Path(robot).stem, robot=robot, data=data, policy=policy, imitation=own)
    options = parse(TrainOwn, ["--help"] if is_asked else args, default)
    options.check_variant(policy.variant)
    file = options.robot if options.robot in robots.names() else os.path.abspath(find_robot(options.robot))
    spec = RobotSpec(file, options.root or None, options.fixed, allow_outside=options.allow_outside)
    root = f" --root {shlex.join(options.root)}" if options.root else ""
    command = f"`bot new {options.robot} --data {options.data}{root} --out mine.yaml`"
    found = own_robot(spec, options.data, f"{command} writes an experiment, in which you can name other owners")
    if not options.quiet and is_first_process():
        say(found.describe(), file=sys.stderr, keep="\n")
    assert found.experiment.imitation is not None
    own = replace(own, options=found.experiment.imitation.options)
    start_run(options, found.experiment.title, own, found.experiment.describe_layout())


def without_options(config: ImitationConfig) -> ImitationConfig:
    """Return settings without the options of reader and task, because tyro would make a flag of each."""
    return replace(config, options={}, task_options={})


def start_run(options: Train, title: str, own: ImitationConfig, layout: Mapping[str, Any] | None = None) -> None:
    """Start a run with the given flags; `own` are the settings of its experiment, and `layout` is its robot's."""
    from ..imitation.demonstrations import share_split_options
    from ..imitation.tasks import import_beside

    given = options.imitation
    kept = without_other_options(plain(own), plain(given))
    given = replace(
        given,
        data=absolute_if_path(given.data),
        options=absolute_paths({**kept.get("options", {}), **given.options}),
        task_options=absolute_paths({**kept.get("task_options", {}), **given.task_options}),
    )
    description = {**options.describe(title), **(layout or {}), "no_eval": options.no_eval}
    import_beside(beside(description))
    run = Run(options.folder)
    if is_first_process():
        run.check_free()
    description["imitation"] = plain(share_split_options(given))
    run_training(run, description, options.quiet, resumed=False)


def beside(found: Mapping[str, Any]) -> str:
    """Return the file in the same folder as the modules of a run's task."""
    return str(found["robot"]["file"] if "robot" in found else found["name"])


def absolute_if_path(data: str | None) -> str | None:
    """Return an absolute path, so that the run can be resumed from any folder; other names stay as they are."""
    path = Path(data or "").expanduser()
    return os.path.abspath(path) if data and path.exists() else data


def absolute_paths(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with absolute paths."""
    return {
        key: os.path.abspath(os.path.expanduser(value)) if key in PATHS and isinstance(value, str) else value
        for key, value in options.items()
    }


def resume(args: list[str], named: str | None = None) -> None:
    """Resume a run; if an experiment is `named`, it must be the run's."""
    folder = value_of("--resume", args)
    if folder is None or folder.startswith("-"):
        asked = folder in ("-h", "--help")
        tyro.cli(Resume, prog="bot train", args=["--help"] if asked else args)  # or an error: no folder is given
        return
    run = Run.open(folder)
    found = run.description()
    if named is not None and experiment_id(named) != found.get("name"):
        raise ValueError(f"{folder!r} is a run of {found.get('name')!r}, not of {named!r}")
    if "rl" in found:
        train_rl.resume(args, run)
        return
    options = parse(Resume, args)
    given = {
        "cpu": options.cpu or bool(found.get("cpu")),
        "no_eval": options.no_eval or bool(found.get("no_eval")),
        "wandb": options.wandb or found.get("wandb"),
    }
    run_training(run, {**found, **given}, options.quiet, resumed=True)


def run_training(run: Run, found: Mapping[str, Any], quiet: bool, resumed: bool) -> None:
    """Train with the settings of a description and evaluate the policy; create a new run after checking its data."""
    from ..imitation.actors import acting
    from ..imitation.demonstrations import demonstrations
    from ..imitation.losses import check_loss
    from ..imitation.tasks import import_beside, make_task
    from ..imitation.tasks.base import evaluate
    from ..imitation.train import CloningJob, total_steps, train
    from ..model.policy import Policy
    from ..training.evaluation import write_evaluation
    from ..training.progress import Progress

    try:
        layout = described_experiment(found).layout()
        architecture = build(PolicyConfig, found["policy"], "policy")
        config = build(ImitationConfig, found["imitation"], "imitation")
        seed = int(found["seed"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"cannot resume {str(run.folder)!r}: its description is incomplete: {error!r}") from None
    check_loss(config.loss, architecture)
    import_beside(beside(found))
    episodes = demonstrations(
        config, layout, seed, device_of(found["cpu"])
    )  # raises an error if anything is wrong with the data
    is_evaluated = config.task and not found["no_eval"]
    task = make_task(config.task, layout, config.task_options) if is_evaluated else None
    if not resumed and is_first_process():
        sizes = {
            "num_parameters": Policy(layout, architecture).num_parameters,
            "num_steps": total_steps(config, episodes.num_steps),
        }
        run = Run.create(run.folder, {**found, **sizes})
        for name, text in episodes.files.items():
            atomic_write(run.folder / name, text)
    job = CloningJob(run, episodes, task, architecture, config, seed, resumed, found["wandb"], found["cpu"])
    policy = train(job, Progress(f"{found['name']} {architecture.variant}", quiet=quiet or not is_first_process()))
    if not is_first_process():
        return
    if task is not None:
        estimates = evaluate(acting(policy), task, config.eval_episodes, seed)
        write_evaluation(run, estimates, config.eval_episodes, seed)
        task.close()
    console().print(f"wrote {run.folder}")
