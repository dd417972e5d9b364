"""The A1s of a world: state, motors, sensors and start states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import mujoco
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..envs.terms import RlTask, TaskRobots
from ..envs.world import NUM_STARTS, FreeBody, Starts, World, joint_ids, joint_ranges
from ..ground import add_field, part_around
from .ground import A1Planes
from .model import (
    ACTION_SCALE,
    BASE,
    BASE_CONTACT,
    CONTROL_DT,
    DEFAULT_POSE,
    FEET,
    FOOT_CONTACT,
    JOINTS,
    KD,
    KP,
    TORQUE_LIMIT,
)
from .options import WalkOptions
from .parameters import A1Parameters
from .terrain import Terrain, place

CONTACT_N = 1.0
"""A foot with a larger upward force is on the ground."""
SEEN = 3.0
"""Size of the ground around a robot in a film, m. All of the ground would be 14 million triangles."""


# -- state -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class A1Joints:
    """Constants of the 12 joints."""

    default: Tensor
    """[12], rad: the default pose."""
    low: Tensor
    """[12], rad, of the range."""
    high: Tensor
    """[12], rad."""
    max_torque: Tensor
    """[12], Nm, of the motor."""

    @classmethod
    def of(cls, model: mujoco.MjModel, like: Tensor) -> A1Joints:
        """Read them from the compiled scene."""
        low, high = joint_ranges(model, JOINTS)
        torque = [model.actuator(f"robot/{name}").ctrlrange[1] for name in JOINTS]
        return cls(*(like.new_tensor(values) for values in (DEFAULT_POSE, low, high, torque)))


@dataclass(frozen=True)
class A1State:
    """B environments after the physics of a control step; joints are ordered as JOINTS."""

    root: FreeBody
    """The trunk."""
    joints: A1Joints
    parameters: A1Parameters
    previous_xy: Tensor
    """[B, 2], m, world: position of the trunk at the last action."""
    joint_pos: Tensor
    """[B, 12], rad."""
    joint_vel: Tensor
    """[B, 12], rad/s."""
    action: Tensor
    """[B, 12]: the last action, unbounded."""
    command: Tensor
    """[B, 3]: m/s ahead, m/s to the left, rad/s to the left."""
    torque: Tensor
    """[B, 12], Nm, of the motors in the last physics step."""
    energy: Tensor
    """[B]: sum over the physics steps of a control step, and over joints, of (power / W)²."""
    outside: Tensor
    """[B]: number of joints outside the middle half of their range, summed over the physics steps of a control step."""
    overloaded: Tensor
    """[B, bool]: a motor gave more than TORQUE_LIMIT in one of the physics steps."""
    base_force: Tensor
    """[B], N: contact force on the trunk."""
    on_ground: Tensor
    """[B, 4, bool]: feet in contact, in the order of FEET."""
    air_time: Tensor
    """[B, 4], s since each foot was last on the ground."""
    landed: Tensor
    """[B, 4, bool]: feet that came back to the ground in this step."""
    flight: Tensor
    """[B, 4], s in the air, this step included; of a foot that landed, all of it."""

    @classmethod
    def zeros(cls, root: FreeBody, joints: A1Joints, parameters: A1Parameters) -> A1State:
        """Return a state with this trunk in which everything else is zero."""
        num_envs, like = len(root.pos), root.pos
        wide = {"previous_xy": 2, "joint_pos": 12, "joint_vel": 12, "action": 12, "command": 3, "torque": 12}
        made = {name: like.new_zeros(num_envs, width) for name, width in (wide | {"air_time": 4, "flight": 4}).items()}
        made |= {name: like.new_zeros(num_envs) for name in ("energy", "outside", "base_force")}
        made |= {name: like.new_zeros(num_envs, 4, dtype=torch.bool) for name in ("on_ground", "landed")}
        made["overloaded"] = like.new_zeros(num_envs, dtype=torch.bool)
        return cls(root, joints, parameters, **made)


# -- robots ------------------------------------------------------------------------------------------------------------


class A1s(TaskRobots[A1State]):
    """The A1s of a world."""

    acts_between_physics_steps = True

    def __init__(self, world: World, seed: int, task: WalkTask):
        model, self.world, self._options = world.model, world, task.options
        of_motor = np.argsort([model.actuator(f"robot/{name}").id for name in JOINTS])
        lift = [int(model.sensor(f"{FOOT_CONTACT}_{foot}_force").adr[0]) + 2 for foot in FEET]
        self._q, self._v, self._of_motor, self._lift = (
            torch.tensor(ids, device=world.device) for ids in (*joint_ids(model, JOINTS), of_motor, lift)
        )
        base = int(model.sensor(f"{BASE_CONTACT}_{BASE}_force").adr[0])
        self._base_force = world.sensordata[:, base : base + 3]
        parameters = A1Parameters.draw(world.qpos, seed, task.options.latency, task.options.stiffness)
        self.joints = A1Joints.of(model, world.qpos)
        self.state = A1State.zeros(FreeBody.of(world, "robot/root"), self.joints, parameters)
        self._kp = KP * parameters.stiffness[:, None]
        self._ages = parameters.ages()
        self.targets = self.joints.default.expand(int(self._ages.max()) + 1, world.num_envs, -1).clone()
        """[actions back, B, 12], rad: joint targets of the last actions, the newest first."""
        self.planes = A1Planes(world, task.terrain.ground)
        drawn = draw_starts(model, task, np.random.default_rng(seed), NUM_STARTS)
        self.starts = Starts(world, drawn, seed, world.qpos.dtype)
        """States and commands."""
        self._model_fields: list[dict[str, NDArray[np.float64]]] = []

    def act(self, action: Tensor) -> None:
        """Turn actions [B, 12] into joint targets, bounded so that no motor exceeds TORQUE_LIMIT at first."""
        state = self.state
        self._read_joints()
        state.action.copy_(action)
        state.previous_xy.copy_(state.root.pos[:, :2])
        for sums in (state.energy, state.outside, state.overloaded):
            sums.zero_()
        target = self.joints.default + ACTION_SCALE * state.action
        middle, most = state.joint_pos + state.joint_vel * (KD / KP), TORQUE_LIMIT / KP
        if len(self.targets) > 1:
            self.targets[1:].copy_(self.targets[:-1].clone())
        self.targets[0].copy_(torch.minimum(torch.maximum(target, middle - most), middle + most))

    def before_physics(self, step: int) -> None:
        """Send torques to the motors and lay the ground under the feet."""
        state = self.state
        if step:
            self._add_up()
        torque = self._kp * (self._target(step) - state.joint_pos) - KD * state.joint_vel
        limit = self.joints.max_torque
        state.torque.copy_(torch.minimum(torch.maximum(state.parameters.strength * torque, -limit), limit))
        torch.index_select(state.torque, 1, self._of_motor, out=self.world.ctrl)
        self.planes.lay(state.joint_pos, state.root)

    def _target(self, step: int) -> Tensor:
        """Return the joint targets that act in this physics step, [B, 12], rad."""
        if len(self.targets) == 1:
            return self.targets[0]
        age = self._ages[step][None, :, None].expand(1, -1, len(JOINTS))
        return self.targets.gather(0, age)[0]

    def _add_up(self) -> None:
        """Add a physics step to the sums that the reward needs."""
        state, joints = self.state, self.joints
        self._read_joints()
        state.energy.add_((state.torque * state.joint_vel).square().sum(-1))
        quarter = (joints.high - joints.low) / 4
        outside = (state.joint_pos < joints.low + quarter) | (state.joint_pos > joints.high - quarter)
        state.outside.add_(outside.sum(-1))
        state.overloaded.logical_or_((state.torque.abs() > TORQUE_LIMIT).any(-1))

    def read_sensors(self) -> None:
        """Add the last physics step to the sums and read the contacts."""
        self._add_up()
        state = self.state
        torch.linalg.vector_norm(self._base_force, dim=-1, out=state.base_force)
        contact = self.world.sensordata[:, self._lift] < -CONTACT_N  # the sensor gives the force by the foot
        here = contact | state.on_ground  # now or in the step before, so that a bounce does not count as flight
        state.landed.copy_((state.air_time > 0) & here)
        torch.add(state.air_time, CONTROL_DT, out=state.flight)
        state.air_time.copy_(state.flight.masked_fill(here, 0.0))
        state.on_ground.copy_(contact)

    def push(self) -> None:
        """Push the robots that are due."""
        if self._options.push_every_s is None:
            return
        now = self.world.steps() % round(self._options.push_every_s / CONTROL_DT) == 0
        speed = (2 * torch.rand_like(self.state.root.vel[:, :2]) - 1) * self._options.push_speed
        self.state.root.vel[:, :2].add_(speed * now[:, None])

    def restart(self, fresh: Tensor) -> None:
        """Begin the next episode where `fresh` [B, bool]."""
        qpos, qvel, command = self.starts.next(fresh)
        state, chosen = self.state, fresh[:, None]
        self.world.set_state(fresh, qpos, qvel)
        state.command.copy_(torch.where(chosen, command, state.command))
        self.targets.copy_(torch.where(chosen, self.joints.default, self.targets))
        for each in (state.action, state.torque, state.air_time, state.flight, state.on_ground, state.landed):
            each.masked_fill_(chosen, 0)
        for total in (state.energy, state.outside, state.base_force, state.overloaded):
            total.masked_fill_(fresh, 0)
        self._read_joints()

    def episode_state(self) -> dict[str, Tensor]:
        return super().episode_state() | self.starts.state() | {"targets": self.targets}

    def prepare_model(self, model: mujoco.MjModel) -> None:
        """Compute the fields of each robot's model."""
        self._model_fields = self.state.parameters.model_fields(model)

    def fit_model(self, k: int, model: mujoco.MjModel) -> None:
        """Write the parameters of robot k, and the ground under it, into a model of plain MuJoCo."""
        for name, values in self._model_fields[k].items():
            getattr(model, name)[:] = values
        self.planes.fit_model(k, model)

    def _read_joints(self) -> None:
        torch.index_select(self.world.qpos, 1, self._q, out=self.state.joint_pos)
        torch.index_select(self.world.qvel, 1, self._v, out=self.state.joint_vel)


@dataclass(frozen=True, kw_only=True)
class WalkTask(RlTask[A1State]):
    """The task of the A1."""

    options: WalkOptions
    terrain: Terrain

    def make_robots(self, world: World, seed: int) -> A1s:
        return A1s(world, seed, self)

    def scenery(self, poses: NDArray[np.float64]) -> Callable[[mujoco.MjSpec], None]:
        """Return a function that adds the ground near the robot."""
        near = part_around(self.terrain.ground, poses[:, :2], SEEN)
        return partial(add_field, ground=near, solid=False)


# -- starts ------------------------------------------------------------------------------------------------------------

POSE_FACTOR = (0.5, 1.5)
"""Range of the factor of each default joint angle."""
JOINT_VEL = 3.0
"""rad/s"""
BASE_VEL = 0.5
"""m/s and rad/s."""


def draw_starts(
    model: mujoco.MjModel, task: WalkTask, rng: np.random.Generator, count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Draw start states of a scene, qpos [count, nq] and qvel [count, nv], and their commands [count, 3].

    Joint angles are the default pose's times U(0.5, 1.5), within the ranges of the joints; all velocities are random.
    """
    (low, high), (q_ids, v_ids) = joint_ranges(model, JOINTS), joint_ids(model, JOINTS)
    root = model.joint("robot/root")
    q, v = int(root.qposadr[0]), int(root.dofadr[0])
    qpos = np.tile(model.key_qpos[0], (count, 1))  # the trunk is level
    qvel = np.zeros((count, model.nv))
    qpos[:, q : q + 3] = place(rng, count, task.terrain)
    factors = rng.uniform(*POSE_FACTOR, (count, len(JOINTS)))
    qpos[:, q_ids] = np.clip(np.array(DEFAULT_POSE) * factors, low, high)
    qvel[:, v_ids] = rng.uniform(-JOINT_VEL, JOINT_VEL, (count, len(JOINTS)))
    qvel[:, v : v + 6] = rng.uniform(-BASE_VEL, BASE_VEL, (count, 6))
    slowest, fastest = np.array(task.options.command).T
    return qpos, qvel, rng.uniform(slowest, fastest, (count, 3))
