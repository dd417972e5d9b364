"""A task as one list of terms, and their evaluation, which is the same in every simulator.

`RlTask` lists the observations, rewards and terminations of a task. Three executors read the list: `fast.FastEnv`
(MuJoCo Warp, all but the physics recorded as CUDA graphs), `cpu.CpuEnv` (plain MuJoCo) and `mjlab.env_cfg` (mjlab's
managers). A new term goes into the list and nowhere else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import mujoco
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...body.graph import BodyGraph
from ...body.layout import Term
from ...errors import listing
from ...video import View
from ..episode_metrics import PlannedEpisode
from ..walking import Motion
from .world import FreeBody, Starts, World

if TYPE_CHECKING:
    from mjlab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
    from mjlab.scene import SceneCfg
    from mjlab.sim import SimulationCfg

S = TypeVar("S")
"""State of a task's robots: a dataclass of tensors, one row per environment."""
ACTOR, CRITIC = "actor", "critic"
"""Groups of observations. Without a group of its own, the critic observes the actor's."""


# -- the list ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ObservationTerm(Generic[S]):
    """One term of an observation."""

    owners: Term
    """Name, size and owners of the entries; the layout of a policy is made of these."""
    value: Callable[[S], Tensor]
    """State -> [B, size]."""
    noise: float = 0.0
    """Amplitude of the uniform noise that is added to each entry."""

    @property
    def name(self) -> str:
        return self.owners.name


@dataclass(frozen=True)
class RewardTerm(Generic[S]):
    """One term of the reward, which is the weighted sum of all terms."""

    value: Callable[[S], Tensor]
    """State -> [B]."""
    weight: float


def obs_terms(
    owners: Sequence[Term], values: Mapping[str, Callable[[S], Tensor]], noise: Mapping[str, float] | None = None
) -> tuple[ObservationTerm[S], ...]:
    """Join the terms of a layout, which state order, sizes and owners, with the functions that compute them."""
    names = [term.name for term in owners]
    if set(names) != set(values):
        raise ValueError(f"the layout has the terms {listing(names)}; the task computes {listing(values)}")
    return tuple(ObservationTerm(term, values[term.name], (noise or {}).get(term.name, 0.0)) for term in owners)


class HasRoot(Protocol):
    """A state with the free body that moves a robot."""

    @property
    def root(self) -> FreeBody: ...


def alive(state: HasRoot) -> Tensor:
    """Return 1 for every robot, [B]."""
    return torch.ones_like(state.root.pos[:, 0])


def outside(state: HasRoot, low: tuple[float, float], high: tuple[float, float]) -> Tensor:
    """Return where the robot is not above the rectangle from `low` to `high`, m, [B, bool]."""
    x, y = state.root.pos[:, 0], state.root.pos[:, 1]
    return (x < low[0]) | (x > high[0]) | (y < low[1]) | (y > high[1])


@dataclass(frozen=True, kw_only=True)
class RlTask(ABC, Generic[S]):
    """A task: the list of its terms, and the sizes of its steps."""

    obs: Mapping[str, tuple[ObservationTerm[S], ...]]
    """Group -> its terms, in the order of the entries."""
    actions: Term
    """Name and owners of the actions."""
    rewards: Mapping[str, RewardTerm[S]]
    failures: Sequence[Callable[[S], Tensor]]
    """State -> [B, bool]: the robot has failed and the episode ends in death. A broken simulation always does."""
    time_outs: Sequence[Callable[[S], Tensor]] = ()
    """State -> [B, bool]: the episode is over without a failure. It always is after `max_steps`."""
    death_reward: float | None = None
    """Reward of the step of death; None = the weighted sum, which is 0 where the simulation broke."""
    reward_at_least_0: bool = False
    """Replace negative sums by 0."""
    reward_per_second: bool = False
    """Multiply the sum by the duration of a step in seconds."""
    forward_speed: Callable[[S], Tensor] | None = None
    """State -> [B], m/s ahead in the last step; reported by evaluations of tasks that have it."""
    commanded_speed: Callable[[S], Tensor] | None = None
    """State -> [B], commanded m/s ahead, if the task has commands."""
    motion: Callable[[S], Motion] | None = None
    """State -> the motion of walking robots, which evaluations compare with their commands."""
    scene: SceneCfg
    """The robot, the ground and sensors; the number of environments is not used."""
    simulation: SimulationCfg
    physics_dt: float
    decimation: int
    """Physics steps per control step."""
    max_steps: int
    """Control steps of an episode."""
    startup: Callable[[ManagerBasedRlEnv, Tensor | None], None] | None = None
    """mjlab's event function that randomises the robots' models once."""
    pushes: bool = False
    """Whether robots are pushed during an episode."""
    num_envs: int | None = None
    """Environments of an evaluation with fixed starts, one per episode; None: any number."""
    view: View
    """Camera of films."""
    graph: BodyGraph | None = None
    """Graph for policies if the simulated model lacks some of its joints; None: the graph of the simulated robot."""

    @property
    def control_dt(self) -> float:
        return self.physics_dt * self.decimation

    @abstractmethod
    def make_robots(self, world: World, seed: int) -> TaskRobots[S]:
        """Return the robots of a world; their starts and parameters follow from the seed."""

    def scenery(self, poses: NDArray[np.float64]) -> Callable[[mujoco.MjSpec], None] | None:
        """Return a function that adds the ground of a film of qpos [T, nq] to a scene; None = the task's own scene."""
        return None


class TaskRobots(ABC, Generic[S]):
    """The B robots of a world: their state, and the parts of a task that are not terms (motors, sensors, ground)."""

    world: World
    state: S
    starts: Starts
    acts_between_physics_steps: bool = False
    """Whether `before_physics` does anything after the first physics step of a control step."""
    locates_bodies: bool = False
    """Whether the task reads poses of bodies, which the simulators compute only on request."""
    plan: Sequence[PlannedEpisode] = ()
    """The episodes of an evaluation, one per environment; empty where `seed` chooses the starts."""

    def seed(self, seed: int) -> None:
        """Choose the starts of all further episodes."""
        self.starts.seed(seed)

    @abstractmethod
    def act(self, action: Tensor) -> None:
        """Take over the actions [B, A] at the beginning of a control step."""

    def before_physics(self, step: int) -> None:
        """Prepare physics step number `step` of a control step: motors, and the ground under the robots."""

    def locate(self) -> None:
        """Compute the poses of bodies, after physics and after restarts, if the task reads them."""
        if self.locates_bodies:
            self.world.locate_bodies()

    @abstractmethod
    def read_sensors(self) -> None:
        """Read all sensors after the physics of a control step, before the simulator's memory is written again."""

    @abstractmethod
    def restart(self, fresh: Tensor) -> None:
        """Begin the next episode where `fresh` [B, bool]."""

    def push(self) -> None:
        """Disturb the robots between two control steps."""

    def episode_state(self) -> dict[str, Tensor]:
        """Return the tensors, beside the simulator's, that running episodes continue from; copying into them sets them.

        By default, these are the tensors of `state`. Some are the simulator's memory.
        """
        state: Any = self.state
        found = {item.name: getattr(state, item.name) for item in fields(state)}
        return {name: value for name, value in found.items() if isinstance(value, Tensor)}

    def training_state(self) -> dict[str, Tensor]:
        """Return the tensors that a checkpoint of a training holds beside the policy's, as "task.NAME"."""
        return {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from the tensors of a checkpoint that `training_state` wrote."""

    def prepare_model(self, model: mujoco.MjModel) -> None:
        """Compute what `fit_model` needs, without changing the model. For plain MuJoCo."""

    def fit_model(self, k: int, model: mujoco.MjModel) -> None:
        """Write the parameters of robot k and the ground under it into a model of plain MuJoCo."""


# -- its evaluation ----------------------------------------------------------------------------------------------------


class TaskTerms(Generic[S]):
    """The terms of a task for the robots of one world.

    No method waits for the device or copies data to it, so CUDA graphs can record all of them.
    """

    def __init__(self, task: RlTask[S], world: World, cfg: ManagerBasedRlEnvCfg) -> None:
        """Make the robots; the configuration has the seed and the weights of rewards, which may have been scaled."""
        self.task, self.world = task, world
        self.weights = {name: term.weight for name, term in cfg.rewards.items()}
        self.robots = task.make_robots(world, cfg.seed or 0)
        self._noise = {group: self._largest_noise(group) for group in task.obs}

    def _largest_noise(self, group: str) -> Tensor | None:
        """Return the noise amplitude of each entry [O]; None for a group without noise."""
        noise = [term.noise for term in self.task.obs[group] for _ in range(term.owners.size)]
        return self.world.qpos.new_tensor(noise) if any(noise) else None

    @property
    def state(self) -> S:
        return self.robots.state

    def observations(self) -> dict[str, Tensor]:
        """Return the observation of every group, [B, O] each. Terms that groups share are computed once."""
        known: dict[Callable[[S], Tensor], Tensor] = {}
        found = {}
        for group, terms in self.task.obs.items():
            for term in terms:
                if term.value not in known:
                    known[term.value] = term.value(self.state)
            obs, noise = torch.cat([known[term.value] for term in terms], -1), self._noise[group]
            found[group] = obs if noise is None else obs + (2 * torch.rand_like(obs) - 1) * noise
        return found

    def died(self) -> Tensor:
        """Return where the robot has failed or the simulation has broken, [B, bool].

        As a time-out, a broken simulation would add the value of the next state to the reward. A policy could then
        learn to break it.
        """
        return self._holds_any(self.task.failures) | self.world.broken()

    def timed_out(self, died: Tensor) -> Tensor:
        """Return where the episode is over without a death, [B, bool]."""
        over = self.world.steps() >= self.task.max_steps
        if self.task.time_outs:
            over = over | self._holds_any(self.task.time_outs)
        return over & ~died

    def _holds_any(self, conditions: Sequence[Callable[[S], Tensor]]) -> Tensor:
        """Return where at least one condition holds, [B, bool]."""
        return reduce(torch.logical_or, (condition(self.state) for condition in conditions))

    def reward(self, died: Tensor) -> Tensor:
        """Return the reward of the last step, [B]."""
        total = self.weighted_sum()
        if self.task.death_reward is not None:
            total = total.masked_fill(died, self.weights["death"])
        if self.task.reward_at_least_0:
            total = total.clamp_min(0.0)
        return total * self.task.control_dt if self.task.reward_per_second else total

    def weighted_sum(self) -> Tensor:
        """Return the weighted sum of all reward terms, [B]; 0 where the simulation broke, unless death has a reward."""
        total = torch.zeros_like(self.world.qpos[:, 0])
        for name, term in self.task.rewards.items():
            total = total.add(term.value(self.state), alpha=self.weights[name])
        return total if self.task.death_reward is not None else total.masked_fill(self.world.broken(), 0.0)

    def forward_speed(self) -> Tensor | None:
        """Return the speed ahead in the last step, [B], m/s; None for a task that does not report it."""
        return None if self.task.forward_speed is None else self.task.forward_speed(self.state)

    def motion(self) -> Motion | None:
        """Return the motion of walking robots; None for other tasks."""
        return None if self.task.motion is None else self.task.motion(self.state)

    def commanded_speed(self) -> Tensor | None:
        """Return the commanded speed ahead, [B], m/s; None for a task without commands."""
        return None if self.task.commanded_speed is None else self.task.commanded_speed(self.state)
