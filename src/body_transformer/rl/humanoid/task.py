"""The list of terms that the three humanoid tasks share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from mjlab.envs import ManagerBasedRlEnvCfg
from torch import Tensor

from ...experiment import load_experiment
from ...video import View
from ..envs.mjlab import env_cfg, task_of
from ..envs.terms import ACTOR, CRITIC, ObservationTerm, RewardTerm, obs_terms
from ..ground import add_field
from . import terms
from .model import DECIMATION, PHYSICS_DT
from .robots import HumanoidState, HumanoidTask

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
    """Return a task: run to `target` (x and y, m), look in `direction` (a unit vector), and avoid the `failure`.

    The critic observes the actor's terms and `privileged`. `options` are further fields of the task.
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
        forward_speed=terms.forward_speed,
        physics_dt=PHYSICS_DT,
        decimation=DECIMATION,
        max_steps=MAX_STEPS,
        view=VIEW,
        **options,
    )


def on_height_field(cfg: ManagerBasedRlEnvCfg) -> ManagerBasedRlEnvCfg:
    """Return the configuration with uneven ground as MuJoCo's own height field, which catches feet at inner edges."""
    task: HumanoidTask = task_of(cfg)
    assert task.ground is not None
    solid = replace(cfg.scene, spec_fn=partial(add_field, ground=task.ground))
    return env_cfg(replace(task, ground=None), solid, cfg.sim, cfg.seed or 0)
