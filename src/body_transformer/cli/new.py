"""`bot new ROBOT [--data PATH] --out my.yaml`: write an experiment for a robot of your own, to be edited."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
import yaml

from .. import robots
from ..body.graph import Fixed
from ..body.layout import Term
from ..experiment import SUFFIXES, RobotSpec, load_experiment
from ..files import atomic_write
from ..imitation.own_robot import OwnRobot, own_robot
from .inspect import find_robot
from .output import say
from .run_options import Flag

WIDTH = 112
REMEDY = "the file can name other owners"
SIZES = ("variant", "embed_dim", "num_layers", "num_heads", "ff_dim")
TRAINING = ("learning_rate", "warmup_steps", "schedule", "batch_size", "num_steps")
"""Settings that the file lists, with their defaults."""


@dataclass
class New:
    """Write an experiment for a robot of your own, with the layout filled in: a YAML file to be edited, then trained by
    `bot train my.yaml`."""

    robot: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ROBOT")]
    """An MJCF or URDF file, or the name of a shipped robot."""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE.yaml")]
    """The experiment's file; paths in it are relative to its folder."""
    data: Annotated[str | None, tyro.conf.arg(metavar="PATH")] = None
    """Demonstrations whose terms are matched to the robot; without them, the layout is one that most robots can
    provide."""
    root: Annotated[tuple[str, ...], tyro.conf.arg(metavar="BODY ...")] = ()
    """The robot's root body, several of them, or `world`; needed if the file holds several trees."""
    fixed: Annotated[Fixed, tyro.conf.arg(metavar="keep|merge")] = "keep"
    """Whether a body without a joint keeps its own node or merges into its parent."""
    allow_outside: Flag = False
    """Allow the robot's file to name files outside its folder: included ones, meshes and the like."""
    overwrite: Flag = False
    """Replace an existing file."""


def main(args: list[str]) -> None:
    """Run the command."""
    options = tyro.cli(New, prog="bot new", args=args)
    if options.out.suffix not in SUFFIXES:
        raise ValueError(f"--out must end with {' or '.join(SUFFIXES)}; got {str(options.out)!r}")
    if options.out.exists() and not options.overwrite:
        raise ValueError(f"{str(options.out)!r} exists: give another --out, or --overwrite")
    file = str(find_robot(options.robot))
    spec = RobotSpec(file, options.root or None, options.fixed, allow_outside=options.allow_outside)
    found = own_robot(spec, options.data, REMEDY, strict=False)
    atomic_write(options.out, experiment_text(found, options))
    load_experiment(options.out).layout()
    say(found.describe().rstrip("\n"), keep="\n")
    say(f"wrote {options.out}: edit it, then run `bot train {options.out}`")


def experiment_text(found: OwnRobot, options: New) -> str:
    """Return the content of the file."""
    made, folder = found.experiment, options.out.parent
    config = made.imitation
    assert config is not None
    file = options.robot if options.robot in robots.names() else _relative(options.robot, folder)
    root = {"root": list(options.root)} if options.root else {}
    fixed = {"fixed": options.fixed} if options.fixed != "keep" else {}
    outside = {"allow_outside": True} if options.allow_outside else {}
    imitation: dict[str, Any] = {"task": "none", "reader": config.reader}
    imitation["data"] = "demos.npz" if options.data is None else _relative(options.data, folder)
    imitation |= {"options": dict(config.options)} if config.options else {}
    lines = [
        f"# An experiment, written by `bot new`. `bot inspect {options.out.name}` shows it, and `bot train` trains it.",
        *_lines({"title": made.title}),
        _line({"robot": {"file": file, **root, **fixed, **outside}}),
        "",
        f"obs_dim: {made.obs_dim}",
        "# Terms of the observation in order. `kind` is root, joints, actuators, bodies, node or unused; `of` names",
        "# the owners, `dim` is the number of entries of each, and `steps` repeats the whole term.",
        "obs:",
        *_terms(made.obs, found),
        "",
        f"action_dim: {made.action_dim}",
        "actions:",
        *_terms(made.actions, found),
        "",
        "critic: false",
        *_lines({"policy": {name: getattr(made.policy, name) for name in SIZES}}),
        "",
        '# Evaluation: `task: {gym: "my_package:MyEnv-v0", success: is_success}` is a Gymnasium environment, and',
        "# `task: my_module:MyTask` a class of your own. Without a task, the policy is trained and not evaluated.",
        *_lines({"imitation": {**imitation, **{name: getattr(config, name) for name in TRAINING}}}),
    ]
    return "\n".join(lines) + "\n"


def _relative(path: str, folder: Path) -> str:
    """Return a path relative to a folder; a name that is no path, as of a Minari dataset, stays as it is."""
    there = Path(path).expanduser()
    return os.path.relpath(there, folder) if there.exists() else path


def _terms(terms: Sequence[Term], found: OwnRobot) -> list[str]:
    """Return the lines of the terms, with a comment where the owner is a guess."""
    lines = []
    for term in terms:
        key = found.keys.get(term.name, term.name)
        if key in found.inferred.guessed:
            lines.append("  # unknown name: its owner may be another one")
        elif key in found.inferred.unclear:
            lines.append(f"  # ambiguous: {found.inferred.unclear[key]}")
        content = {name: value for name, value in term.to_dict().items() if value != 1}
        lines += textwrap.indent(_line([content]), "  ").splitlines()
    return lines


def _line(content: Any) -> str:
    """Return YAML with short lists and mappings on one line."""
    return yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=WIDTH, allow_unicode=True).rstrip()


def _lines(content: Mapping[str, Any]) -> list[str]:
    """Return YAML with one setting per line."""
    return yaml.safe_dump(content, sort_keys=False, default_flow_style=False, allow_unicode=True).splitlines()
