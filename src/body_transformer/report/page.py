"""The page: one HTML file that opens from disk and asks nothing of the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import look
from .arms import Arm, gather
from .chart import Line, chart
from .compare import columns
from .curves import Axis, curve
from .deployment_page import deployment_page
from .deployments import find_deployments, read_deployments
from .document import check_writable, document, write
from .markup import Markup, join, tag
from .overview import arms_table, rerun, warnings
from .pictures import body_pictures, films
from .runs import Place, find_runs, is_evaluation, read_run
from .table import comparison_table, style_key

MINOR = ("train/learning_rate", "train/steps_per_s")
MAJOR_OF_RL = ("train/return", "train/length")
"""Of what reinforcement learning logs beside evaluations; the rest is minor."""
AXES: dict[Axis, str] = {"step": "step", "env_steps": "environment steps", "time_s": "seconds"}
MAX_MAIN_CHARTS = 12


@dataclass(frozen=True)
class Written:
    """What `write_report` left behind."""

    path: Path
    num_bytes: int
    num_runs: int
    unfinished: tuple[Path, ...]
    """Folders of the runs that are not finished."""
    num_deployments: int = 0
    stopped: tuple[tuple[Path, str], ...] = ()
    """Folders of the deployments that ended early, and why."""


def write_report(
    path: Place, runs: Sequence[Place], title: str | None = None, paragraphs: Sequence[str] = ()
) -> Written:
    """Writes the page about these run folders, or about all runs below these folders; or about deployments, likewise.

    `paragraphs` are plain text and stand above the results. The file is written aside and renamed.
    """
    path = Path(path)
    check_writable(path)
    if deployed := find_deployments(runs):
        return _write_deployments(path, deployed, runs, title, paragraphs)
    found = [read_run(folder) for folder in find_runs(runs)]
    arms = gather(found)
    content = page(arms, title or _title(arms), paragraphs, runs, path).encode("utf-8")
    write(path, content)
    return Written(path, len(content), len(found), tuple(run.folder for run in found if not run.is_finished))


def _write_deployments(
    path: Path, folders: Sequence[Path], places: Sequence[Place], title: str | None, paragraphs: Sequence[str]
) -> Written:
    found = read_deployments(folders)
    content = deployment_page(found, title, paragraphs, places, path).encode("utf-8")
    write(path, content)
    stopped = tuple((one.folder, one.stop) for one in found if one.stop)
    return Written(path, len(content), 0, (), len(found), stopped)


def page(arms: Sequence[Arm], title: str, paragraphs: Sequence[str], places: Sequence[Place], path: Path) -> str:
    """The whole HTML."""
    styles = look.styles(arm.label for arm in arms)
    experiments = dict.fromkeys(arm.experiment for arm in arms)
    main = tag(
        "main",
        tag("header", tag("h1", title), tag("p", _summary(arms))),
        warnings(arms),
        tag("section", *(tag("p", text) for text in paragraphs), class_="words") if paragraphs else None,
        *(
            _experiment([arm for arm in arms if arm.experiment == name], styles, len(experiments) == 1)
            for name in experiments
        ),
        tag("section", tag("h2", "How to run it again"), rerun(arms, places, path)),
    )
    return document(title, look.style_sheet(styles.values()), main)


def _experiment(arms: Sequence[Arm], styles: Mapping[str, int], is_only: bool) -> Markup:
    """All about one; it has a heading of its own where it is not the only one."""
    own = [styles[arm.label] for arm in arms]
    title = str(arms[0].settings.get("title") or arms[0].experiment)
    named = join(tag("h2", title), tag("p", f"experiment {arms[0].experiment}", class_="soft"))
    level = "h2" if is_only else "h3"
    moving = films(arms, lambda arm: style_key(styles[arm.label]))
    many = "The film of each variant is that of its lowest seed that has one, and shows one rollout."
    return tag(
        "section",
        None if is_only else named,
        tag(level, "Comparison"),
        comparison_table(arms, columns(arms), own),
        join(tag(level, "Films"), moving, tag("p", many, class_="soft")) if moving else None,
        tag(level, "Learning curves"),
        _charts(arms, styles),
        tag(level, "Body and mask"),
        body_pictures(arms),
        tag(level, "What was run"),
        arms_table(arms, own),
    )


# -- curves ------------------------------------------------------------------------------------------------------------


def _charts(arms: Sequence[Arm], styles: Mapping[str, int]) -> Markup:
    """Evaluations first, then losses; what few people look at is folded away."""
    keys = list(dict.fromkeys(key for arm in arms for run in arm.runs for key in run.curves))
    if not keys:
        return tag("p", "Nothing is logged yet.", class_="soft")
    is_rl = any(run.env_steps is not None for arm in arms for run in arm.runs)
    minor = [key for key in keys if key in MINOR or (is_rl and not is_evaluation(key) and key not in MAJOR_OF_RL)]
    keys.sort(key=lambda key: (key in minor, not is_evaluation(key)))  # stable: else as they were logged
    main: list[Markup] = []
    folded: list[Markup] = []
    for key in keys:
        for by in _axes(key, is_rl):
            drawn = _chart(arms, styles, key, by)
            (folded if key in minor or len(main) >= MAX_MAIN_CHARTS else main).extend(drawn)
    legend = (tag("li", style_key(styles[arm.label]), arm.label) for arm in arms)
    return join(
        tag("ul", *legend, class_="legend"),
        tag("div", *main, class_="charts"),
        tag("p", _explain(arms), class_="soft"),
        tag("details", tag("summary", "what else was logged"), tag("div", *folded, class_="charts"))
        if folded
        else None,
    )


def _axes(key: str, is_rl: bool) -> tuple[Axis, ...]:
    """By time, too: losses of imitation, evaluations of reinforcement learning."""
    if is_rl:
        return ("env_steps", "time_s") if is_evaluation(key) else ("env_steps",)
    return ("step", "time_s") if key.endswith("loss") else ("step",)


def _chart(arms: Sequence[Arm], styles: Mapping[str, int], key: str, by: Axis) -> list[Markup]:
    drawn = [(arm, curve(arm, key, by)) for arm in arms]
    lines = [Line(arm.label, styles[arm.label], line) for arm, line in drawn if line is not None]
    return [chart(_chart_title(key), AXES[by], lines)] if lines else []


def _chart_title(key: str) -> str:
    if is_evaluation(key):
        _, split, metric = key.split("/")
        return f"{metric} on {split}".replace("_", " ")
    return key.replace("/", " ").replace("_", " ")


def _explain(arms: Sequence[Arm]) -> str:
    seeds = "A line is the mean over seeds, its band reaches from the lowest to the highest seed. "
    one = "Where there is one seed, the band of an evaluation is its 95 % interval over episodes."
    return (seeds if any(len(arm.runs) > 1 for arm in arms) else "") + (
        one if any(len(arm.runs) == 1 for arm in arms) else ""
    )


# -- words -------------------------------------------------------------------------------------------------------------


def _title(arms: Sequence[Arm]) -> str:
    """The experiment's own, if there is one only."""
    titles = dict.fromkeys(str(arm.settings.get("title") or arm.experiment) for arm in arms)
    return next(iter(titles)) if len(titles) == 1 else f"Runs of {len(titles)} experiments"


def _summary(arms: Sequence[Arm]) -> str:
    runs = [run for arm in arms for run in arm.runs]
    experiments = dict.fromkeys(arm.experiment for arm in arms)
    labels = dict.fromkeys(arm.label for arm in arms)
    number = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    return f"{number} of {', '.join(experiments)}: {', '.join(labels)}"
