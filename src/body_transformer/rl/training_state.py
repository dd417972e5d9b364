"""The training state of a checkpoint: models, optimizer and random numbers."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from .ppo import PPO

NUM_NAMED = 4
"""Largest number of differences that an error lists."""


# -- models and optimizer ----------------------------------------------------------------------------------------------


def ppo_state(ppo: PPO) -> dict[str, Tensor]:
    """Return the tensors of actor, critic, value scale and optimizer."""
    found = {
        f"{part}.{name}": tensor
        for part, module in _modules(ppo).items()
        for name, tensor in module.state_dict().items()
    }
    for index, state in ppo.optimizer.state_dict()["state"].items():
        found |= {f"optimizer.{index}.{name}": value for name, value in state.items()}
    return found | {"learning_rate": ppo.learning_rate}


def restore_ppo(ppo: PPO, tensors: Mapping[str, Tensor]) -> None:
    """Load the tensors of `ppo_state`; refuse those of another architecture."""
    for part, module in _modules(ppo).items():
        saved = _under(f"{part}.", tensors)
        differences = _differences(saved, module.state_dict())
        if differences:
            raise ValueError(f"the checkpoint's {part} does not fit this run: {differences}")
        module.load_state_dict(saved)
    state = ppo.optimizer.state_dict()
    num_parameters = len(state["param_groups"][0]["params"])
    state["state"] = {index: _under(f"optimizer.{index}.", tensors) for index in range(num_parameters)}
    ppo.load_optimizer(state, float(tensors["learning_rate"]))


def _modules(ppo: PPO) -> dict[str, nn.Module]:
    modules: dict[str, nn.Module] = {"actor": ppo.actor, "critic": ppo.critic}
    return modules if ppo.value_scale is None else modules | {"value_scale": ppo.value_scale}


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    found = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    if not found:
        raise ValueError(f"the checkpoint's training state lacks {prefix}*")
    return found


def _differences(saved: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> str:
    """Return the first differences between the tensors of a checkpoint and of this run; empty if there are none."""
    there, here = ({name: list(tensor.shape) for name, tensor in tensors.items()} for tensors in (saved, own))
    found = [
        f"{name!r} is {there.get(name, 'missing')} in the checkpoint and {here.get(name, 'missing')} in this run"
        for name in there | here
        if there.get(name) != here.get(name)
    ]
    more = f"; {len(found) - NUM_NAMED} more such differences" if len(found) > NUM_NAMED else ""
    return "; ".join(found[:NUM_NAMED]) + more


# -- random numbers ----------------------------------------------------------------------------------------------------


def random_state(device: str) -> dict[str, Tensor]:
    """Return the states of the random number generators."""
    state = {"random.cpu": torch.get_rng_state()}
    if torch.device(device).type == "cuda":
        state["random.cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_random_state(tensors: Mapping[str, Tensor], device: str) -> None:
    """Set the random number generators to saved states."""
    torch.set_rng_state(tensors["random.cpu"])
    if "random.cuda" in tensors and torch.device(device).type == "cuda":
        torch.cuda.set_rng_state(tensors["random.cuda"], device)
