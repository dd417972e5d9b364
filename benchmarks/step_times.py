"""How long did control steps take, stretch by stretch? A machine that is disturbed at times is so in some of them.

bot deploy a1 --loop-hz 50 --seconds 600 --out deployments/long
python benchmarks/step_times.py deployments/long --every 30
"""

import argparse
from pathlib import Path

import numpy as np

from body_transformer.deploy.log import SavedLog
from body_transformer.deploy.runtime_config import Phase


def table(log: SavedLog, every_s: float) -> str:
    """A row for each stretch of the policy's time: p50, p99 and max of the ticks that asked it, and what was missed."""
    rows = log.rows
    walking = rows["phase"] == Phase.POLICY
    stretch = ((rows["now_s"] - rows["now_s"][walking.argmax()]) // every_s).astype(int)
    lines = ["| from, s | p50, ms | p99, ms | max, ms | missed deadlines |", "|---|---|---|---|---|"]
    for number in np.unique(stretch[walking]):
        these = walking & (stretch == number)
        taken = rows["work_ms"][these & np.isfinite(rows["policy_ms"])]
        shares = " | ".join(f"{value:.2f}" for value in np.percentile(taken, [50, 99, 100]))
        lines.append(f"| {number * every_s:g} | {shares} | {rows['missed'][these].sum()} |")
    return "\n".join(lines)


def main(args: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path, help="of `bot deploy`")
    parser.add_argument("--every", type=float, default=30.0, help="s")
    options = parser.parse_args(args)
    print(table(SavedLog.load(options.log), options.every))


if __name__ == "__main__":
    main()
