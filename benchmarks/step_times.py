"""Print the duration of control steps per interval of time, which shows temporary disturbances.

bot deploy a1 --loop-hz 50 --seconds 600 --out deployments/long
python benchmarks/step_times.py deployments/long --every 30
"""

import argparse
from pathlib import Path

import numpy as np

from body_transformer.deploy.runtime_config import Phase
from body_transformer.deploy.saved_log import SavedLog
from body_transformer.report.text import markdown_table


def table(log: SavedLog, every_s: float) -> str:
    """Return p50, p99 and max of the policy's ticks, and missed deadlines, in one row per interval."""
    rows = log.rows
    active = rows["phase"] == Phase.POLICY
    interval = ((rows["now_s"] - rows["now_s"][active.argmax()]) // every_s).astype(int)
    found = []
    for number in np.unique(interval[active]):
        these = active & (interval == number)
        taken = rows["work_ms"][these & np.isfinite(rows["policy_ms"])]
        shares = [f"{value:.2f}" for value in np.percentile(taken, [50, 99, 100])]
        found.append([f"{number * every_s:g}", *shares, str(rows["missed"][these].sum())])
    return markdown_table(["from, s", "p50, ms", "p99, ms", "max, ms", "missed deadlines"], found)


def main(args: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path, help="log of `bot deploy`")
    parser.add_argument("--every", type=float, default=30.0, help="length of an interval in s")
    options = parser.parse_args(args)
    print(table(SavedLog.load(options.log), options.every), end="")


if __name__ == "__main__":
    main()
