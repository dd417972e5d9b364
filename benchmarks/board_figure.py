"""Draw how long robots balance on the board, over the course of training.

    python benchmarks/board_figure.py benchmarks/results/rl_h200 --out board.png

Left: the four architectures with a privileged critic, the start noise curriculum and a falling standard deviation (see
README.md there). Right: bot-mix trained longer, then with the task's own starts and a smaller deviation. Evaluations
use mean actions and the task's own starts; training samples actions.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from body_transformer.pictures import save
from body_transformer.rl.config import RlConfig
from body_transformer.run import Run

COLORS = {"mlp": "#7a7a7a", "transformer": "#c2571a", "bot-hard": "#3a8f4d", "bot-mix": "#1f5fa8"}
FOUR, LONGER = "board/humanoid-board", "short/humanoid-board/longer,told,gentle,final-std=0.25-0.05"
EVALUATED, TRAINING = "eval/rollouts/length", "train/length"


def curve(folder: Path, metric: str) -> tuple[list[float], list[float]]:
    """Return millions of environment steps, and the metric at each."""
    lines = [line for line in Run.open(folder / "seed0").metrics() if metric in line]
    values = [line[metric] for line in lines]
    means = [value["mean"] if isinstance(value, dict) else value for value in values]
    return [line["env_steps"] / 1e6 for line in lines], means


def label(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("environment steps, millions")
    axes.set_ylabel("length of an episode, of 1000 steps")
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def draw(runs: Path) -> Figure:
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for variant, color in COLORS.items():
        left.plot(*curve(runs / FOUR / variant, EVALUATED), "o-", color=color, label=variant, markersize=4)
    label(left, "four architectures, evaluations")
    longer = Run.open(runs / LONGER / "seed0").description()
    config = RlConfig.from_run(longer["rl"])
    per_iteration = config.num_envs * config.num_steps_per_env / 1e6
    right.plot(*curve(runs / LONGER, TRAINING), color=COLORS["bot-mix"], alpha=0.4, label="in training")
    right.plot(*curve(runs / LONGER, EVALUATED), "o-", color=COLORS["bot-mix"], label="evaluations", markersize=4)
    for change in longer["changes"]:
        right.axvline(change["step"] * per_iteration, color="black", linestyle=":", label="less deviation, own starts")
    label(right, "bot-mix, longer")
    return figure


def main(args: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.png")
    options = parser.parse_args(args)
    try:
        print(save(partial(draw, options.runs), options.out, dpi=110))
    except (OSError, ValueError) as error:
        sys.exit(f"board_figure: {error}")


if __name__ == "__main__":
    main()
