"""a1-walk as one object over a simulator, and the same as terms of mjlab's managers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from mjlab.envs import ManagerBasedRlEnvCfg
from mjlab.managers.action_manager import ActionTerm, ActionTermCfg
from mjlab.managers.event_manager import EventTermCfg
from mjlab.managers.observation_manager import ObservationGroupCfg, ObservationTermCfg
from mjlab.managers.reward_manager import RewardTermCfg
from mjlab.managers.scene_entity_config import SceneEntityCfg
from mjlab.managers.termination_manager import TerminationTermCfg
from mjlab.scene import SceneCfg
from mjlab.sim import SimulationCfg
from mjlab.utils.noise import UniformNoiseCfg
from torch import Tensor

from ..world import World
from . import terms
from .ground import Planes
from .model import CONTROL_DT, DECIMATION, JOINTS
from .parameters import Parameters, randomize
from .resets import Ranges, starts
from .state import Memory
from .terrain import Terrain, place

if TYPE_CHECKING:
    from mjlab.envs import ManagerBasedRlEnv

MAX_STEPS = 1000
"""20 s."""
EDGE = 1.0
"""m: an episode ends so far from the end of the ground."""
ACTOR, CRITIC = "actor", "critic"
"""The groups of observations."""
ACTION = "joint_target"


@dataclass(frozen=True)
class Task:
    """The paper's setting by default; beyond it where something else is said."""

    terrain: Terrain
    command: Ranges = ((0.5, 0.5), (0.0, 0.0), (0.0, 0.0))
    """m/s ahead, m/s to the left, rad/s to the left: each episode draws from these ranges."""
    noise: bool = True
    """Whether the actor's observations are."""
    latency: tuple[int, int] = (0, 0)
    """Physics steps (5 ms) from an action to its effect; each robot draws one of this range."""
    stiffness: tuple[float, float] = (1.0, 1.0)
    """Of the motors' position gain; each robot draws one of this range. Targets are cut off as with 1."""
    push_every_s: float | None = None
    """From one push to the next; a push adds to the trunk's velocity."""
    push_speed: float = 0.5
    """m/s: largest part of a push along x and along y."""
    turning: float = terms.REWARD_WEIGHTS["turning"]
    """Weight of the commanded rate of turning in the reward. With the paper's, robots walk in wide curves."""

    def __post_init__(self) -> None:
        steps = isinstance(self.latency, list | tuple) and all(
            isinstance(end, int) and end >= 0 for end in self.latency
        )
        if not (steps and _is_range(self.latency)):
            raise ValueError(f"latency must be two numbers of physics steps, 0 <= low <= high; got {self.latency}")
        if not (_is_range(self.stiffness) and self.stiffness[0] > 0):
            raise ValueError(f"stiffness must be two numbers, 0 < low <= high; got {self.stiffness}")
        if not (isinstance(self.command, list | tuple) and [_is_range(part) for part in self.command] == [True] * 3):
            raise ValueError(f"command must be three ranges, low <= high; got {self.command}")
        if not isinstance(self.noise, bool):
            raise ValueError(f"noise must be true or false; got {self.noise!r}")
        if self.push_every_s is not None and not (_is_number(self.push_every_s) and self.push_every_s >= CONTROL_DT):
            raise ValueError(f"push_every_s must be at least a control step, {CONTROL_DT}; got {self.push_every_s}")
        if not (_is_number(self.push_speed) and self.push_speed >= 0):
            raise ValueError(f"push_speed must be a number, 0 or above; got {self.push_speed!r}")
        if not (_is_number(self.turning) and self.turning >= 0):
            raise ValueError(f"turning must be a number, 0 or above; got {self.turning!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_range(given: Any) -> bool:
    """Low, high."""
    return isinstance(given, list | tuple) and len(given) == 2 and all(map(_is_number, given)) and given[0] <= given[1]


class A1s:
    """The robots of a world: their state, parameters, starts and ground, and the terms of the task for them."""

    def __init__(self, task: Task, world: World, seed: int):
        self.task, self.world = task, world
        self.parameters = Parameters.draw(
            world.num_envs, seed, task.latency, task.stiffness, world.device, world.qpos.dtype
        )
        self.memory = Memory(world, self.parameters)
        self.state, self.joints = self.memory.state, self.memory.joints
        self.starts = starts(world, partial(place, terrain=task.terrain), task.command, seed)
        self.planes = Planes(world, task.terrain)
        """That the robots walk on."""
        self.privileged = terms.privileged(self.parameters)
        self._noise = self._largest_noise()
        self._steps = world.steps

    def _largest_noise(self) -> Tensor:
        """[48]"""
        entries = [terms.NOISE.get(name, 0.0) for name, width in terms.WIDTHS.items() for _ in range(width)]
        return self.state.action.new_tensor(entries)

    def drive(self, step: int) -> None:
        """Before physics step number `step` of a control step: torques, and the ground under the feet."""
        self.memory.drive(step)
        self.planes.lay(self.state)

    def feel(self) -> None:
        """After the last of them, before anything else writes the simulator's memory."""
        self.memory.sum_up()
        self.memory.feel()

    def disturb(self) -> None:
        """A push, where it is time for it."""
        if self.task.push_every_s is None:
            return
        now = self._steps() % round(self.task.push_every_s / CONTROL_DT) == 0
        speed = (2 * torch.rand_like(self.state.base_vel[:, :2]) - 1) * self.task.push_speed
        self.state.base_vel[:, :2].add_(speed * now[:, None])

    def restart(self, fresh: Tensor) -> None:
        """Where `fresh` [B, bool] an episode begins."""
        self.memory.restart(fresh, *self.starts.next(fresh))

    def observation(self) -> Tensor:
        """[B, 48], as good as the robot's sensors."""
        plain = terms.observation(self.state, self.joints, terms.no_velocity(self.state))
        return plain + (2 * torch.rand_like(plain) - 1) * self._noise if self.task.noise else plain

    def observations(self) -> dict[str, Tensor]:
        return {ACTOR: self.observation(), CRITIC: self.critic_observation()}

    def critic_observation(self) -> Tensor:
        """[B, 65]: the truth, and what the robot is like."""
        velocity = terms.base_linear_velocity(self.state)
        return torch.cat([terms.observation(self.state, self.joints, velocity), self.privileged], -1)

    def died(self) -> Tensor:
        """Where the simulation has broken, too: nothing that follows from such a state may be learned."""
        return terms.fallen(self.state) | self.world.broken()

    def timed_out(self, died: Tensor) -> Tensor:
        """After 20 s, or where the ground ends; who has died in this step has not timed out."""
        ground = self.task.terrain
        low, high = (ground.low[0] + EDGE, ground.low[1] + EDGE), (ground.high[0] - EDGE, ground.high[1] - EDGE)
        return ((self._steps() >= MAX_STEPS) | terms.outside(self.state, low, high)) & ~died

    def reward(self, died: Tensor, weights: dict[str, float]) -> Tensor:
        """[B]; who dies keeps that of the step."""
        return self.weighted(weights).clamp_min(0.0) * CONTROL_DT

    def forward_speed(self) -> Tensor:
        return terms.forward_speed(self.state)

    def commanded_speed(self) -> Tensor:
        return self.state.command[:, 0]

    def weighted(self, weights: dict[str, float]) -> Tensor:
        """[B]: the sum of all terms, which may be negative."""
        total = torch.zeros_like(self.state.energy)
        for name in terms.REWARD_WEIGHTS:
            total = total.add(getattr(terms, name)(self.state), alpha=weights[name])
        return total.masked_fill(self.world.broken(), 0.0)


# -- as terms of mjlab's managers --------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class JointTargetCfg(ActionTermCfg):
    """Actions are joint angles, from the default pose and in units of half a radian."""

    task: Task

    def build(self, env: ManagerBasedRlEnv) -> JointTarget:
        return JointTarget(self, env)


class JointTarget(ActionTerm):
    """Writes the simulator's motors itself, at every physics step."""

    def __init__(self, cfg: JointTargetCfg, env: ManagerBasedRlEnv):
        super().__init__(cfg, env)
        self.robots = A1s(cfg.task, World.of(env), seed=env.cfg.seed or 0)
        self._step = 0

    @property
    def action_dim(self) -> int:
        return len(JOINTS)

    @property
    def target_names(self) -> list[str]:
        """The joint of each action."""
        return list(JOINTS)

    @property
    def raw_action(self) -> Tensor:
        return self.robots.state.action

    def process_actions(self, actions: Tensor) -> None:
        self.robots.memory.act(actions)
        self._step = 0

    def apply_actions(self) -> None:
        self.robots.drive(self._step)
        self._step += 1


def robots_of(env: ManagerBasedRlEnv) -> A1s:
    """Those of an environment of ours; of its action term, which is built before the other terms."""
    term = env.action_manager.get_term(ACTION)
    assert isinstance(term, JointTarget)
    return term.robots


def task_of(cfg: ManagerBasedRlEnvCfg) -> Task:
    """Of a configuration that `env_cfg` made."""
    action = cfg.actions[ACTION]
    assert isinstance(action, JointTargetCfg)
    return action.task


def _joints() -> SceneEntityCfg:
    """Tells whose the entries are: mjlab's order is another."""
    return SceneEntityCfg("robot", joint_names=JOINTS, preserve_order=True)


def _observe(env: ManagerBasedRlEnv, term: str) -> Tensor:
    function: Callable[..., Tensor] = getattr(terms, term)
    return function(robots_of(env).state)


def _observe_joint_pos(env: ManagerBasedRlEnv, joints: SceneEntityCfg) -> Tensor:
    return terms.joint_pos(robots_of(env).state, robots_of(env).joints)


def _observe_joint_vel(env: ManagerBasedRlEnv, joints: SceneEntityCfg) -> Tensor:
    return terms.joint_vel(robots_of(env).state)


def _root_parameter(env: ManagerBasedRlEnv, field: str) -> Tensor:
    value: Tensor = getattr(robots_of(env).parameters, field)
    return value.view(env.num_envs, -1)


def _joint_parameter(env: ManagerBasedRlEnv, joints: SceneEntityCfg) -> Tensor:
    return robots_of(env).parameters.strength


def _reward(env: ManagerBasedRlEnv, term: str) -> Tensor:
    function: Callable[..., Tensor] = getattr(terms, term)
    return function(robots_of(env).state).masked_fill(robots_of(env).world.broken(), 0.0)


def _floor(env: ManagerBasedRlEnv) -> Tensor:
    """What is missing for the sum of all other terms to be 0, where that is negative."""
    weights = {name: term.weight for name, term in env.cfg.rewards.items()}
    return (-robots_of(env).weighted(weights)).clamp_min(0.0)


def _died(env: ManagerBasedRlEnv) -> Tensor:
    """The first term after the physics: what was felt is taken before mjlab's forward() overwrites it."""
    robots = robots_of(env)
    robots.feel()
    return robots.died()


def _timed_out(env: ManagerBasedRlEnv) -> Tensor:
    robots = robots_of(env)
    return robots.timed_out(robots.died())


def _push(env: ManagerBasedRlEnv, env_ids: Tensor | None) -> None:
    robots_of(env).disturb()


def _restart(env: ManagerBasedRlEnv, env_ids: Tensor) -> None:
    fresh = torch.zeros(env.num_envs, dtype=torch.bool, device=env.device)
    fresh[env_ids] = True
    robots_of(env).restart(fresh)


def observations(task: Task) -> dict[str, ObservationGroupCfg]:
    """The two groups. They differ in the velocity, in noise, and in what the critic alone is told."""
    shared: dict[str, tuple[Any, dict[str, Any]]] = {
        name: (_observe, {"term": name})
        for name in ("base_angular_velocity", "projected_gravity", "command", "previous_action")
    }
    shared |= {name: (func, {"joints": _joints()}) for name, func in _JOINT_TERMS.items()}
    told: dict[str, tuple[Any, dict[str, Any]]] = {
        name: (_root_parameter, {"field": name}) for name in ("friction", "com_offset", "added_mass")
    }
    told["motor_strength"] = (_joint_parameter, {"joints": _joints()})
    velocity = {ACTOR: "no_velocity", CRITIC: "base_linear_velocity"}
    groups = {}
    for group in (ACTOR, CRITIC):
        mine = {"base_linear_velocity": (_observe, {"term": velocity[group]}), **shared}
        found = {name: ObservationTermCfg(func=mine[name][0], params=mine[name][1]) for name in terms.WIDTHS}
        if group == CRITIC:
            found |= {name: ObservationTermCfg(func=func, params=params) for name, (func, params) in told.items()}
        elif task.noise:
            for name, most in terms.NOISE.items():
                found[name].noise = UniformNoiseCfg(n_min=-most, n_max=most)
        groups[group] = ObservationGroupCfg(found, enable_corruption=group == ACTOR)
    return groups


_JOINT_TERMS: dict[str, Any] = {"joint_pos": _observe_joint_pos, "joint_vel": _observe_joint_vel}


def env_cfg(task: Task, scene: SceneCfg, sim: SimulationCfg, seed: int) -> ManagerBasedRlEnvCfg:
    """mjlab's configuration."""
    rewards = {
        name: RewardTermCfg(func=_reward, weight=weight, params={"term": name})
        for name, weight in (terms.REWARD_WEIGHTS | {"turning": task.turning}).items()
    }
    events = {
        "randomize": EventTermCfg(func=randomize, mode="startup"),
        "start": EventTermCfg(func=_restart, mode="reset"),
    }
    if task.push_every_s is not None:
        events["push"] = EventTermCfg(func=_push, mode="step")
    return ManagerBasedRlEnvCfg(
        seed=seed,
        decimation=DECIMATION,
        episode_length_s=MAX_STEPS * CONTROL_DT - 1e-6,  # mjlab rounds up; without it 1000.0000001 would be 1001
        scene=scene,
        sim=sim,
        observations=observations(task),
        actions={ACTION: JointTargetCfg(entity_name="robot", task=task)},
        events=events,
        rewards={**rewards, "floor": RewardTermCfg(func=_floor, weight=1.0)},
        terminations={
            "died": TerminationTermCfg(func=_died),
            "time_out": TerminationTermCfg(func=_timed_out, time_out=True),
        },
    )
