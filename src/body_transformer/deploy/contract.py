"""The contract: all that a robot's computer must know of a policy beside its network.

`policy.json` stands beside `policy.onnx`. What fails first on a robot is order and convention, so both are written down
here, and what does not fit is refused with the reason. Neither PyTorch nor MuJoCo is needed.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..body.layout import Layout
from ..errors import listing
from ..files import atomic_write
from ..schema import High, Low, build, plain, shown
from .document import differences, digest, read_json, to_text
from .hardware import hardware_of
from .sealed import FIXED, TUNABLE, check_tightened, edits, trained_digest

DESCRIPTION, MODEL = "policy.json", "policy.onnx"
FORMAT, VERSION = "body_transformer.contract", 3

Source = Literal[
    "", "zeros", "angular_velocity", "projected_gravity", "command", "joint_pos", "joint_vel", "previous_action"
]
Kind = Literal["position", "torque"]
JOINT_SOURCES = ("joint_pos", "joint_vel", "previous_action")
VECTOR_SOURCES = ("angular_velocity", "projected_gravity")
TRAINING = ("command", "commit", "package_version", "date", "variant", "seed", "steps", "kp", "kd")
"""What is said of the training; null where it is not known."""


@dataclass(frozen=True)
class ObsTerm:
    """A run of entries of the observation: clip((measured - offset) * scale)."""

    name: str
    """As in the layout."""
    size: int
    """Entries of one measurement."""
    source: Source
    """What is measured; "" where only the training environment knows it. Joints come in the contract's order."""
    offset: tuple[float, ...]
    """[size], subtracted first."""
    scale: tuple[float, ...]
    """[size]"""
    clip: float | None
    """Bound on the scaled entries, both ways."""
    history: int = 1
    """How many measurements, the oldest first and the newest last, are in the observation."""

    def __post_init__(self) -> None:
        for name in ("size", "history"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be from 1 up; got {getattr(self, name)}")
        for name in ("offset", "scale"):
            if len(getattr(self, name)) != self.size:
                raise ValueError(f"{name} must have {self.size} entries, one an entry; got {len(getattr(self, name))}")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip must be above 0; got {self.clip}")
        if self.source in VECTOR_SOURCES and self.size != 3:
            raise ValueError(f"{self.source} has 3 entries; got {self.size}")

    @property
    def width(self) -> int:
        """Entries of the observation."""
        return self.size * self.history


@dataclass(frozen=True)
class Filter:
    """A low-pass of the targets, at the control rate: Butterworth."""

    order: int
    cutoff_hz: float

    def __post_init__(self) -> None:
        if self.order < 1 or not self.cutoff_hz > 0:
            raise ValueError(f"a filter has an order from 1 up and a cutoff above 0 Hz; got {self}")


@dataclass(frozen=True)
class TorqueClip:
    """A target is cut off where motors with these gains, at the measured state, would be asked for more than this."""

    torque: tuple[float, ...]
    """[A], Nm."""
    kp: tuple[float, ...]
    """[A], Nm/rad: the training's, whatever the robot runs with."""
    kd: tuple[float, ...]
    """[A], Nm s/rad."""

    def __post_init__(self) -> None:
        if not len(self.torque) == len(self.kp) == len(self.kd):
            raise ValueError(f"torque, kp and kd must have one number a joint each; got {self}")
        if not all(value > 0 for value in (*self.torque, *self.kp)) or not all(value >= 0 for value in self.kd):
            raise ValueError(f"torque and kp must be above 0, kd 0 or above; got {self}")


_PER_JOINT = ("scale", "offset", "default_pose", "kp", "kd", "position_limits", "velocity_limits", "torque_limits")


@dataclass(frozen=True)
class Control:
    """What becomes of an action: target = offset + scale * clip(action), cut off by `torque_clip`; in the order of
    `joints`."""

    kind: Kind
    """Whether the target is a position for the joint's controller, or a torque."""
    hz: float
    """Actions a second."""
    joints: tuple[str, ...]
    """[A] the order of actions, and of everything about joints here."""
    scale: tuple[float, ...]
    """[A]"""
    offset: tuple[float, ...]
    """[A]"""
    clip: float | None
    """Bound on the action, both ways: the experiment's, and 1 at most where the policy squashes its actions."""
    torque_clip: TorqueClip | None
    """As the training did to its targets, before filter and limits."""
    default_pose: tuple[float, ...]
    """[A], rad: where the robot stands before the policy starts."""
    kp: tuple[float, ...]
    """[A], Nm/rad: what the robot runs with; `Contract.training` has those of the training."""
    kd: tuple[float, ...]
    """[A], Nm s/rad."""
    position_limits: tuple[tuple[Low, High], ...]
    """[A] (low, high), rad. Here and below, null in the file is infinity: no limit."""
    velocity_limits: tuple[High, ...]
    """[A], rad/s."""
    torque_limits: tuple[High, ...]
    """[A], Nm."""
    filter: Filter | None
    """Of the targets."""
    command: tuple[float, ...]
    """What the robot is told to do, unless somebody tells it otherwise: forward and sideways m/s, turning rad/s."""

    def __post_init__(self) -> None:
        twice = [name for name, count in Counter(self.joints).items() if count > 1]
        if twice or not self.joints:
            raise ValueError(f"joints must be different ones, at least one; given more than once: {listing(twice)}")
        for name in _PER_JOINT:
            if len(getattr(self, name)) != len(self.joints):
                raise ValueError(
                    f"{name} must have {len(self.joints)} entries, one a joint; got {len(getattr(self, name))}"
                )
        if not self.hz > 0:
            raise ValueError(f"hz must be above 0; got {self.hz}")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip must be above 0; got {self.clip}")
        cut = self.torque_clip
        if cut is not None and (self.kind != "position" or len(cut.kp) != len(self.joints)):
            raise ValueError(f"a torque_clip is of positions, and has {len(self.joints)} joints; got {cut}")
        if self.filter is not None and not self.filter.cutoff_hz < self.hz / 2:
            raise ValueError(f"the filter's cutoff must be below half of {self.hz} Hz; got {self.filter.cutoff_hz} Hz")
        for k, joint in enumerate(self.joints):
            low, high = self.position_limits[k]
            if not low < high:
                raise ValueError(f"position_limits of {joint!r} must be (low, high); got ({low}, {high})")
            if not low <= self.default_pose[k] <= high:
                raise ValueError(f"default_pose of {joint!r} is {self.default_pose[k]}, outside of {low} to {high}")
            for name in ("velocity_limits", "torque_limits"):
                if not getattr(self, name)[k] > 0:
                    raise ValueError(f"{name} of {joint!r} must be above 0; got {getattr(self, name)[k]}")
            for name in ("kp", "kd"):
                if not getattr(self, name)[k] >= 0:
                    raise ValueError(f"{name} of {joint!r} must be 0 or above; got {getattr(self, name)[k]}")


@dataclass(frozen=True)
class Checks:
    """What the policy in PyTorch makes of some observations, random and extreme ones."""

    obs: tuple[tuple[float, ...], ...]
    """[K][O]"""
    actions: tuple[tuple[float, ...], ...]
    """[K][A]"""


@dataclass(frozen=True)
class Contract:
    """What `policy.json` says."""

    version: int
    """Of this format."""
    experiment: str
    """What the policy was trained for."""
    obs: tuple[ObsTerm, ...]
    """The observation, in its order."""
    control: Control | None
    """None where no robot is behind the experiment."""
    exported: dict[str, Any] | None
    """What of the control may be set for a robot, as `bot export` wrote it: the keys of TUNABLE; None without one."""
    trained_sha256: str
    """Of what the training fixed, and of `exported`; `trained_digest` makes it. A file in which it is not that is
    refused."""
    graph: dict[str, Any]
    """The body, as `BodyGraph.to_dict` has it."""
    layout: dict[str, Any]
    """Which node owns which entry, as `Layout.to_dict` has it."""
    layout_sha256: str
    """Of both; `layout_digest` makes it."""
    model_sha256: str
    """Of the file policy.onnx."""
    training: dict[str, Any]
    """Where the policy comes from: the keys of TRAINING."""
    checks: Checks
    """What the runtime tries before it moves a robot."""

    def __post_init__(self) -> None:
        _check_training(self.training)
        layout = Layout.from_dict(self.layout)
        if self.graph != self.layout["graph"]:
            raise ValueError("graph is not the layout's graph")
        if self.layout_sha256 != layout_digest(self.graph, self.layout):
            raise ValueError("layout_sha256 is not that of graph and layout: one of them was changed")
        terms = [(term.name, term.size) for term in layout.obs]
        if [(term.name, term.width) for term in self.obs] != terms:
            have = [(term.name, term.width) for term in self.obs]
            raise ValueError(f"obs must have the layout's terms, {terms}; got {have}")
        if self.control is not None:
            _check_control(self.control, self.obs, layout)
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
    def obs_dim(self) -> int:
        return sum(term.width for term in self.obs)

    @property
    def action_dim(self) -> int:
        return len(self.checks.actions[0])

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes policy.json into the folder."""
        atomic_write(Path(folder) / DESCRIPTION, to_text({"format": FORMAT} | plain(self)) + "\n")

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Contract:
        """Reads policy.json, and makes sure that policy.onnx beside it is the file it was written with."""
        contract = cls.read(folder)
        contract.model(folder)
        return contract

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Contract:
        """policy.json by itself; a file that is not what `save` wrote is refused with the reason, and one in which
        something was set for a robot since its export warns of it."""
        file = _there(folder, DESCRIPTION)
        content = read_json(file)
        if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
            raise ValueError(f"{str(file)!r} is no contract: its format must be {FORMAT!r}; `bot export` writes one")
        if content.get("version") != VERSION:
            raise ValueError(
                f"{str(file)!r} has version {shown(content.get('version'))}; this reads version {VERSION}, which "
                "`bot export` writes: export the policy again"
            )
        try:
            contract = build(cls, content, complete=True)
            contract.check_edits()
        except ValueError as error:
            raise ValueError(f"{str(file)!r}: {error}") from None
        if found := contract.edits():
            warnings.warn(f"{str(file)!r} was edited since its export: {'; '.join(found)}", stacklevel=1)
        return contract

    def check_edits(self) -> None:
        """An error if what the training fixed was changed, a limit widened, or a known robot asked for more than it
        has."""
        control = None if self.control is None else plain(self.control)
        if set(self.exported or ()) != (set() if control is None else set(TUNABLE)):
            raise ValueError(
                f"exported must have the keys {listing(TUNABLE)}, or be null where control is; got "
                f"{listing(self.exported or ())}"
            )
        if self.trained_sha256 != trained_digest(plain(self.obs), control, self.exported):
            raise ValueError(
                f"trained_sha256 is not that of what the training fixed (obs; {', '.join(FIXED)} of control) and of "
                "exported: one of them was changed since the export"
            )
        check_tightened(control, self.exported)
        if self.control is not None and (hardware := hardware_of(self.control.joints)) is not None:
            hardware.check(self.control)

    def edits(self) -> tuple[str, ...]:
        """`kp 50.0 (exported: 100.0)`, one a key of the control that was set since the export."""
        return edits(None if self.control is None else plain(self.control), self.exported)

    def model(self, folder: str | os.PathLike[str]) -> bytes:
        """What policy.onnx holds; refused if it is not this contract's network."""
        model = _there(folder, MODEL).read_bytes()
        if hashlib.sha256(model).hexdigest() != self.model_sha256:
            raise ValueError(
                f"{str(Path(folder) / MODEL)!r} is not the file that {DESCRIPTION} was written with: truncated, "
                "changed or swapped"
            )
        return model

    def differences(self, other: Contract) -> list[str]:
        """`control.kp[3]: 50.0 here, 100.0 there`, one line a difference; none if both say the same."""
        return differences(plain(self), plain(other))


def layout_digest(graph: Mapping[str, Any], layout: Mapping[str, Any]) -> str:
    """SHA-256 of both, see document.digest."""
    return digest({"graph": graph, "layout": layout})


def _check_training(training: Mapping[str, Any]) -> None:
    for problem, keys in (("missing", set(TRAINING) - training.keys()), ("unknown", training.keys() - set(TRAINING))):
        if keys:
            raise ValueError(f"training: keys {problem}: {listing(sorted(keys))}")
    for key, value in training.items():
        wanted = {"seed": int, "steps": int, "kp": list, "kd": list}.get(key, str)
        if value is not None and type(value) is not wanted:
            raise ValueError(f"training.{key} must be a {wanted.__name__} or null; got {shown(value)}")


def _check_control(control: Control, obs: Sequence[ObsTerm], layout: Layout) -> None:
    joints = tuple(joint for term in layout.actions for joint in term.of if term.kind == "joints")
    if control.joints != joints or layout.action_dim != len(joints):
        raise ValueError(f"control.joints must be the layout's, in its order: {joints}; got {control.joints}")
    owners = {term.name: term.of for term in layout.obs if term.kind == "joints"}
    for term in obs:
        if term.source in JOINT_SOURCES and owners.get(term.name) != joints:
            raise ValueError(
                f"obs term {term.name!r} must be of the joints that act, in their order; its source is {term.source}"
            )
        if term.source == "command" and term.size != len(control.command):
            raise ValueError(
                f"obs term {term.name!r} takes {term.size} entries; the command has {len(control.command)}"
            )


def _there(folder: str | os.PathLike[str], name: str) -> Path:
    file = Path(folder) / name
    if not file.is_file():
        raise FileNotFoundError(f"no exported policy in {str(folder)!r}: {name} is not there")
    return file
