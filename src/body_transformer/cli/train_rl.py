"""`bot train` for what is learned by reinforcement: our tasks, and mjlab's as `mjlab:NAME`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tyro

from ..checkpoint import newest_path
from ..errors import listing
from ..experiment import Experiment
from ..model.config import PolicyConfig
from ..rl.config import RlConfig
from ..rl.mjlab_settings import mjlab_settings
from ..rl.registry import MJLAB, make_env, make_env_cfg, need_mjlab
from ..run import DESCRIPTION, Run
from ..schema import build, plain
from ..training.ranks import Ranks
from .output import console
from .run_options import ResumeOptions, RunOptions, command_line, device_of, is_first_process, no_gpu, value_of


@dataclass(kw_only=True)
class TrainRl(RunOptions):
    """Trains a policy by PPO; every number of the experiment can be set here."""

    rl: RlConfig
    """The training."""


@dataclass(kw_only=True)
class ResumeRl(ResumeOptions):
    """Goes on with a run that was stopped, from its newest whole checkpoint, as it was begun, or beyond its end with
    more iterations. What is given of the training replaces, from there on, what the run was begun with."""

    rl: RlConfig
    """The training, as the run has it."""


KEPT = ("task", "motion", "layout_overrides", "learning_rate", "normalize_obs", "normalize_values", "std_type")
"""What a run goes on with as it was begun: its checkpoint is made of it."""
NEEDED = ("name", "variant", "policy", "seed", "cpu", "wandb")
"""What a run's description says beside its training, and `learn` asks for."""


def main(args: list[str], experiment: Experiment) -> None:
    """Of one of our experiments."""
    if experiment.rl is None:
        raise ValueError(f"experiment {experiment.name!r} is not learned by reinforcement")
    policy = experiment.policy_config(value_of("--variant", args))
    begin(args, TrainRl(experiment=experiment.name, policy=policy, rl=experiment.rl), experiment.title)


def main_mjlab(args: list[str]) -> None:
    """Of one of mjlab's tasks, with the settings that mjlab has for it."""
    policy, rl = mjlab_settings(args[0], value_of("--variant", args) or "bot-mix")
    begin(args, TrainRl(experiment=args[0], policy=policy, rl=rl), f"{args[0].removeprefix(MJLAB)}, of mjlab")


def begin(args: list[str], default: TrainRl, title: str) -> None:
    options = tyro.cli(TrainRl, prog="bot train", args=args, default=default)
    options.check_variant(default.policy.variant)
    need_mjlab()
    options.rl = checked(options.rl, default.rl.task)
    check_shares(options.rl)
    run = Run(options.folder)
    if is_first_process():
        run.check_free()
        check_layout_overrides(options.rl, device_of(options.cpu))
    how = {"rl": plain(options.rl), "num_steps": options.rl.num_iterations}
    description = {**options.describe(title), **how}
    if is_first_process():
        run = Run.create(options.folder, description)
    learn(run, description, options.quiet, resumed=False)


def checked(config: RlConfig, own: str) -> RlConfig:
    """What can be wrong with a task is found before a run begins; a motion is found from wherever one resumes."""
    if config.motion is not None:
        config = replace(config, motion=str(Path(config.motion).absolute()))
    make_env_cfg(config.task, config.num_envs, 0, config.motion, options=config.options)
    if config.task != own:  # an experiment has the layout and the sizes of its task
        raise ValueError(f"the task is the experiment's; bot train {config.task} has that one, not --rl.task")
    return config


def check_shares(config: RlConfig) -> None:
    """Every process has as many robots, and its minibatches leave none of their steps out."""
    own = Ranks.from_environment().share(config.num_envs, "num_envs")
    whole, what = (own, "robots") if config.blocks else (own * config.num_steps, "steps")
    if whole % config.num_minibatches:
        numbers = f"{config.num_minibatches} and {whole}"
        raise ValueError(f"num_minibatches must divide the {what} of each process; got {numbers}")


def check_layout_overrides(config: RlConfig, device: str) -> None:
    """Terms and places are the environment's, so a small one is made."""
    if config.layout_overrides:
        from ..rl.learner import model_layouts

        with closing(make_env(config.task, 1, 0, device, motion=config.motion, options=config.options)) as env:
            model_layouts(env, config.layout_overrides)


def resume(args: list[str], run: Run) -> None:
    """With a run that was stopped, as it was begun but for what is given now."""
    found = run.description()
    begun = described(run, found)
    # without them: tyro would make a flag of each
    default = ResumeRl(resume=run.folder, rl=replace(begun, options={}, layout_overrides={}))
    options = tyro.cli(ResumeRl, prog="bot train", args=args, default=default)
    config = changed(begun, options.rl)
    come = newest_path(run.folder)
    step = 0 if come is None else int(come.name)
    if config.num_iterations < step:
        raise ValueError(f"--rl.num-iterations: this run has come to {step}, and goes on; got {config.num_iterations}")
    facts: dict[str, Any] = {}
    if config != begun:
        changes = [*found.get("changes", []), {"step": step, "command": command_line()}]
        facts = {"rl": plain(checked(config, begun.task)), "num_steps": config.num_iterations, "changes": changes}
    if run.is_evaluated and max((line["step"] for line in run.metrics()), default=0) >= config.num_iterations:
        console().print(f"{run.folder} is finished: {config.num_iterations} iterations and the last evaluation")
        return
    need_mjlab()
    check_shares(config)
    how = {"cpu": options.cpu or found["cpu"], "wandb": options.wandb or found["wandb"]}
    learn(run, {**found, **facts, **how}, options.quiet, resumed=True, facts=facts)


def described(run: Run, found: Mapping[str, Any]) -> RlConfig:
    """How a run was begun; whatever else it takes to go on must be said there, too."""
    missing = [name for name in NEEDED if name not in found]
    if missing:
        raise ValueError(f"{str(run.folder)!r} does not say what was run: {DESCRIPTION} has no {listing(missing)}")
    return build(RlConfig, found["rl"], "rl")


def changed(begun: RlConfig, given: RlConfig) -> RlConfig:
    """Of options, those that are not named stay as they are."""
    overrides = {**begun.layout_overrides, **given.layout_overrides}
    config = replace(given, options={**begun.options, **given.options}, layout_overrides=overrides)
    for name in KEPT:
        if getattr(config, name) != getattr(begun, name):
            flag, values = f"--rl.{name.replace('_', '-')}", (getattr(begun, name), getattr(config, name))
            raise ValueError(f"{flag}: a run goes on with what it was begun with, {values[0]!r}; got {values[1]!r}")
    return config


def learn(
    run: Run, found: Mapping[str, Any], quiet: bool, resumed: bool, facts: Mapping[str, Any] | None = None
) -> None:
    """What a description says; `facts` are new to it, and are written down when the run's checkpoint has been read."""
    from ..rl.train import Job, train
    from ..training.progress import Progress
    from ..training.saving import StoppedEarly

    device = device_of(found["cpu"])
    quiet = quiet or not is_first_process()
    if is_first_process() and not found["cpu"] and device == "cpu":
        print(f"bot train: {no_gpu('--cpu')}", file=sys.stderr)
    job = Job(
        run,
        build(PolicyConfig, found["policy"], "policy"),
        build(RlConfig, found["rl"], "rl"),
        int(found["seed"]),
        device,
        resumed,
        found["wandb"],
        (lambda text: None) if quiet else (lambda text: print(text, file=sys.stderr)),
        facts or {},
    )
    try:
        train(job, Progress(f"{found['name']} {found['variant']}", quiet=quiet))
    except StoppedEarly as stop:
        print(f"bot train: {stop} {run.folder}", file=sys.stderr)
        raise SystemExit(130) from None
    if is_first_process():
        console().print(f"wrote {run.folder}")
