"""humanoid-mod: run on flat ground, towards a target 1000 m ahead, with contact forces observed.

Observation (100):
- torso height, velocity, roll, pitch and yaw, angular velocity (world frame)
- joint positions, scaled to their ranges, and joint velocities x 0.1
- net contact force on each of the 16 bodies (N, world frame)

Action (21): torque / gear. An episode ends in death when a contact force of more than 1 N acts on a body other than a
foot. It ends by time-out after 1000 steps of 1/60 s. The reward is listed in `humanoid_task`; in the step of death it
is -1.

Where this differs from the authors' environment:
- Contact forces in the first observation of an episode are zero. The authors' are those of the previous episode, and
  end the new one at once.
- A reset takes effect with the first observation of an episode. The authors' reset takes effect one step later, so an
  action is lost.
- Start poses in which the robot touches itself are drawn again. Such a contact counts as a fall in both environments,
  so 23 % of the episodes would end at their first action.
- A broken simulation (faster than world.MAX_SPEED or MAX_TURN, or not finite, which also stops `bot train`) is death.
  The authors' environment continues.
- A step is 1/60 s (the authors': 0.0166 s), so control is at 60 Hz. Speeds are measured over the actual step.
- There is no damping of rotations in the air (the authors': 0.01): MuJoCo has none, and the damping of the joints is
  100 times as large.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from mjlab.terrains import TerrainEntityCfg
from numpy.typing import NDArray
from torch import Tensor

from ...video import View
from ..envs.terms import ACTOR, CRITIC, ObservationTerm, RewardTerm, alive, obs_terms
from ..registry import TaskSpec
from . import terms
from .model import DECIMATION, EXPERIMENT, PHYSICS_DT, scene, simulation
from .robots import HumanoidState, HumanoidTask

START_Z = 1.34
"""Feet 5.4 cm above the ground."""
TARGET = (1000.0, 0.0)
MAX_STEPS = 1000
VIEW = View(body="robot/torso", below_m=0.4, shadows=False)
"""Without shadows: the sun shines only around the origin, and a running robot leaves that area."""


def humanoid_task(
    *,
    target: tuple[float, float],
    direction: Callable[[HumanoidState], tuple[Tensor, Tensor]],
    failure: Callable[[HumanoidState], Tensor],
    privileged: tuple[ObservationTerm[HumanoidState], ...] = (),
    **options: Any,
) -> HumanoidTask:
    """Return a task with the observations, actions and rewards of humanoid-mod.

    Args:
        target: x and y of the target, m.
        direction: returns the unit vector of the rewarded heading.
        failure: returns where the robot has failed, [B, bool].
        privileged: terms that the critic observes beside those of the actor.
        options: further fields of the task.
    """
    actor = obs_terms(EXPERIMENT.obs, terms.OBSERVATIONS)
    (torque,) = EXPERIMENT.actions
    return HumanoidTask(
        obs={ACTOR: actor, CRITIC: (*actor, *privileged)} if privileged else {ACTOR: actor},
        actions=torque,
        rewards={
            "progress": RewardTerm(partial(terms.progress, target=target), 1.0),
            "alive": RewardTerm(alive, 2.0),
            "upright": RewardTerm(terms.upright, 0.1),
            "heading": RewardTerm(partial(terms.heading, direction=direction), 0.5),
            "effort": RewardTerm(terms.effort, -0.01),
            "energy": RewardTerm(terms.energy, -0.05),
            "limits": RewardTerm(terms.limits, -0.25),
        },
        death_reward=-1.0,
        failures=(failure,),
        forward_speed=terms.forward_speed,
        physics_dt=PHYSICS_DT,
        decimation=DECIMATION,
        max_steps=MAX_STEPS,
        view=VIEW,
        **options,
    )


def origin(rng: np.random.Generator, count: int, z: float) -> NDArray[np.float64]:
    """Return torso positions that are all above the origin."""
    return np.tile([0.0, 0.0, z], (count, 1))


def task() -> HumanoidTask:
    """Return humanoid-mod."""
    return humanoid_task(
        target=TARGET,
        direction=partial(terms.to_target, target=TARGET),
        failure=terms.fallen,
        place=partial(origin, z=START_Z),
        scene=scene(START_Z, terrain=TerrainEntityCfg(terrain_type="plane")),
        simulation=simulation(max_contacts=40, max_constraints=200),
    )


SPEC = TaskSpec(task=lambda seed: task())
