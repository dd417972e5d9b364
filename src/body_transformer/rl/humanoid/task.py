"""What the three humanoid tasks share: one Task says where they differ, the rest becomes mjlab's configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from mjlab.envs import ManagerBasedRlEnvCfg
from mjlab.managers.action_manager import ActionTerm, ActionTermCfg
from mjlab.managers.event_manager import EventTermCfg
from mjlab.managers.observation_manager import ObservationGroupCfg, ObservationTermCfg
from mjlab.managers.reward_manager import RewardTermCfg
from mjlab.managers.termination_manager import TerminationTermCfg
from mjlab.scene import SceneCfg
from mjlab.sim import SimulationCfg
from torch import Tensor

from ..world import World
from . import terms
from .ground import Ground
from .model import CONTROL_DT, DECIMATION, JOINTS
from .resets import Place, starts
from .state import Joints, Memory, Stack, State

if TYPE_CHECKING:
    from mjlab.envs import ManagerBasedRlEnv

MAX_STEPS = 1000
ACTOR, CRITIC = "actor", "critic"
"""The groups of observations; where there is no second one, the critic sees the actor's."""


@dataclass(frozen=True)
class Task:
    """Where a humanoid task differs from the others."""

    place: Place
    """Where episodes begin."""
    target: tuple[float, float]
    """x and y of the place to go to, m."""
    direction: Callable[[State], tuple[Tensor, Tensor]]
    """Unit vector (x, y) in which the robot should look."""
    died: Callable[[State], Tensor]
    """[B, bool]: the episode has failed."""
    left: Callable[[State], Tensor] | None = None
    """[B, bool]: the world ends here, by no fault of the robot; a time-out."""
    ground: Ground | None = None
    """Of uneven ground; flat ground is part of the scene."""
    start_noise_curriculum: bool = False
    """Starts have a share of the random pose, from none to all of it."""
    privileged_critic: bool = False
    """The critic sees board and cylinder beside what the actor sees; only where they are in the scene."""


class Humanoids:
    """The robots of a world: their task, state and starts, and the terms of the task for them."""

    def __init__(self, task: Task, world: World, seed: int):
        self.task, self.world = task, world
        self.memory = Memory(world)
        self.state = self.memory.state
        self.joints = Joints.of(world.model, "robot/", world.device)
        self.stack = Stack.of(world) if task.privileged_critic else None
        self.starts = starts(world, task.place, seed, task.start_noise_curriculum)
        self._steps = world.steps
        self.planes = None if task.ground is None else task.ground.planes(world)
        """That the robots walk on, where the ground is uneven."""

    def act(self, action: Tensor) -> None:
        """Before the physics of a step."""
        self.memory.act(action)
        if self.planes is not None:
            self.planes.lay()

    def go_on(self) -> None:
        """Between two physics steps."""
        if self.planes is not None:
            self.planes.note()
            self.planes.lay()

    def feel(self) -> None:
        """After the physics of a step, before anything else writes the simulator's memory."""
        self.memory.feel()
        if self.planes is not None:
            self.planes.note()

    def restart(self, fresh: Tensor) -> None:
        """Where `fresh` [B, bool] an episode begins."""
        self.memory.restart(fresh, *self.starts.next(fresh))
        if self.planes is not None:
            self.planes.restart(fresh)

    def disturb(self) -> None:
        """Nothing happens to them."""

    def observation(self) -> Tensor:
        """[B, 100]"""
        return terms.observation(self.state, self.joints)

    def observations(self) -> dict[str, Tensor]:
        """The critic's, if it has its own, is [B, 117]."""
        actor = self.observation()
        if self.stack is None:
            return {ACTOR: actor}
        return {ACTOR: actor, CRITIC: torch.cat([actor, terms.privileged(self.stack)], -1)}

    def forward_speed(self) -> Tensor:
        return terms.forward_speed(self.state)

    def commanded_speed(self) -> None:
        """They are told none."""
        return

    def died(self) -> Tensor:
        """Where the simulation has broken, too: nothing that follows from such a state may be learned.

        A time-out would have the learner expect more rewards from there on, and breaking could be worth it.
        """
        return self.task.died(self.state) | self.world.broken()

    def timed_out(self, died: Tensor) -> Tensor:
        """After 1000 steps, or where the world ends; who has died in this step has not timed out."""
        over = self._steps() >= MAX_STEPS
        if self.task.left is not None:
            over = over | self.task.left(self.state)
        return over & ~died

    def reward_terms(self) -> dict[str, Callable[[], Tensor]]:
        """The terms of who lives, by their names in terms.REWARD_WEIGHTS."""
        state, joints = self.state, self.joints
        return {
            "progress": lambda: terms.progress(state, self.task.target),
            "alive": lambda: torch.ones_like(state.torso_pos[:, 0]),
            "upright": lambda: terms.upright(state),
            "heading": lambda: terms.heading(state, self.task.direction(state)),
            "effort": lambda: terms.effort(state),
            "energy": lambda: terms.energy(state, joints),
            "limits": lambda: terms.limits(state, joints),
        }

    def reward(self, died: Tensor, weights: dict[str, float]) -> Tensor:
        """[B]: the weighted sum of all terms."""
        total = torch.zeros_like(self.state.torso_pos[:, 0])
        for name, term in self.reward_terms().items():
            total = total.add(term(), alpha=weights[name])
        return total.masked_fill(died, weights["death"])


# -- as terms of mjlab's managers --------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class TorqueCfg(ActionTermCfg):
    """Actions in [-1, 1] (beyond: clamped) times the motors' gears are torques."""

    task: Task

    def build(self, env: ManagerBasedRlEnv) -> Torque:
        return Torque(self, env)


class Torque(ActionTerm):
    """Writes the simulator's motors itself: mjlab's actuators would have to be described a second time."""

    def __init__(self, cfg: TorqueCfg, env: ManagerBasedRlEnv):
        super().__init__(cfg, env)
        self.humanoids = Humanoids(cfg.task, World.of(env), seed=env.cfg.seed or 0)
        self._begun = False
        """Whether a physics step of the present step is done."""

    @property
    def action_dim(self) -> int:
        return len(JOINTS)

    @property
    def target_names(self) -> list[str]:
        """The joint of each action."""
        return list(JOINTS)

    @property
    def raw_action(self) -> Tensor:
        return self.humanoids.state.action

    def process_actions(self, actions: Tensor) -> None:
        self.humanoids.act(actions)
        self._begun = False

    def apply_actions(self) -> None:
        """Before each physics step. The torques that were written stay for all of them."""
        if self._begun:
            self.humanoids.go_on()
        self._begun = True


def humanoids(env: ManagerBasedRlEnv) -> Humanoids:
    """Those of an environment of ours; of its action term, which is built before the other terms."""
    term = env.action_manager.get_term("torque")
    assert isinstance(term, Torque)
    return term.humanoids


def task_of(cfg: ManagerBasedRlEnvCfg) -> Task:
    """Of a configuration that `env_cfg` made."""
    torque = cfg.actions["torque"]
    assert isinstance(torque, TorqueCfg)
    return torque.task


def with_task(cfg: ManagerBasedRlEnvCfg, task: Task) -> ManagerBasedRlEnvCfg:
    """The same configuration of another task."""
    return replace(cfg, actions={"torque": TorqueCfg(entity_name="robot", task=task)})


def _observe(env: ManagerBasedRlEnv, term: str) -> Tensor:
    function: Callable[..., Tensor] = getattr(terms, term)
    robots = humanoids(env)
    return function(robots.state, robots.joints) if term == "joint_pos" else function(robots.state)


def _observe_stack(env: ManagerBasedRlEnv, term: str, entity: str) -> Tensor:
    """`entity` is there to be read: a term about another entity than the robot goes to the root of the layout."""
    function: Callable[[Stack], Tensor] = getattr(terms, term)
    stack = humanoids(env).stack
    assert stack is not None  # these terms are in the configuration only where the critic is told
    return function(stack)


def _reward(env: ManagerBasedRlEnv, term: str) -> Tensor:
    value = humanoids(env).reward_terms()[term]()
    return value.masked_fill(env.termination_manager.terminated, 0.0)


def _death(env: ManagerBasedRlEnv) -> Tensor:
    return env.termination_manager.terminated.float()


def _died(env: ManagerBasedRlEnv) -> Tensor:
    """The first term after the physics: what the bodies felt is taken before mjlab's forward() overwrites it."""
    robots = humanoids(env)
    robots.feel()
    return robots.died()


def _timed_out(env: ManagerBasedRlEnv) -> Tensor:
    robots = humanoids(env)
    return robots.timed_out(robots.died())


def _restart(env: ManagerBasedRlEnv, env_ids: Tensor) -> None:
    fresh = torch.zeros(env.num_envs, dtype=torch.bool, device=env.device)
    fresh[env_ids] = True
    humanoids(env).restart(fresh)


OBSERVATIONS = (
    "torso_height",
    "torso_velocity",
    "torso_roll_pitch_yaw",
    "torso_angular_velocity",
    "joint_pos",
    "joint_vel",
    "contact_force",
)


def observations(task: Task) -> dict[str, ObservationGroupCfg]:
    """The groups that `Humanoids.observations` gives, term by term."""
    groups = [ACTOR, CRITIC] if task.privileged_critic else [ACTOR]
    found = {
        group: {name: ObservationTermCfg(func=_observe, params={"term": name}) for name in OBSERVATIONS}
        for group in groups
    }
    if task.privileged_critic:
        found[CRITIC] |= {
            name: ObservationTermCfg(func=_observe_stack, params={"term": name, "entity": entity})
            for name, entity in terms.PRIVILEGED.items()
        }
    return {group: ObservationGroupCfg(of_group) for group, of_group in found.items()}


def env_cfg(task: Task, scene: SceneCfg, sim: SimulationCfg, seed: int) -> ManagerBasedRlEnvCfg:
    """mjlab's configuration of a humanoid task."""
    rewards: dict[str, Any] = {name: partial(_reward, term=name) for name in terms.REWARD_WEIGHTS} | {"death": _death}
    return ManagerBasedRlEnvCfg(
        seed=seed,
        decimation=DECIMATION,
        episode_length_s=MAX_STEPS * CONTROL_DT - 1e-6,  # mjlab rounds up; without it 1000.0000001 would be 1001
        scene=scene,
        sim=sim,
        observations=observations(task),
        actions={"torque": TorqueCfg(entity_name="robot", task=task)},
        events={"start": EventTermCfg(func=_restart, mode="reset")},
        rewards={name: RewardTermCfg(func=rewards[name], weight=w) for name, w in terms.REWARD_WEIGHTS.items()},
        scale_rewards_by_dt=False,
        terminations={
            "died": TerminationTermCfg(func=_died),
            "time_out": TerminationTermCfg(func=_timed_out, time_out=True),
        },
    )
