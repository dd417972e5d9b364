"""The layout of an mjlab environment: which node owns which entry of its observations and actions.

Terms of our own tasks state their owners. Those of other tasks are inferred (see term_owners.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from ..body.layout import Layout, Term
from ..body.owners import ROOT, InferredLayout, as_terms
from ..errors import listing, unknown
from .env_robot import EnvRobot
from .term_owners import EnvTerm, action_owners, obs_owners, override_owners, with_defaults

if TYPE_CHECKING:
    from mjlab.envs import ManagerBasedRlEnv

ACTION = "action/"
"""Prefix of the name of an action term in layout overrides."""


def infer_layout(
    env: ManagerBasedRlEnv, groups: Sequence[str], overrides: Mapping[str, str] | None = None
) -> InferredLayout:
    """Return the layout for a model that reads these observation groups of the environment, one after the other.

    The graph is that of the entity that the actions drive. A term that does not state its owners goes to the nodes of
    its joints, bodies, contacts, feet or sites. Global and unknown terms go to the root.

    Args:
        env: the environment; it is only read.
        groups: names of observation groups, as rsl_rl's `obs_groups` lists them for a model.
        overrides: term -> the place of its entries: a body's name, "root", "unused", "joints", "actuators", "bodies" or
            "actions". With the last four, joints, bodies, … are in mjlab's order and the entries of each are adjacent.
            A term is given by its name, by `group/name` where groups differ, or by `action/name` for an action term.
    """
    robot, decided = EnvRobot(env), dict(overrides or {})
    _check_names(env, groups, decided)
    obs, guessed = _obs_terms(robot, groups, decided)
    actions, guessed_actions = _action_terms(robot, decided)
    obs_dim = sum(prod(shape) for group in groups for shape in env.observation_manager.group_obs_term_dim[group])
    layout = Layout(robot.graph, obs, actions, obs_dim, env.action_manager.total_action_dim)
    return InferredLayout(layout, guessed + guessed_actions)


def _obs_terms(robot: EnvRobot, groups: Sequence[str], overrides: Mapping[str, str]) -> tuple[list[Term], list[str]]:
    """Return the terms of these observation groups, and the names of the unknown ones."""
    names = Counter(name for group in groups for name in robot.env.observation_manager.active_terms[group])
    found: list[Term] = []
    guessed = []
    for group in groups:
        for term, steps in _read_group(robot.env, group):
            label = term.name if names[term.name] == 1 else f"{group}/{term.name}"
            place = overrides.get(f"{group}/{term.name}", overrides.get(term.name))
            stated = stated_owners(term.func)
            if stated is not None and place is None:
                found.append(replace(stated, name=label, steps=steps * stated.steps))
                continue
            owners = obs_owners(robot, term) if place is None else override_owners(robot, term.name, term.size, place)
            if owners is None:
                guessed.append(label)
            found += as_terms(label, owners or [ROOT] * term.size, steps)
    return found, guessed


def _action_terms(robot: EnvRobot, overrides: Mapping[str, str]) -> tuple[list[Term], list[str]]:
    """Return the terms of the actions, and the names of the unknown ones."""
    found: list[Term] = []
    guessed = []
    for name in robot.env.action_manager.active_terms:
        action = robot.env.action_manager.get_term(name)
        place = overrides.get(ACTION + name)
        stated, size = stated_owners(action), action.action_dim
        if stated is not None and place is None:
            found.append(stated)
            continue
        owners = action_owners(robot, action) if place is None else override_owners(robot, name, size, place)
        if owners is None:
            guessed.append(ACTION + name)
        found += as_terms(name, owners or [ROOT] * size, steps=1)
    return found, guessed


def stated_owners(term: object) -> Term | None:
    """Return the owners that an observation function or action term states, as those of our own tasks do."""
    owners = getattr(term, "owners", None)
    return owners if isinstance(owners, Term) else None


def _read_group(env: ManagerBasedRlEnv, group: str) -> Iterator[tuple[EnvTerm, int]]:
    """Yield each term of a group and its steps of history; a flattened history comes step by step, oldest first."""
    manager = env.observation_manager
    for name, shape in zip(manager.active_terms[group], manager.group_obs_term_dim[group], strict=True):
        cfg = manager.get_term_cfg(group, name)
        steps = max(cfg.history_length, 1)
        yield EnvTerm(name, cfg.func, with_defaults(cfg.func, cfg.params), prod(shape) // steps), steps


def _check_names(env: ManagerBasedRlEnv, groups: Sequence[str], overrides: Mapping[str, str]) -> None:
    manager = env.observation_manager
    if not groups or isinstance(groups, str):
        have = listing(manager.active_terms)
        raise ValueError(f"groups must be a list of observation groups; got {groups!r}; have: {have}")
    for group in groups:
        if group not in manager.active_terms:
            raise ValueError(unknown("observation group", group, manager.active_terms))
        shape = manager.group_obs_dim[group]
        if not manager.group_obs_concatenate[group] or len(shape) != 1:
            raise ValueError(f"a policy reads vectors; observation group {group!r} is not one, its shape is {shape}")
    terms = [name for group in manager.active_terms for name in manager.active_terms[group]]
    full = [f"{group}/{name}" for group in manager.active_terms for name in manager.active_terms[group]]
    actions = [ACTION + name for name in env.action_manager.active_terms]
    for name in overrides:
        if name not in terms + full + actions:
            raise ValueError("layout overrides: " + unknown("term", name, [*dict.fromkeys(terms), *actions]))
