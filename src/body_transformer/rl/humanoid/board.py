"""humanoid-board: keep balance on a board that lies on a cylinder.

The cylinder (radius 0.1 m, length 0.4 m, 12.57 kg, axis along x) rests on the ground. The board (0.4 x 0.6 x 0.05 m, 12
kg) rests on the cylinder. The robot stands on the board and looks along the axis, so it can fall sideways. All three
move freely. An episode ends in death when the torso is below 1.3 m. The target is the origin, so progress is at best 0
and the reward of a step is about 2.6. Neither board nor cylinder is observed. Observation, action and reward are as in
humanoid-mod.

Two options for training go beyond the paper; both are off by default. With `start_noise_curriculum`, each start has a
share of the random pose, from none to all of it (see robots.draw_starts). With `privileged_critic`, the critic also
observes board and cylinder (see terms.PRIVILEGED); the actor's observations stay the same.

Where this differs from the authors' environment, beyond the differences of humanoid-mod:
- Heading is measured against the direction of the start (x). The authors use the direction to the origin, which has no
  meaning for a robot that stands there.
- Start poses with a foot so deep in the board that it would come out below (1 %) are drawn again. Such a foot would
  lift the board from below.
- The cylinder has round ends outside the board (see model.cylinder_spec): the board sinks into one with flat ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from mjlab.terrains import TerrainEntityCfg

from ..registry import TaskSpec
from . import terms
from .mod import humanoid_task, origin
from .model import BOARD_SIZE, CYLINDER_RADIUS, at_height, board_spec, cylinder_spec, scene, simulation
from .robots import HumanoidTask

START_Z = 1.532
"""m; feet are 3.5 mm inside the board, as in the authors' environment."""
DEATH_Z = 1.3


@dataclass(frozen=True, kw_only=True)
class BoardOptions:
    """Options beyond the paper."""

    start_noise_curriculum: bool = False
    """Give every start of a training episode a random share of the random pose, from none to all of it."""
    privileged_critic: bool = False
    """Let the critic observe board and cylinder."""


def task(seed: int, options: BoardOptions) -> HumanoidTask:
    """Return humanoid-board."""
    stack = {
        "board": at_height(board_spec, 2 * CYLINDER_RADIUS + BOARD_SIZE[2] / 2),
        "cylinder": at_height(cylinder_spec, CYLINDER_RADIUS),
    }
    return humanoid_task(
        target=(0.0, 0.0),
        direction=terms.straight_ahead,
        failure=partial(terms.below, height=DEATH_Z),
        privileged=terms.PRIVILEGED if options.privileged_critic else (),
        place=partial(origin, z=START_Z),
        start_noise_curriculum=options.start_noise_curriculum,
        scene=scene(START_Z, stack, terrain=TerrainEntityCfg(terrain_type="plane")),
        simulation=simulation(max_contacts=48, max_constraints=240),
    )


def evaluated(task: HumanoidTask, num_envs: int) -> HumanoidTask:
    """Return the task of an evaluation, which begins in the paper's starts."""
    return replace(task, start_noise_curriculum=False)


SPEC = TaskSpec(task=task, evaluated=evaluated, options=BoardOptions)
