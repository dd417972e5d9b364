"""The log of `bot deploy`: its folder, how it is saved, and the summary that is printed."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from ..deploy.robot import Robot
from ..deploy.runtime import RunResult, Runtime
from ..deploy.saved_log import holds_log, link_trouble
from ..files import check_writable, try_lock
from ..schema import plain
from ..text import printable
from .output import complain

DEFAULT = Path("deployments")
MAX_NAME = 80
"""Most characters of a policy's name in the name of a folder."""


# -- the folder --------------------------------------------------------------------------------------------------------


@contextmanager
def log_folder(out: Path | None, name: str) -> Iterator[Path]:
    """Yield `out`, or a new folder in deployments/; refuse one that cannot be written or holds a log already.

    Other deployments cannot use the folder meanwhile. A folder that was made here and is empty afterwards is removed.
    """
    made = out is None or not out.exists()
    plain_name = re.sub(r"[^\w.-]+", "-", name)[:MAX_NAME].strip(".-") or "policy"  # the contract's may be a path
    folder = _new(f"{plain_name}-{time.strftime('%Y%m%d-%H%M%S')}") if out is None else out
    try:
        check_writable(folder, "the log")
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            if not try_lock(descriptor):
                raise FileExistsError(f"another deployment that still runs writes its log to {str(folder)!r}")
            if holds_log(folder):
                raise FileExistsError(f"{str(folder)!r} holds the log of an earlier deployment; give --out another one")
            yield folder
        finally:
            os.close(descriptor)
    finally:
        if made:
            with suppress(OSError):  # it is not empty
                folder.rmdir()


def _new(name: str) -> Path:
    """Make a new folder, numbered if another deployment began in the same second."""
    check_writable(DEFAULT, "the log")
    for number in count(1):
        folder = DEFAULT / (name if number == 1 else f"{name}-{number}")
        with suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise AssertionError("there is always another number")


# -- saving and printing -----------------------------------------------------------------------------------------------


def robot_report(robot: Robot) -> dict[str, Any] | None:
    """Return the robot's own report; None, with a message, if it fails or JSON cannot hold it."""
    try:
        report = plain(robot.summary())
        if not isinstance(report, dict | None):
            raise ValueError(f"it must be a mapping; got {report!r}")
        json.dumps(report, allow_nan=False)
    except Exception as error:
        complain(f"bot deploy: the robot's report is lost: {str(error) or type(error).__name__}")
        return None
    return report


def save(runtime: Runtime, folder: Path, robot: str, report: dict[str, Any] | None) -> Path | None:
    """Save the log and return its folder. If that fails, say so and use a temporary one; if both fail, return None."""
    try:
        return runtime.save_log(folder, robot, report)
    except Exception as error:
        complain(f"bot deploy: the log could not be written to {str(folder)!r}: {str(error) or type(error).__name__}")
    elsewhere = None
    try:
        elsewhere = Path(tempfile.mkdtemp(prefix="deployment-"))
        runtime.save_log(elsewhere, robot, report)
        complain(f"bot deploy: the log is in {str(elsewhere)!r} instead")
        return elsewhere
    except Exception as error:
        complain(f"bot deploy: the log is lost, as no temporary folder worked: {str(error) or type(error).__name__}")
    if elsewhere is not None:
        with suppress(OSError):
            elsewhere.rmdir()
    return None


def print_result(name: str, robot: str, result: RunResult, log: Path | None, report: dict[str, Any] | None) -> None:
    """Print the summary as lines."""
    for line in result_lines(name, robot, result, log, report):
        print(printable(line))


def result_lines(
    name: str, robot: str, result: RunResult, log: Path | None, report: dict[str, Any] | None
) -> Iterator[str]:
    """Yield the lines of the summary."""
    work = result.work_ms
    timing = f"; a step takes {work['p50']:.2f} ms (p99 {work['p99']:.2f})" if work else ""
    yield f"{name} on {robot}: {result.policy_seconds:.1f} s, {result.missed} deadlines missed{timing}"
    if report is not None:
        yield described(report)
        if trouble := link_trouble(report):
            yield f"link: {', '.join(trouble)}"
    interventions = ", ".join(f"{reason} {times}" for reason, times in result.interventions.items())
    yield f"interventions: {interventions or 'none'}"
    if result.stop is not None:
        yield f"stop: {result.stop}"
    if log is not None:
        yield f"wrote {log}"


def described(report: dict[str, Any]) -> str:
    """Return a robot's report in words; a report that does not describe a walk, as names and values."""
    try:
        fell = f"fell after {report['fell_after_s']:.1f} s" if report["fell"] else "did not fall"
        way = f"{report['distance_m']:.2f} m ahead and {abs(report['sideways_m']):.2f} m aside"
        return f"the robot {fell}, {way} at {report['mean_speed_mps']:.2f} m/s"
    except (KeyError, TypeError, ValueError):
        return f"the robot reports: {', '.join(f'{name} {value}' for name, value in report.items())}"
