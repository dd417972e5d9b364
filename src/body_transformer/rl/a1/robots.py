"""The A1s of a world: their motors, sensors and start states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import mujoco
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...deploy.control import Filter
from ..envs.terms import RlTask, TaskRobots
from ..envs.world import NUM_STARTS, FreeBody, Starts, World, joint_ids, joint_ranges
from ..ground import add_field, part_around
from .commands import Commands, draw_commands
from .ground import A1Planes
from .model import BASE, BASE_CONTACT, CONTROL_DT, DEFAULT_POSE, FEET, FOOT_CONTACT, JOINTS, TORQUE_LIMIT
from .motors import A1Motors
from .options import WalkOptions
from .parameters import A1Parameters
from .state import A1Joints, A1State
from .terrain import Terrain, place, place_anywhere

CONTACT_N = 1.0
"""A foot with a larger upward force is on the ground."""
MEMORY = 0.02
"""Share of the newest angle in the running means of joints: they remember about a second."""
SEEN = 3.0
"""Size of the ground around a robot in a film, m. All of the ground would be 14 million triangles."""


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
        parameters = A1Parameters.draw(world.qpos, seed, task.options)
        self.joints = A1Joints.of(model, world.qpos)
        self.state = A1State.zeros(FreeBody.of(world, "robot/root"), self.joints, parameters)
        self.motors = A1Motors(world.qpos, self.joints, parameters, task.options, task.low_pass)
        self.planes = A1Planes(world, task.terrain.ground)
        drawn = draw_starts(model, task, np.random.default_rng(seed), NUM_STARTS)
        self.starts = Starts(world, drawn, seed, world.qpos.dtype)
        """States and commands."""
        self.commands = Commands(self.state, self.starts.drawn[2], task.options)
        self._model_fields: list[dict[str, NDArray[np.float64]]] = []

    def act(self, action: Tensor) -> None:
        """Turn actions [B, 12] into joint targets."""
        state = self.state
        self._read_joints()
        state.older_action.copy_(state.previous_action)
        state.previous_action.copy_(state.action)
        state.action.copy_(action)
        state.previous_xy.copy_(state.root.pos[:, :2])
        state.wanted_heading.add_(state.command[:, 2], alpha=CONTROL_DT)
        for sums in (state.energy, state.outside, state.overloaded):
            sums.zero_()
        self.motors.aim(state.action, state.joint_pos, state.joint_vel)

    def before_physics(self, step: int) -> None:
        """Send torques to the motors and lay the ground under the feet."""
        state = self.state
        if step:
            self._add_up()
        state.torque.copy_(self.motors.torque(step, state.joint_pos, state.joint_vel))
        torch.index_select(state.torque, 1, self._of_motor, out=self.world.ctrl)
        self.planes.lay(state.joint_pos, state.root)

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
        torch.logical_and(contact, state.on_ground, out=state.stayed)
        state.on_ground.copy_(contact)
        self._read_gait()

    def _read_gait(self) -> None:
        """Compute the motion of the feet and the running means of the joints."""
        state = self.state
        feet = self.planes.feet(state.joint_pos, state.root)
        moved = feet[..., :2] - state.foot_pos[..., :2]
        state.foot_speed.copy_(torch.linalg.vector_norm(moved, dim=-1) / CONTROL_DT)
        state.foot_pos.copy_(feet)
        state.foot_height.copy_(self.planes.height(feet))
        state.joint_mean.lerp_(state.joint_pos, MEMORY)
        state.joint_square.lerp_(state.joint_pos.square(), MEMORY)

    def push(self) -> None:
        """Push the robots that are due, and change their commands."""
        self.commands.advance(self.world.steps())
        if self._options.push_every_s is None:
            return
        now = self.world.steps() % round(self._options.push_every_s / CONTROL_DT) == 0
        speed = (2 * torch.rand_like(self.state.root.vel[:, :2]) - 1) * self._options.push_speed
        self.state.root.vel[:, :2].add_(speed * now[:, None])

    def restart(self, fresh: Tensor) -> None:
        """Begin the next episode where `fresh` [B, bool]."""
        qpos, qvel, schedule = self.starts.next(fresh)
        state, chosen = self.state, fresh[:, None]
        self.world.set_state(fresh, qpos, qvel)
        self.commands.restart(fresh, schedule)
        self.motors.restart(chosen)
        zero = (state.action, state.previous_action, state.older_action, state.torque, state.air_time, state.flight)
        for each in (*zero, state.on_ground, state.landed, state.stayed, state.foot_speed):
            each.masked_fill_(chosen, 0)
        for total in (state.energy, state.outside, state.base_force, state.overloaded):
            total.masked_fill_(fresh, 0)
        self._read_joints()
        feet = self.planes.feet(state.joint_pos, state.root)
        state.foot_pos.copy_(torch.where(chosen[..., None], feet, state.foot_pos))
        state.foot_height.copy_(torch.where(chosen, self.planes.height(feet), state.foot_height))
        state.joint_mean.copy_(torch.where(chosen, self.joints.default, state.joint_mean))
        state.joint_square.copy_(torch.where(chosen, self.joints.default.square(), state.joint_square))

    def episode_state(self) -> dict[str, Tensor]:
        own = {"commands": self.commands.schedule, **self.motors.state()}
        return super().episode_state() | self.starts.state() | own

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
    low_pass: Filter
    """The robot's filter of joint targets."""
    starts_anywhere: bool = False
    """Whether episodes begin anywhere on the ground, facing anywhere, instead of at a track's beginning."""

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
    """Draw start states of a scene, qpos [count, nq] and qvel [count, nv], and their commands.

    Joint angles are the default pose's times U(0.5, 1.5), within the ranges of the joints; all velocities are random.
    """
    (low, high), (q_ids, v_ids) = joint_ranges(model, JOINTS), joint_ids(model, JOINTS)
    root = model.joint("robot/root")
    q, v = int(root.qposadr[0]), int(root.dofadr[0])
    qpos = np.tile(model.key_qpos[0], (count, 1))  # the trunk is level
    qvel = np.zeros((count, model.nv))
    qpos[:, q : q + 3] = (place_anywhere if task.starts_anywhere else place)(rng, count, task.terrain)
    factors = rng.uniform(*POSE_FACTOR, (count, len(JOINTS)))
    qpos[:, q_ids] = np.clip(np.array(DEFAULT_POSE) * factors, low, high)
    qvel[:, v_ids] = rng.uniform(-JOINT_VEL, JOINT_VEL, (count, len(JOINTS)))
    qvel[:, v : v + 6] = rng.uniform(-BASE_VEL, BASE_VEL, (count, 6))
    if task.starts_anywhere:
        half = rng.uniform(-np.pi, np.pi, count) / 2
        qpos[:, q + 3], qpos[:, q + 6] = np.cos(half), np.sin(half)
    return qpos, qvel, draw_commands(rng, task.options, count, task.max_steps)
