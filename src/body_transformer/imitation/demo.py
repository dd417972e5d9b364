"""The main job on the built-in task: demonstrations, four policies, a comparison."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ..experiment import Experiment
from ..files import atomic_write
from ..run import Run
from ..training.jobs import Planned
from .config import ImitationConfig
from .demonstrations import demonstrations
from .sources.npz import write_npz

VARIANTS = ("bot-hard", "mlp", "transformer")
EQUAL_TIME = "mlp, equal time"
DEMONSTRATIONS, PLAN = "demonstrations.npz", "equal_time.json"

WHY = (
    "Why this task suits a body mask. The expert computes each joint's torque from the motion of the parts it carries "
    "and is carried by: its own algorithm passes messages along the tree of the body, and bot-hard may look nowhere "
    "else. A transformer has to find that structure in the data, an MLP has none to find. On a task whose answer does "
    "not follow the body there is no such gift. The MLP is also cheaper: for equal time it takes more steps, and that "
    "row is shown, too. Learning rate, batch, steps and positional encoding were settled on bot-hard, the MLP's width "
    "is the better of two, the transformer had no search of its own. All of that was judged on other motions than "
    "those of this page."
)


def prepare_data(experiment: Experiment, config: ImitationConfig, out: Path) -> Path:
    """The demonstrations, made once for all runs."""
    file = out / DEMONSTRATIONS
    if not file.is_file():
        out.mkdir(parents=True, exist_ok=True)
        write_npz(file, demonstrations(config, experiment.layout(), seed=0))
    return file


def equal_steps(config: ImitationConfig, data: Path, out: Path, seeds: Sequence[int]) -> list[Planned]:
    """Every variant for as many steps."""
    if config.num_steps is None:
        raise ValueError("the demo counts its training in steps: set num_steps")
    return [
        _planned(config, data, out, seed, len(seeds), variant, variant, config.num_steps)
        for seed in seeds
        for variant in VARIANTS
    ]


def equal_time(config: ImitationConfig, data: Path, out: Path, seeds: Sequence[int]) -> list[Planned]:
    """The MLP for as long as bot-hard took, once both have run: how many steps that is, is written down."""
    file = out / PLAN
    steps = json.loads(file.read_text())["steps"] if file.is_file() else None
    if steps is None:
        took = {
            name: sum(_seconds_a_step(out / name / f"seed{seed}") for seed in seeds) for name in ("bot-hard", "mlp")
        }
        steps = round((config.num_steps or 0) * took["bot-hard"] / took["mlp"])
        atomic_write(file, json.dumps({"steps": steps, "seconds_a_step": took}) + "\n")
    return [_planned(config, data, out, seed, len(seeds), "mlp", EQUAL_TIME, steps) for seed in seeds]


def _planned(
    config: ImitationConfig, data: Path, out: Path, seed: int, num_seeds: int, variant: str, label: str, steps: int
) -> Planned:
    args = ("demo", "--variant", variant, "--seed", str(seed), "--label", label, "--cpu")
    given = ("--imitation.reader", "npz", "--imitation.data", str(data), "--imitation.num-steps", str(steps))
    folder = out / label.replace(", ", "-").replace(" ", "-") / f"seed{seed}"
    name = label if num_seeds == 1 else f"{label}, seed {seed}"
    return Planned(folder, (*args, *given, "--imitation.eval-episodes", str(config.eval_episodes)), name)


def _seconds_a_step(folder: Path) -> float:
    last = [line for line in Run(folder).metrics() if "train/loss" in line][-1]
    return float(last["time_s"]) / int(last["step"])
