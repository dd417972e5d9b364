"""`bot collect EXPERIMENT`: demonstrations from a policy, as a Minari data set."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..errors import listing, unknown
from ..experiment import Experiment, experiment_names, load_experiment
from ..imitation.adroit import AdroitTask
from ..imitation.collect import Labels, Recorder, Tally, collect
from ..imitation.dapg import DapgPolicy
from ..imitation.task import Act
from ..policy_folder import KINDS
from .output import print_json

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]


def tracking_recorder() -> Recorder:
    from ..imitation.tracking.record import TrackingRecorder

    return TrackingRecorder(load_experiment("demo").layout())


RECORDERS: dict[str, Callable[[], Recorder]] = {
    "adroit-door": partial(AdroitTask, "door"),
    "adroit-hammer": partial(AdroitTask, "hammer"),
    "adroit-relocate": partial(AdroitTask, "relocate"),
    "demo": tracking_recorder,
}
"""Experiment -> the simulator that records its episodes."""


@dataclass
class Collect:
    """Demonstrations from a policy, as a Minari data set."""

    experiment: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="EXPERIMENT")]
    """What is played: adroit-door, adroit-hammer, adroit-relocate, demo."""
    policy: Annotated[Path, tyro.conf.arg(metavar="POLICY")]
    """A saved or exported policy, a run or checkpoint folder, pretrained:NAME, or a DAPG expert (.npz)."""
    episodes: Annotated[int, tyro.conf.arg(metavar="N")]
    """Episodes in the data set."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """The data set's folder, for minari.MinariDataset; it appears when it is whole."""
    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Of the starts and of the noise."""
    noise: Annotated[float, tyro.conf.arg(metavar="S")] = 0.0
    """Standard deviation of Gaussian noise that is added to the actions."""
    sampled: Flag = False
    """Let the policy draw its actions, with its own standard deviation, instead of playing their mean."""
    labels: Annotated[Labels, tyro.conf.arg(metavar="executed|clean")] = "executed"
    """Record the actions that were executed, or the policy's mean actions before any noise."""
    only_successes: Flag = False
    """Keep successful episodes only, and play until there are N."""
    overwrite: Flag = False
    """Replace the data set that is in the folder."""
    json: Flag = False
    """Print one JSON object instead of a line."""


@dataclass(frozen=True)
class Player:
    """A policy that was read from disk."""

    obs_dim: int
    action_dim: int
    mean: Act
    std: npt.NDArray[np.float64] | None
    """[A] of its own noise, if it has any."""


def main(args: list[str]) -> None:
    options = tyro.cli(Collect, prog="bot collect", args=args)
    if options.experiment not in RECORDERS:
        raise ValueError(what_cannot_be_played(options.experiment))
    player = load_player(options.policy)
    check_fit(player, load_experiment(options.experiment), options.policy)
    if options.sampled and player.std is None:
        raise ValueError(
            f"--sampled: the policy in {str(options.policy)!r} is deterministic, it has no noise of its own"
        )
    start = time.perf_counter()
    with closing(RECORDERS[options.experiment]()) as task, progress_bar(options.episodes) as show:
        found = collect(
            task,
            player.mean,
            options.episodes,
            options.out,
            options.seed,
            options.noise,
            own_std=player.std if options.sampled else None,
            labels=options.labels,
            only_successes=options.only_successes,
            overwrite=options.overwrite,
            name=options.experiment,
            policy_name=str(options.policy),
            on_episode=show,
        )
    if options.json:
        print_json({"experiment": options.experiment, **asdict(found), "seconds": time.perf_counter() - start})
        return
    print(
        f"wrote {found.dataset}: {found.num_episodes} episodes, {found.num_steps} steps; success in "
        f"{found.success_rate:.1%} of {found.num_played} played"
    )


def what_cannot_be_played(name: str) -> str:
    if name not in experiment_names():
        return unknown("experiment", name, RECORDERS)
    return f"bot collect has no simulator for the experiment {name!r}; have: {listing(RECORDERS)}"


# -- the policy --------------------------------------------------------------------------------------------------------


def load_player(path: Path) -> Player:
    if path.suffix == ".npz":
        expert = DapgPolicy.load(path)
        return Player(expert.obs_dim, expert.action_dim, expert.mean, expert.std)
    if path.is_file():
        raise ValueError(f"no policy in {str(path)!r}: a file must be an .npz file; otherwise give {KINDS}")
    return load_own(path)


def load_own(path: Path) -> Player:
    """Load a policy that `find_policy` finds, on the GPU if there is one."""
    import torch

    from ..imitation.evaluate import acting
    from ..model.policy import Policy

    device = "cuda" if torch.cuda.is_available() else "cpu"
    policy = Policy.load(path).to(device).eval()
    std = None if policy.log_std is None else policy.log_std.detach().double().exp().cpu().numpy()
    return Player(policy.layout.obs_dim, policy.layout.action_dim, acting(policy), std)


def check_fit(player: Player, experiment: Experiment, path: Path) -> None:
    given, wanted = (player.obs_dim, player.action_dim), (experiment.obs_dim, experiment.action_dim)
    if given != wanted:
        raise ValueError(
            f"the policy in {str(path)!r} has {given[0]} observation entries and {given[1]} actions; "
            f"{experiment.name} has {wanted[0]} and {wanted[1]}"
        )


# -- progress ----------------------------------------------------------------------------------------------------------


@contextmanager
def progress_bar(num_episodes: int) -> Iterator[Callable[[Tally], None]]:
    """On standard error, so that what is printed can be piped."""
    columns = (
        TextColumn("collecting"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("episodes, success {task.fields[success]}, left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(file=sys.stderr)) as progress:
        bar = progress.add_task("", total=num_episodes, success="-")

        def show(tally: Tally) -> None:
            rate = tally.num_successes / tally.num_played
            progress.update(bar, completed=tally.num_kept, success=f"{rate:.1%}")

        yield show
