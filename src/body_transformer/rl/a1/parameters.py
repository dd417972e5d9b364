"""What differs from robot to robot: friction, mass, centre of mass, the motors' strength and stiffness, latency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
import torch
from mjlab.managers.event_manager import RecomputeLevel, requires_model_fields
from torch import Tensor

from .model import BASE, DECIMATION, JOINTS

if TYPE_CHECKING:
    from mjlab.envs import ManagerBasedRlEnv

FRICTION = (0.0, 2.0)
"""Of the robot; that of the ground is 1."""
ADDED_MASS = (1.0, 3.0)
"""kg, on the trunk."""
COM_OFFSET = ((-0.05, 0.15), (-0.1, 0.1), (-0.05, 0.05))
"""m, of the trunk's centre of mass, along x, y, z."""
STRENGTH = (0.9, 1.1)
"""Torque of a motor for what is asked of it."""
FIELDS = ("body_mass", "body_ipos", "body_inertia", "pair_friction")
"""Of a MjModel, that the parameters are in; and what MuJoCo derives from them:"""
DERIVED = ("body_subtreemass", "body_invweight0", "dof_invweight0", "actuator_acc0")


@dataclass(frozen=True)
class Parameters:
    """Those of B robots; they stay as they are. All but latency and stiffness are what the critic sees."""

    friction: Tensor
    """[B]"""
    com_offset: Tensor
    """[B, 3], m."""
    added_mass: Tensor
    """[B], kg."""
    strength: Tensor
    """[B, 12]"""
    latency: Tensor
    """[B], physics steps from an action to its effect."""
    stiffness: Tensor
    """[B], of the motors' position gain."""

    @classmethod
    def draw(
        cls,
        num_envs: int,
        seed: int,
        latency: tuple[int, int],
        stiffness: tuple[float, float],
        device: torch.device,
        dtype: torch.dtype,
    ) -> Parameters:
        """Follow from the seed, the first robots' whatever the number of robots."""
        rng = np.random.default_rng([seed, 0xA3])
        low, high = np.array([FRICTION, *COM_OFFSET, ADDED_MASS, *[STRENGTH] * len(JOINTS)]).T
        delays = np.random.default_rng([seed, 0xA4]).integers(latency[0], latency[1] + 1, num_envs)
        gains = np.random.default_rng([seed, 0xA5]).uniform(*stiffness, num_envs)
        drawn = torch.tensor(rng.uniform(low, high, (num_envs, len(low))), dtype=dtype, device=device)
        return cls(
            drawn[:, 0],
            drawn[:, 1:4],
            drawn[:, 4],
            drawn[:, 5:],
            latency=torch.tensor(delays, device=device),
            stiffness=torch.tensor(gains, dtype=dtype, device=device),
        )

    def ages(self) -> Tensor:
        """[physics steps of a control step, B]: how many actions ago the one was chosen that has its effect there."""
        steps = torch.arange(DECIMATION, device=self.latency.device)[:, None]
        return ((self.latency - steps + DECIMATION - 1) // DECIMATION).clamp_min(0)

    @property
    def contact_friction(self) -> Tensor:
        """[B]: of the robot on the ground. PhysX takes the mean of the two, where MuJoCo would take the larger."""
        return (self.friction + 1.0) / 2

    def kits(self, model: mujoco.MjModel) -> list[dict[str, np.ndarray]]:
        """For each robot, the fields of a plain model that are its own; the model is as it was afterwards."""
        data, trunk = mujoco.MjData(model), model.body(f"robot/{BASE}").id
        plain = {name: getattr(model, name).copy() for name in (*FIELDS, *DERIVED)}
        found = []
        for k in range(len(self.friction)):
            mass = plain["body_mass"][trunk] + float(self.added_mass[k])
            model.body_mass[trunk] = mass
            model.body_inertia[trunk] = plain["body_inertia"][trunk] * mass / plain["body_mass"][trunk]
            model.body_ipos[trunk] = plain["body_ipos"][trunk] + self.com_offset[k].numpy()
            model.pair_friction[:, :2] = float(self.contact_friction[k])
            mujoco.mj_setConst(model, data)
            found.append({name: getattr(model, name).copy() for name in plain})
        use(plain, model)
        return found


def use(kit: dict[str, np.ndarray], model: mujoco.MjModel) -> None:
    """The model becomes that of one robot."""
    for name, values in kit.items():
        getattr(model, name)[:] = values


@requires_model_fields("body_mass", "body_ipos", "body_inertia", "pair_friction", recompute=RecomputeLevel.set_const)
def randomize(env: ManagerBasedRlEnv, env_ids: Tensor | None) -> None:
    """An event of mjlab's at the beginning: the parameters of all robots into MuJoCo Warp's models."""
    from .task import robots_of

    parameters, trunk = robots_of(env).parameters, env.sim.mj_model.body(f"robot/{BASE}").id
    model: Any = env.sim.model
    plain = env.sim.mj_model
    mass = plain.body_mass[trunk] + parameters.added_mass
    inertia = torch.tensor(plain.body_inertia[trunk], dtype=mass.dtype, device=mass.device)
    ipos = torch.tensor(plain.body_ipos[trunk], dtype=mass.dtype, device=mass.device)
    model.body_mass[:, trunk] = mass
    model.body_inertia[:, trunk] = inertia * (mass / plain.body_mass[trunk])[:, None]
    model.body_ipos[:, trunk] = ipos + parameters.com_offset
    model.pair_friction[:, :, :2] = parameters.contact_friction[:, None, None]
