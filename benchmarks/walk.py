"""Does an exported policy walk across the link, and how does it take worse conditions?

    bot export RUN --out a1
    python benchmarks/walk.py a1 --out build/walk

Rollouts of `bot deploy` on the simulated robot, in real time, one after the other: 5 on flat ground (the paper's test
of the real robot), 5 without the filter, then 20 each under 20 ms of latency, 5 % loss, and 2 kg more and less. That
takes 25 minutes, on a computer that does nothing else. Measurements are as noisy as in training, else rollouts would
differ in nothing but chance of timing. Writes OUT/table.md, OUT/rollouts.json, and the log of every rollout, of which
filter_figure.py draws those with and without the filter.

What a virtual machine's host does at the same time cannot be seen from inside, but felt: before each rollout a loop of
100 Hz that does nothing counts how often it wakes up a whole period too late.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from body_transformer.deploy.log import SavedLog
from body_transformer.files import atomic_write


@dataclass(frozen=True)
class Condition:
    """What is wrong with the robot or its network."""

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
    """How one went."""

    condition: str
    seed: int
    """Of the network's chance."""
    problem: str
    """Why it is no success; empty if it is one."""
    speed_mps: float
    """Where the robot looks."""
    ahead_m: float
    sideways_m: float
    """How far it got along the heading of its start, and from that line."""
    missed: int
    interventions: dict[str, int]
    log: str
    late_of_nothing: int = 0
    """Ticks of the loop that does nothing, before."""


IDLE_HZ, IDLE_TICKS = 100, 200


def late_of_nothing() -> int:
    """How many of IDLE_TICKS come a whole period late where there is nothing to do."""
    begun, late = time.monotonic(), 0
    for tick in range(1, IDLE_TICKS + 1):
        wait = begun + tick / IDLE_HZ - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        late += time.monotonic() - begun > (tick + 1) / IDLE_HZ
    return late


@cache
def steps_ms(log: str) -> NDArray[np.float64]:
    """What each full control step took, one that asked the policy."""
    rows = SavedLog.load(log).rows
    taken: NDArray[np.float64] = rows["work_ms"][np.isfinite(rows["policy_ms"])]
    return taken


def run(policy: Path, name: str, seed: int, seconds: float, out: Path) -> Rollout:
    """One rollout, by the command that a user would type."""
    log = out / "logs" / name / str(seed)
    faults = ("--faults", f"seed={seed}", "noise=1", *CONDITIONS[name].faults)
    flags = ("--out", str(log), "--json", *CONDITIONS[name].flags)
    shutil.rmtree(log, ignore_errors=True)  # of an earlier benchmark
    late = late_of_nothing()
    command = [sys.executable, "-m", "body_transformer.cli.main", "deploy", str(policy), "--seconds", str(seconds)]
    command += [*faults, *flags]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    try:
        said = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise ValueError(f"bot deploy failed: {done.stderr.strip()}") from None
    way = [reported(said, what) for what in ("mean_speed_mps", "distance_m", "sideways_m")]
    return Rollout(name, seed, problem(said), *way, said["missed"], said["interventions"], str(log), late)


def problem(said: dict[str, Any]) -> str:
    """Why what `bot deploy --json` said is no success: something ended it early, or it fell."""
    if said["stop"] is not None:  # a robot that is stopped falls
        return str(said["stop"]).partition(":")[0]
    report = said["report"]
    return "no report" if report is None else "fell" if report["fell"] else ""


def reported(said: dict[str, Any], name: str) -> float:
    return float("nan") if said["report"] is None else float(said["report"][name])


COLUMNS = (
    *("condition", "successes", "speed, m/s", "ahead, m", "aside, m", "missed deadlines", "step p50, ms", "p99, ms"),
    *("what ended the others", "late ticks of an empty loop"),
)


def table(rollouts: Sequence[Rollout]) -> str:
    """A row for each condition; speed and way are means over the successes, to the side either way."""
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    for name, condition in CONDITIONS.items():
        these = [one for one in rollouts if one.condition == name]
        if these:
            lines.append(f"| {condition.title} | {' | '.join(cells(these))} |")
    return "\n".join(lines) + "\n"


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
        ", ".join(f"{what} {count}" for what, count in problems.items()) or "–",
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
    parser.add_argument("policy", type=Path, help="what `bot export` wrote")
    parser.add_argument("--out", type=Path, default=Path("build/walk"))
    parser.add_argument("--only", nargs="+", choices=list(CONDITIONS), default=list(CONDITIONS))
    parser.add_argument("--rollouts", type=int, help="of each condition, instead of 5 or 20")
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args(args)
    planned = [(name, options.rollouts or CONDITIONS[name].num_rollouts) for name in options.only]
    rollouts: list[Rollout] = []
    for name, seed in plan(planned):
        one = run(options.policy, name, seed, options.seconds, options.out)
        rollouts.append(one)
        print(f"{CONDITIONS[name].title} {seed}: {one.problem or 'no fall'}, {one.speed_mps:.2f} m/s", flush=True)
        write(options.out, options.policy, options.seconds, rollouts)
    print(f"\n{table(rollouts)}")


def plan(counts: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    return [(name, seed) for name, count in counts for seed in range(count)]


if __name__ == "__main__":
    main()
