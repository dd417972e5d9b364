"""Draw speed and smoothness of a walk with and without the low-pass filter.

    python benchmarks/walk.py a1 --only flat unfiltered --out build/walk
    python benchmarks/filter_figure.py build/walk/logs/flat build/walk/logs/unfiltered --out filter.png

Roughness is that of `bot report`: the root mean square, over all joints, of a target's second difference between policy
steps. It is drawn for the policy's targets, and for the commands after filter, interpolation and limits.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from body_transformer.pictures import save
from body_transformer.report.deployment import POLICY, Deployment, read_deployments
from body_transformer.report.load import find_folders

NAMES, COLORS = ("with the filter", "without"), ("#1f5fa8", "#c2571a")
SHOWN_S = (4.0, 5.0)
"""Part of the policy's time that is drawn, in seconds."""
JOINT = "FL_calf_joint"


def speeds(deployments: Sequence[Deployment]) -> list[float]:
    """Return m/s per deployment that measured it."""
    return [one.speed_mps for one in deployments if one.speed_mps is not None]


def roughness(deployments: Sequence[Deployment], commanded: bool) -> list[float]:
    """Return rad/s² per deployment in which the policy ran."""
    each = (one.overall_roughness(one.commanded if commanded else one.targets) for one in deployments)
    return [value for value in each if value is not None]


def dots(axes: Axes, groups: Sequence[tuple[str, str, Sequence[float]]]) -> None:
    """Draw a column of dots per group, with its mean."""
    for k, (_, color, values) in enumerate(groups):
        axes.plot(np.full(len(values), k), values, "o", color=color, alpha=0.5)
        axes.plot([k - 0.2, k + 0.2], [np.mean(values)] * 2, color=color)
        axes.annotate(f"{np.mean(values):.3g}", (k + 0.24, float(np.mean(values))), va="center", fontsize=8)
    axes.set_xticks(range(len(groups)), [label for label, _, _ in groups])
    axes.set_xlim(-0.6, len(groups) - 0.2)
    axes.set_ylim(bottom=0)


def trace(axes: Axes, one: Deployment, color: str, name: str) -> None:
    """Draw a joint's target and command for a second of walking."""
    begun = next(span.start_s for span in one.spans if span.phase == POLICY)
    time_s = one.time_s - begun
    shown = (time_s >= SHOWN_S[0]) & (time_s <= SHOWN_S[1])
    joint = one.facts.joints.index(JOINT)
    axes.step(time_s[shown], one.targets[shown, joint], where="post", color=color, linewidth=0.7, alpha=0.6)
    axes.plot(time_s[shown], one.commanded[shown, joint], color=color, linewidth=1.5, label=name)


def draw(sets: Sequence[Sequence[Deployment]]) -> Figure:
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    speed, rough, joint = figure.subplots(1, 3, width_ratios=(1, 1.6, 2))
    dots(speed, [(name, color, speeds(one)) for name, color, one in zip(NAMES, COLORS, sets, strict=True)])
    speed.axhline(0.5, color="gray", linewidth=0.7, linestyle="--")
    speed.set_title("speed, m/s (command: 0.5)", fontsize=10)
    named = [
        (f"{name},\n{what}", color, roughness(one, commanded))
        for name, color, one in zip(NAMES, COLORS, sets, strict=True)
        for what, commanded in (("wanted", False), ("commanded", True))
    ]
    dots(rough, named)
    rough.tick_params("x", labelsize=7)
    rough.set_title("roughness of joint targets, rad/s²", fontsize=10)
    for name, color, one in zip(NAMES, COLORS, sets, strict=True):
        trace(joint, one[0], color, name)
    joint.set_title(f"{JOINT}, rad: commanded (thin: the policy's targets)", fontsize=10)
    joint.set_xlabel("s of walking")
    joint.legend(fontsize=8)
    return figure


def main(args: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "filter_figure.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs=2, help="deployments with the filter, and without it")
    parser.add_argument("--out", type=Path, default=Path("build/filter.png"))
    options = parser.parse_args(args)
    sets = [read_deployments(find_folders([folder])[1]) for folder in options.folders]
    for name, folder, one in zip(NAMES, options.folders, sets, strict=True):
        if not one:
            raise SystemExit(f"filter_figure: no deployment under {str(folder)!r}")
        wanted, commanded = (np.mean(roughness(one, is_commanded)) for is_commanded in (False, True))
        print(
            f"{name}: {len(one)} rollouts, {np.mean(speeds(one)):.3f} m/s, "
            f"roughness {wanted:.1f} wanted, {commanded:.1f} commanded"
        )
    save(partial(draw, sets), options.out, dpi=110)


if __name__ == "__main__":
    main()
