"""The robot in an mjlab environment: its graph, and the owners of its parts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import mujoco

from ..body.graph import BodyGraph
from ..body.layout import Kind
from ..body.match import Parts
from ..body.owners import ROOT, Owner
from ..errors import listing

if TYPE_CHECKING:
    from mjlab.entity import Entity
    from mjlab.envs import ManagerBasedRlEnv

_OBJ = mujoco.mjtObj
_WRAPPER = "mocap_base"
"""Body that mjlab puts under a robot on a fixed base, to place it in each environment."""


Selected = Literal["joint", "actuator", "body", "site", "geom"]
"""Parts of a robot that a term's configuration can select."""


class EnvRobot:
    """The entity that the actions drive."""

    def __init__(self, env: ManagerBasedRlEnv) -> None:
        self.env = env
        self.name = _driven_entity(env)
        self.entity: Entity = env.scene[self.name]
        self.graph = self._stated_graph() or self._read_graph()

    def _stated_graph(self) -> BodyGraph | None:
        """Return the graph that an action term of our own states."""
        manager = self.env.action_manager
        graphs: list[BodyGraph | None] = [
            getattr(manager.get_term(name), "graph", None) for name in manager.active_terms
        ]
        return next((graph for graph in graphs if graph is not None), None)

    def _read_graph(self) -> BodyGraph:
        """Return the graph with the robot's own names, without the prefix `robot/` of the scene."""
        spec = self.entity.spec
        graph = BodyGraph.from_spec(spec, root=self._top())
        data = _without_prefix(graph.to_dict(), f"{self.name}/")
        if _WRAPPER in self.entity.body_names and _WRAPPER not in data["nodes"]:
            data["bodies"][_WRAPPER] = data["root"]
        return BodyGraph.from_dict(data)

    def _top(self) -> str | None:
        """Return the name of the robot's own root if mjlab has put a wrapper body under it."""
        wrapper = self.entity.spec.body(f"{self.name}/{_WRAPPER}")
        below = list(wrapper.bodies) if wrapper is not None and wrapper.mocap else []
        return below[0].name if len(below) == 1 else None

    @cached_property
    def parts(self) -> Parts:
        """The joints and bodies by name, in mjlab's order."""
        joints = dict(zip(self.entity.joint_names, self.select("joint"), strict=True))
        bodies = dict(zip(self.entity.body_names, self.select("body"), strict=True))
        return Parts(joints=joints, actuators={}, bodies=bodies, sites={})

    # -- owners ------------------------------------------------------------------------------------------------------

    def select(self, kind: Selected, ids: Any = slice(None)) -> list[Owner]:
        """Return the owners of the robot's joints, actuators, bodies, sites or geoms, in mjlab's order."""
        names: Sequence[str] = getattr(self.entity, f"{kind}_names")
        chosen = names[ids] if isinstance(ids, slice) else [names[int(k)] for k in ids]
        if kind == "joint":
            return [Owner("joints", name) for name in chosen]
        if kind == "actuator":
            return [Owner("actuators", name) for name in chosen]
        return [self.owner_of(kind, name) for name in chosen]

    def owner_of(self, kind: str, name: str, entity: str | None = None) -> Owner:
        """Return the body to which a body, site, geom or camera belongs; the root for anything outside the robot."""
        entity = self.name if entity is None else entity
        full = f"{entity}/{name}" if entity else name
        model = self.env.sim.mj_model
        if kind in ("body", "xbody", "subtree"):
            return self._body(full) or ROOT
        place = getattr(model, kind)(full)
        return self._body(model.body(place.bodyid[0]).name) or ROOT

    def owner_of_sensor(self, name: str) -> Owner:
        """Return the owner of a MuJoCo sensor: its object or, if that is outside the robot, its reference."""
        sensor = self.env.sim.mj_model.sensor(name)
        at = self._owner_of_object(sensor.objtype[0], sensor.objid[0])
        return at or self._owner_of_object(sensor.reftype[0], sensor.refid[0]) or ROOT

    def tendons(self, names: Sequence[str]) -> list[Owner]:
        """Return the actuators that pull these tendons."""
        pulled = {
            actuator.target.removeprefix(f"{self.name}/"): actuator.name.removeprefix(f"{self.name}/")
            for actuator in self.entity.spec.actuators
            if actuator.trntype == mujoco.mjtTrn.mjTRN_TENDON
        }
        return [Owner("actuators", pulled[name]) if name in pulled else ROOT for name in names]

    def _owner_of_object(self, kind: int, index: int) -> Owner | None:
        model = self.env.sim.mj_model
        if index < 0:
            return None
        if kind in (_OBJ.mjOBJ_BODY, _OBJ.mjOBJ_XBODY):
            return self._body(model.body(index).name)
        if kind == _OBJ.mjOBJ_JOINT:
            return self._own("joints", model.joint(index).name, self.graph.joints)
        if kind == _OBJ.mjOBJ_ACTUATOR:
            return self._own("actuators", model.actuator(index).name, self.graph.actuators)
        body_ids = {
            _OBJ.mjOBJ_SITE: model.site_bodyid,
            _OBJ.mjOBJ_GEOM: model.geom_bodyid,
            _OBJ.mjOBJ_CAMERA: model.cam_bodyid,
        }.get(kind)
        return None if body_ids is None else self._body(model.body(body_ids[index]).name)

    def _body(self, full_name: str) -> Owner | None:
        return self._own("bodies", full_name, self.graph.bodies)

    def _own(self, kind: Kind, full_name: str, known: Any) -> Owner | None:
        prefix = f"{self.name}/"
        name = full_name.removeprefix(prefix)
        return Owner(kind, name) if full_name.startswith(prefix) and name in known else None


def _driven_entity(env: ManagerBasedRlEnv) -> str:
    manager = env.action_manager
    names = list(dict.fromkeys(manager.get_term(term).cfg.entity_name for term in manager.active_terms))
    if len(names) != 1:
        raise ValueError(f"the actions must drive one entity, which is the policy's robot; they drive {listing(names)}")
    return str(names[0])


def _without_prefix(data: Any, prefix: str) -> Any:
    if isinstance(data, str):
        return data.removeprefix(prefix)
    if isinstance(data, dict):
        return {key.removeprefix(prefix): _without_prefix(value, prefix) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_without_prefix(value, prefix) for value in data]
    return data
