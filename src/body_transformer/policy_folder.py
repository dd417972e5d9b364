"""A policy on disk: one folder in one format, whichever command wrote it.

    policy.json         {format, format_version, package_version, policy: {config, layout}, weights_sha256}
                        and, once exported, {contract, model_sha256}
    policy.safetensors  weights; a robot's computer does not need them
    policy.onnx         the exported network, which is all that a robot's computer needs besides policy.json
    robot.xml           the robot's model, from which simulated robots are built

The weights' metadata hold a digest of policy.json without its `LATER_KEYS`, so each file refers to the other.
Every path or name of a policy on the command line is resolved by `find_policy`. This module needs neither PyTorch nor
YAML.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import __version__, pretrained
from .documents import read_json
from .errors import unknown
from .schema import json_digest, shown

DESCRIPTION, WEIGHTS, MODEL, ROBOT = "policy.json", "policy.safetensors", "policy.onnx", "robot.xml"
FORMAT, VERSION = "body_transformer.policy", 2
READABLE = (1, 2)
"""Format versions that can be read; version 1 has no contract."""
LATER_KEYS = ("weights_sha256", "contract", "model_sha256")
"""Keys of policy.json that are known only after the weights are written, so the weights' digest excludes them."""
_KEYS = ("format", "format_version", "package_version", "policy", *LATER_KEYS)
RUN_DESCRIPTION, CHECKPOINTS = "experiment.yaml", "checkpoints"
"""In a run folder: the description, and the folder of checkpoints, each named by its step."""
KINDS = f"a folder with {DESCRIPTION}, a run folder, a checkpoint of a run, or {pretrained.PREFIX}NAME"
"""Sources that `find_policy` accepts, for error messages."""


@dataclass(frozen=True)
class PolicyFolder:
    """The place of a stored policy, and the run that it belongs to."""

    path: Path
    """The folder that holds policy.json."""
    run: Path | None = None
    """The run folder, if the policy is one of its checkpoints."""
    step: int | None = None
    """The checkpoint's step."""
    pretrained: str | None = None
    """The name, if the policy comes with the package."""


def find_policy(source: str | os.PathLike[str]) -> PolicyFolder:
    """Return the folder of a saved or exported policy, of a run's newest checkpoint, or of `pretrained:NAME`."""
    name = os.fspath(source)
    if name.startswith(pretrained.PREFIX):
        name = name.removeprefix(pretrained.PREFIX)
        return PolicyFolder(pretrained.path(name), pretrained=name)
    folder = Path(name)
    if not (folder / DESCRIPTION).is_file():
        steps = saved_steps(folder)
        if not steps:
            raise FileNotFoundError(f"no policy in {name!r}: {_missing(folder)}")
        folder = folder / CHECKPOINTS / str(steps[-1])
    place = folder.resolve()  # `last` is a link to a step
    if place.parent.name != CHECKPOINTS or not place.name.isdigit():
        return PolicyFolder(folder)
    run = place.parents[1]
    return PolicyFolder(folder, run if (run / RUN_DESCRIPTION).is_file() else None, int(place.name))


def is_policy(source: str | os.PathLike[str]) -> bool:
    """Return whether this is `pretrained:NAME` or a folder with policy.json; a run folder is neither."""
    return os.fspath(source).startswith(pretrained.PREFIX) or (Path(source) / DESCRIPTION).is_file()


def saved_steps(run: Path) -> list[int]:
    """Return the steps of a run's checkpoints, ascending."""
    folder = run / CHECKPOINTS
    return sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isdigit()) if folder.is_dir() else []


def _missing(folder: Path) -> str:
    if not folder.exists():
        return f"the folder does not exist; expected {KINDS}"
    if not folder.is_dir():
        return f"it is a file; expected {KINDS}"
    if (folder / CHECKPOINTS).is_dir() or (folder / RUN_DESCRIPTION).is_file():
        return "the run has no checkpoint yet"
    return f"{DESCRIPTION} is missing; expected {KINDS}"


# -- policy.json -------------------------------------------------------------------------------------------------------


def new_description(policy: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of policy.json for {config, layout}, without its LATER_KEYS."""
    return {"format": FORMAT, "format_version": VERSION, "package_version": __version__, "policy": policy}


def read_description(folder: Path) -> dict[str, Any]:
    """Read policy.json and check its format and version."""
    file = folder / DESCRIPTION
    if not file.is_file():
        raise FileNotFoundError(f"no policy in {str(folder)!r}: {DESCRIPTION} is missing")
    content = read_json(file)
    if isinstance(content, dict) and content.get("format") == "body_transformer.contract":
        raise ValueError(
            f"{str(file)!r} is an export of an older version of the package: export the policy again, with `bot export`"
        )
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{str(file)!r} does not describe a policy: its format must be {FORMAT!r}")
    version = content.get("format_version")
    if version not in READABLE:
        raise ValueError(
            f"{str(file)!r} has format version {shown(version)}, written by body_transformer "
            f"{content.get('package_version')!r}; this is {__version__}, which reads versions up to {VERSION}"
        )
    for key in content:
        if key not in _KEYS:
            raise ValueError(f"{str(file)!r}: {unknown('key', key, _KEYS)}")
    return content


def description_digest(content: Mapping[str, Any]) -> str:
    """Return the digest of policy.json that the weights' metadata hold."""
    return json_digest({key: value for key, value in content.items() if key not in LATER_KEYS})
