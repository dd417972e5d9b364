"""Measure how often an exported policy walks on the simulated robot, in good and in worse conditions.

    bot export RUN --out a1
    python benchmarks/walk.py a1 --out build/walk

Runs rollouts of `bot deploy` on the simulated robot, in real time, one after the other. Five rollouts are on flat
ground (the paper's test of the real robot), and five are without the filter. The other conditions have 20 rollouts
each: 20 and 40 ms of latency, 5 % loss, 2 kg more and less, motors with kp 50 and 100, and friction 0.5. Three more
command a turn to either side and a walk sideways; they are left out for policies that were not trained for them. All
of that takes 55 minutes on an otherwise idle computer. Measurements are as noisy as in training; without noise,
rollouts would differ only in their timing.

A line per condition says whether it passes. Straight ahead, nothing ends early, and the means are at least 4.5 m ahead,
at most 0.3 m aside and at most 10 degrees of turning; left and right thighs swing alike within 15 %. Turns and
sideways speeds are within 15 % of the command.

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

from body_transformer.deploy.contract import Contract
from body_transformer.deploy.log import GOOD_SHAPE
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
    command: tuple[float, float, float] | None = None
    """m/s ahead, m/s to the left, rad/s to the left; None: the policy's own."""
    kp: float | None = None
    """Gain of the motors, Nm/rad; None: the contract's."""


CONDITIONS = {
    "flat": Condition("flat ground", 5),
    "unfiltered": Condition("without the filter", 5, flags=("--no-filter",)),
    "latency": Condition("20 ms latency", 20, ("latency_ms=20",)),
    "loss": Condition("5 % loss", 20, ("loss_percent=5",)),
    "heavy": Condition("+2 kg", 20, ("payload_kg=2",)),
    "light": Condition("-2 kg", 20, ("payload_kg=-2",)),
    "slow_link": Condition("40 ms latency", 20, ("latency_ms=40",)),
    "soft": Condition("kp 50", 20, kp=50.0),
    "stiff": Condition("kp 100", 20, kp=100.0),
    "slippery": Condition("friction 0.5", 20, ("friction=0.5",)),
    "left": Condition("turning left, 0.8 rad/s", 20, command=(0.0, 0.0, 0.8)),
    "right": Condition("turning right, 0.8 rad/s", 20, command=(0.0, 0.0, -0.8)),
    "sideways": Condition("sideways, 0.3 m/s", 20, command=(0.0, 0.3, 0.0)),
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
    turned_deg: float = float("nan")
    """Angle by which the robot has turned to its left at the end; turns add up."""
    asymmetry: float = float("nan")
    """Difference of the swings of left and right thighs over their mean, the larger of front and rear."""
    seconds: float = float("nan")
    """Time of the policy."""


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


def gait(log: str) -> tuple[float, float]:
    """Return the turned angle in degrees and the asymmetry of the thighs while the policy ran; NaN without states."""
    saved = SavedLog.load(log)
    rows, joints = saved.rows, list(saved.description.joints)
    running = (rows["phase"] == list(saved.description.phases).index("policy")) & (rows["state"] == GOOD_SHAPE)
    w, x, y, z = rows["quaternion"][running].T.astype(np.float64)
    if len(w) < 2:
        return float("nan"), float("nan")
    heading = np.unwrap(np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)))
    swings = {name: float(np.std(rows["joint_pos"][running, k])) for k, name in enumerate(joints) if "thigh" in name}
    pairs = [(swings[f"{end}L_thigh_joint"], swings[f"{end}R_thigh_joint"]) for end in "FR"]
    uneven = max(abs(left - right) / max((left + right) / 2, 1e-6) for left, right in pairs)
    return float(np.degrees(heading[-1] - heading[0])), uneven


def with_gain(policy: Path, kp: float, out: Path) -> Path:
    """Return a copy of an exported policy with this gain of the motors."""
    copied = out / f"kp{kp:g}"
    if not copied.is_dir():
        shutil.copytree(policy, copied)
        content = json.loads((copied / "policy.json").read_text())
        control = content.get("contract", content)["control"]
        control["kp"] = [kp] * len(control["kp"])
        atomic_write(copied / "policy.json", json.dumps(content))
    return copied


def can_follow(policy: Path, name: str) -> bool:
    """Return whether the policy was trained with the command of a condition."""
    command, trained = CONDITIONS[name].command, Contract.load(policy).environment.command_range
    if command is None:
        return True
    return trained is not None and all(low <= x <= high for x, (low, high) in zip(command, trained, strict=True))


def run(policy: Path, name: str, seed: int, seconds: float, out: Path, more: Sequence[str] = ()) -> Rollout:
    """Run one rollout with the user's command, and with more flags."""
    log, condition = out / "logs" / name / str(seed), CONDITIONS[name]
    if condition.kp is not None:
        policy = with_gain(policy, condition.kp, out)
    if condition.command is not None:
        more = ["--command", *map(str, condition.command)]
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
    turned, uneven = gait(str(log))
    facts = (result["missed"], result["interventions"], str(log), late, turned, uneven, result["policy_seconds"])
    return Rollout(name, seed, problem(result), *way, *facts)


def problem(result: dict[str, Any]) -> str:
    """Return the reason for an early end or `fell`, from a result of `bot deploy --json`; empty for a success."""
    if result["stop"] is not None:  # a robot falls when it is stopped
        return str(result["stop"]).partition(":")[0]
    report = result["report"]
    return "no report" if report is None else "fell" if report["fell"] else ""


def reported(result: dict[str, Any], name: str) -> float:
    return float("nan") if result["report"] is None else float(result["report"][name])


COLUMNS = (
    *("condition", "successes", "speed, m/s", "ahead, m", "aside, m", "turned, deg", "thighs", "missed deadlines"),
    *("step p50, ms", "p99, ms"),
    *("what ended the others", "late ticks of an empty loop"),
)


def table(rollouts: Sequence[Rollout]) -> str:
    """Return a row per condition, with mean speed and (absolute) distances over the successes."""
    groups = {name: [one for one in rollouts if one.condition == name] for name in CONDITIONS}
    return markdown_table(COLUMNS, [[CONDITIONS[name].title, *cells(these)] for name, these in groups.items() if these])


def cells(rollouts: Sequence[Rollout]) -> list[str]:
    good = [one for one in rollouts if not one.problem]
    ways = [[one.speed_mps for one in good], [one.ahead_m for one in good], [abs(one.sideways_m) for one in good]]
    ways += [[abs(one.turned_deg) for one in good]]
    taken_ms = np.concatenate([steps_ms(one.log) for one in rollouts])
    shares = [f"{np.percentile(taken_ms, share):.2f}" if taken_ms.size else "–" for share in (50, 99)]
    problems = Counter(one.problem for one in rollouts if one.problem)
    return [
        f"{len(good)} of {len(rollouts)}",
        *(f"{np.mean(way):.{0 if way is ways[-1] else 2}f}" if way else "–" for way in ways),
        f"{100 * np.mean([one.asymmetry for one in good]):.0f} %" if good else "–",
        str(sum(one.missed for one in rollouts)),
        *shares,
        ", ".join(f"{reason} {count}" for reason, count in problems.items()) or "–",
        f"{sum(one.late_of_nothing for one in rollouts)} of {IDLE_TICKS * len(rollouts)}",
    ]


MIN_AHEAD_M, MAX_ASIDE_M, MAX_TURNED_DEG, MAX_ERROR = 4.5, 0.3, 10.0, 0.15
"""The criteria for rollouts of 10 s; the last one is relative."""


def failures(name: str, rollouts: Sequence[Rollout]) -> list[str]:
    """Return the criteria that the rollouts of a condition miss; empty for a pass."""
    ended = [one.problem for one in rollouts if one.problem]
    missed = [f"{len(ended)} of {len(rollouts)} ended early"] if ended else []
    good = [one for one in rollouts if not one.problem]
    if not good:
        return missed
    command = CONDITIONS[name].command
    turned = float(np.mean([one.turned_deg for one in good]))
    if command is None:
        ahead, aside = np.mean([one.ahead_m for one in good]), np.mean([abs(one.sideways_m) for one in good])
        off, uneven = np.mean([abs(one.turned_deg) for one in good]), np.mean([one.asymmetry for one in good])
        checks = {
            f"{ahead:.2f} m ahead": ahead >= MIN_AHEAD_M,
            f"{aside:.2f} m aside": aside <= MAX_ASIDE_M,
            f"turned by {off:.0f} degrees": off <= MAX_TURNED_DEG,
            f"thighs differ by {100 * uneven:.0f} %": uneven <= MAX_ERROR,
        }
    else:
        seconds = float(np.mean([one.seconds for one in good]))
        _, left, turning = command
        reached = np.radians(turned) / seconds if turning else np.mean([one.sideways_m for one in good]) / seconds
        unit = "rad/s" if turning else "m/s to the left"
        checks = {f"{reached:.2f} {unit}": abs(reached - (turning or left)) <= MAX_ERROR * abs(turning or left)}
    return missed + [text for text, passes in checks.items() if not passes]


def verdicts(rollouts: Sequence[Rollout]) -> str:
    """Return a line per condition: pass, or the criteria that it misses."""
    groups = {name: [one for one in rollouts if one.condition == name] for name in CONDITIONS}
    found = {name: failures(name, these) for name, these in groups.items() if these}
    lines = [f"- {CONDITIONS[name].title}: {'; '.join(missed) or 'pass'}" for name, missed in found.items()]
    return "\n".join(lines) + "\n"


def write(out: Path, policy: Path, seconds: float, rollouts: Sequence[Rollout]) -> None:
    head = (
        f"`python benchmarks/walk.py {policy.name}`: rollouts of {seconds:g} s in real time, {os.cpu_count()} cores\n\n"
    )
    atomic_write(out / "table.md", f"{head}{table(rollouts)}\n{verdicts(rollouts)}")
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
    names = [name for name in options.only if can_follow(options.policy, name)]
    counts = {name: options.rollouts or CONDITIONS[name].num_rollouts for name in names}
    rollouts: list[Rollout] = []
    for name, seed in ((name, seed) for name, count in counts.items() for seed in range(count)):
        one = run(options.policy, name, seed, options.seconds, options.out, more)
        rollouts.append(one)
        print(f"{CONDITIONS[name].title} {seed}: {one.problem or 'no fall'}, {one.speed_mps:.2f} m/s", flush=True)
        write(options.out, options.policy, options.seconds, rollouts)
    print(f"\n{table(rollouts)}\n{verdicts(rollouts)}")


if __name__ == "__main__":
    main()
