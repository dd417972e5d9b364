"""The state of an environment of mjlab's: its simulator, and all that its managers, entities and sensors hold.

mjlab's terms have no interface for their state. It is therefore collected from the attributes of their objects:
tensors and numbers, by path. Configurations and objects of other kinds, such as NumPy's generators, are left out. A
term that keeps its state in one of these does not continue exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

MANAGERS = ("action", "command", "curriculum", "event", "metrics", "observation", "reward", "termination")
ROOTS = ("scene", *(f"{name}_manager" for name in MANAGERS), "_sim_step_counter", "episode_length_buf")
"""Attributes of an environment in which the search begins."""
SIMULATED = (
    *("qpos", "qvel", "act", "history", "qacc_warmstart", "ctrl", "qfrc_applied", "xfrc_applied", "eq_active"),
    *("mocap_pos", "mocap_quat", "time", "tree_asleep"),
)
"""Fields of MuJoCo Warp's data from which a step continues; the others follow from them."""
FOREIGN = ("torch", "numpy", "warp", "mujoco", "mujoco_warp", "trimesh", "builtins", "types", "functools", "mjlab.sim")
"""Modules whose objects are not searched; those of mjlab.sim are views of the simulator's memory."""


@dataclass(frozen=True)
class Slot:
    """A tensor, a number or None in an object."""

    path: str
    value: Tensor | bool | int | float | None
    put: Callable[[Any], None]
    """Replaces the value."""


def simulator_state(env: Any) -> dict[str, Tensor]:
    """Return the simulator's memory: its state, and the parameters of models that differ between environments."""
    data, has = env.sim.data, env.sim.wp_data
    present = [name for name in SIMULATED if getattr(has, name, None) is not None and getattr(has, name).size]
    found = {f"data.{name}": getattr(data, name) for name in present}
    found |= {f"model.{name}": getattr(env.sim.model, name) for name in sorted(env.sim.expanded_fields)}
    return {f"sim.{name}": array._tensor for name, array in found.items()}


def slots(env: Any) -> Iterator[Slot]:
    """Yield everything that the objects of the environment hold."""
    seen = {id(env), id(env.sim)}
    for name in ROOTS:
        if hasattr(env, name):
            yield from _search(name, getattr(env, name), _setter(env, name), seen)


def held_state(env: Any) -> dict[str, Tensor]:
    """Return everything that the objects of the environment hold, as tensors by path."""
    found = ((slot.path, slot.value) for slot in slots(env) if slot.value is not None)
    return {path: value if isinstance(value, Tensor) else torch.tensor(value) for path, value in found}


def put_held_state(env: Any, tensors: Mapping[str, Tensor]) -> None:
    """Give the objects of the environment the values that `held_state` returned."""
    for slot in list(slots(env)):
        if slot.path not in tensors:
            continue
        saved = tensors[slot.path]
        if isinstance(slot.value, Tensor) and slot.value.shape == saved.shape:
            slot.value.copy_(saved)
        elif isinstance(slot.value, Tensor) or slot.value is None:
            slot.put(saved.to(env.device, copy=True) if saved.dim() else saved.item())
        else:
            slot.put(type(slot.value)(saved.item()))


def _search(path: str, value: Any, put: Callable[[Any], None], seen: set[int]) -> Iterator[Slot]:
    if value is None or isinstance(value, bool | int | float):
        yield Slot(path, value, put)
    elif id(value) in seen:
        return
    elif isinstance(value, Tensor):
        seen.add(id(value))
        yield Slot(path, value, put)
    elif isinstance(value, dict | list):
        seen.add(id(value))
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _search(f"{path}.{key}", item, _item_setter(value, key), seen)
    elif isinstance(value, tuple):
        for key, item in enumerate(value):
            if not isinstance(item, bool | int | float):  # an entry of a tuple cannot be replaced
                yield from _search(f"{path}.{key}", item, _refuse, seen)
    elif hasattr(value, "__dict__") and not type(value).__module__.startswith(FOREIGN):
        seen.add(id(value))
        if type(value).__name__.endswith("Cfg"):  # a setting, except for a term that is an object
            yield from _search(f"{path}.func", getattr(value, "func", _refuse), _refuse, seen)
            return
        for key, item in list(vars(value).items()):
            yield from _search(f"{path}.{key}", item, _setter(value, key), seen)


def _setter(owner: Any, name: str) -> Callable[[Any], None]:
    return lambda value: object.__setattr__(owner, name, value)


def _item_setter(owner: Any, key: Any) -> Callable[[Any], None]:
    return lambda value: owner.__setitem__(key, value)


def _refuse(value: Any) -> None:
    raise ValueError("a tensor in a tuple cannot be replaced by one of another shape")
