"""Parameters that differ between robots: friction, mass, centre of mass, the motors, latency."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
import torch
from mjlab.managers.event_manager import RecomputeLevel, requires_model_fields
from torch import Tensor

from ..envs.mjlab import terms_of
from .model import BASE, DECIMATION, JOINTS
from .options import WalkOptions

if TYPE_CHECKING:
    from mjlab.envs import ManagerBasedRlEnv

TICKS = (1, 2, 4)
"""Commands per action of a robot's loop of 50, 100 and 200 Hz."""
STRENGTH = (0.9, 1.1)
"""Range of a motor's torque relative to the commanded torque."""
FIELDS = ("body_mass", "body_ipos", "body_inertia", "pair_friction")
"""Fields of a MjModel that hold the parameters."""
DERIVED = ("body_subtreemass", "body_invweight0", "dof_invweight0", "actuator_acc0")
"""Fields that MuJoCo derives from them."""


@dataclass(frozen=True)
class A1Parameters:
    """The constant parameters of B robots. The critic of a1-walk observes those up to `strength`."""

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
    """[B], factor of the motors' position gain."""
    damping: Tensor
    """[B], factor of the motors' damping."""
    ticks: Tensor
    """[B], equal parts in which a target moves: 1, 2 or 4."""

    @classmethod
    def draw(cls, like: Tensor, seed: int, options: WalkOptions) -> A1Parameters:
        """Draw parameters for each row of `like`. Those of robot k are the same for any number of rows."""
        num_envs, rngs = len(like), [np.random.default_rng([seed, key]) for key in range(0xA3, 0xA8)]
        ranges = [options.friction, *options.com_offset, options.added_mass, *[STRENGTH] * len(JOINTS)]
        low, high = np.array(ranges).T
        drawn = like.new_tensor(rngs[0].uniform(low, high, (num_envs, len(low))))
        delays = rngs[1].integers(options.latency[0], options.latency[1] + 1, num_envs)
        factors = [
            rng.uniform(*span, num_envs)
            for rng, span in zip(rngs[2:4], (options.stiffness, options.damping), strict=True)
        ]
        ticks = rngs[4].choice(TICKS if options.interpolate else TICKS[:1], num_envs)
        return cls(
            friction=drawn[:, 0],
            com_offset=drawn[:, 1:4],
            added_mass=drawn[:, 4],
            strength=drawn[:, 5:],
            latency=torch.tensor(delays, device=like.device),
            stiffness=like.new_tensor(factors[0]),
            damping=like.new_tensor(factors[1]),
            ticks=torch.tensor(ticks, device=like.device),
        )

    def ages(self) -> Tensor:
        """Return the age in control steps of the action that acts in each physics step, [DECIMATION, B]."""
        steps = torch.arange(DECIMATION, device=self.latency.device)[:, None]
        return ((self.latency - steps + DECIMATION - 1) // DECIMATION).clamp_min(0)

    def shares(self, like: Tensor) -> Tensor:
        """Return how far a target has moved from the one before in each physics step, [DECIMATION, B, 1] in (0, 1]."""
        steps = torch.arange(DECIMATION, device=self.latency.device)[:, None]
        acted = (steps - self.latency) % DECIMATION  # physics steps for which this target has already acted
        return ((acted * self.ticks // DECIMATION + 1) / self.ticks).to(like)[..., None]

    @property
    def contact_friction(self) -> Tensor:
        """[B]: of the robot on the ground, the mean of the two as in PhysX. MuJoCo would use the larger."""
        return (self.friction + 1.0) / 2

    def model_fields(self, model: mujoco.MjModel) -> list[dict[str, np.ndarray]]:
        """Return the fields of a model of plain MuJoCo that differ between robots, per robot."""
        varied, data, trunk = copy.copy(model), mujoco.MjData(model), model.body(f"robot/{BASE}").id
        found = []
        for k in range(len(self.friction)):
            mass = model.body_mass[trunk] + float(self.added_mass[k])
            varied.body_mass[trunk] = mass
            varied.body_inertia[trunk] = model.body_inertia[trunk] * mass / model.body_mass[trunk]
            varied.body_ipos[trunk] = model.body_ipos[trunk] + self.com_offset[k].numpy()
            varied.pair_friction[:, :2] = float(self.contact_friction[k])
            mujoco.mj_setConst(varied, data)
            found.append({name: getattr(varied, name).copy() for name in (*FIELDS, *DERIVED)})
        return found


@requires_model_fields(*FIELDS, recompute=RecomputeLevel.set_const)
def randomize(env: ManagerBasedRlEnv, env_ids: Tensor | None) -> None:
    """Write the parameters of all robots into the models of MuJoCo Warp, as an event of mjlab's."""
    parameters, plain = terms_of(env).state.parameters, env.sim.mj_model
    model: Any = env.sim.model
    trunk = plain.body(f"robot/{BASE}").id
    mass = plain.body_mass[trunk] + parameters.added_mass
    model.body_mass[:, trunk] = mass
    model.body_inertia[:, trunk] = mass.new_tensor(plain.body_inertia[trunk]) * (mass / plain.body_mass[trunk])[:, None]
    model.body_ipos[:, trunk] = mass.new_tensor(plain.body_ipos[trunk]) + parameters.com_offset
    model.pair_friction[:, :, :2] = parameters.contact_friction[:, None, None]
