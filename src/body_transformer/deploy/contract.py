"""The contract: everything that a robot's computer needs besides the policy's network.

It is a section of the exported policy's `policy.json`, beside `policy.onnx`. The first errors on a robot are wrong
orders and conventions, so the contract records both. A file that does not match it is refused with the reason. Neither
PyTorch nor MuJoCo is needed.

The training fixes `obs` and a part of `control` (FIXED). The rest (TUNABLE) may be edited in policy.json for a robot,
but limits can only be tightened. `trained_sha256` covers the fixed part and `exported`, a copy of the tunable part as
`bot export` wrote it.
"""

from __future__ import annotations

import hashlib
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..body.layout import Layout
from ..errors import listing
from ..files import atomic_write
from ..policy_folder import DESCRIPTION, MODEL, ROBOT, find_policy, read_description
from ..schema import build, json_digest, json_text, plain, shown
from ..size_limits import read_at_most
from .control import JOINT_SOURCES, ContractTerm, Control, Environment
from .limits import Hardware, hardware_of

MAX_BYTES = 2**28
"""Largest file of an export that is read: a network with 67 million weights, slower than any robot's period."""
FIXED = ("kind", "hz", "joints", "scale", "offset", "clip", "torque_clip", "default_pose")
"""Parts of the control that cannot be edited, as the observation cannot."""
TUNABLE = ("kp", "kd", "position_limits", "velocity_limits", "torque_limits", "filter", "command")
"""Parts of the control that may be set for a robot."""


@dataclass(frozen=True)
class Checks:
    """The actions of the policy in PyTorch for some observations, random and extreme."""

    obs: tuple[tuple[float, ...], ...]
    """[K][O]"""
    actions: tuple[tuple[float, ...], ...]
    """[K][A]"""


@dataclass(frozen=True)
class TrainingRecord:
    """Origin of a policy; None where it is not known."""

    command: str | None = None
    commit: str | None = None
    package_version: str | None = None
    date: str | None = None
    variant: str | None = None
    seed: int | None = None
    steps: int | None = None
    kp: tuple[float, ...] | None = None
    """[A], Nm/rad, in the training."""
    kd: tuple[float, ...] | None = None
    """[A], Nm s/rad."""


@dataclass(frozen=True)
class Contract:
    """The contract, as policy.json has it; `make` fills in the digests."""

    experiment: str | None
    """Name of the experiment that trained the policy; None if it is not known."""
    obs: tuple[ContractTerm, ...]
    """The observation, in its order."""
    control: Control | None
    """None if the experiment has no `deploy` section, so that no robot can run the policy."""
    exported: dict[str, Any] | None
    """The TUNABLE keys of the control as `bot export` wrote them; None without a control."""
    trained_sha256: str
    """Digest of the fixed part and of `exported`; a file in which it differs is refused."""
    layout_sha256: str
    """Digest of the policy's layout, which policy.json has outside the contract."""
    training: TrainingRecord
    checks: Checks
    """Observations and actions that the runtime compares before it moves a robot."""
    model_sha256: str
    """Digest of the file policy.onnx; in policy.json it is outside the contract."""
    environment: Environment = field(default_factory=Environment)
    """Facts about the training environment, which cannot be edited."""
    robot_sha256: str | None = None
    """Digest of robot.xml, the robot's model; None, and not in the file, if no model travels with the policy."""

    def __post_init__(self) -> None:
        rows = len(self.checks.obs)
        if rows < 1 or len(self.checks.actions) != rows:
            raise ValueError(
                f"checks must have as many actions as obs, 1 or more; got {rows} and {len(self.checks.actions)}"
            )
        for name, dim in (("obs", self.obs_dim), ("actions", self.action_dim)):
            for k, row in enumerate(getattr(self.checks, name)):
                if len(row) != dim:
                    raise ValueError(f"checks.{name}[{k}] must have {dim} entries; got {len(row)}")

    @property
    def hardware(self) -> Hardware | None:
        """The known hardware that the contract is for."""
        return None if self.control is None else hardware_of(self.control.joints, self.environment.robot)

    @property
    def obs_dim(self) -> int:
        return sum(term.width for term in self.obs)

    @property
    def action_dim(self) -> int:
        return len(self.checks.actions[0])

    @classmethod
    def make(
        cls,
        experiment: str | None,
        obs: tuple[ContractTerm, ...],
        control: Control | None,
        layout: Layout,
        checks: Checks,
        model: bytes,
        training: TrainingRecord | None = None,
        environment: Environment | None = None,
        robot: str | None = None,
    ) -> Contract:
        """Make the contract of an export, with its digests; `robot` is the content of robot.xml."""
        environment = environment or Environment()
        exported = _part(control, TUNABLE)
        contract = cls(
            experiment,
            obs,
            control,
            exported,
            _trained_digest(obs, control, exported, environment),
            json_digest(layout.to_dict()),
            training or TrainingRecord(),
            checks,
            hashlib.sha256(model).hexdigest(),
            environment,
            None if robot is None else hashlib.sha256(robot.encode()).hexdigest(),
        )
        contract.check_layout(layout.to_dict())
        return contract

    # -- the file ------------------------------------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the contract into the policy.json of a saved policy."""
        content = read_description(Path(folder))
        section = plain(replace(self, model_sha256=""))
        del section["model_sha256"]
        if self.robot_sha256 is None:
            del section["robot_sha256"]
        content |= {"contract": section, "model_sha256": self.model_sha256}
        atomic_write(Path(folder) / DESCRIPTION, json_text(content) + "\n")

    @classmethod
    def load(cls, source: str | os.PathLike[str]) -> Contract:
        """Read the contract, and check that policy.onnx beside it is the file it was written with."""
        contract = cls.read(source)
        contract.model(source)
        return contract

    @classmethod
    def read(cls, source: str | os.PathLike[str]) -> Contract:
        """Read an exported policy's contract; refuse an invalid or inconsistent file, and warn of edits."""
        folder = find_policy(source).path
        content = read_description(folder)
        if "contract" not in content:
            raise ValueError(_not_exported(source, "its policy.json has no contract"))
        file, section = folder / DESCRIPTION, content["contract"]
        try:
            if not isinstance(section, Mapping):
                raise ValueError(f"contract must be a mapping of keys to values; got {shown(section)}")
            if "model_sha256" in section:
                raise ValueError("contract: unknown key 'model_sha256'; it belongs outside the contract")
            older = {"environment": plain(Environment()), "robot_sha256": None}
            given = {**older, **section, "model_sha256": content.get("model_sha256")}
            contract = build(cls, given, complete=True)
            contract.check_layout(content["policy"]["layout"])
            contract.check_edits()
        except (KeyError, TypeError) as error:
            raise ValueError(f"{str(file)!r} does not describe a policy: {error!r}") from None
        except ValueError as error:
            raise ValueError(f"{str(file)!r}: {error}") from None
        robot = folder / ROBOT
        if contract.robot_sha256 is not None and robot.is_file():  # a robot's computer does not need it
            _read(robot, contract.robot_sha256)
        if edits := contract.edits():
            warnings.warn(f"{str(file)!r} was edited since its export: {'; '.join(edits)}", stacklevel=1)
        return contract

    def model(self, source: str | os.PathLike[str]) -> bytes:
        """Return the content of policy.onnx; refuse it if it is not this contract's network."""
        file = find_policy(source).path / MODEL
        if not file.is_file():
            raise FileNotFoundError(_not_exported(source, f"{MODEL} is missing"))
        return _read(file, self.model_sha256)

    # -- checks --------------------------------------------------------------------------------------------------------

    def check_layout(self, data: Mapping[str, Any]) -> None:
        """Refuse a layout, in the form of `Layout.to_dict`, that is not the contract's."""
        layout = Layout.from_dict(data)
        if self.layout_sha256 != json_digest(data):
            raise ValueError("layout_sha256 is not the digest of the policy's layout: one of them was changed")
        terms, have = [(term.name, term.size) for term in layout.obs], [(term.name, term.width) for term in self.obs]
        if have != terms:
            raise ValueError(f"obs must have the layout's terms, {terms}; got {have}")
        if self.control is not None:
            _check_control(self.control, self.obs, layout)
            self.environment.check_command(self.control.command)

    def check_edits(self) -> None:
        """Refuse changes of the fixed part, widened limits, and values beyond a known robot's hardware."""
        if set(self.exported or ()) != (set() if self.control is None else set(TUNABLE)):
            raise ValueError(
                f"exported must have the keys {listing(TUNABLE)}, or be null where control is; got "
                f"{listing(self.exported or ())}"
            )
        if self.trained_sha256 != _trained_digest(self.obs, self.control, self.exported, self.environment):
            raise ValueError(
                f"trained_sha256 is not the digest of the fixed part (obs; {', '.join(FIXED)} of control; environment) "
                "and of exported: one of them was changed since the export"
            )
        if self.control is None or self.exported is None:
            return
        _check_tightened(plain(self.control), self.exported)
        if self.hardware is not None:
            self.hardware.check(self.control)

    def edits(self) -> tuple[str, ...]:
        """Return a text per edited key of the control, such as `kp 50.0 (exported: 100.0)`."""
        if self.control is None or self.exported is None:
            return ()
        control = plain(self.control)
        return tuple(
            f"{name} {_brief(control[name])} (exported: {_brief(self.exported[name])})"
            for name in TUNABLE
            if control[name] != self.exported[name]
        )


def _read(file: Path, sha256: str) -> bytes:
    """Return a file's content; refuse another content than that of the export, and a file beyond MAX_BYTES."""
    content = read_at_most(file, MAX_BYTES, "a file of an export")
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ValueError(
            f"{str(file)!r} is not the file that {DESCRIPTION} was written with: truncated, changed or swapped"
        )
    return content


def _not_exported(source: str | os.PathLike[str], why: str) -> str:
    name = os.fspath(source)
    return f"no exported policy in {name!r}: {why}; `bot export {name} --out DIR` exports it"


def _trained_digest(
    obs: Sequence[ContractTerm], control: Control | None, exported: Mapping[str, Any] | None, environment: Environment
) -> str:
    fixed = {"control": _part(control, FIXED), "exported": exported, "obs": plain(tuple(obs))}
    known = {} if environment == Environment() else {"environment": plain(environment)}  # older exports have none
    return json_digest({**fixed, **known})


def _part(control: Control | None, names: Sequence[str]) -> dict[str, Any] | None:
    """Return the named values of a control as JSON has them."""
    return None if control is None else {name: plain(getattr(control, name)) for name in names}


def _check_control(control: Control, obs: Sequence[ContractTerm], layout: Layout) -> None:
    parts = [(term.kind, part) for term in layout.actions for part in term.of]
    graph, names = layout.graph, tuple(part for _, part in parts)
    nodes = [{"joints": graph.joints, "actuators": graph.actuators}.get(kind, {}).get(part) for kind, part in parts]
    is_same = all(
        kind == "actuators" or part == joint for (kind, part), joint in zip(parts, control.joints, strict=False)
    )
    if [graph.joints.get(joint) for joint in control.joints] != nodes or not is_same or layout.action_dim != len(parts):
        raise ValueError(f"control.joints must be the layout's, in its order: {names}; got {control.joints}")
    owners = {term.name: term.of for term in layout.obs if term.kind in ("joints", "actuators")}
    for term in obs:
        allowed = (control.joints, names) if term.source == "previous_action" else (control.joints,)
        if term.source in JOINT_SOURCES and owners.get(term.name) not in allowed:
            raise ValueError(
                f"obs term {term.name!r} must be of the actuated joints, in their order; its source is {term.source}"
            )
        if term.source == "command" and term.size != len(control.command):
            raise ValueError(
                f"obs term {term.name!r} takes {term.size} entries; the command has {len(control.command)}"
            )


def _check_tightened(control: Mapping[str, Any], exported: Mapping[str, Any]) -> None:
    """Refuse a limit that is wider than at the export."""
    for name in ("position_limits", "velocity_limits", "torque_limits"):
        for joint, now, then in zip(control["joints"], control[name], exported[name], strict=True):
            if any(wide > allowed for wide, allowed in zip(_extents(now), _extents(then), strict=True)):
                raise ValueError(
                    f"control.{name} of {joint!r} is {now}; exported was {then}, and a limit can only be tightened"
                )


def _extents(limit: Any) -> list[float]:
    """Return a number per bound of a limit, larger for a wider bound; null is infinity."""
    if isinstance(limit, list):
        low, high = limit
        return [math.inf if low is None else -low, *_extents(high)]
    return [math.inf if limit is None else limit]


def _brief(value: Any) -> str:
    """Return the value as text; a list of equal entries as one entry."""
    if isinstance(value, list) and value and all(entry == value[0] for entry in value):
        return str(value[0])
    return shown(value)
