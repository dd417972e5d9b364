"""Tabulate success on the Adroit hand with confidence intervals, from runs such as those of `bot reproduce adroit`.

    python benchmarks/adroit_evidence.py RUNS… --out FOLDER

Groups the runs below the given folders by task, demonstrations, epochs, data and variant, as in their
`experiment.yaml`. Writes `table.md` with the seeds that all variants have (a seed also draws the demonstrations), and
`results.json` with all runs. The score of a run is the paper's, the fraction of successes at the last step. It is
averaged over the evaluations of the last ten epochs. The table also has the fraction of successes at any step and the
final loss, in the order of the variants. Intervals are 95 % bootstrap intervals of the mean over seeds, which resample
the seeds and then the evaluations of each seed.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from body_transformer.files import atomic_write
from body_transformer.report.load import read_run
from body_transformer.report.text import markdown_table
from body_transformer.reproduce.scores import NUM_LAST
from body_transformer.run import DESCRIPTION, METRICS

VARIANTS = ("mlp", "transformer", "bot-hard")
NUM_DRAWS = 10_000


class Case(NamedTuple):
    """Setting that the runs of all variants and seeds share."""

    task: str
    num_demos: int
    num_epochs: int
    actions: str
    """`sampled` or `mean`: the experts' actions in the demonstrations."""


def case_of(description: Mapping[str, Any]) -> Case:
    imitation = description["imitation"]
    actions = "sampled" if imitation["data"].startswith("D4RL/") else "mean"
    return Case(description["name"].removeprefix("adroit-"), imitation["num_demos"], imitation["num_epochs"], actions)


def read(folders: list[Path]) -> dict[Case, dict[str, list[dict[str, Any]]]]:
    """Return case -> variant -> runs."""
    found: dict[Case, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for file in sorted(path for folder in folders for path in folder.rglob(DESCRIPTION)):
        run = read_run(file.parent)
        curves = (run.curves[f"eval/validation/{metric}"] for metric in ("success", "success_any"))
        scores, scores_any = ([point.value.mean for point in points[-NUM_LAST:]] for points in curves)
        if len(scores) < NUM_LAST:
            raise ValueError(f"{file.parent / METRICS} has {len(scores)} evaluations; {NUM_LAST} are needed")
        found[case_of(run.settings)][run.variant].append(
            {
                "seed": run.seed,
                "success": scores,
                "success_any": scores_any,
                "final_loss": run.curves["train/loss"][-1].value.mean,
            }
        )
    return found


def paired(variants: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Return the runs of the seeds that every variant has."""
    shared = set.intersection(*({run["seed"] for run in variants[name]} for name in VARIANTS))
    return {name: [run for run in variants[name] if run["seed"] in shared] for name in VARIANTS}


def interval(runs: list[dict[str, Any]]) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    scores = np.array([run["success"] for run in runs])  # [seeds, evaluations]
    seeds = rng.integers(len(scores), size=(NUM_DRAWS, len(scores)))
    drawn = rng.integers(NUM_LAST, size=(NUM_DRAWS, len(scores), NUM_LAST))
    low, high = np.percentile(scores[seeds[..., None], drawn].mean((1, 2)), [2.5, 97.5])
    return float(low), float(high)


def cell(runs: list[dict[str, Any]]) -> str:
    low, high = interval(runs)
    means = [float(np.mean(run["success"])) for run in runs]
    return f"{np.mean(means):.3f} ({low:.3f} to {high:.3f})"


def table(found: dict[Case, dict[str, list[dict[str, Any]]]]) -> str:
    head = ["task", "demonstrations", "epochs", "actions", "seeds", *VARIANTS, "at any step", "final loss"]
    rows = []
    for case in sorted(found, key=lambda one: (one.actions == "mean", one.num_epochs, one.task, one.num_demos)):
        variants = paired(found[case])
        losses = " / ".join(f"{np.mean([run['final_loss'] for run in variants[name]]):.4f}" for name in VARIANTS)
        anytime = " / ".join(f"{np.mean([run['success_any'] for run in variants[name]]):.3f}" for name in VARIANTS)
        seeds = str(len(variants["mlp"]))
        setting = [case.task, str(case.num_demos), str(case.num_epochs), case.actions]
        rows.append([*setting, seeds, *(cell(variants[name]) for name in VARIANTS), anytime, losses])
    return markdown_table(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    found = read(args.runs)
    content = [case._asdict() | {"variants": variants} for case, variants in sorted(found.items())]
    atomic_write(args.out / "results.json", json.dumps(content, indent=1) + "\n")
    atomic_write(args.out / "table.md", table(found))
    print(table(found))


if __name__ == "__main__":
    main()
