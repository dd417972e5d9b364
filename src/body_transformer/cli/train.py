"""`bot train EXPERIMENT`: a policy from demonstrations; what is learned by reinforcement goes on in train_rl.py."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tyro

from ..errors import unknown
from ..experiment import Experiment, experiment_names, load_experiment
from ..imitation.config import ImitationConfig
from ..model.config import PolicyConfig
from ..rl.registry import MJLAB
from ..schema import build, plain
from . import train_rl
from .output import console
from .run_options import Flag, ResumeOptions, RunOptions, is_first_process, value_of


@dataclass(kw_only=True)
class Train(RunOptions):
    """Trains an experiment's policy; every number of the experiment can be set here."""

    imitation: ImitationConfig
    """The training."""
    no_eval: Flag = False
    """Do not try the policy out."""


@dataclass(kw_only=True)
class Resume(ResumeOptions):
    """Goes on with a run that was stopped, from its newest whole checkpoint, as it was begun: on the CPU if it was told
    to stay there, with the same evaluation and the same project of Weights & Biases."""

    no_eval: Flag = False
    """Do not try the policy out."""


def main(args: list[str]) -> None:
    from ..imitation.demonstrations import share_split_options

    if any(arg.split("=")[0] == "--resume" for arg in args):
        is_named = bool(args) and (args[0] in experiment_names() or args[0].startswith(MJLAB))
        resume(args[1:] if is_named else args, args[0] if is_named else None)
        return
    if args and args[0].startswith(MJLAB):
        train_rl.main_mjlab(args)
        return
    experiment = _experiment(args)
    if experiment.rl is not None:
        train_rl.main(args, experiment)
        return
    imitation = _imitation(experiment)
    default = Train(
        experiment=experiment.name,
        policy=experiment.policy_config(value_of("--variant", args)),
        imitation=replace(imitation, options={}, task_options={}),  # tyro would make a flag of each
    )
    options = tyro.cli(Train, prog="bot train", args=args, default=default)
    options.imitation = share_split_options(
        replace(
            options.imitation,
            options=_options(imitation, options.imitation),
            task_options={**imitation.task_options, **options.imitation.task_options},
        )
    )
    options.check_variant(default.policy.variant)
    begin(options, experiment)


def begin(options: Train, experiment: Experiment) -> None:
    from ..run import Run

    if is_first_process():
        Run(options.folder).check_free()
    how = {"no_eval": options.no_eval, "imitation": plain(options.imitation)}
    _train(options, experiment, options.folder, {**options.describe(experiment.title), **how}, resumed=False)


def resume(args: list[str], named: str | None = None) -> None:
    """A run knows its experiment; it may be `named` all the same, if it is the right one."""
    from ..run import Run

    folder = value_of("--resume", args)
    if folder is None or folder.startswith("-"):
        tyro.cli(Resume, prog="bot train", args=args)  # says what is missing
        return
    run = Run.open(folder)
    description = run.description()
    if named is not None and named != description.get("name"):
        raise ValueError(f"{folder!r} is a run of {description.get('name')!r}, not of {named!r}")
    if "rl" in description:
        train_rl.resume(args, run)
        return
    options = tyro.cli(Resume, prog="bot train", args=args)
    try:
        experiment = load_experiment(description["name"])
        policy = build(PolicyConfig, description["policy"], "policy")
        imitation = build(ImitationConfig, description["imitation"], "imitation")
        seed = int(description["seed"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"{str(run.folder)!r} does not say what was run: {error!r}") from None
    whole = Train(
        experiment=experiment.name,
        policy=policy,
        imitation=imitation,
        seed=seed,
        cpu=options.cpu or bool(description.get("cpu")),
        no_eval=options.no_eval or bool(description.get("no_eval")),
        wandb=options.wandb or description.get("wandb"),
        quiet=options.quiet,
    )
    _train(whole, experiment, run.folder, description, resumed=True)


def _train(options: Train, experiment: Experiment, folder: Path, description: dict[str, Any], resumed: bool) -> None:
    from ..imitation.actors import acting
    from ..imitation.demonstrations import demonstrations
    from ..imitation.losses import check_loss
    from ..imitation.tasks import evaluate, make_task
    from ..imitation.train import CloningJob, total_steps, train
    from ..model.policy import Policy
    from ..run import Run
    from ..training.evaluation import write_evaluation
    from ..training.progress import Progress
    from ..training.stopping import StoppedEarly

    config = options.imitation
    check_loss(config.loss, options.policy)
    layout = experiment.layout()
    episodes = demonstrations(config, layout, options.seed)  # all that can be wrong with the data is found here
    task = None if options.no_eval else make_task(config.task, layout, config.task_options)
    run = Run(folder)
    if not resumed and is_first_process():
        description["num_parameters"] = Policy(layout, options.policy).num_parameters
        description["num_steps"] = total_steps(config, episodes.num_steps)
        run = Run.create(folder, description)
    job = CloningJob(run, episodes, task, options.policy, config, options.seed, resumed, options.wandb, options.cpu)
    try:
        policy = train(
            job, Progress(f"{experiment.name} {options.policy.variant}", quiet=options.quiet or not is_first_process())
        )
    except StoppedEarly as stop:
        raise SystemExit(_say(f"{stop} {folder}")) from None
    if not is_first_process():
        return
    if task is not None:
        found = evaluate(acting(policy), task, config.eval_episodes, options.seed)
        write_evaluation(run, found, config.eval_episodes, options.seed)
        task.close()
    console().print(f"wrote {folder}")


def _say(text: str) -> int:
    print(f"bot train: {text}", file=sys.stderr)
    return 130


def _experiment(args: list[str]) -> Experiment:
    if not args or (args[0].startswith("-") and args[0] not in ("-h", "--help")):
        raise ValueError(f"name the experiment first: bot train EXPERIMENT …; have: {', '.join(_trainable())}")
    if args[0] in ("-h", "--help"):
        return load_experiment("demo")
    if args[0] not in experiment_names():
        have = unknown("experiment", args[0], experiment_names())
        raise ValueError(f"{have}; a task of mjlab's is {MJLAB}NAME, and bot train {MJLAB} lists them")
    return load_experiment(args[0])


def _imitation(experiment: Experiment) -> ImitationConfig:
    if experiment.imitation is None:
        raise ValueError(
            f"experiment {experiment.name!r} cannot be trained yet; those that can: {', '.join(_trainable())}"
        )
    return experiment.imitation


def _options(own: ImitationConfig, given: ImitationConfig) -> dict[str, str]:
    """The experiment's, with what was given over them; another reader has options of its own."""
    return {**(own.options if own.reader == given.reader else {}), **given.options}


def _trainable() -> list[str]:
    return [name for name in experiment_names() if (found := load_experiment(name)).imitation or found.rl]
