"""`bot eval POLICY`: evaluate a trained policy; `eval_rl.py` evaluates policies of reinforcement learning."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import tyro
from rich.markup import escape
from rich.table import Table

from ..body.compare import check_same
from ..body.layout import Layout
from ..errors import listing
from ..experiment import code_file, experiment_names, load_experiment
from ..imitation.config import ImitationConfig
from ..policy_folder import PolicyFolder, find_policy, read_description
from ..rl.config import RlConfig
from ..run import Run, experiment_of
from ..schema import build
from ..text import printable
from .output import bars, console, print_json
from .run_options import EvalOptions

if TYPE_CHECKING:
    from ..training.evaluation import Summary


def main(args: list[str]) -> None:
    """Evaluate a policy, and print its metrics as a table or as JSON."""
    options = tyro.cli(EvalOptions, prog="bot eval", args=args)
    if options.episodes < 1:
        raise ValueError(f"--episodes must be 1 or more; got {options.episodes}")
    if options.video is not None:
        from ..video import check_format

        check_format(options.video)
    found, config = find(options)
    if isinstance(config, RlConfig):
        from .eval_rl import evaluate_rl

        estimates, about = evaluate_rl(options, found, config)
    else:
        estimates, about = evaluate_imitation(options, found, config), {}
    if options.json:
        from ..training.evaluation import to_json

        print_json({**about, **to_json(estimates, options.episodes, options.seed)})
    else:
        show(estimates)


def find(options: EvalOptions) -> tuple[PolicyFolder, ImitationConfig | RlConfig]:
    """Return the policy's folder and the settings that define its task."""
    found = find_policy(options.run)
    if options.experiment is None and found.run is not None:
        description = Run.open(found.run).description()
        if "rl" in description:
            return found, RlConfig.from_run(description["rl"])
        if "imitation" in description:
            return found, build(ImitationConfig, description["imitation"], "imitation")
        raise ValueError(f"{str(found.run)!r} has neither 'rl' nor 'imitation' settings, so it has no task")
    name = options.experiment or experiment_of(found)
    if name is None:
        raise ValueError(
            f"the policy in {str(options.run)!r} does not name its experiment, so there is no task to evaluate it on; "
            f"add --experiment NAME, one of: {listing(experiment_names())}"
        )
    if name.startswith("mjlab:"):
        return found, RlConfig(task=name)
    if options.experiment is None and name not in experiment_names():
        raise ValueError(
            f"the policy in {str(options.run)!r} was trained for {name!r}, which is not a shipped experiment: "
            "add --experiment FILE.yaml, or give the folder of its run"
        )
    experiment = load_experiment(name)
    layout = Layout.from_dict(read_description(found.path)["policy"]["layout"])
    check_same(layout, experiment.layout(), ("policy", f"experiment {experiment.name!r}"))
    config = experiment.rl or experiment.imitation
    if config is None:
        raise ValueError(f"experiment {name!r} has neither an 'rl' nor an 'imitation' section to evaluate on")
    return found, config


def evaluate_imitation(options: EvalOptions, found: PolicyFolder, config: ImitationConfig) -> Summary:
    """Evaluate a policy on an imitation task."""
    import torch

    from ..imitation.actors import acting
    from ..imitation.tasks import import_beside, make_task
    from ..imitation.tasks.base import evaluate
    from ..model.policy import Policy
    from ..video import write_video

    if options.simulator is not None:
        raise ValueError("--simulator is for policies of reinforcement learning; this one was trained by imitation")
    device = "cuda" if torch.cuda.is_available() and not options.cpu else "cpu"
    policy = Policy.load(found.path).to(device).eval()
    import_beside(code_file(options.experiment or experiment_of(found) or ""))
    task = make_task(config.task, policy.layout, config.task_options)
    act, splits = acting(policy), options.split or task.splits
    with closing(task):
        frames = task.film(act, options.seed, splits[0]) if options.video is not None else []
        with bars(hidden=options.json) as shown:
            tasks = {split: shown.add_task(escape(printable(split)), total=options.episodes) for split in splits}

            def show_done(split: str, done: int) -> None:
                shown.update(tasks[split], completed=done)

            estimates = evaluate(act, task, options.episodes, options.seed, splits, show_done)
        if options.video is not None:
            write_video(options.video, frames, task.frames_hz)
    return estimates


def show(found: Summary) -> None:
    """Print the metrics as a table."""
    table = Table("split", "metric", "mean", "95 % interval", "episodes", box=None, pad_edge=False)
    for split, metrics in found.items():
        for name, value in metrics.items():
            interval = f"{value.low:.3f} to {value.high:.3f}"
            table.add_row(
                printable(split),
                printable(name.replace("_", " ")),
                f"{value.mean:.3f}",
                interval,
                str(value.num_episodes),
            )
    console().print(table)
