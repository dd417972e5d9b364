"""Deployments set beside each other: a table, and figures of speed and smoothness."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from . import numbers
from .curves import Floats
from .deployments import SHARES, Deployment
from .markup import Markup, join, tag
from .plots import Dots, dot_plot
from .table import style_key

Value = Callable[[Deployment], float | str | None]
WORK = f"work {' / '.join(SHARES)}, ms"
NUMBERS: dict[str, Value] = {
    "low-pass": lambda one: one.filter,
    "policy ran, s": lambda one: f"{one.said['policy_seconds']:.1f}",
    "speed, m/s": lambda one: one.speed_mps,
    "roughness as commanded": lambda one: _over_joints(one.roughness(one.commanded)),
    "roughness of the policy": lambda one: _over_joints(one.roughness(one.targets)),
    "interventions": lambda one: str(sum(one.said["interventions"].values())),
    "missed deadlines": lambda one: str(one.said["missed"]),
    WORK: lambda one: " / ".join(f"{value:.2f}" for value in one.work().values()) or None,
}
"""Column -> what stands in it; one that no log knows is left out."""
EXPLAIN = (
    "Roughness, in rad/s², is the root mean square of a joint target's second difference from policy step to policy "
    "step, while the policy ran: of the policy's own targets, and of the positions that were commanded after filter, "
    "interpolation and limits. Less is smoother. Work is what a tick that asked the policy took, from its begin until "
    "the command was sent."
)


def deployments_table(deployments: Sequence[Deployment], styles: Sequence[int]) -> Markup:
    """One row each."""
    columns = {name: [of(one) for one in deployments] for name, of in NUMBERS.items()}
    columns = {name: values for name, values in columns.items() if any(value is not None for value in values)}
    head = [tag("th", "deployment"), *(tag("th", name, class_="number") for name in columns), tag("th", "ended")]
    rows = [
        tag(
            "tr",
            tag("th", style_key(style), one.label, scope="row"),
            *(tag("td", _shown(values[k], values), class_="number") for values in columns.values()),
            tag("td", "; ".join(filter(None, (one.stop or "as planned", one.fell)))),
        )
        for k, (one, style) in enumerate(zip(deployments, styles, strict=True))
    ]
    table = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *rows), class_="beside")
    unknown = "" if any(one.speed_mps is not None for one in deployments) else " No log knows how fast the robot was."
    return join(tag("div", table, class_="wide"), tag("p", EXPLAIN + unknown, class_="soft"))


def _shown(value: float | str | None, column: Sequence[float | str | None]) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    return numbers.plain(value, numbers.decimals(one for one in column if isinstance(one, float)))


def _over_joints(each: Floats | None) -> float | None:
    return None if each is None else math.sqrt(float((each**2).mean()))


def figures(deployments: Sequence[Deployment], styles: Sequence[int]) -> Markup:
    """Speed, if it is known, and roughness joint by joint."""
    drawn = []
    if any(one.speed_mps is not None for one in deployments):
        names = [one.label for one in deployments]
        dots = [
            Dots(one.label, style, [one.speed_mps if one is other else None for other in deployments])
            for one, style in zip(deployments, styles, strict=True)
        ]
        drawn.append(dot_plot("Speed", "m/s, forward", names, dots, _told(deployments)))
    for joints in dict.fromkeys(tuple(one.joints) for one in deployments):  # robots may differ
        alike = [pair for pair in zip(deployments, styles, strict=True) if tuple(pair[0].joints) == joints]
        dots = [
            Dots(f"{one.label}, {what}", style, each.tolist(), is_open)
            for is_open, what in ((True, "policy's targets"), (False, "commanded"))
            for one, style in alike
            if (each := one.roughness(one.targets if is_open else one.commanded)) is not None
        ]
        if dots:
            drawn.append(dot_plot("Roughness of joint targets", "rad/s²", joints, dots))
    if not drawn:
        return Markup("")
    keys = (tag("li", style_key(style), one.label) for one, style in zip(deployments, styles, strict=True))
    circle = {"viewBox": "0 0 10 10", "class_": "key mark", "aria_hidden": "true"}
    rings = (
        tag("li", tag("svg", tag("circle", class_=kind, cx=5, cy=5, r=4), **circle), words)
        for kind, words in (("dot", "commanded"), ("ring", "policy's targets"))
    )
    return join(tag("ul", *keys, *rings, class_="legend"), tag("div", *drawn, class_="uneven charts"))


def _told(deployments: Sequence[Deployment]) -> float | None:
    """The speed that was asked for, where all logs say the same."""
    told = {tuple(one.said.get("command") or ()) for one in deployments}
    first = next(iter(told))
    return float(first[0]) if len(told) == 1 and first else None
