"""`bot train` by reinforcement learning: our tasks, and mjlab's as `mjlab:NAME`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..checkpoint import newest_path
from ..errors import listing
from ..experiment import Experiment
from ..model.config import PolicyConfig
from ..rl.config import RlConfig
from ..rl.mjlab_settings import mjlab_settings
from ..rl.registry import MJLAB, make_env, make_env_cfg, need_mjlab, with_absolute_paths
from ..run import DESCRIPTION, Run
from ..schema import build, plain
from ..training.ranks import Ranks
from .output import console, say
from .run_options import ResumeOptions, RunOptions, command_line, device_of, is_first_process, no_gpu, value_of
from .train_flags import parse


@dataclass(kw_only=True)
class TrainRl(RunOptions):
    """Train a policy by PPO. Flags override the experiment's settings.

    `bot train --resume RUN` resumes a stopped run; `bot train --resume RUN --help` lists its flags.
    """

    rl: RlConfig
    """Settings of the training."""


@dataclass(kw_only=True)
class ResumeRl(ResumeOptions):
    """Resume a run from its newest checkpoint with its own settings. Settings given here replace those from that
    checkpoint on. A larger `max_iterations` continues a finished run."""

    rl: RlConfig
    """Settings of the training; the defaults are those of the run."""


FIXED = ("task", "motion", "layout_overrides", "learning_rate", "obs_normalization", "normalize_values", "std_type")
"""Settings that a resumed run cannot change: its checkpoint depends on them."""
NEEDED = ("name", "variant", "policy", "seed", "cpu", "wandb")
"""Keys of a run's description, beside its settings, that `run_training` reads."""


def main(args: list[str], experiment: Experiment) -> None:
    """Train one of our experiments."""
    if experiment.rl is None:
        raise ValueError(f"experiment {experiment.name!r} has no `rl` section, so it cannot be trained by PPO")
    policy = experiment.policy_config(value_of("--variant", args))
    start(args, TrainRl(experiment=experiment.name, policy=policy, rl=experiment.rl), experiment.title)


def main_mjlab(args: list[str]) -> None:
    """Train one of mjlab's tasks with mjlab's settings for it."""
    policy, rl = mjlab_settings(args[0], value_of("--variant", args) or "bot-mix")
    start(args, TrainRl(experiment=args[0], policy=policy, rl=rl), f"{args[0].removeprefix(MJLAB)}, of mjlab")


def start(args: list[str], default: TrainRl, title: str) -> None:
    """Check the settings, then start a new run."""
    options = parse(TrainRl, args, default)
    options.check_variant(default.policy.variant)
    config = checked(options.rl, default.rl.task)
    check_shares(config)
    description = {**options.describe(title), **settings(config)}
    run = Run(options.folder)
    if is_first_process():
        run.check_free()
        check_layout_overrides(config, device_of(options.cpu))
        run = Run.create(options.folder, description)
    run_training(run, description, options.quiet)


def settings(config: RlConfig) -> dict[str, Any]:
    """Return the settings as a run's description holds them."""
    return {"rl": plain(config), "num_steps": config.max_iterations}


def checked(config: RlConfig, task: str) -> RlConfig:
    """Check the task's settings before a run starts, and make paths absolute for a later resume."""
    if config.motion is not None:
        config = replace(config, motion=str(Path(config.motion).absolute()))
    config = replace(config, options=with_absolute_paths(config.task, config.options))
    make_env_cfg(config.task, config.num_envs, 0, config.motion, options=config.options)
    if config.task != task:  # the layout and the sizes of an experiment fit only its own task
        raise ValueError(f"--rl.task cannot change the task of an experiment: use bot train {config.task}")
    return config


def check_shares(config: RlConfig) -> None:
    """Check that every process has the same number of environments, and equal minibatches."""
    num_envs = Ranks.from_environment().share(config.num_envs, "num_envs")
    try:
        replace(config, num_envs=num_envs)
    except ValueError as error:
        raise ValueError(f"in each process, {error}") from None


def check_layout_overrides(config: RlConfig, device: str) -> None:
    """Check the names of terms and places in a small environment."""
    if config.layout_overrides:
        from ..rl.learner import model_layouts

        with closing(make_env(config.task, 1, 0, device, motion=config.motion, options=config.options)) as env:
            model_layouts(env, config.layout_overrides)


def resume(args: list[str], run: Run) -> None:
    """Resume a run with its own settings, except for those given in `args`."""
    found = run.description()
    missing = [name for name in NEEDED if name not in found]
    if missing:
        raise ValueError(f"cannot resume {str(run.folder)!r}: its {DESCRIPTION} has no {listing(missing)}")
    former = RlConfig.from_run(found["rl"])
    # without the mappings, because tyro would make a flag of each of their keys
    default = ResumeRl(resume=run.folder, rl=replace(former, options={}, layout_overrides={}))
    options = parse(ResumeRl, args, default)
    config = merged(former, options.rl)
    newest = newest_path(run.folder)
    step = 0 if newest is None else int(newest.name)
    if config.max_iterations < step:
        raise ValueError(f"--rl.max-iterations: this run is at iteration {step} already; got {config.max_iterations}")
    facts: dict[str, Any] = {}
    if config != former:
        changes = [*found.get("changes", []), {"step": step, "command": command_line()}]
        facts = {**settings(checked(config, former.task)), "changes": changes}
    if run.is_evaluated and max((line["step"] for line in run.metrics()), default=0) >= config.max_iterations:
        console().print(f"{run.folder} is finished: {config.max_iterations} iterations and the final evaluation")
        return
    need_mjlab()
    check_shares(config)
    given = {"cpu": options.cpu or found["cpu"], "wandb": options.wandb or found["wandb"]}
    run_training(run, {**found, **facts, **given}, options.quiet, facts)


def merged(former: RlConfig, given: RlConfig) -> RlConfig:
    """Return the given settings; options and overrides that are not given keep their former values."""
    overrides = {**former.layout_overrides, **given.layout_overrides}
    config = replace(given, options={**former.options, **given.options}, layout_overrides=overrides)
    for name in FIXED:
        if getattr(config, name) != getattr(former, name):
            flag, values = f"--rl.{name.replace('_', '-')}", (getattr(former, name), getattr(config, name))
            raise ValueError(f"{flag} cannot change in a resumed run: the run uses {values[0]!r}, got {values[1]!r}")
    return config


def run_training(run: Run, found: Mapping[str, Any], quiet: bool, facts: Mapping[str, Any] | None = None) -> None:
    """Train a run with the settings of its description.

    `facts` are None for a new run. For a resumed run, they are added to its description after its checkpoint has been
    read.
    """
    from ..rl.train import RlJob, train
    from ..training.progress import Progress

    device = device_of(found["cpu"])
    quiet = quiet or not is_first_process()
    if is_first_process() and not found["cpu"] and device == "cpu":
        print(f"bot train: {no_gpu('--cpu')}", file=sys.stderr)
    job = RlJob(
        run=run,
        policy=build(PolicyConfig, found["policy"], "policy"),
        config=RlConfig.from_run(found["rl"]),
        seed=int(found["seed"]),
        device=device,
        resume=facts is not None,
        wandb_project=found["wandb"],
        show_layout=(lambda text: None) if quiet else (lambda text: say(text, file=sys.stderr, keep="\n")),
        facts=facts or {},
    )
    train(job, Progress(f"{found['name']} {found['variant']}", quiet=quiet))
    if is_first_process():
        console().print(f"wrote {run.folder}")
