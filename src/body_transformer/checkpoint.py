"""Checkpoints: a policy and everything its training needs to continue as if it had never stopped.

`checkpoints/<step>/` holds the policy's files, `training_state.safetensors` and `training_state.json`. A checkpoint is
written under a temporary name and renamed, so a folder named by a number is complete. `checkpoints/last` links to the
newest. Nothing is unpickled.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from .documents import read_json
from .files import atomic_write, digest, new_folder
from .model.policy import Policy
from .model.tensor_files import read_tensors, write_tensors
from .policy_folder import CHECKPOINTS, saved_steps
from .schema import build

LAST = "last"
TENSORS, VALUES = "training_state.safetensors", "training_state.json"


@dataclass(frozen=True)
class TrainingState:
    """State of an optimiser and a training loop: tensors, and values that JSON holds exactly."""

    tensors: Mapping[str, Tensor]
    values: Mapping[str, Any]


@dataclass(frozen=True)
class _StateFile:
    """Content of training_state.json."""

    values: Mapping[str, Any]
    tensors_sha256: str


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint, read from disk."""

    step: int
    path: Path
    policy: Policy
    state: TrainingState


def save_checkpoint(run: Path, step: int, policy: Policy, state: TrainingState, keep: int = 2) -> Path:
    """Write checkpoints/<step>, point `last` at it and remove all but the newest `keep`.

    Checkpoints of later steps are removed too: a run repeats a step only if their files could not be read.
    """
    parent = run / CHECKPOINTS
    path = parent / str(step)
    try:
        with new_folder(path) as unfinished:
            policy.save(unfinished)
            _write_state(unfinished, state)
        atomic_write(parent / LAST, lambda link: link.symlink_to(path.name))
    except OSError as error:
        newest = newest_path(run)
        kept = f"the newest complete one is {newest}" if newest else "there is no earlier one"
        raise OSError(f"cannot write the checkpoint {path}: {error.strerror or error}; {kept}") from error
    steps = saved_steps(run)
    place = steps.index(step) + 1
    for other in (*steps[: max(0, place - keep)], *steps[place:]):
        shutil.rmtree(parent / str(other), ignore_errors=True)
    return path


def newest_checkpoint(run: Path) -> Checkpoint | None:
    """Return the newest readable checkpoint, with a warning per unreadable one; None if the run has no checkpoint."""
    parent = run / CHECKPOINTS
    broken = []
    for step in reversed(saved_steps(run)):
        path = parent / str(step)
        try:
            return Checkpoint(step, path, Policy.load(path), _read_state(path))
        except (ValueError, OSError) as error:
            broken.append(path)
            warnings.warn(f"checkpoint {path} cannot be used: {error}", stacklevel=2)
    if broken:
        raise ValueError(f"no checkpoint in {parent} can be used; tried {', '.join(str(path) for path in broken)}")
    return None


def newest_path(run: Path) -> Path | None:
    """Return the newest checkpoint's folder, without reading it."""
    steps = saved_steps(run)
    return run / CHECKPOINTS / str(steps[-1]) if steps else None


def _write_state(folder: Path, state: TrainingState) -> None:
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.tensors.items()}
    write_tensors(folder / TENSORS, tensors)
    content = {"values": state.values, "tensors_sha256": digest(folder / TENSORS)}
    (folder / VALUES).write_text(json.dumps(content, indent=1) + "\n")


def _read_state(folder: Path) -> TrainingState:
    try:
        content = build(_StateFile, read_json(folder / VALUES, strict=False))
    except ValueError as error:
        raise ValueError(f"its training state is not complete: {error}") from None
    if digest(folder / TENSORS) != content.tensors_sha256:
        raise ValueError(f"{TENSORS} is not the file that {VALUES} was written with: truncated, changed or swapped")
    tensors, _ = read_tensors(folder / TENSORS)
    return TrainingState(tensors, content.values)
