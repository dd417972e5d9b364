"""Owners of the entries of a term, inferred from the term's configuration in mjlab.

The rules are tried in order, and the first that applies decides. A term without one goes to the root and is reported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from ..body.match import AmbiguousError, owners_by_name
from ..body.owners import ACTION_WORDS, BODY_WORDS, GLOBAL_WORDS, ROOT, Owner, spread, words_of
from ..errors import listing
from .env_robot import EnvRobot, Selected

if TYPE_CHECKING:
    from mjlab.managers.action_manager import ActionTerm

PLACES = ("root", "unused", "joints", "actuators", "bodies", "actions")
"""Values of layout overrides, beside the names of bodies."""


@dataclass(frozen=True)
class EnvTerm:
    """The properties of an observation term from which its owners follow."""

    name: str
    func: Any
    params: Mapping[str, Any]
    """Arguments of the function, its defaults included."""
    size: int
    """Entries per step of its history."""

    @property
    def words(self) -> set[str]:
        """Words in the names of the term and its function."""
        func = getattr(self.func, "__name__", type(self.func).__name__)
        return words_of(self.name, func)


def with_defaults(func: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters together with the defaults of the function."""
    try:
        signature = inspect.signature(func)
    except (TypeError, ValueError):  # not every callable has a signature
        return dict(params)
    defaults = {
        name: parameter.default
        for name, parameter in signature.parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    return defaults | dict(params)


# -- observations ----------------------------------------------------------------------------------------------------


def obs_owners(robot: EnvRobot, term: EnvTerm) -> list[Owner] | None:
    """Return the owner of each entry, [size]; None for an unknown term."""
    answers = (rule(robot, term) for rule in RULES)
    return next((owners for owners in answers if owners is not None), None)


def _last_action(robot: EnvRobot, term: EnvTerm) -> list[Owner] | None:
    if not term.words & ACTION_WORDS:
        return None
    manager = robot.env.action_manager
    name = term.params.get("action_name")
    owners = all_action_owners(robot, [name] if name in manager.active_terms else manager.active_terms)
    return owners if len(owners) == term.size else None


def _motion(robot: EnvRobot, term: EnvTerm) -> list[Owner] | None:
    """Recognise a reference motion: positions and velocities of all joints, or of the tracked bodies."""
    from mjlab.tasks.tracking.mdp import MotionCommand

    name = term.params.get("command_name")
    if name not in robot.env.command_manager.active_terms:
        return None
    command = robot.env.command_manager.get_term(name)
    if not isinstance(command, MotionCommand) or command.cfg.entity_name != robot.name:
        return None
    joints = robot.select("joint")
    if term.words & {"command", "commands"} and term.size == 2 * len(joints):
        return joints * 2
    if term.words & BODY_WORDS:
        return spread([robot.owner_of("body", body) for body in command.cfg.body_names], term.size)
    return None


def _selection(robot: EnvRobot, term: EnvTerm) -> list[Owner] | None:
    """Recognise the joints, bodies, … of the robot that a term selects, if it selects one kind of them."""
    from mjlab.managers.scene_entity_config import SceneEntityCfg

    chosen = []
    for cfg in term.params.values():
        if isinstance(cfg, SceneEntityCfg) and cfg.name == robot.name:
            for kind in get_args(Selected):
                ids = getattr(cfg, f"{kind}_ids")
                if getattr(cfg, f"{kind}_names") is not None or not isinstance(ids, slice):
                    chosen.append(robot.select(kind, ids))
    if len(chosen) != 1:
        return None
    owners = chosen[0]
    if owners and owners[0].kind in ("joints", "actuators") and len(owners) not in (1, term.size):
        return None  # the order is unknown: cosine and sine of each joint, or all cosines before all sines
    return spread(owners, term.size)


def _sensor(robot: EnvRobot, term: EnvTerm) -> list[Owner] | None:
    """Recognise a term that reads one sensor, which the body at the sensor owns."""
    from mjlab.sensor import BuiltinSensor, ContactSensor, RayCastSensor

    sensors = robot.env.scene.sensors
    names = [value for value in term.params.values() if isinstance(value, str) and value in sensors]
    if len(names) != 1:
        return None
    sensor = sensors[names[0]]
    if isinstance(sensor, ContactSensor):
        match = sensor.cfg.primary
        places = [robot.owner_of(match.mode, name, match.entity or "") for name in sensor.primary_names]
    elif isinstance(sensor, RayCastSensor):
        frames = sensor.cfg.frame if isinstance(sensor.cfg.frame, tuple | list) else [sensor.cfg.frame]
        places = [robot.owner_of(frame.type, frame.name, frame.entity or "") for frame in frames]
    elif isinstance(sensor, BuiltinSensor):
        places = [robot.owner_of_sensor(names[0])]
    else:
        return None
    return spread(places, term.size)


def _by_name(robot: EnvRobot, term: EnvTerm) -> list[Owner] | None:
    """Recognise names of joints, of bodies, and those that begin with the name of a body."""
    if _other_entities(robot, term):
        return None
    try:
        return owners_by_name(robot.parts, term.name, (term.size,), term.words)
    except AmbiguousError:
        return None


def _whole_robot(robot: EnvRobot, term: EnvTerm) -> list[Owner] | None:
    """Recognise commands, terms about other entities, and quantities of the whole robot."""
    is_global = "command_name" in term.params or _other_entities(robot, term) or term.words & GLOBAL_WORDS
    return [ROOT] * term.size if is_global else None


RULES: Sequence[Callable[[EnvRobot, EnvTerm], list[Owner] | None]] = (
    _last_action,
    _motion,
    _selection,
    _sensor,
    _by_name,
    _whole_robot,
)


def _other_entities(robot: EnvRobot, term: EnvTerm) -> set[str]:
    """Return the other entities that the parameters name."""
    from mjlab.managers.scene_entity_config import SceneEntityCfg

    named = {
        value.name if isinstance(value, SceneEntityCfg) else value
        for value in term.params.values()
        if isinstance(value, str | SceneEntityCfg)
    }
    return named & (robot.env.scene.entities.keys() - {robot.name})


# -- actions ---------------------------------------------------------------------------------------------------------


def action_owners(robot: EnvRobot, term: ActionTerm) -> list[Owner] | None:
    """Return the owner of each action of the term, [A]; None for an unknown term."""
    from mjlab.actuator.actuator import TransmissionType
    from mjlab.envs.mdp.actions.actions import BaseAction
    from mjlab.envs.mdp.actions.differential_ik import DifferentialIKAction

    if isinstance(term, DifferentialIKAction):
        return [robot.owner_of(term.cfg.frame_type, term.cfg.frame_name)] * term.action_dim
    names = list(getattr(term, "target_names", ()))
    kind = term.cfg.transmission_type if isinstance(term, BaseAction) else TransmissionType.JOINT
    if kind == TransmissionType.TENDON:
        return robot.tendons(names)
    if kind == TransmissionType.SITE:
        return [robot.owner_of("site", name) for name in names]
    are_joints = len(names) == term.action_dim and robot.graph.joints.keys() >= set(names)
    return [Owner("joints", name) for name in names] if are_joints else None


def all_action_owners(robot: EnvRobot, names: Sequence[str]) -> list[Owner]:
    """Return the owners of these action terms, one after the other."""
    terms = [robot.env.action_manager.get_term(name) for name in names]
    return [owner for term in terms for owner in action_owners(robot, term) or [ROOT] * term.action_dim]


# -- overrides -------------------------------------------------------------------------------------------------------


def override_owners(robot: EnvRobot, name: str, size: int, place: str) -> list[Owner]:
    """Return the owners of the entries of the term `name`, [size], for a body's name or one of `PLACES`."""
    if place in ("root", "unused"):
        return [Owner(place)] * size  # type: ignore[arg-type]
    if place in robot.graph.bodies:
        return [Owner("bodies", place)] * size
    groups = {
        "joints": lambda: robot.select("joint"),
        "actuators": lambda: robot.select("actuator"),
        "bodies": lambda: robot.select("body"),
        "actions": lambda: all_action_owners(robot, robot.env.action_manager.active_terms),
    }
    if place not in groups:
        raise ValueError(
            f"term {name!r} cannot go to {place!r}; allowed: {listing(PLACES)}, or a body: "
            f"{listing(robot.graph.bodies)}"
        )
    owners = groups[place]()
    shared = spread(owners, size)
    if shared is None:
        raise ValueError(f"term {name!r} has {size} entries, which {len(owners)} {place} cannot share evenly")
    return shared
