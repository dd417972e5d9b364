"""The bodies' state as the flat observation of a layout."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ....body.layout import Layout, Term
from ....errors import listing, unknown
from .bodies import Bodies
from .model import HANDS, joint_names
from .motions import LOOKAHEAD


class LayoutAdapter:
    """Conversion of the bodies' observations to a layout's entries, and of a layout's actions to the model's joints.

    A layout may omit terms, or order terms and their owners differently.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        available = _terms()
        for term in layout.obs:
            _check(term, {one.name: one for one in available})
        names = [name for term in available for name in term.entry_names()]
        self._obs_ids = [names.index(name) for name in layout.obs_names()]
        joints = [joint for term in layout.actions for joint in term.of]
        if sorted(joints) != sorted(joint_names()) or layout.action_dim != len(joints):
            raise ValueError(f"this task has one action per joint: {listing(joint_names())}; got {listing(joints)}")
        self._action_ids = np.array([joints.index(name) for name in joint_names()])

    def obs(self, bodies: Bodies) -> npt.NDArray[np.float32]:
        """Return the flat observation [B, O]."""
        return bodies.observe()[:, self._obs_ids].astype(np.float32)

    def to_joints(self, actions: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Reorder actions [B, A] from the layout's order to the model's."""
        return np.asarray(actions, dtype=np.float64)[:, self._action_ids]

    def from_joints(self, actions: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
        """Reorder actions [B, J] from the model's order to the layout's."""
        return actions[:, np.argsort(self._action_ids)].astype(np.float32)


def _terms() -> list[Term]:
    """Return all terms that can be observed, in the order of `Bodies.observe`."""
    joints = joint_names()
    return [
        Term.root("gravity", 3),
        Term.joints("joint_pos", joints),
        Term.joints("joint_vel", joints),
        Term.joints("pos_error", joints, steps=LOOKAHEAD),
        Term.joints("vel_error", joints, steps=LOOKAHEAD),
        Term.bodies("payload", HANDS, 1),
    ]


def _check(term: Term, available: dict[str, Term]) -> None:
    """Raise if a term of the layout is not one of the available terms, or has another shape or other owners."""
    if term.name not in available:
        raise ValueError(unknown("term of the tracking task", term.name, available))
    full = available[term.name]
    if (term.kind, term.dim, term.steps) != (full.kind, full.dim, full.steps):
        raise ValueError(
            f"term {term.name!r} is of kind {full.kind!r} with dim {full.dim} and steps {full.steps}; "
            f"got kind {term.kind!r}, dim {term.dim}, steps {term.steps}"
        )
    for owner in term.of:
        if owner not in full.of:
            raise ValueError(f"term {term.name!r}: " + unknown("owner", owner, full.of))
