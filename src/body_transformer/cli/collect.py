"""`bot collect EXPERIMENT`: roll a policy out and record demonstrations as a Minari dataset."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ..errors import listing
from ..experiment import Experiment, code_file, experiment_names, load_experiment
from ..imitation.actors import Actor, load_actor
from ..imitation.collect import CollectedDataset, Labels, collect
from ..imitation.tasks import import_beside, is_collectable, make_task
from ..imitation.tasks.base import CollectableTask
from .output import bars, print_json, say
from .run_options import Flag


@dataclass
class Collect:
    """Roll a policy out and record demonstrations as a Minari dataset."""

    experiment: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="EXPERIMENT")]
    """Experiment to play: adroit-door, adroit-hammer, adroit-relocate, demo, or a YAML file. `bot collect mocapact`
    has other options, which its --help lists."""
    policy: Annotated[Path, tyro.conf.arg(metavar="POLICY")]
    """A saved or exported policy, a run or checkpoint folder, pretrained:NAME, or a DAPG expert (.npz)."""
    episodes: Annotated[int, tyro.conf.arg(metavar="N")]
    """Episodes in the dataset."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Folder of the dataset, for minari.MinariDataset; it appears once it is complete."""
    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Seed of start states and noise."""
    noise: Annotated[float, tyro.conf.arg(metavar="S")] = 0.0
    """Standard deviation of Gaussian noise that is added to the actions."""
    sampled: Flag = False
    """Sample actions with the policy's own standard deviation instead of playing their mean."""
    labels: Annotated[Labels, tyro.conf.arg(metavar="executed|clean")] = "executed"
    """Record the executed actions, or the policy's mean actions before noise."""
    only_successes: Flag = False
    """Keep successful episodes only, and play until there are N."""
    overwrite: Flag = False
    """Replace the dataset in the folder."""
    json: Flag = False
    """Print one JSON object instead of a line."""


def main(args: list[str]) -> None:
    if args and not args[0].startswith("-") and records_clips(load_experiment(args[0])):
        from . import collect_mocap

        collect_mocap.main(args)
        return
    options = tyro.cli(Collect, prog="bot collect", args=args)
    experiment = load_experiment(options.experiment)
    import_beside(code_file(options.experiment))
    task = make_collectable(experiment)
    actor = load_actor(options.policy)
    check_fit(actor, experiment, options.policy)
    if options.sampled and actor.std is None:
        raise ValueError(f"--sampled: the policy in {str(options.policy)!r} is deterministic and has no noise")
    start = time.perf_counter()
    with closing(task), bars() as shown:
        bar = shown.add_task("collecting", total=options.episodes)

        def show(found: CollectedDataset) -> None:
            success = "" if found.success_rate is None else f", success {found.success_rate:.1%}"
            done = f"{found.num_episodes}/{options.episodes} episodes{success}"
            shown.update(bar, completed=found.num_episodes, description=done)

        found = collect(
            task,
            actor.mean,
            options.episodes,
            options.out,
            options.seed,
            options.noise,
            own_std=actor.std if options.sampled else None,
            labels=options.labels,
            only_successes=options.only_successes,
            overwrite=options.overwrite,
            name=experiment.name,
            policy_name=str(options.policy),
            terms=experiment.obs,
            on_episode=show,
        )
    if options.json:
        seconds = time.perf_counter() - start
        print_json({"experiment": options.experiment, "dataset": found.path, **found.summary(), "seconds": seconds})
        return
    success = (
        "" if found.success_rate is None else f"; success in {found.success_rate:.1%} of {found.num_played} played"
    )
    say(f"wrote {found.path}: {found.num_episodes} episodes, {found.num_steps} steps{success}")


def records_clips(experiment: Experiment) -> bool:
    """Return whether an experiment tracks motion clips; `collect_mocap.py` records those."""
    return experiment.imitation is not None and experiment.imitation.task == "mocap"


def collectable() -> list[str]:
    """Return the experiments with a task that can be recorded."""
    found = {name: load_experiment(name).imitation for name in experiment_names()}
    return [name for name, config in found.items() if config is not None and is_collectable(config.task)]


def make_collectable(experiment: Experiment) -> CollectableTask:
    """Make the task of an experiment; raise if it cannot be recorded."""
    config = experiment.imitation
    if config is None or not is_collectable(config.task):
        have = listing(collectable())
        raise ValueError(f"experiment {experiment.name!r} has no task that can be recorded; choose one of: {have}")
    task = make_task(config.task, experiment.layout(), config.task_options)
    assert isinstance(task, CollectableTask)
    return task


def check_fit(actor: Actor, experiment: Experiment, path: Path) -> None:
    """Check that policy and experiment have the same sizes."""
    given, wanted = (actor.obs_dim, actor.action_dim), (experiment.obs_dim, experiment.action_dim)
    if given != wanted:
        raise ValueError(
            f"the policy in {str(path)!r} has {given[0]} observation entries and {given[1]} actions; "
            f"{experiment.name} has {wanted[0]} and {wanted[1]}"
        )
