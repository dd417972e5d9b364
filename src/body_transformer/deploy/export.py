"""A trained policy becomes a folder for a robot: policy.onnx and its contract, policy.json."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import pretrained
from ..body.compare import check_same
from ..checkpoint import policy_folder
from ..errors import listing
from ..experiment import Experiment, experiment_names, load_experiment
from ..files import replace_folder, sync
from ..model.policy import Policy
from ..rl.config import RlConfig
from ..run import DESCRIPTION as EXPERIMENT_FILE
from ..run import Run, without_place
from ..schema import plain
from .check_vectors import check_vectors
from .contract import DESCRIPTION, MODEL, TRAINING, VERSION, Checks, Contract, layout_digest
from .control import control, obs_terms, training_gains
from .onnx_file import Exporter, frozen, to_onnx
from .policy import INPUT, OUTPUT, OnnxPolicy, check_agreement, open_session
from .sealed import trained_digest, tunable


@dataclass(frozen=True)
class Trained:
    """A policy, and what is known of it."""

    policy: Policy
    experiment: str
    """Its name, which may be one of another package's tasks."""
    training: Mapping[str, Any]
    """Some of the contract's keys of that name."""


@dataclass(frozen=True)
class Exported:
    """What was written."""

    folder: Path
    contract: Contract
    deviation: float
    """How far ONNX was off at most, over the check vectors."""


def find_trained(source: str | os.PathLike[str]) -> Trained:
    """A run's newest policy, a checkpoint of a run, or pretrained:NAME."""
    name = os.fspath(source)
    if name.startswith(pretrained.PREFIX):
        folder = pretrained.path(name.removeprefix(pretrained.PREFIX))
        return Trained(Policy.load(folder), pretrained.task(folder.name), _card(folder / "card.md"))
    folder = Path(source).resolve()
    run = Run.open(folder.parents[1] if _is_checkpoint(folder) else folder)
    folder = policy_folder(folder)
    found = run.description()
    steps = int(folder.name) if folder.name.isdigit() else None
    if steps is not None and "rl" in found:
        config = RlConfig.from_dict(found["rl"])
        steps *= config.num_envs * config.num_steps
    about = {
        "command": without_place(found["command"]) if found.get("command") else None,
        "commit": found.get("git_commit"),
        "package_version": found.get("package_version"),
        "date": found.get("date"),
        "seed": found.get("seed"),
        "steps": steps,
    }
    if "name" not in found:
        raise ValueError(f"{str(run.folder)!r} does not say what was run: {EXPERIMENT_FILE} has no 'name'")
    return Trained(Policy.load(folder), str(found["name"]), about)


def export(trained: Trained, out: str | os.PathLike[str], exporter: Exporter = "torchscript") -> Exported:
    """Writes the folder `out`, whole or not at all; an earlier export there is replaced.

    ONNX and PyTorch are compared on the check vectors, by the class that runs the policy on the robot.
    """
    out = Path(out).resolve()
    _check_place(out)
    policy = frozen(trained.policy)
    known = load_experiment(trained.experiment) if trained.experiment in experiment_names() else None
    if known is not None:
        check_same(policy.layout, known.layout(), ("policy", f"experiment {known.name!r}"))
    model = to_onnx(policy, exporter)
    contract = make_contract(policy, trained, known, model)
    out.parent.mkdir(parents=True, exist_ok=True)
    aside = out.parent / f".{out.name}.{uuid.uuid4().hex[:8]}"
    aside.mkdir()
    try:
        (aside / MODEL).write_bytes(model)
        contract.save(aside)
        off = max(OnnxPolicy(aside, verify=False).verify(), _as_one_batch(model, contract))
        for file in (aside / MODEL, aside / DESCRIPTION, aside):
            sync(file)
        replace_folder(aside, out)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return Exported(out, contract, off)


def make_contract(policy: Policy, trained: Trained, experiment: Experiment | None, model: bytes) -> Contract:
    """What a robot must know of this policy and its file."""
    layout = policy.layout
    kp, kd = (None, None) if experiment is None else training_gains(experiment, layout)
    about = {"variant": policy.config.variant, "kp": kp, "kd": kd}
    data = layout.to_dict()
    obs, actions = check_vectors(policy)
    bound = 1.0 if policy.config.squash == "tanh" else None
    terms = obs_terms(layout, experiment)
    steering = None if experiment is None else control(experiment, layout, bound)
    exported = tunable(plain(steering))
    return Contract(
        version=VERSION,
        experiment=trained.experiment,
        obs=terms,
        control=steering,
        exported=exported,
        trained_sha256=trained_digest(plain(terms), plain(steering), exported),
        graph=data["graph"],
        layout=data,
        layout_sha256=layout_digest(data["graph"], data),
        model_sha256=hashlib.sha256(model).hexdigest(),
        training=dict.fromkeys(TRAINING) | dict(trained.training) | about,
        checks=Checks(tuple(map(tuple, obs.tolist())), tuple(map(tuple, actions.tolist()))),
    )


def _as_one_batch(model: bytes, contract: Contract) -> float:
    """The check vectors all at once: the file takes any batch size."""
    session = open_session(model, MODEL)
    (actions,) = session.run([OUTPUT], {INPUT: np.array(contract.checks.obs, np.float32)})
    return check_agreement(actions, np.array(contract.checks.actions, np.float32))


def _check_place(out: Path) -> None:
    """Free, or an earlier export: nothing that somebody else wants to keep."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{str(out)!r} is a file, an export is a folder: name another --out")
    there = {entry.name for entry in out.iterdir()} if out.is_dir() else set()
    if there and (there != {MODEL, DESCRIPTION}):
        raise ValueError(
            f"{str(out)!r} is not empty: name another --out, or empty it; it holds {listing(sorted(there))}"
        )


def _is_checkpoint(folder: Path) -> bool:
    return folder.parent.name == "checkpoints" and (folder / DESCRIPTION).is_file()


def _card(file: Path) -> dict[str, Any]:
    """What a shipped policy's card says of its training."""
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    lines = dict(re.findall(r"^- ([a-z ]+): (.+)$", text, re.MULTILINE))
    package, _, commit = lines.get("package", "").partition(", commit ")
    numbers = {
        key: lines.get(line, "").replace(",", "") for key, line in (("seed", "seed"), ("steps", "environment steps"))
    }
    return {
        "command": lines.get("command", "").strip("`") or None,
        "commit": commit or None,
        "package_version": package or None,
        "date": lines.get("date"),
        **{key: int(value) if value.isdigit() else None for key, value in numbers.items()},
    }
