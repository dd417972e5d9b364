"""How a deployment went: its log, and what is printed."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..deploy.link_trouble import link_trouble
from ..deploy.runtime import Result, Runtime
from .output import complain, print_json


def save(runtime: Runtime, folder: Path, more: dict[str, Any]) -> Path | None:
    """Where the log is: in a temporary folder if it cannot be in this one. None: nowhere, which is said."""
    try:
        return runtime.save_log(folder, more)
    except Exception as error:
        complain(f"bot deploy: the log could not be written to {str(folder)!r}: {str(error) or type(error).__name__}")
    elsewhere = None
    try:
        elsewhere = Path(tempfile.mkdtemp(prefix="deployment-"))
        runtime.save_log(elsewhere, {**more, "report": None})  # which may be what cannot be written
        complain(f"bot deploy: the log is in {str(elsewhere)!r} instead")
        return elsewhere
    except Exception as error:
        complain(f"bot deploy: nor to a temporary folder: {str(error) or type(error).__name__}; it is lost")
    if elsewhere is not None:
        with suppress(OSError):
            elsewhere.rmdir()
    return None


def tell(experiment: str, robot: str, result: Result, log: Path | None, report: dict[str, Any] | None) -> None:
    """As lines."""
    work = result.work_ms
    timing = f"; a step takes {work['p50']:.2f} ms (p99 {work['p99']:.2f})" if work else ""
    print(f"{experiment} on {robot}: {result.policy_seconds:.1f} s, {result.missed} deadlines missed{timing}")
    if report is not None:
        fell = f"fell after {report['fell_after_s']:.1f} s" if report["fell"] else "did not fall"
        way = f"{report['distance_m']:.2f} m ahead and {abs(report['sideways_m']):.2f} m aside"
        print(f"it {fell}, {way} at {report['mean_speed_mps']:.2f} m/s")
        trouble = link_trouble(report)
        if trouble:
            print(f"link: {', '.join(trouble)}")
    steps_in = ", ".join(f"{reason} {count}" for reason, count in result.interventions.items())
    print(f"interventions: {steps_in or 'none'}")
    if result.stop is not None:
        print(f"stop: {result.stop}")
    if log is not None:
        print(f"wrote {log}")


def tell_json(experiment: str, robot: str, result: Result, log: Path | None, report: dict[str, Any] | None) -> None:
    """As one JSON object."""
    facts = asdict(result) | {"stop": result.stop and str(result.stop)}
    where = None if log is None else str(log)
    print_json({"experiment": experiment, "robot": robot, **facts, "report": report, "log": where})
