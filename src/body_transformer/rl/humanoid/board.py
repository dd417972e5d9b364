"""humanoid-board: keep the balance on a board that lies on a cylinder.

The cylinder (radius 0.1 m, length 0.4 m, 12.57 kg, axis along x) rests on the ground, the board (0.4 x 0.6 x 0.05 m, 12
kg) on the cylinder. The robot stands on the board and looks along the axis, so that it can fall sideways. All three are
free. An episode ends in death when the torso is below 1.3 m. The target is the origin, so progress is at best 0 and a
step is worth about 2.6. Neither board nor cylinder is observed. Observation, action and reward are as in humanoid-mod.

Two options for training go beyond the paper; both are off by default. With `start_noise_curriculum`, each start has a
share of the random pose, from none to all of it (see robots.draw_starts). With `privileged_critic`, the critic also
observes board and cylinder (see terms.PRIVILEGED); the actor's observations stay the same.

Where this differs from the authors' environment, beyond the differences of humanoid-mod:
- Heading is measured against the direction of the start (x). Theirs was the direction to the origin, on which the robot
  stands, where it has no meaning.
- Start poses with a foot so deep in the board that it would come out below (1 %) are drawn again: such a robot lifts
  the board from under it.
- The cylinder has round ends outside the board (see model.cylinder_spec): with flat ones the board sinks in.
"""

from __future__ import annotations

from functools import partial

from mjlab.envs import ManagerBasedRlEnvCfg
from mjlab.scene import SceneCfg
from mjlab.terrains import TerrainEntityCfg

from ..envs.mjlab import env_cfg
from . import terms
from .mod import origin
from .model import (
    BOARD_SIZE,
    CYLINDER_RADIUS,
    board_spec,
    contact_sensor,
    cylinder_spec,
    resting,
    robot,
    simulation,
)
from .task import HumanoidTask, humanoid_task

START_Z = 1.532
"""m; feet are 3.5 mm inside the board, as in the authors' environment."""
DEATH_Z = 1.3

OPTIONS = ("start_noise_curriculum", "privileged_critic")
TRAINING_ONLY = ("start_noise_curriculum",)


def task(start_noise_curriculum: bool = False, privileged_critic: bool = False) -> HumanoidTask:
    """Return humanoid-board."""
    return humanoid_task(
        place=partial(origin, z=START_Z),
        target=(0.0, 0.0),
        direction=terms.straight_ahead,
        failure=partial(terms.below, height=DEATH_Z),
        start_noise_curriculum=start_noise_curriculum,
        has_stack=True,
        privileged=terms.PRIVILEGED if privileged_critic else (),
    )


def cfg(
    num_envs: int, seed: int, start_noise_curriculum: bool = False, privileged_critic: bool = False
) -> ManagerBasedRlEnvCfg:
    """Return mjlab's configuration of humanoid-board."""
    for name, value in (("start_noise_curriculum", start_noise_curriculum), ("privileged_critic", privileged_critic)):
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be true or false; got {value!r}")
    scene = SceneCfg(
        num_envs=num_envs,
        env_spacing=0.0,
        terrain=TerrainEntityCfg(terrain_type="plane"),
        entities={
            "robot": robot(START_Z),
            "board": resting(board_spec, 2 * CYLINDER_RADIUS + BOARD_SIZE[2] / 2),
            "cylinder": resting(cylinder_spec, CYLINDER_RADIUS),
        },
        sensors=(contact_sensor(),),
    )
    return env_cfg(
        task(start_noise_curriculum, privileged_critic), scene, simulation(max_contacts=48, max_constraints=240), seed
    )
