"""humanoid-mod: run on flat ground, towards a target 1000 m ahead, with contact forces observed.

Observation (100): torso height, velocity, roll pitch yaw, angular velocity (world), joint positions (scaled to their
ranges), joint velocities x 0.1, net contact force of each of the 16 bodies (N, world). Action (21): torque / gear.
An episode ends in death when a body that is no foot feels more than 1 N, and by time-out after 1000 steps of 1/60 s.
Reward of a step: see terms.REWARD_WEIGHTS; it is -1 alone in the step of death.

Where this is not the authors' environment:
- contact forces in the first observation of an episode are zero: theirs were those of the episode before, and ended
  the new one at once;
- an episode takes effect with its first observation, theirs one step later: the action between would be lost;
- start poses in which the robot touches itself are drawn again: a contact of the body with itself counts as contact,
  in theirs as here, and 23 % of the episodes would be over at their first action;
- a simulation that has broken (faster than world.MAX_SPEED or MAX_TURN, or no number, which also stops `bot train`) is
  death: theirs went on;
- a step is 1/60 s, theirs was 0.0166 s, so that control is at 60 Hz: speeds are measured by the step that is taken;
- no damping of rotations in the air (0.01 in theirs): MuJoCo has none, and the joints' damping is 100 times as much.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from mjlab.envs import ManagerBasedRlEnvCfg
from mjlab.scene import SceneCfg
from mjlab.terrains import TerrainEntityCfg
from numpy.typing import NDArray

from . import terms
from .model import contact_sensor, robot, simulation
from .task import Task, env_cfg

START_Z = 1.34
"""Feet 5.4 cm above the ground."""
TARGET = (1000.0, 0.0)


def origin(rng: np.random.Generator, count: int, z: float) -> NDArray[np.float64]:
    """Torso positions: all above the origin."""
    return np.tile([0.0, 0.0, z], (count, 1))


TASK = Task(
    place=partial(origin, z=START_Z),
    target=TARGET,
    direction=partial(terms.to_target, target=TARGET),
    died=terms.fallen,
)


def cfg(num_envs: int, seed: int) -> ManagerBasedRlEnvCfg:
    """mjlab's configuration of humanoid-mod."""
    scene = SceneCfg(
        num_envs=num_envs,
        env_spacing=0.0,
        terrain=TerrainEntityCfg(terrain_type="plane"),
        entities={"robot": robot(START_Z)},
        sensors=(contact_sensor(),),
    )
    return env_cfg(TASK, scene, simulation(max_contacts=40, max_constraints=200), seed)
