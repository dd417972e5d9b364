"""The main job on the built-in task: demonstrations, four policies, a comparison."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from ..config import Experiment
from ..run import Run, write_aside
from .config import ImitationConfig
from .demonstrations import demonstrations
from .episodes import Episodes
from .jobs import Planned
from .progress import Progress
from .sources.npz import write_npz
from .train import Job, train

VARIANTS = ("bot-hard", "transformer", "mlp")
EQUAL_TIME = "mlp, equal time"
PROBE_STEPS = {"bot-hard": 60, "mlp": 600}
"""About one and a half seconds each."""
DEMONSTRATIONS, PLAN = "demonstrations.npz", "plan.json"

WHY = (
    "Why this task suits a body mask. The expert computes each joint's torque from the motion of the parts it carries "
    "and is carried by: its own algorithm passes messages along the tree of the body, and bot-hard may look nowhere "
    "else. A transformer has to find that structure in the data, an MLP has none to find. On a task whose answer does "
    "not follow the body there is no such gift. The MLP is also cheaper: for equal time it takes more steps, and that "
    "row is shown, too."
)


@dataclass(frozen=True)
class Plan:
    """What is trained."""

    runs: tuple[Planned, ...]
    equal_time_steps: int


def prepare_data(experiment: Experiment, config: ImitationConfig, out: Path) -> Path:
    """The demonstrations, made once for all runs."""
    file = out / DEMONSTRATIONS
    if not file.is_file():
        out.mkdir(parents=True, exist_ok=True)
        write_npz(file, demonstrations(config, experiment.layout(), seed=0))
    return file


def make_plan(experiment: Experiment, config: ImitationConfig, data: Path, out: Path, seeds: Sequence[int]) -> Plan:
    """Every variant for equal steps, and the MLP for as long as bot-hard takes; how many steps that is, is measured."""
    steps = config.num_steps
    if steps is None:
        raise ValueError("the demo counts its training in steps: set num_steps")
    equal_time = _equal_time_steps(experiment, config, data, out, steps)
    given = ("demo", "--imitation.reader", "npz", "--imitation.data", str(data))
    runs = []
    for seed in seeds:
        for variant, folder, number, label in (
            *((variant, variant, steps, variant) for variant in VARIANTS[:2]),
            ("mlp", "mlp-equal-time", equal_time, EQUAL_TIME),
            ("mlp", "mlp", steps, "mlp"),
        ):
            args = (*given, "--variant", variant, "--seed", str(seed), "--imitation.num-steps", str(number))
            more = ("--imitation.eval-episodes", str(config.eval_episodes), "--label", label, "--cpu")
            place = out / folder / f"seed{seed}"
            runs.append(Planned(place, (*args, *more), label if len(seeds) == 1 else f"{label}, seed {seed}"))
    return Plan(tuple(runs), equal_time)


def _equal_time_steps(experiment: Experiment, config: ImitationConfig, data: Path, out: Path, steps: int) -> int:
    """Measured once and written down, so that a demo that was stopped goes on with the same plan."""
    file = out / PLAN
    if file.is_file():
        content = json.loads(file.read_text())
        if content["steps"] == steps:
            return int(content["equal_time_steps"])
    from .sources import open_episodes

    episodes = open_episodes("npz", str(data), experiment.layout())
    speed = {name: _seconds_a_step(experiment, config, name, episodes) for name in ("bot-hard", "mlp")}
    equal_time = int(steps * speed["bot-hard"] / speed["mlp"])
    write_aside(file, json.dumps({"steps": steps, "equal_time_steps": equal_time, "seconds_a_step": speed}) + "\n")
    return equal_time


def _seconds_a_step(experiment: Experiment, config: ImitationConfig, variant: str, episodes: Episodes) -> float:
    """Of the real loop on one thread, as in the runs: its second half, when everything is warm."""
    number = PROBE_STEPS[variant]
    config = replace(config, num_steps=2 * number, log_every=number, eval_every=None)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with TemporaryDirectory() as folder:
            run = Run.create(Path(folder, "probe"), {})
            job = Job(run, episodes, None, experiment.policy_config(variant), config, seed=0, cpu=True)
            train(job, Progress(quiet=True))
            first, second = (line["time_s"] for line in run.metrics())
    finally:
        torch.set_num_threads(threads)
    return float(second - first) / number
