"""A layout from names and shapes of arrays: which joints, actuators, bodies or sites a term is about.

Words in a term's name select a kind of parts ("joint_pos"), some of them ("left_hand_joint_pos"), or one
("palm_force"). Its size must then fit, in the order of the robot's file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from ..errors import listing
from .graph import BodyGraph
from .layout import Layout, Term
from .owners import (
    ACTION_WORDS,
    ACTUATOR_WORDS,
    BODY_WORDS,
    CONTACT_WORDS,
    GLOBAL_WORDS,
    HAND_WORDS,
    JOINT_WORDS,
    ROOT,
    SITE_WORDS,
    InferredLayout,
    Owner,
    as_terms,
    spread,
    words_of,
)

Shape = tuple[int, ...]
Named = Mapping[str, Owner]
"""Name of a part -> the owner of its entries."""
KIND_WORDS = {"joints": JOINT_WORDS, "actuators": ACTUATOR_WORDS, "sites": SITE_WORDS, "bodies": BODY_WORDS}
"""Kind of parts -> words for it in the names of terms; the first kind that a name mentions counts."""
_SHOWN = 3


class AmbiguousError(ValueError):
    """A term whose name and size do not determine its owners."""


@dataclass(frozen=True)
class Parts:
    """The parts of a robot by kind, in the order of its file."""

    joints: Named
    """Hinge and slide joints."""
    actuators: Named
    bodies: Named
    sites: Named
    followers: frozenset[str] = frozenset()
    """Joints that follow another one."""
    configurations: tuple[tuple[Owner, ...], ...] = ()
    """Owners of the entries of MuJoCo's `qpos` and `qvel`."""

    @classmethod
    def of(cls, graph: BodyGraph) -> Parts:
        """Return the parts of a body graph."""
        single = [name for name, kind in graph.joint_types.items() if kind in ("hinge", "slide")]
        return cls(
            joints={name: Owner("joints", name) for name in single},
            actuators={name: Owner("actuators", name) for name in graph.actuators},
            bodies={name: Owner("bodies", name) for name in graph.bodies},
            sites={name: Owner("bodies", node) for name, node in graph.sites.items()},
            followers=frozenset(graph.mimics),
            configurations=(_configuration(graph, free=7, ball=4), _configuration(graph, free=6, ball=3)),
        )

    def named(self, kind: str) -> Named:
        """Return the parts of a kind."""
        found: Named = getattr(self, kind)
        return found


def _configuration(graph: BodyGraph, free: int, ball: int) -> tuple[Owner, ...]:
    """Return the owners of all generalised positions or velocities; free and ball joints have several entries."""
    with_joint = {graph.joints[name] for name, kind in graph.joint_types.items() if kind == "free"}
    owners = [Owner("bodies", node) for node in graph.floating or () if node not in with_joint] * free  # of a URDF
    for name, kind in graph.joint_types.items():
        owner = Owner("bodies", graph.joints[name]) if kind == "free" else Owner("joints", name)
        owners += [owner] * {"free": free, "ball": ball}.get(kind, 1)
    return tuple(owners)


# -- one term ----------------------------------------------------------------------------------------------------------


def owners_by_name(parts: Parts, name: str, shape: Shape, words: set[str] | None = None) -> list[Owner] | None:
    """Return the owner of each entry of a term; None for an unknown term.

    Args:
        parts: the robot's parts.
        name: the term's name.
        shape: the shape of one step; [7, 3] has three entries per joint, [3, 7] has the seven joints three times.
        words: words that select the parts, by default those of the term's name.
    """
    words = words_of(name) if words is None else words
    kind = next((kind for kind, known in KIND_WORDS.items() if words & known and parts.named(kind)), None)
    if kind is not None:
        groups, per_part = _groups(parts, kind, words), kind in ("bodies", "sites")
        is_strong = bool(words & (KIND_WORDS[kind] - CONTACT_WORDS))  # contacts may be those of parts without a name
        if is_strong or any(_fit(group, shape, per_part) for group in groups.values()):
            return _only_fitting(name, shape, groups, per_part)
    if (part := _named_part(parts, name, prod(shape))) is not None:
        return [part] * prod(shape)
    if words & GLOBAL_WORDS:
        return [ROOT] * prod(shape)
    groups = dict(_chosen(parts, "bodies", words)) | dict(_chosen(parts, "sites", words))
    fitting = {label: owners for label, owners in groups.items() if _fit(owners, shape, per_part=True)}
    return _only_fitting(name, shape, fitting, per_part=True) if fitting else None


def _groups(parts: Parts, kind: str, words: set[str]) -> Mapping[str, Sequence[Owner]]:
    """Return description -> group of parts that a term may be about."""
    kinds = ("bodies", "sites") if kind == "bodies" else (kind,)
    if chosen := {label: owners for one in kinds for label, owners in _chosen(parts, one, words)}:
        return chosen
    every = parts.named(kind)
    groups: dict[str, Sequence[Owner]] = {kind: list(every.values())}
    if kind == "joints":
        arms = {name: owner for name, owner in every.items() if not words_of(name) & HAND_WORDS}
        for note, some in (("", every), (" outside of hands", arms)):
            groups[f"joints{note}"] = list(some.values())
            groups[f"joints{note} that follow no other"] = _independent(parts, some)
        for note, owners in zip(("positions", "velocities"), parts.configurations, strict=False):
            groups[f"{note} of all joints and floating bases"] = owners
    return groups


def _chosen(parts: Parts, kind: str, words: set[str]) -> Iterator[tuple[str, list[Owner]]]:
    """Yield the parts of a kind whose names have words of the term's name; `gripper` also finds fingers."""
    every = parts.named(kind)
    known = set().union(*map(_stems, every))
    rest = {_stem(word) for word in words.difference(*KIND_WORDS.values())}
    wanted = rest & known
    is_other_hand = bool(rest & _HANDS) and not wanted & _HANDS  # the term's word for a hand is not the robot's
    hands = _HANDS if is_other_hand else set[str]()
    if not wanted and not hands & known:
        return
    chosen = [name for name in every if wanted <= _stems(name) and (not hands or hands & _stems(name))]
    first = [name for name in chosen if _stem(next(iter(re.findall("[a-z]+", name.lower())), "")) in wanted]
    chosen = first or chosen  # the left arm also has a right finger
    label = f"{kind} with {' and '.join(map(repr, sorted(wanted or hands & known)))}"
    yield label, [every[name] for name in chosen]
    if kind == "joints":
        yield f"{label} that follow no other", _independent(parts, chosen)


def _independent(parts: Parts, joints: Iterable[str]) -> list[Owner]:
    return [parts.joints[name] for name in joints if name not in parts.followers]


def _stems(name: str) -> set[str]:
    return {_stem(word) for word in words_of(name)}


def _stem(word: str) -> str:
    return "foot" if word == "feet" else word.removesuffix("s")


_HANDS = {_stem(word) for word in HAND_WORDS}


def _named_part(parts: Parts, name: str, size: int) -> Owner | None:
    """Return the owner whose name the term's name begins with; a joint owns only a single entry."""
    found: dict[str, list[Owner]] = {}
    for kind in ("bodies", "sites", "joints", "actuators"):
        for part, owner in parts.named(kind).items():
            if (name == part or name.startswith(f"{part}_")) and (size == 1 or owner.kind == "bodies"):
                found.setdefault(part, []).append(owner)
    return found[max(found, key=len)][0] if found else None


# -- sizes -------------------------------------------------------------------------------------------------------------


def _fit(owners: Sequence[Owner], shape: Shape, per_part: bool) -> list[Owner] | None:
    """Return the owner of each entry if the shape fits these owners; `per_part` allows several entries for each."""
    if not owners:
        return None
    if len(shape) > 1 and shape[0] != len(owners) == shape[-1]:
        return list(owners) * (prod(shape) // len(owners))
    if per_part or shape[0] == len(owners):
        return spread(owners, prod(shape))
    return None


def _only_fitting(name: str, shape: Shape, groups: Mapping[str, Sequence[Owner]], per_part: bool) -> list[Owner]:
    """Return the owners of the only group that fits; raise an error that lists the candidates."""
    fits = {label: owners for label, group in groups.items() if (owners := _fit(group, shape, per_part))}
    different: dict[tuple[Owner, ...], str] = {}
    for label, owners in fits.items():
        different.setdefault(tuple(owners), label)
    if len(different) == 1:
        return list(next(iter(different)))
    size = prod(shape)
    if different:
        raise AmbiguousError(f"{name!r} has {size} entries, which fit {_described(groups, different.values())}")
    text = f"{name!r} has {size} entries, which do not fit {_described(groups, groups)}"
    if len(shape) == 1 and any(len(group) > 1 and size % len(group) == 0 for group in groups.values()):
        text += "; if each has several entries, store them as [steps, parts, entries] or [steps, entries, parts]"
    raise AmbiguousError(text)


def _described(groups: Mapping[str, Sequence[Owner]], labels: Iterable[str]) -> str:
    """Return `joints (14: 'waist', 'shoulder', 'elbow', …) or joints outside of hands (12: …)`."""
    shown: dict[tuple[Owner, ...], str] = {}
    for label in labels:
        names = list(dict.fromkeys(owner.name for owner in groups[label]))
        more = ", …" if len(names) > _SHOWN else ""
        if names:
            text = f"{label} ({len(groups[label])}: {listing(names[:_SHOWN])}{more})"
            shown.setdefault(tuple(groups[label]), text)
    return " or ".join(shown.values())


# -- a whole layout ----------------------------------------------------------------------------------------------------


def match_terms(
    graph: BodyGraph, obs: Mapping[str, Shape], actions: Mapping[str, Shape], remedy: str, strict: bool = True
) -> tuple[InferredLayout, dict[str, str]]:
    """Infer a layout from the names of arrays and the shapes of one step; also return term -> array where names differ.

    An array with several kinds of owners becomes several terms: `qpos` of a walking robot is `qpos.0`, the pose of its
    base, and `qpos.1`, its joints.

    Args:
        graph: the robot's body.
        obs: arrays of the observation, in order.
        actions: arrays of the action, in order.
        remedy: what to do about a wrong owner.
        strict: raise AmbiguousError for an ambiguous array; else the root owns it and `unclear` says why.
    """
    parts, unclear, guessed = Parts.of(graph), dict[str, str](), list[str]()

    def owners_of(name: str, find: Callable[[], list[Owner] | None]) -> list[Owner] | None:
        try:
            return find()
        except AmbiguousError as error:
            if strict:
                raise AmbiguousError(f"{error}; {remedy}") from None
            unclear[name] = str(error)
            return None

    def terms_of(name: str, shape: Shape, owners: list[Owner] | None) -> list[Term]:
        if owners is None and name not in unclear:
            guessed.append(name)
        return as_terms(name, owners or [ROOT] * prod(shape), steps=1)

    acting = {name: owners_of(name, partial(_action_owners, parts, name, shape)) for name, shape in actions.items()}
    all_actions = [owner for name, owners in acting.items() for owner in owners or [ROOT] * prod(actions[name])]
    obs_terms, keys = [], dict[str, str]()
    for name, shape in obs.items():
        owners = owners_of(name, partial(_obs_owners, parts, name, shape, all_actions))
        found = terms_of(name, shape, owners)
        obs_terms += found
        keys |= {term.name: name for term in found if term.name != name}
    action_terms = [term for name, owners in acting.items() for term in terms_of(name, actions[name], owners)]
    return InferredLayout(Layout(graph, obs_terms, action_terms), guessed, remedy, unclear), keys


def _obs_owners(parts: Parts, name: str, shape: Shape, actions: Sequence[Owner]) -> list[Owner] | None:
    if words_of(name) & ACTION_WORDS and (owners := _fit(actions, shape, per_part=False)):
        return owners
    return owners_by_name(parts, name, shape)


def _action_owners(parts: Parts, name: str, shape: Shape) -> list[Owner] | None:
    """Return the owners of an array of actions; the name `actions` or `ctrl` stands for all actuators or joints."""
    if words_of(name) - ACTION_WORDS - ACTUATOR_WORDS:
        return owners_by_name(parts, name, shape)
    joints = list(parts.joints.values())
    groups = {
        "actuators": list(parts.actuators.values()),
        "joints that follow no other": _independent(parts, parts.joints),
    }
    groups["joints"] = joints
    fitting = {label: owners for label, owners in groups.items() if _fit(owners, shape, per_part=False)}
    first = dict(list(fitting.items())[:1])  # actions are in the order of the actuators, if their number fits
    return _only_fitting(name, shape, first or groups, per_part=False)
