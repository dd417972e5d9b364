"""The page about deployments: a comparison of all, then joints, torques, body and timing of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ..deploy.saved_log import link_trouble
from .deployment import POLICY, Deployment
from .figures import DETAIL, USUAL, Series, dot_plot, events_chart, histogram, time_chart
from .svg import Drawing, label_styles
from .text import decimals, rounded

TARGET, COMMANDED, MEASURED = 7, 0, 1
WORK, LATE, AGE = 0, 1, 2
TILT, ANGULAR_VELOCITY = 3, {"x": 0, "y": 1, "z": 2}
"""Styles of the lines."""
LEGENDS = {
    "positions": [(TARGET, "target, before the filter"), (COMMANDED, "commanded"), (MEASURED, "measured")],
    "body": [(TILT, "tilt"), *((style, f"angular velocity {name}") for name, style in ANGULAR_VELOCITY.items())],
    "timing": [(WORK, "work"), (LATE, "late"), (AGE, "age")],
}
REFUSED = ("state shape", "state not finite", "state absurd", "state jumped")
"""Interventions in which the runtime did not use the measured state."""
MANY, FOLD = 4, 2
"""More than MANY deployments are drawn in less detail; more than FOLD are collapsed."""
SHOWN_EVENTS = 12
"""Up to this many events are shown unfolded."""
LONG_S, CLOSE_S = 8, 4
"""The last CLOSE_S of a run longer than LONG_S are drawn again on their own."""

Value = float | str | None
Draw = Callable[..., Drawing]
"""`time_chart` of one deployment."""


NUMBERS: dict[str, Callable[[Deployment], Value]] = {
    "low-pass": lambda one: one.filter,
    "policy ran, s": lambda one: f"{one.facts.policy_seconds:.1f}",
    "speed, m/s": lambda one: one.speed_mps,
    "roughness as commanded": lambda one: one.overall_roughness(one.commanded),
    "roughness of the policy": lambda one: one.overall_roughness(one.targets),
    "interventions": lambda one: str(sum(one.facts.interventions.values())),
    "missed deadlines": lambda one: str(one.facts.missed),
    "work p50 / p99 / max, ms": lambda one: " / ".join(f"{value:.2f}" for value in one.facts.work_ms.values()) or None,
}
"""Column of the table -> its value; a column without any value is left out."""


def deployment_page(deployments: Sequence[Deployment]) -> dict[str, Any]:
    """Return the context of the template `deployments.html`."""
    chosen = label_styles(one.label for one in deployments)
    styles = [chosen[one.label] for one in deployments]
    detail = DETAIL if len(deployments) <= MANY else max(160, DETAIL * MANY // len(deployments))
    experiments = dict.fromkeys(one.facts.experiment or "policy" for one in deployments)
    is_single = len(deployments) == 1
    return {
        "title": _name(deployments[0]) if is_single else f"{len(deployments)} deployments of {', '.join(experiments)}",
        "deployments": deployments,
        "styles": styles,
        "table": _table(deployments),
        "figures": _comparison_charts(deployments, styles),
        "sections": [
            {"name": _name(one) if is_single else f"{one.label}: {_name(one)}", "style": style, **_section(one, detail)}
            for one, style in zip(deployments, styles, strict=True)
        ],
        "are_folded": len(deployments) > FOLD,
        "last_s": CLOSE_S,
    }


def _name(one: Deployment) -> str:
    where = f" on {one.facts.robot}" if one.facts.robot else ""
    return f"{one.facts.experiment or 'policy'}{where}, {one.facts.policy_seconds:.1f} s"


# -- side by side ------------------------------------------------------------------------------------------------------


def _table(deployments: Sequence[Deployment]) -> dict[str, Any]:
    columns = {name: [of(one) for one in deployments] for name, of in NUMBERS.items()}
    columns = {name: values for name, values in columns.items() if any(value is not None for value in values)}
    rows = [[_text(values[index], values) for values in columns.values()] for index in range(len(deployments))]
    return {"columns": list(columns), "rows": rows}


def _text(value: Value, column: Sequence[Value]) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    return rounded(value, decimals(one for one in column if isinstance(one, float)))


def _comparison_charts(deployments: Sequence[Deployment], styles: Sequence[int]) -> list[Drawing]:
    """Return speed, if it is known, and roughness joint by joint."""
    charts = []
    pairs = list(zip(deployments, styles, strict=True))
    if any(one.speed_mps is not None for one in deployments):
        names, speeds = [one.label for one in deployments], np.array([one.speed_mps for one in deployments], np.float64)
        rows = np.arange(len(deployments))
        dots = [Series(one.label, style, np.where(rows == k, speeds, np.nan)) for k, (one, style) in enumerate(pairs)]
        charts.append(dot_plot("Speed", "m/s, forward", names, dots, _commanded_speed(deployments)))
    for joints in dict.fromkeys(one.facts.joints for one in deployments):  # robots may differ
        dots = [
            Series(f"{one.label}, {what}", style, each, is_open)
            for is_open, what in ((True, "policy's targets"), (False, "commanded"))
            for one, style in pairs
            if one.facts.joints == joints
            and (each := one.roughness(one.targets if is_open else one.commanded)) is not None
        ]
        if dots:
            charts.append(dot_plot("Roughness of joint targets", "rad/s²", joints, dots))
    return charts


def _commanded_speed(deployments: Sequence[Deployment]) -> float | None:
    """Return the commanded forward speed, if it is the same in all logs."""
    commands = {one.facts.command for one in deployments}
    first = next(iter(commands))
    return float(first[0]) if len(commands) == 1 and first else None


# -- one deployment ----------------------------------------------------------------------------------------------------


def _section(one: Deployment, detail: int) -> dict[str, Any]:
    events = one.facts.events
    commanded = [(COMMANDED, "commanded")] if one.commanded_torque is not None else []
    refused = [one.ticks_with(reason) for reason in REFUSED if reason in one.facts.reasons]
    trusted = ~np.logical_or.reduce(refused) if refused else np.ones(len(one.time_s), np.bool_)
    draw = partial(time_chart, one, detail=detail)
    believing = partial(draw, trusted=trusted)
    return {
        "deployment": one,
        "facts": _facts(one),
        "phases": list(dict.fromkeys(span.phase for span in one.spans)),
        "events_chart": events_chart(one),
        "events_open": any(event.kind != "phase" for event in events) and len(events) <= SHOWN_EVENTS,
        "legends": {**LEGENDS, "torques": [*commanded, (MEASURED, "the robot's estimate")]},
        "has_refused": not trusted.all(),
        "positions": _positions(believing, one),
        "last_positions": _last_positions(believing, one),
        "torques": _torques(believing, one, trusted),
        "body": _body(believing, one),
        "timing": _timing(draw, one),
    }


def _facts(one: Deployment) -> str:
    facts, asked = one.facts, one.facts.config.seconds
    ran = ", without a time limit" if asked is None else f" of {asked:g} s"
    parts = [
        f"folder {one.folder}",
        f"robot {facts.robot}" if facts.robot else "robot not recorded",
        f"the policy ran {facts.policy_seconds:.1f} s{ran}",
        f"policy {facts.policy_hz:g} Hz, commands {facts.loop_hz:g} Hz",
        f"low-pass {one.filter}",
        "dry run: nothing was sent" if facts.config.dry_run else "",
        f"network {facts.model_sha256[:12]}" if facts.model_sha256 else "",
    ]
    if facts.num_ticks > len(one.time_s):
        parts.append(f"the log kept the last {len(one.time_s)} of {facts.num_ticks} ticks")
    if one.num_changed_commands:
        parts.append(f"in {one.num_changed_commands} ticks the robot sent a command other than the requested one")
    return " · ".join(filter(None, [*parts, *link_trouble(one.robot_report)]))


# -- charts of one deployment ------------------------------------------------------------------------------------------


def _positions(draw: Draw, one: Deployment) -> list[Drawing]:
    measured, charts = one.measured("joint_pos"), []
    columns = (
        ("target", TARGET, one.targets),
        ("commanded", COMMANDED, one.commanded),
        ("measured", MEASURED, measured),
    )
    for k, (joint, (low, high)) in enumerate(zip(one.facts.joints, one.facts.limits.position, strict=True)):
        traces = [Series(name, style, values[:, k]) for name, style, values in columns]
        note = f"{rounded(low, 2)} to {rounded(high, 2)} rad"
        charts.append(draw(joint, note, traces, limits=(low, high), only_near=True))
    return charts


def _last_positions(draw: Draw, one: Deployment) -> list[Drawing]:
    """Return the last seconds of the policy in a long run, where the charts of the whole do not show single steps."""
    start_s, end_s = one.ends_s
    if end_s - start_s <= LONG_S:
        return []
    last_s = max((span.end_s for span in one.spans if span.phase == POLICY), default=end_s)
    window_s = (max(start_s, last_s - CLOSE_S), min(end_s, last_s + CLOSE_S / 10))
    return _positions(partial(draw, window_s=window_s), one)


def _torques(draw: Draw, one: Deployment, trusted: npt.NDArray[np.bool_]) -> list[Drawing]:
    measured = one.measured("joint_torque")
    charts = []
    for k, (joint, limit) in enumerate(zip(one.facts.joints, one.facts.limits.torque, strict=True)):
        limit *= one.facts.safety.torque_fraction
        traces = [Series("estimate", MEASURED, measured[:, k])]
        if one.commanded_torque is not None:
            traces.insert(0, Series("commanded", COMMANDED, one.commanded_torque[:, k]))
        most = float(np.nanmax(np.abs(np.append(measured[trusted, k], 0.0))))
        charts.append(draw(joint, f"at most {most:.1f} of {limit:.1f} Nm", traces, limits=(-limit, limit), least=1.0))
    return charts


def _body(draw: Draw, one: Deployment) -> list[Drawing]:
    rates, most = one.measured("angular_velocity"), one.facts.safety.max_tilt_rad
    tilt = [Series("tilt", TILT, one.tilt_rad)]
    turning = [Series(name, style, rates[:, k]) for k, (name, style) in enumerate(ANGULAR_VELOCITY.items())]
    return [
        draw("Tilt", f"rad; a stop at {most:g}", tilt, limits=[most], frame=USUAL),
        draw("Angular velocity", "rad/s, in the body's frame", turning, least=0.5, frame=USUAL),
    ]


def _timing(draw: Draw, one: Deployment) -> list[Drawing]:
    rows, period = one.log.rows, 1000 / one.facts.loop_hz
    stale, work = one.facts.safety.stale_ms, one.facts.work_ms
    charts = []
    if work:
        note = f"ms: {', '.join(f'{name} {value:.2f}' for name, value in work.items())}, period {period:g}"
        marks = {**work, "period": period}
        charts.append(histogram("Work of the ticks that ran the policy", note, one.work_ms, marks))
    load = [Series("work", WORK, rows["work_ms"]), Series("late", LATE, rows["late_ms"])]
    age = [Series("age", AGE, np.where(one.during("wait"), np.nan, rows["age_ms"]))]
    note = f"ms; the period is {period:g}"
    charts.append(draw("Work and lateness", note, load, limits=[period], least=0.1, frame=USUAL))
    note = f"ms; a stop at {stale:g}"
    charts.append(draw("Age of the newest state", note, age, limits=[stale], least=1.0, frame=USUAL))
    return charts
