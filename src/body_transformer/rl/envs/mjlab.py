"""A task of ours as terms of mjlab's managers, and the environment of mjlab's own tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import torch
from mjlab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from mjlab.envs.types import VecEnvStepReturn
from mjlab.managers.action_manager import ActionTerm, ActionTermCfg
from mjlab.managers.event_manager import EventTermCfg
from mjlab.managers.observation_manager import ObservationGroupCfg, ObservationTermCfg
from mjlab.managers.reward_manager import RewardTermCfg
from mjlab.managers.termination_manager import TerminationTermCfg
from mjlab.sim import MujocoCfg, SimulationCfg
from mjlab.utils.noise import UniformNoiseCfg
from torch import Tensor

from ..walking import Motion
from .interface import RlEnv, misfit
from .mjlab_motion import motion_of
from .mjlab_state import held_state, put_held_state, simulator_state
from .terms import ObservationTerm, RewardTerm, RlTask, TaskTerms
from .world import World

# -- our tasks ---------------------------------------------------------------------------------------------------------


def env_cfg(task: RlTask[Any], num_envs: int, seed: int) -> ManagerBasedRlEnvCfg:
    """Return mjlab's configuration of a task."""
    has_death_reward = task.death_reward is not None
    rewards: dict[str, RewardTermCfg] = {
        name: RewardTermCfg(func=_reward_function(term, has_death_reward), weight=term.weight)
        for name, term in task.rewards.items()
    }
    if task.death_reward is not None:
        rewards["death"] = RewardTermCfg(func=_death, weight=task.death_reward)
    if task.reward_at_least_0:
        rewards["floor"] = RewardTermCfg(func=_floor, weight=1.0)
    events = {"start": EventTermCfg(func=_restart, mode="reset")}
    if task.startup is not None:
        events["randomize"] = EventTermCfg(func=task.startup, mode="startup")
    if task.pushes:
        events["push"] = EventTermCfg(func=_push, mode="step")
    return ManagerBasedRlEnvCfg(
        seed=seed,
        decimation=task.decimation,
        episode_length_s=task.max_steps * task.control_dt - 1e-6,  # mjlab rounds up: 1000.0000001 would be 1001 steps
        scene=replace(task.scene, num_envs=num_envs),
        sim=task.simulation,
        observations={group: _group(terms) for group, terms in task.obs.items()},
        actions={task.actions.name: TaskActionCfg(entity_name="robot", get_task=lambda: task)},
        events=events,
        rewards=rewards,
        scale_rewards_by_dt=task.reward_per_second,
        terminations={
            "died": TerminationTermCfg(func=_died),
            "time_out": TerminationTermCfg(func=_timed_out, time_out=True),
        },
    )


def physics(
    timestep: float, max_contacts: int, max_constraints: int, jacobian: Literal["auto", "dense"] = "auto"
) -> SimulationCfg:
    """Return the physics of a task; MuJoCo Warp drops contacts and constraint rows beyond these numbers per world."""
    solver = MujocoCfg(
        timestep=timestep,
        integrator="implicitfast",
        solver="newton",
        cone="pyramidal",
        jacobian=jacobian,
        iterations=10,
        ls_iterations=20,
        tolerance=1e-6,
        disableflags=("multiccd",),  # for contacts of flat faces, which do not occur; MuJoCo Warp warns about capsules
    )
    return SimulationCfg(nconmax=max_contacts, njmax=max_constraints, contact_sensor_maxmatch=64, mujoco=solver)


def task_of(cfg: ManagerBasedRlEnvCfg) -> Any:
    """Return the task of a configuration that `env_cfg` made."""
    return next(action.get_task() for action in cfg.actions.values() if isinstance(action, TaskActionCfg))


def terms_of(env: ManagerBasedRlEnv) -> TaskTerms[Any]:
    """Return the terms of an environment of our own. The action term holds them because mjlab builds it first."""
    manager = env.action_manager
    actions = [manager.get_term(name) for name in manager.active_terms]
    return next(action.terms for action in actions if isinstance(action, TaskAction))


@dataclass(kw_only=True)
class TaskActionCfg(ActionTermCfg):
    """Configuration of the only action term of a task; it carries the task."""

    get_task: Callable[[], RlTask[Any]]
    """Returns the task. It is a function because mjlab's commands make flags of all dataclasses in a configuration."""

    def build(self, env: ManagerBasedRlEnv) -> TaskAction:
        return TaskAction(self, env)


class TaskAction(ActionTerm):
    """The action term. The task's robots turn actions into motor commands; mjlab's actuators are not used."""

    def __init__(self, cfg: TaskActionCfg, env: ManagerBasedRlEnv):
        super().__init__(cfg, env)
        task = cfg.get_task()
        self.owners, self.graph = task.actions, task.graph
        self.terms = TaskTerms(task, World.of(env), env.cfg)
        self._physics_step = 0

    @property
    def action_dim(self) -> int:
        return self.owners.size

    @property
    def target_names(self) -> list[str]:
        """Joint of each action."""
        return list(self.owners.of)

    @property
    def raw_action(self) -> Tensor:
        action: Tensor = self.terms.state.action
        return action

    def process_actions(self, actions: Tensor) -> None:
        self.terms.robots.act(actions)
        self._physics_step = 0

    def apply_actions(self) -> None:
        """Prepare the next physics step."""
        self.terms.robots.before_physics(self._physics_step)
        self._physics_step += 1


def _group(terms: tuple[ObservationTerm[Any], ...]) -> ObservationGroupCfg:
    found = {term.name: ObservationTermCfg(func=observation_function(term)) for term in terms}
    for term in terms:
        if term.noise:
            found[term.name].noise = UniformNoiseCfg(n_min=-term.noise, n_max=term.noise)
    return ObservationGroupCfg(found, enable_corruption=any(term.noise for term in terms))


@cache
def observation_function(term: ObservationTerm[Any]) -> Callable[[ManagerBasedRlEnv], Tensor]:
    """Return the function of a term for mjlab, the same one for equal terms, with the owners of its entries.

    It is a plain function because mjlab's commands make flags of the attributes of all other objects.
    """

    def observe(env: ManagerBasedRlEnv) -> Tensor:
        return term.value(terms_of(env).state)

    observe.owners = term.owners  # type: ignore[attr-defined]
    return observe


def _reward_function(term: RewardTerm[Any], has_death_reward: bool) -> Callable[[ManagerBasedRlEnv], Tensor]:
    """Return the function of a term for mjlab: 0 at death if death has its own reward, else 0 where physics broke."""

    def reward(env: ManagerBasedRlEnv) -> Tensor:
        terms = terms_of(env)
        is_zero = env.termination_manager.terminated if has_death_reward else terms.world.broken()
        return term.value(terms.state).masked_fill(is_zero, 0.0)

    return reward


def _death(env: ManagerBasedRlEnv) -> Tensor:
    return env.termination_manager.terminated.float()


def _floor(env: ManagerBasedRlEnv) -> Tensor:
    """Return the reward that raises a negative sum of all other terms to 0."""
    return (-terms_of(env).weighted_sum()).clamp_min(0.0)


def _died(env: ManagerBasedRlEnv) -> Tensor:
    """Return the deaths. mjlab calls this term first after the physics, so it reads the sensors before forward()."""
    terms = terms_of(env)
    terms.robots.locate()
    terms.robots.read_sensors()
    return terms.died()


def _timed_out(env: ManagerBasedRlEnv) -> Tensor:
    terms = terms_of(env)
    return terms.timed_out(terms.died())


def _push(env: ManagerBasedRlEnv, env_ids: Tensor | None) -> None:
    terms_of(env).robots.push()


def _restart(env: ManagerBasedRlEnv, env_ids: Tensor) -> None:
    fresh = torch.zeros(env.num_envs, dtype=torch.bool, device=env.device)
    fresh[env_ids] = True
    terms_of(env).robots.restart(fresh)


# -- mjlab's own tasks -------------------------------------------------------------------------------------------------


LEVELS, HELD, CURRICULUM = "terrain_levels", "held.", "curriculum_step"
"""Names in a checkpoint: terrain levels, the prefix of what mjlab's objects hold, and the curricula's last step."""


class MjlabEnv(ManagerBasedRlEnv, RlEnv):
    """One of mjlab's tasks; actions are clipped to ±`clip_actions`, as mjlab's runner does."""

    def __init__(self, cfg: ManagerBasedRlEnvCfg, device: str, clip_actions: float | None = None) -> None:
        super().__init__(cfg, device)
        self.clip_actions, self.is_finite_horizon = clip_actions, cfg.is_finite_horizon

    def step(self, action: Tensor) -> VecEnvStepReturn:
        limit = self.clip_actions
        return super().step(action if limit is None else action.clamp(-limit, limit))

    def _reset_idx(self, env_ids: Tensor | None = None) -> None:
        self._curriculum_step = self.common_step_counter
        super()._reset_idx(env_ids)

    def episode_state(self) -> dict[str, Tensor]:
        """Return the simulator's memory, all that mjlab's objects hold, and the step of the last curricula."""
        held = {f"{HELD}{path}": value for path, value in held_state(self).items()}
        return {**simulator_state(self), **held, CURRICULUM: torch.tensor(self._curriculum_step)}

    def continue_episodes(self, tensors: Mapping[str, Tensor]) -> str:
        """Continue from the tensors that `episode_state` returned; return why that is impossible, or nothing."""
        simulated = simulator_state(self)
        if why := misfit(simulated, tensors):
            return why
        step, self.common_step_counter = self.common_step_counter, int(tensors[CURRICULUM])
        self.reset()  # applies the curricula of that step to the settings of the terms
        self.common_step_counter = step
        for name, value in simulated.items():
            value.copy_(tensors[name])
        self.sim.forward()
        self.sim.sense()
        put_held_state(self, {name.removeprefix(HELD): value for name, value in tensors.items()})
        return ""

    @property
    def motion(self) -> Motion | None:
        return motion_of(self)

    def final_state(self) -> dict[str, Tensor]:
        """Return the current qpos and qvel: mjlab keeps none from before a reset."""
        return {name: getattr(self.sim.data, name) for name in ("qpos", "qvel")}

    def training_state(self) -> dict[str, Tensor]:
        """Return the terrain level of every environment [B], if the terrain has levels.

        They are the only state of mjlab's curricula that does not follow from the step counter.
        """
        terrain: Any = self.scene.terrain
        return {} if terrain is None or terrain.terrain_origins is None else {LEVELS: terrain.terrain_levels}

    def restore(self, tensors: Mapping[str, Tensor]) -> bool:
        """Set the terrain levels; if there are more environments than saved levels, these repeat."""
        own = self.training_state()
        if LEVELS not in tensors or not own:
            return False
        terrain: Any = self.scene.terrain
        levels, saved = own[LEVELS], tensors[LEVELS]
        repeated = saved.to(levels)[torch.arange(len(levels), device=levels.device) % len(saved)]
        levels.copy_(repeated.clamp(max=terrain.max_terrain_level - 1))
        terrain.env_origins.copy_(terrain.terrain_origins[levels, terrain.terrain_types])
        return True
