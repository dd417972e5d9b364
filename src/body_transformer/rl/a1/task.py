"""The parts that the tasks of the A1 share: robot, ground, physics and ends of episodes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from mjlab.scene import SceneCfg

from ...experiment import Experiment
from ...video import View
from ..envs.mjlab import physics
from ..envs.terms import ObservationTerm, RewardTerm, outside
from . import terms
from .ground import add_planes
from .model import BASE, DECIMATION, PHYSICS_DT, contact_sensors, robot
from .options import WalkOptions
from .parameters import randomize
from .robots import WalkTask
from .state import A1State
from .terrain import START_ABOVE, Terrain

EDGE = 1.0
"""Distance from the end of the ground at which an episode ends, m."""


def a1_task(
    experiment: Experiment,
    terrain: Terrain,
    options: WalkOptions,
    max_steps: int,
    obs: Mapping[str, tuple[ObservationTerm[A1State], ...]],
    rewards: Mapping[str, RewardTerm[A1State]],
    **changes: Any,
) -> WalkTask:
    """Return a task of the A1 on that ground, with other fields of `WalkTask` as in `changes`."""
    (joint_target,) = experiment.actions
    if experiment.deploy is None or experiment.deploy.filter is None:
        raise ValueError(f"experiment {experiment.name!r} has no deploy.filter, the robot's filter of joint targets")
    (low_x, low_y), (high_x, high_y) = terrain.low, terrain.high
    low, high = (low_x + EDGE, low_y + EDGE), (high_x - EDGE, high_y - EDGE)
    return WalkTask(
        obs=obs,
        actions=joint_target,
        rewards=rewards,
        reward_at_least_0=True,
        reward_per_second=True,
        failures=(terms.fallen,),
        time_outs=(partial(outside, low=low, high=high),),
        forward_speed=terms.forward_speed,
        commanded_speed=terms.commanded_speed,
        motion=terms.motion,
        physics_dt=PHYSICS_DT,
        decimation=DECIMATION,
        max_steps=max_steps,
        startup=randomize,
        pushes=options.push_every_s is not None or options.resample_every_s is not None or options.heading > 0,
        view=View(body=f"robot/{BASE}", below_m=0.1, distance_m=1.8, shadows=False),
        scene=SceneCfg(
            env_spacing=0.0,
            entities={"robot": robot(START_ABOVE)},
            sensors=contact_sensors(),
            spec_fn=add_planes,
            extent=2.0,
        ),
        # room for a contact of every feeler and for all joints at their limits
        simulation=physics(PHYSICS_DT, max_contacts=32, max_constraints=128),
        options=options,
        terrain=terrain,
        low_pass=experiment.deploy.filter,
        **changes,
    )
