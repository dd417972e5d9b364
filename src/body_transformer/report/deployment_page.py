"""The page about deployments: each by itself, and where there are several, side by side."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from . import look, numbers
from .chart import USUAL
from .deployment_table import deployments_table, figures
from .deployments import POLICY, Deployment
from .document import document
from .lanes import phase_lane, second_lane, tick_lane
from .markup import Markup, join, tag
from .plots import histogram
from .runs import Place
from .table import style_key
from .timeline import DETAIL, Limits, TimeAxis, Trace, timeline

TARGET, COMMANDED, MEASURED = 7, 0, 1
WORK, LATE, AGE = 0, 1, 2
TILT, TURN = 3, {"x": 0, "y": 1, "z": 2}
"""Looks of the lines."""
REFUSED = ("state shape", "state not finite", "state absurd", "state jumped")
"""Interventions whose state was not believed."""
MANY, FOLD = 4, 2
"""More deployments than this: less detail of each; each folded away."""
SHOWN_EVENTS = 12
LONG_S, CLOSE_S = 8, 4
"""A run longer than this is shown from close by, too: so many seconds of it."""


def deployment_page(
    deployments: Sequence[Deployment],
    title: str | None,
    paragraphs: Sequence[str],
    places: Sequence[Place],
    path: Path,
) -> str:
    """The whole HTML."""
    chosen = look.styles(one.label for one in deployments)
    styles = [chosen[one.label] for one in deployments]
    detail = DETAIL if len(deployments) <= MANY else max(160, DETAIL * MANY // len(deployments))
    names = [_title(one) if len(deployments) == 1 else f"{one.label}: {_title(one)}" for one in deployments]
    sections = [_section(one, name, style, detail) for one, name, style in zip(deployments, names, styles, strict=True)]
    if len(sections) > FOLD:
        sections = [tag("details", tag("summary", name), part) for name, part in zip(names, sections, strict=True)]
    command = shlex.join(["bot", "report", *map(str, places), "--out", str(path)])
    title = title or _page_title(deployments)
    main = tag(
        "main",
        tag("header", tag("h1", title), tag("p", _summary(deployments))),
        tag("section", *(tag("p", text) for text in paragraphs), class_="words") if paragraphs else None,
        tag(
            "section",
            tag("h2", "Side by side" if len(deployments) > 1 else "In numbers"),
            deployments_table(deployments, styles),
            figures(deployments, styles),
        ),
        *sections,
        tag("section", tag("h2", "How to write this page again"), tag("pre", tag("code", command))),
    )
    sheet = look.style_sheet({*styles, *range(4), TARGET}) + look.DEPLOYMENT_RULES
    return document(title, sheet, main)


def _section(one: Deployment, name: str, style: int, detail: int) -> Markup:
    gap_s = max(one.said["safety"]["stale_ms"] / 1000, 2.5 / one.said["policy_hz"])
    axis = TimeAxis(one.time_s, one.spans, one.stop_s, gap_s, detail)
    return tag(
        "section",
        tag("h2", style_key(style), name),
        tag("p", _facts(one), class_="soft"),
        _ending(one),
        tag("h3", "What happened when"),
        _lanes(one, axis),
        _events(one),
        tag("h3", "Joint positions"),
        _positions(one, axis),
        tag("h3", "Joint torques"),
        _torques(one, axis),
        tag("h3", "Body"),
        _body(one, axis),
        tag("h3", "Timing"),
        _timing(one, axis),
    )


# -- words -------------------------------------------------------------------------------------------------------------


def _title(one: Deployment) -> str:
    robot = one.said.get("robot")
    where = f" on {robot}" if isinstance(robot, str) else ""
    return f"{one.said['experiment']}{where}, {one.said['policy_seconds']:.1f} s"


def _page_title(deployments: Sequence[Deployment]) -> str:
    if len(deployments) == 1:
        return _title(deployments[0])
    experiments = dict.fromkeys(one.said["experiment"] for one in deployments)
    return f"{len(deployments)} deployments of {', '.join(experiments)}"


def _summary(deployments: Sequence[Deployment]) -> str:
    stopped = [one.label for one in deployments if one.stop]
    early = f"; ended early: {', '.join(stopped)}" if stopped else ""
    return f"{', '.join(one.label for one in deployments)}{early}"


def _facts(one: Deployment) -> str:
    said, asked = one.said, one.said["config"].get("seconds")
    robot = said.get("robot")
    parts = [
        f"folder {one.folder}",
        f"robot {robot}" if isinstance(robot, str) else "robot not recorded",
        f"the policy ran {said['policy_seconds']:.1f} s"
        + (f" of {asked:g} s" if isinstance(asked, int | float) else ", until somebody stopped it"),
        f"policy {said['policy_hz']:g} Hz, commands {said['loop_hz']:g} Hz",
        f"low-pass {one.filter}" if one.filter else "",
        "dry run: nothing was sent" if said["config"].get("dry_run") else "",
        f"network {said['model_sha256'][:12]}" if isinstance(said.get("model_sha256"), str) else "",
    ]
    if said["num_ticks"] > len(one.time_s):
        parts.append(f"the log kept the last {len(one.time_s)} of {said['num_ticks']} ticks")
    if one.sent_otherwise:
        parts.append(f"in {one.sent_otherwise} ticks the robot sent something else than was commanded")
    parts += one.trouble
    return " · ".join(filter(None, parts))


def _ending(one: Deployment) -> Markup:
    seen = f"; {one.fell}." if one.fell else "."
    if not one.stop:
        return tag("p", f"It ended as planned{seen}")
    when = "" if one.stop_s is None else f" after {one.stop_s:.2f} s"
    words = tag("p", tag("b", f"It ended early{when}, in damping: "), one.stop + seen)
    return tag("div", words, class_="warning", role="note")


# -- what happened -----------------------------------------------------------------------------------------------------


def _lanes(one: Deployment, axis: TimeAxis) -> Markup:
    """Phases and interventions, one under the other, on one time axis."""
    counts = one.said["interventions"]
    rows = [tag("tr", tag("th", "phase", scope="row"), tag("td"), tag("td", phase_lane(axis), class_="lanes"))]
    rows += [
        tag(
            "tr",
            tag("th", reason, scope="row"),
            tag("td", numbers.grouped(count), class_="number"),
            tag("td", tick_lane(axis, one.ticks_with(reason)), class_="lanes"),
        )
        for reason, count in sorted(counts.items(), key=lambda item: -item[1])
    ]
    rows.append(tag("tr", tag("td", "seconds", class_="soft"), tag("td"), tag("td", second_lane(axis), class_="lanes")))
    head = tag("tr", tag("th", ""), tag("th", "interventions", class_="number"), tag("th", "when"))
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_="when")
    none = None if counts else tag("p", "The runtime never had to step in.", class_="soft")
    return join(tag("div", table, class_="wide"), none)


def _events(one: Deployment) -> Markup | None:
    events = one.said["events"]
    if not events:
        return None
    rows = [
        tag(
            "tr",
            tag("td", f"{event['time_s']:.3f}", class_="number"),
            tag("td", str(event["tick"]), class_="number"),
            tag("td", event["kind"]),
            tag("td", event["text"]),
        )
        for event in events
    ]
    head = tag("tr", *(tag("th", name, class_="number") for name in ("seconds", "tick")), tag("th", "event"), tag("th"))
    table = tag("div", tag("table", tag("thead", head), tag("tbody", *rows)), class_="wide events")
    is_open = any(event["kind"] != "phase" for event in events) and len(events) <= SHOWN_EVENTS
    number = "1 event" if len(events) == 1 else f"{len(events)} events"
    return tag("details", tag("summary", number), table, open=is_open)


# -- charts ------------------------------------------------------------------------------------------------------------


def _legend(names: Sequence[tuple[int, str]], one: Deployment, has_limit: bool = True) -> Markup:
    keys = [tag("li", style_key(style), name) for style, name in names]
    strokes = [("limit", "limit")] * has_limit + [("stop", "stop")] * bool(one.stop)
    for kind, name in strokes:
        line = tag("line", class_=kind, x1=0, x2=24, y1=5, y2=5)
        keys.append(tag("li", tag("svg", line, class_="key", viewBox="0 0 24 10", aria_hidden="true"), name))
    for span in dict.fromkeys(span.phase for span in one.spans):
        box = tag("rect", class_=f"phase {span}", width=24, height=10)
        keys.append(tag("li", tag("svg", box, class_="key boxed", viewBox="0 0 24 10", aria_hidden="true"), span))
    return tag("ul", *keys, class_="legend")


def _positions(one: Deployment, axis: TimeAxis) -> Markup:
    """Of the whole time; of a long run also the end of the policy, as its steps cannot be seen in the whole."""
    names = ((TARGET, "target, before the filter"), (COMMANDED, "commanded"), (MEASURED, "measured"))
    words = "After a joint's name: what it may reach. A limit is drawn where it is near."
    if not _trusted(one).all():
        words += " What the runtime did not believe is drawn, too, at the edge if it lies beyond it."
    start_s, end_s = axis.ends_s
    whole = _position_charts(one, axis, np.ones(len(axis.at), np.bool_))
    close = None
    if end_s - start_s > LONG_S:
        last_s = max((span.end_s for span in one.spans if span.phase == POLICY), default=end_s)
        part = axis.within(max(start_s, last_s - CLOSE_S), min(end_s, last_s + CLOSE_S / 10))
        close = join(tag("h3", f"The last {CLOSE_S:g} s of the policy, joint positions"), _position_charts(one, *part))
    return join(_legend(names, one), whole, tag("p", words, class_="soft"), close)


def _position_charts(one: Deployment, axis: TimeAxis, ticks: npt.NDArray[np.bool_]) -> Markup:
    measured, trusted = one.measured("joint_pos")[ticks], _trusted(one)[ticks]
    targets, commanded = one.targets[ticks], one.commanded[ticks]
    charts = []
    for k, (joint, (low, high)) in enumerate(zip(one.joints, one.said["limits"]["position"], strict=True)):
        traces = [
            Trace("target", TARGET, targets[:, k]),
            Trace("commanded", COMMANDED, commanded[:, k]),
            Trace("measured", MEASURED, measured[:, k]),
        ]
        note = f"{numbers.plain(low, 2)} to {numbers.plain(high, 2)} rad"
        charts.append(timeline(joint, note, traces, axis, Limits(low, high, always=False), 0.2, trusted))
    return tag("div", *charts, class_="small charts")


def _torques(one: Deployment, axis: TimeAxis) -> Markup:
    measured, trusted = one.measured("joint_torque"), _trusted(one)
    fraction = one.said["safety"]["torque_fraction"]
    charts = []
    for k, (joint, limit) in enumerate(zip(one.joints, one.said["limits"]["torque"], strict=True)):
        limit *= fraction
        traces = [Trace("estimate", MEASURED, measured[:, k])]
        if one.pushed is not None:
            traces.insert(0, Trace("commanded", COMMANDED, one.pushed[:, k]))
        most = float(np.nanmax(np.abs(np.append(measured[trusted, k], 0.0))))
        note = f"at most {most:.1f} of {limit:.1f} Nm"
        charts.append(timeline(joint, note, traces, axis, Limits(-limit, limit), 1.0, trusted))
    names = [(COMMANDED, "commanded")] * (one.pushed is not None) + [(MEASURED, "the robot's estimate")]
    return join(_legend(names, one), tag("div", *charts, class_="small charts"))


def _body(one: Deployment, axis: TimeAxis) -> Markup:
    rates, trusted = one.measured("angular_velocity"), _trusted(one)
    most = one.said["safety"]["max_tilt_rad"]
    lean = [Trace("tilt", TILT, one.tilt_rad)]
    turning = [Trace(name, style, rates[:, k]) for k, (name, style) in enumerate(TURN.items())]
    charts = (
        timeline("Tilt", f"rad; a stop at {most:g}", lean, axis, Limits(high=most), 0.2, trusted, USUAL),
        timeline("Angular velocity", "rad/s, in the body's frame", turning, axis, None, 0.5, trusted, USUAL),
    )
    names = [(TILT, "tilt"), *((style, f"angular velocity {name}") for name, style in TURN.items())]
    return join(_legend(names, one), tag("div", *charts, class_="charts"))


def _timing(one: Deployment, axis: TimeAxis) -> Markup:
    rows, period, stale = one.log.rows, one.period_ms, one.said["safety"]["stale_ms"]
    work, charts = one.work(), []
    if work:
        note = ", ".join(f"{name} {value:.2f}" for name, value in work.items())
        title = "A tick's work, of those that asked the policy"
        charts.append(histogram(title, f"ms: {note}, period {period:g}", one.work_ms, {**work, "period": period}))
    over = [Trace("work", WORK, rows["work_ms"]), Trace("late", LATE, rows["late_ms"])]
    age = [Trace("age", AGE, np.where(one.during("wait"), np.nan, rows["age_ms"]))]
    note = f"ms; the period is {period:g}"
    charts.append(timeline("Work and lateness", note, over, axis, Limits(high=period), 0.1, None, USUAL))
    note = f"ms; a stop at {stale:g}"
    charts.append(timeline("Age of the newest state", note, age, axis, Limits(high=stale), 1.0, None, USUAL))
    missed = f"{one.said['missed']} deadlines were missed. "
    words = "Late is how long after its time a tick began. The age is counted from the quickest state that ever came."
    return join(
        _legend([(WORK, "work"), (LATE, "late"), (AGE, "age")], one),
        tag("div", *charts, class_="charts"),
        tag("p", missed + words + ("" if work else f" The {POLICY} never ran."), class_="soft"),
    )


def _trusted(one: Deployment) -> npt.NDArray[np.bool_]:
    """[T] The state was believed, or there was none."""
    refused = [one.ticks_with(reason) for reason in REFUSED if reason in one.said["reasons"]]
    return ~np.logical_or.reduce(refused) if refused else np.ones(len(one.time_s), np.bool_)
