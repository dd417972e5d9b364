"""Checkpoints: a policy and all that its training needs to go on as if it had never stopped.

`checkpoints/<step>/` holds the policy's two files and `training_state.safetensors` + `.json`. It is written aside and
renamed, so that a folder with a number for a name is whole; `checkpoints/last` links to the newest. Nothing is ever
unpickled.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import uuid
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from .model.policy import Policy

FOLDER, LAST = "checkpoints", "last"
TENSORS, VALUES = "training_state.safetensors", "training_state.json"


@dataclass(frozen=True)
class TrainingState:
    """What an optimiser and a loop remember: tensors, and values that JSON can hold exactly."""

    tensors: Mapping[str, Tensor]
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Checkpoint:
    """What was read from disk."""

    step: int
    path: Path
    policy: Policy
    state: TrainingState


def save_checkpoint(run: Path, step: int, policy: Policy, state: TrainingState, keep: int = 2) -> Path:
    """Writes checkpoints/<step>, points `last` at it and removes all but the newest `keep`.

    Later ones are removed too: whoever comes to this step with those on disk could not read them and went back.
    """
    parent = run / FOLDER
    path = parent / str(step)
    parent.mkdir(parents=True, exist_ok=True)
    aside = parent / f".{step}.{uuid.uuid4().hex[:8]}"
    old = aside.with_name(f"{aside.name}.old")
    try:
        policy.save(aside)
        _write_state(aside, state)
        if path.exists():  # a run that was resumed came by here again
            os.replace(path, old)
        os.replace(aside, path)
        _point_at(parent, path.name)
    except (OSError, SafetensorError) as error:  # safetensors has an error of its own for a full disk
        newest = _steps(parent)[-1:]
        kept = f"the newest whole one is {parent / str(newest[0])}" if newest else "there is no earlier one"
        number, why = (error.errno, error.strerror) if isinstance(error, OSError) else (errno.EIO, None)
        raise OSError(number, f"cannot write the checkpoint {path}: {why or error}; {kept}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
    there = _steps(parent)
    place = there.index(step) + 1
    for other in (*there[: max(0, place - keep)], *there[place:]):
        shutil.rmtree(parent / str(other), ignore_errors=True)
    return path


def newest_checkpoint(run: Path) -> Checkpoint | None:
    """The newest that can be read; of those that cannot, a warning says why. None if there is none at all."""
    parent = run / FOLDER
    broken = []
    for step in reversed(_steps(parent)):
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
    """The newest, without reading it."""
    steps = _steps(run / FOLDER)
    return run / FOLDER / str(steps[-1]) if steps else None


def policy_folder(path: str | os.PathLike[str]) -> Path:
    """Where the policy is in a run's folder, or in a folder that `Policy.save` wrote."""
    path = Path(path)
    if (path / "policy.json").is_file():
        return path
    newest = newest_path(path)
    if newest is None:
        raise FileNotFoundError(f"no policy in {str(path)!r}: neither policy.json nor {FOLDER}/ is there")
    return newest


def _steps(parent: Path) -> list[int]:
    return sorted(int(entry.name) for entry in parent.iterdir() if entry.name.isdigit()) if parent.is_dir() else []


def _point_at(parent: Path, name: str) -> None:
    link = parent / f".{LAST}.{uuid.uuid4().hex[:8]}"
    link.symlink_to(name)
    os.replace(link, parent / LAST)


def _write_state(folder: Path, state: TrainingState) -> None:
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.tensors.items()}
    save_file(tensors, folder / TENSORS)
    content = {"values": state.values, "tensors_sha256": _digest(folder / TENSORS)}
    (folder / VALUES).write_text(json.dumps(content, indent=1) + "\n")
    for file in (folder / TENSORS, folder / VALUES, folder):
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def _read_state(folder: Path) -> TrainingState:
    try:
        content = json.loads((folder / VALUES).read_text())
        if _digest(folder / TENSORS) != content["tensors_sha256"]:
            raise ValueError(f"{TENSORS} is not the file that {VALUES} was written with: truncated, changed or swapped")
        return TrainingState(load_file(folder / TENSORS), content["values"])
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, SafetensorError) as error:
        raise ValueError(f"its training state is not whole: {error!r}") from None


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
