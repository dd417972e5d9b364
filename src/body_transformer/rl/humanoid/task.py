"""The list of terms that the three humanoid tasks share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from mjlab.envs import ManagerBasedRlEnvCfg
from torch import Tensor

from ...experiment import load_experiment
from ...video import View
from ..envs.mjlab import task_of, with_task
from ..envs.terms import ACTOR, CRITIC, ObservationTerm, RewardTerm, RlTask, obs_terms
from ..envs.world import World
from . import terms
from .ground import Ground
from .model import DECIMATION, PHYSICS_DT
from .robots import Humanoids, HumanoidState, Place

MAX_STEPS = 1000
VIEW = View(body="robot/torso", below_m=0.4, shadows=False)
"""Without shadows: the sun shines around the origin only, and a runner would leave it."""


@dataclass(frozen=True, kw_only=True)
class HumanoidTask(RlTask[HumanoidState]):
    """A task of the humanoid."""

    place: Place
    """Draws the places where episodes begin."""
    ground: Ground | None = None
    """Uneven ground; flat ground is part of the scene."""
    start_noise_curriculum: bool = False
    """Give every start a share of the random pose, from none to all of it."""
    has_stack: bool = False
    """Whether board and cylinder are in the scene."""

    def make_robots(self, world: World, seed: int) -> Humanoids:
        return Humanoids(
            world,
            seed,
            place=self.place,
            ground=self.ground,
            start_noise_curriculum=self.start_noise_curriculum,
            has_stack=self.has_stack,
        )


def humanoid_task(
    *,
    place: Place,
    target: tuple[float, float],
    direction: Callable[[HumanoidState], tuple[Tensor, Tensor]],
    failure: Callable[[HumanoidState], Tensor],
    time_outs: tuple[Callable[[HumanoidState], Tensor], ...] = (),
    ground: Ground | None = None,
    start_noise_curriculum: bool = False,
    has_stack: bool = False,
    privileged: tuple[ObservationTerm[HumanoidState], ...] = (),
) -> HumanoidTask:
    """Return a task: run to `target` (x and y, m), look in `direction` (a unit vector), and avoid the `failure`.

    The critic observes `privileged` beyond the actor, if there is any.
    """
    experiment = load_experiment("humanoid-mod")
    actor = obs_terms(experiment.obs, terms.OBSERVATIONS)
    (torque,) = experiment.actions
    return HumanoidTask(
        obs={ACTOR: actor, CRITIC: (*actor, *privileged)} if privileged else {ACTOR: actor},
        actions=torque,
        rewards={
            "progress": RewardTerm(partial(terms.progress, target=target), 1.0),
            "alive": RewardTerm(terms.alive, 2.0),
            "upright": RewardTerm(terms.upright, 0.1),
            "heading": RewardTerm(partial(terms.heading, direction=direction), 0.5),
            "effort": RewardTerm(terms.effort, -0.01),
            "energy": RewardTerm(terms.energy, -0.05),
            "limits": RewardTerm(terms.limits, -0.25),
        },
        death_reward=-1.0,
        failures=(failure,),
        time_outs=time_outs,
        forward_speed=terms.forward_speed,
        physics_dt=PHYSICS_DT,
        decimation=DECIMATION,
        max_steps=MAX_STEPS,
        view=VIEW,
        place=place,
        ground=ground,
        start_noise_curriculum=start_noise_curriculum,
        has_stack=has_stack,
    )


def on_height_field(cfg: ManagerBasedRlEnvCfg) -> ManagerBasedRlEnvCfg:
    """Return the configuration with uneven ground as MuJoCo's own height field, whose inner edges catch feet."""
    task: HumanoidTask = task_of(cfg)
    assert task.ground is not None
    solid = replace(cfg, scene=replace(cfg.scene, spec_fn=task.ground.add_field))
    return with_task(solid, replace(task, ground=None))
