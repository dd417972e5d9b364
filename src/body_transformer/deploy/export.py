"""Export a policy: add its network as policy.onnx, and the contract that a robot's computer needs, to its folder."""

from __future__ import annotations

import copy
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..body.compare import check_same
from ..errors import listing
from ..experiment import SUFFIXES, Experiment, experiment_names, load_experiment
from ..files import new_folder
from ..model.policy import Policy
from ..policy_folder import DESCRIPTION, MODEL, ROBOT, WEIGHTS, PolicyFolder, find_policy, read_description
from ..rl.config import RlConfig
from ..run import Run, experiment_of, without_place
from ..schema import build, plain
from .config import Sections, contract_sections, unsourced
from .contract import Checks, Contract, TrainingRecord
from .control import Control
from .onnx_file import Exporter, frozen, to_onnx
from .policy import TOLERANCE, OnnxPolicy, check_agreement, deviation
from .session import INPUT, OUTPUT, open_session

NUM_RANDOM = 8
MARGIN = 4
"""The rounding of single precision must be smaller than TOLERANCE by this factor."""
NUM_NEAR = 6
"""Neighbours of an observation at which the rounding is measured, too."""
LARGE = tuple(10.0**k for k in range(6, 0, -1))
"""Sizes of large observations in standard deviations, the largest first."""
DENORMAL = 1e-40


@dataclass(frozen=True)
class Trained:
    """A policy, with the record of its training."""

    policy: Policy
    experiment: str | None
    """Name of its experiment, which may be another package's task; None if it is not known."""
    training: TrainingRecord = field(default_factory=TrainingRecord)
    sections: Sections | None = None
    """Parts of the contract from the task's environment or an earlier export; None: those of the experiment's `deploy`
    section."""


@dataclass(frozen=True)
class Exported:
    """A written export."""

    folder: Path
    contract: Contract
    deviation: float
    """Largest deviation of ONNX from PyTorch over the check vectors."""


def find_trained(source: str | os.PathLike[str], experiment: str | None = None) -> Trained:
    """Load a policy that `find_policy` finds, with its training record; `experiment` replaces the recorded name."""
    found = find_policy(source)
    name = experiment or experiment_of(found)
    sections = None if experiment or name in experiment_names() else _exported_sections(found.path)
    return Trained(Policy.load(found.path), name, training_record(found), sections)


def _exported_sections(folder: Path) -> Sections | None:
    """Return the sections that an earlier export wrote, without later edits; None if it wrote no control.

    Its contract names the experiment, but not the file of a user's experiment.
    """
    if "contract" not in read_description(folder):
        return None
    contract, robot = Contract.read(folder), folder / ROBOT
    if contract.control is None or contract.exported is None:
        return None
    return Sections(
        contract.obs,
        build(Control, plain(contract.control) | contract.exported, "control"),
        contract.training.kp,
        contract.training.kd,
        contract.environment,
        robot.read_text(encoding="utf-8") if contract.robot_sha256 and robot.is_file() else None,
    )


def training_record(found: PolicyFolder) -> TrainingRecord:
    """Return the known facts of a policy's training."""
    if found.pretrained is not None:
        return _card(found.path / "card.md")
    if found.run is None:
        contract = read_description(found.path).get("contract") or {}
        return build(TrainingRecord, contract.get("training", {}), "training")
    described = Run.open(found.run).description()
    steps = found.step
    if steps is not None and "rl" in described:
        config = RlConfig.from_run(described["rl"])
        steps *= config.num_envs * config.num_steps_per_env
    return TrainingRecord(
        command=without_place(described["command"]) if described.get("command") else None,
        commit=described.get("git_commit"),
        package_version=described.get("package_version"),
        date=described.get("date"),
        seed=described.get("seed"),
        steps=steps,
    )


def export(trained: Trained, out: str | os.PathLike[str], exporter: Exporter = "torchscript") -> Exported:
    """Write the folder `out`, complete or not at all; an earlier export there is replaced.

    ONNX and PyTorch are compared on the check vectors, by the class that runs the policy on the robot.
    """
    out = Path(out).resolve()
    _check_place(out)
    policy = frozen(trained.policy)
    name = trained.experiment
    if name is not None and (name in experiment_names() or name.endswith(SUFFIXES)):  # not another package's task
        known = load_experiment(name)
        check_same(policy.layout, known.layout(), ("policy", f"experiment {known.name!r}"))
        sections = trained.sections or sections_of(policy, known)
        trained = replace(trained, experiment=known.name, sections=sections)
    model = to_onnx(policy, exporter)
    contract = make_contract(policy, trained, model)
    with new_folder(out) as unfinished:
        policy.save(unfinished)
        (unfinished / MODEL).write_bytes(model)
        if trained.sections is not None and trained.sections.robot is not None:
            (unfinished / ROBOT).write_bytes(trained.sections.robot.encode())  # the bytes of the digest
        contract.save(unfinished)
        off = max(OnnxPolicy(unfinished, verify=False).verify(), _as_one_batch(model, contract))
    return Exported(out, contract, off)


def make_contract(policy: Policy, trained: Trained, model: bytes) -> Contract:
    """Return the contract of this policy and its network; without sections no robot can run it."""
    obs, actions = check_vectors(policy)
    sections = trained.sections or Sections(tuple(map(unsourced, policy.layout.obs)))
    training = replace(
        trained.training, variant=policy.config.variant, kp=sections.training_kp, kd=sections.training_kd
    )
    return Contract.make(
        trained.experiment,
        sections.obs,
        sections.control,
        policy.layout,
        Checks(tuple(map(tuple, obs.tolist())), tuple(map(tuple, actions.tolist()))),
        model,
        training,
        sections.environment,
        sections.robot,
    )


def sections_of(policy: Policy, experiment: Experiment) -> Sections | None:
    """Return the contract's parts from the experiment's `deploy` section; None if there is none."""
    if experiment.deploy is None:
        return None
    bound = 1.0 if policy.config.squash == "tanh" else None
    return contract_sections(experiment.deploy, experiment.robot.model_file(), policy.layout, bound)


def _as_one_batch(model: bytes, contract: Contract) -> float:
    """Compare the check vectors as one batch, which shows that the network takes any batch size."""
    session = open_session(model, MODEL)
    (actions,) = session.run([OUTPUT], {INPUT: np.array(contract.checks.obs, np.float32)})
    return check_agreement(actions, np.array(contract.checks.actions, np.float32))


def _check_place(out: Path) -> None:
    """Refuse a place that holds anything but an earlier export."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{str(out)!r} is a file, an export is a folder: name another --out")
    present = {entry.name for entry in out.iterdir()} if out.is_dir() else set()
    if present and not ({MODEL, DESCRIPTION} <= present <= {MODEL, DESCRIPTION, WEIGHTS, ROBOT}):
        raise ValueError(
            f"{str(out)!r} is not empty: name another --out, or empty it; it holds {listing(sorted(present))}"
        )


def _card(file: Path) -> TrainingRecord:
    """Read the facts of the training from a shipped policy's card."""
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    lines = dict(re.findall(r"^- ([a-z ]+): (.+)$", text, re.MULTILINE))
    package, _, commit = lines.get("package", "").partition(", commit ")
    seed, steps = (lines.get(line, "").replace(",", "") for line in ("seed", "environment steps"))
    return TrainingRecord(
        command=lines.get("command", "").strip("`") or None,
        commit=commit or None,
        package_version=package or None,
        date=lines.get("date"),
        seed=int(seed) if seed.isdigit() else None,
        steps=int(steps) if steps.isdigit() else None,
    )


# -- check vectors: random observations, and the extremes of the number format -----------------------------------------


def check_vectors(policy: Policy, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return observations [K, O] and the policy's actions [K, A], which every correct computation must reproduce.

    At large observations single precision itself may not determine an action to 1e-5: the terms of a sum cancel, or two
    scores of a softmax are nearly equal. A deviation there is not an error of the network, so a smaller observation is
    taken.
    """
    exact = copy.deepcopy(policy).double()
    wanted = _candidates(policy, seed)
    rows = []
    for candidates in wanted:
        suitable = np.flatnonzero(rounding(policy, exact, candidates) <= TOLERANCE / MARGIN)
        rows += [candidates[k] for k in suitable[:1]]
    if 2 * len(rows) < len(wanted):
        raise ValueError(
            f"this policy's actions are not finite, or single precision does not determine them: of {len(wanted)} "
            f"observations only {len(rows)} give an action that is certain to {TOLERANCE / MARGIN:.0e}"
        )
    obs = torch.stack(rows)
    with torch.no_grad():
        return obs, policy(obs)


def rounding(policy: Policy, exact: Policy, obs: Tensor) -> NDArray[np.float64]:
    """Return the deviation [K] of single from double precision in PyTorch; `exact` is the policy in double precision.

    Neighbours of each observation count, too, because a single one may be exact by chance.
    """
    signs = torch.randint(2, (NUM_NEAR, 1, obs.shape[1]), generator=torch.Generator().manual_seed(0)) * 2.0 - 1
    near = torch.cat([obs[None], obs.nextafter(torch.inf * signs)]).flatten(0, 1)
    with torch.no_grad():
        apart = deviation(policy(near).numpy(), exact(near.double()).numpy())
    worst: NDArray[np.float64] = apart.reshape(1 + NUM_NEAR, len(obs)).max(0)
    return worst


def _candidates(policy: Policy, seed: int) -> list[Tensor]:
    """Return the candidates for each check vector, [1, O] or [len(LARGE), O]; the first suitable one is taken.

    Single candidates are zeros, the mean, denormal numbers, the bounds of the normalised observation, and random
    observations as in training. Each of five directions has candidates of the sizes LARGE.
    """
    shift, scale, bound = policy.normalizer.shift, policy.normalizer.scale, policy.normalizer.clip or 5.0
    noise = torch.randn(NUM_RANDOM, policy.obs_dim, generator=torch.Generator().manual_seed(seed))
    signs = torch.randint(2, (2, policy.obs_dim), generator=torch.Generator().manual_seed(seed + 1)) * 2.0 - 1
    ones, alternating = torch.ones(policy.obs_dim), 1.0 - 2.0 * (torch.arange(policy.obs_dim) % 2)
    single = [torch.zeros_like(shift), shift, DENORMAL * alternating]
    single += [shift + side * bound * scale for side in (1, -1, alternating)]
    single += [shift + scale * row for row in noise]
    sizes = torch.tensor(LARGE)[:, None]
    large = [shift + scale * sizes * side for side in (ones, -ones, alternating, *signs)]
    return [row[None] for row in single] + large
