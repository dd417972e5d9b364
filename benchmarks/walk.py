"""Measure how often an exported policy walks on the simulated robot, in good and in worse conditions.

    bot export RUN --out a1
    python benchmarks/walk.py a1 --out build/walk

Runs rollouts of `bot deploy` on the simulated robot, in real time, one after the other. Five rollouts are on flat
ground (the paper's test of the real robot), and five are without the filter. The other conditions have 20 rollouts
each: 20 ms of latency, 5 % loss, 2 kg more, and 2 kg less. That takes 25 minutes on an otherwise idle computer.
Measurements are as noisy as in training; without noise, rollouts would differ only in their timing.

Writes OUT/table.md, OUT/rollouts.json, and the log of every rollout. filter_figure.py draws the logs with and without
the filter.

The load of a virtual machine's host is not visible from inside. Before each rollout, an empty loop of 100 Hz therefore
counts the ticks that are late by a whole period.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from body_transformer.deploy.saved_log import SavedLog
from body_transformer.files import atomic_write
from body_transformer.report.text import markdown_table


@dataclass(frozen=True)
class Condition:
    """Faults of the robot or its network."""

    title: str
    num_rollouts: int
    faults: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


CONDITIONS = {
    "flat": Condition("flat ground", 5),
    "unfiltered": Condition("without the filter", 5, flags=("--no-filter",)),
    "latency": Condition("20 ms latency", 20, ("latency_ms=20",)),
    "loss": Condition("5 % loss", 20, ("loss_percent=5",)),
    "heavy": Condition("+2 kg", 20, ("payload_kg=2",)),
    "light": Condition("-2 kg", 20, ("payload_kg=-2",)),
}


@dataclass(frozen=True)
class Rollout:
    """Result of a rollout."""

    condition: str
    seed: int
    """Seed of the faults and of the measurement noise."""
    problem: str
    """Reason for failure; empty for a success."""
    speed_mps: float
    """Speed in the direction of the heading."""
    ahead_m: float
    sideways_m: float
    """Distances from the start, along the initial heading and to its side."""
    missed: int
    interventions: dict[str, int]
    log: str
    late_of_nothing: int = 0
    """Late ticks of the empty loop before the rollout."""


IDLE_HZ, IDLE_TICKS = 100, 200


def count_late_ticks() -> int:
    """Run an empty loop of IDLE_TICKS; return the number of ticks that are late by a whole period."""
    begun, late = time.monotonic(), 0
    for tick in range(1, IDLE_TICKS + 1):
        wait = begun + tick / IDLE_HZ - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        late += time.monotonic() - begun > (tick + 1) / IDLE_HZ
    return late


@cache
def steps_ms(log: str) -> NDArray[np.float64]:
    """Return the durations of the control steps in which the policy ran."""
    rows = SavedLog.load(log).rows
    taken: NDArray[np.float64] = rows["work_ms"][np.isfinite(rows["policy_ms"])]
    return taken


def run(policy: Path, name: str, seed: int, seconds: float, out: Path, more: Sequence[str] = ()) -> Rollout:
    """Run one rollout with the user's command, and with more flags."""
    log = out / "logs" / name / str(seed)
    faults = ("--faults", f"seed={seed}", "noise=1", *CONDITIONS[name].faults)
    flags = ("--out", str(log), "--json", *CONDITIONS[name].flags)
    shutil.rmtree(log, ignore_errors=True)  # of an earlier benchmark
    late = count_late_ticks()
    command = [sys.executable, "-m", "body_transformer.cli.main", "deploy", str(policy), "--seconds", str(seconds)]
    command += [*faults, *flags, *more]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    try:
        result = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise ValueError(f"bot deploy failed: {done.stderr.strip()}") from None
    way = [reported(result, name) for name in ("mean_speed_mps", "distance_m", "sideways_m")]
    return Rollout(name, seed, problem(result), *way, result["missed"], result["interventions"], str(log), late)


def problem(result: dict[str, Any]) -> str:
    """Return the reason for an early end or `fell`, from a result of `bot deploy --json`; empty for a success."""
    if result["stop"] is not None:  # a robot falls when it is stopped
        return str(result["stop"]).partition(":")[0]
    report = result["report"]
    return "no report" if report is None else "fell" if report["fell"] else ""


def reported(result: dict[str, Any], name: str) -> float:
    return float("nan") if result["report"] is None else float(result["report"][name])


COLUMNS = (
    *("condition", "successes", "speed, m/s", "ahead, m", "aside, m", "missed deadlines", "step p50, ms", "p99, ms"),
    *("what ended the others", "late ticks of an empty loop"),
)


def table(rollouts: Sequence[Rollout]) -> str:
    """Return a row per condition, with mean speed and (absolute) distances over the successes."""
    groups = {name: [one for one in rollouts if one.condition == name] for name in CONDITIONS}
    return markdown_table(COLUMNS, [[CONDITIONS[name].title, *cells(these)] for name, these in groups.items() if these])


def cells(rollouts: Sequence[Rollout]) -> list[str]:
    good = [one for one in rollouts if not one.problem]
    ways = [[one.speed_mps for one in good], [one.ahead_m for one in good], [abs(one.sideways_m) for one in good]]
    taken_ms = np.concatenate([steps_ms(one.log) for one in rollouts])
    shares = [f"{np.percentile(taken_ms, share):.2f}" if taken_ms.size else "–" for share in (50, 99)]
    problems = Counter(one.problem for one in rollouts if one.problem)
    return [
        f"{len(good)} of {len(rollouts)}",
        *(f"{np.mean(way):.2f}" if way else "–" for way in ways),
        str(sum(one.missed for one in rollouts)),
        *shares,
        ", ".join(f"{reason} {count}" for reason, count in problems.items()) or "–",
        f"{sum(one.late_of_nothing for one in rollouts)} of {IDLE_TICKS * len(rollouts)}",
    ]


def write(out: Path, policy: Path, seconds: float, rollouts: Sequence[Rollout]) -> None:
    head = (
        f"`python benchmarks/walk.py {policy.name}`: rollouts of {seconds:g} s in real time, {os.cpu_count()} cores\n\n"
    )
    atomic_write(out / "table.md", head + table(rollouts))
    kept = [{name: value for name, value in asdict(one).items() if name != "log"} for one in rollouts]
    atomic_write(out / "rollouts.json", json.dumps(kept, indent=1) + "\n")


def main(args: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("walk.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("policy", type=Path, help="an exported policy")
    parser.add_argument("--out", type=Path, default=Path("build/walk"))
    parser.add_argument("--only", nargs="+", choices=list(CONDITIONS), default=list(CONDITIONS))
    parser.add_argument("--rollouts", type=int, help="rollouts per condition, instead of 5 or 20")
    parser.add_argument("--seconds", type=float, default=10.0)
    steering = "the policy's command, as for bot deploy"
    parser.add_argument("--command", nargs="+", default=[], metavar="X", help=steering)
    options = parser.parse_args(args)
    more = ["--command", *options.command] if options.command else []
    counts = {name: options.rollouts or CONDITIONS[name].num_rollouts for name in options.only}
    rollouts: list[Rollout] = []
    for name, seed in ((name, seed) for name, count in counts.items() for seed in range(count)):
        one = run(options.policy, name, seed, options.seconds, options.out, more)
        rollouts.append(one)
        print(f"{CONDITIONS[name].title} {seed}: {one.problem or 'no fall'}, {one.speed_mps:.2f} m/s", flush=True)
        write(options.out, options.policy, options.seconds, rollouts)
    print(f"\n{table(rollouts)}")


if __name__ == "__main__":
    main()
