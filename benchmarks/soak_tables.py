"""Tables of a soak (soak.py): missed deadlines, damping episodes, memory and open files by load and over time.

    python benchmarks/soak_tables.py build/soak

Reads samples.jsonl, runs.json and the logs of the runs; writes table.md.
"""

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from body_transformer.deploy.saved_log import SavedLog
from body_transformer.files import atomic_write
from body_transformer.report.text import markdown_table

PHASES = ("idle", "busy", "bursts")
PROCESSES = ("controller", "robot")
Sample = dict[str, Any]


def tables(out: Path) -> str:
    """Return the tables of a soak: by phase, over time, and the runs."""
    samples = [json.loads(line) for line in (out / "samples.jsonl").read_text().splitlines()]
    runs = json.loads((out / "runs.json").read_text())
    count_new(samples)
    parts = [by_phase(samples, runs), over_time(samples), of_runs(runs)]
    return "\n".join(parts)


def count_new(samples: Sequence[Sample]) -> None:
    """Add to each sample the deadlines missed and the interventions since the one before it in the same run."""
    last: dict[int, Mapping[str, str]] = {}
    for sample in samples:
        status, before = sample["status"], last.get(sample["run"], {})
        for name in ("missed", "acts"):
            sample[name] = int(status.get(name, 0)) - int(before.get(name, 0))
        last[sample["run"]] = status


def by_phase(samples: Sequence[Sample], runs: Sequence[Mapping[str, Any]]) -> str:
    """Return one row per phase."""
    head = ["load", "minutes", "other programs, cores", "missed deadlines", "interventions", "damping episodes"]
    head += ["step p50, ms", "p99, ms", "max, ms", "missed in these steps"]
    steps, rows = steps_by_phase(samples, runs), []
    stops = [(phase_at(samples, ended_s(run)), str(run["stop"]).partition(":")[0]) for run in runs if run.get("stop")]
    for phase in PHASES:
        these = [sample for sample in samples if sample["phase"] == phase]
        if not these:
            continue
        taken, missed = steps[phase]
        shares = [f"{value:.2f}" for value in np.percentile(taken, [50, 99, 100])] if taken.size else ["–"] * 3
        sums = [str(sum(sample[name] for sample in these)) for name in ("missed", "acts")]
        others = f"{np.mean([sample['others'] for sample in these]):.2f}"
        late = f"{missed} of {taken.size}"
        reasons = Counter(reason for where, reason in stops if where == phase)
        ends = ", ".join(f"{reason} {count}" for reason, count in reasons.items())
        rows.append([phase, f"{len(these) / 60:.1f}", others, *sums, ends or "none", *shares, late])
    return markdown_table(head, rows)


def ended_s(run: Mapping[str, Any]) -> float:
    """Return the time of the last tick in the log of a run, on the monotonic clock."""
    log = Path(run["log"])
    return float(SavedLog.load(log).rows["now_s"][-1] if (log / "log.json").is_file() else run["begun_s"])


def phase_at(samples: Sequence[Sample], time_s: float) -> str:
    """Return the phase at a time of the monotonic clock."""
    return str(min(samples, key=lambda sample: abs(sample["time_s"] - time_s))["phase"])


def steps_by_phase(samples: Sequence[Sample], runs: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Any, int]]:
    """Return the durations in ms of the control steps in the logs, and their missed deadlines, by phase."""
    times = np.array([sample["time_s"] for sample in samples])
    phases = np.array([PHASES.index(sample["phase"]) for sample in samples])
    taken, of_phase, missed = [np.zeros(0)], [np.zeros(0, int)], [np.zeros(0, int)]
    for run in runs:
        if not (Path(run["log"]) / "log.json").is_file():
            continue
        rows = SavedLog.load(run["log"]).rows
        is_step = np.isfinite(rows["policy_ms"])
        place = np.searchsorted(times, rows["now_s"]).clip(max=len(times) - 1)
        taken.append(rows["work_ms"][is_step])
        of_phase.append(phases[place][is_step])
        missed.append(rows["missed"][is_step])
    all_taken, all_phases, all_missed = (np.concatenate(column) for column in (taken, of_phase, missed))
    return {name: (all_taken[all_phases == k], int(all_missed[all_phases == k].sum())) for k, name in enumerate(PHASES)}


def over_time(samples: Sequence[Sample], every_s: float = 300.0) -> str:
    """Return one row per interval: memory, threads and open files of both processes at its end."""
    head = ["from, min", "load", "others, cores", "missed"]
    head += [f"{name}: MB, threads, files" for name in PROCESSES]
    first, rows = samples[0]["time_s"], []
    intervals: dict[int, list[Sample]] = {}
    for sample in samples:
        intervals.setdefault(int((sample["time_s"] - first) // every_s), []).append(sample)
    for number, these in intervals.items():
        loads = "/".join(dict.fromkeys(sample["phase"] for sample in these))
        others = f"{np.mean([sample['others'] for sample in these]):.2f}"
        cells = [f"{number * every_s / 60:g}", loads, others, str(sum(sample["missed"] for sample in these))]
        for name in PROCESSES:
            found = [sample for sample in these if f"{name}_rss_mb" in sample]
            last = found[-1] if found else None
            shown = (
                [f"{last[f'{name}_rss_mb']:.1f}", *(str(last[f"{name}_{key}"]) for key in ("threads", "fds"))]
                if last
                else ["–"]
            )
            cells.append(", ".join(shown))
        rows.append(cells)
    return markdown_table(head, rows)


def of_runs(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return one row per run of `bot deploy`."""
    head = ["run", "exit status", "policy, min", "missed", "ended by", "robot damped by itself", "robot too slow by, s"]
    rows = []
    for number, run in enumerate(runs):
        stop, report = run.get("stop"), run.get("report") or {}
        cells = [
            str(number),
            str(run["status"]),
            f"{run.get('policy_seconds', 0.0) / 60:.1f}",
            str(run.get("missed", "–")),
        ]
        cells += [stop or "plan", str(report.get("timeouts", "–")), f"{report.get('lag_s', float('nan')):.2f}"]
        rows.append(cells)
    return markdown_table(head, rows)


def main(args: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder that soak.py has written")
    write(parser.parse_args(args).out)


def write(out: Path) -> None:
    """Write table.md and print it."""
    found = tables(out)
    atomic_write(out / "table.md", found)
    print(found)


if __name__ == "__main__":
    main()
