"""What the terms of a1-walk see: the simulator's memory as tensors, and what is kept beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..world import World
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
from .parameters import Parameters

if TYPE_CHECKING:
    import mujoco

CONTACT_N = 1.0
"""A foot that is pushed up by more stands on the ground."""


@dataclass(frozen=True)
class State:
    """All environments after the physics of a control step. B environments, quaternions w x y z, joints as JOINTS."""

    base_pos: Tensor
    """[B, 3], m, world."""
    base_quat: Tensor
    """[B, 4], trunk to world."""
    base_vel: Tensor
    """[B, 3], m/s, world."""
    previous_xy: Tensor
    """[B, 2], m, world: where the trunk was at the last action."""
    base_spin: Tensor
    """[B, 3], rad/s, in the trunk's frame."""
    joint_pos: Tensor
    """[B, 12], rad."""
    joint_vel: Tensor
    """[B, 12], rad/s."""
    action: Tensor
    """[B, 12]: the last one, as it was chosen."""
    command: Tensor
    """[B, 3]: m/s ahead, m/s to the left, rad/s to the left."""
    torque: Tensor
    """[B, 12], Nm, of the motors in the last physics step."""
    energy: Tensor
    """[B]: sum over the physics steps of a control step, and over joints, of (power / W)²."""
    outside: Tensor
    """[B]: sum over physics steps of the number of joints outside the middle half of their range."""
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
    def empty(cls, num_envs: int, like: Tensor, **views: Tensor) -> State:
        """Zeros, but for what is given; for a world and for tests."""
        wide = {"joint_pos": 12, "joint_vel": 12, "action": 12, "command": 3, "torque": 12, "air_time": 4, "flight": 4}
        wide |= {"base_pos": 3, "base_quat": 4, "base_vel": 3, "base_spin": 3, "previous_xy": 2}
        made = {name: like.new_zeros(num_envs, width) for name, width in wide.items()}
        made |= {name: like.new_zeros(num_envs) for name in ("energy", "outside", "base_force")}
        made |= {name: like.new_zeros(num_envs, 4, dtype=torch.bool) for name in ("on_ground", "landed")}
        made["overloaded"] = like.new_zeros(num_envs, dtype=torch.bool)
        made["base_quat"][:, 0] = 1
        return cls(**made | views)


@dataclass(frozen=True)
class Joints:
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
    def of(cls, model: mujoco.MjModel, like: Tensor, prefix: str = "robot/") -> Joints:
        """From a compiled model in which the robot's names begin with `prefix`."""
        low, high = like.new_tensor([model.joint(prefix + name).range.tolist() for name in JOINTS]).unbind(-1)
        torque = like.new_tensor([float(model.actuator(prefix + name).ctrlrange[1]) for name in JOINTS])
        return cls(like.new_tensor(DEFAULT_POSE), low, high, torque)


class Memory:
    """The simulator's memory and the state on top of it, which are read and written at every step."""

    def __init__(self, world: World, parameters: Parameters):
        model = world.model
        self.world, self.parameters = world, parameters
        self.joints = Joints.of(model, world.qpos)
        places = [model.joint(f"robot/{name}") for name in JOINTS]
        motors = [int(model.actuator(f"robot/{name}").id) for name in JOINTS]
        self._q = torch.tensor([int(joint.qposadr[0]) for joint in places], device=world.device)
        self._v = torch.tensor([int(joint.dofadr[0]) for joint in places], device=world.device)
        self._of_motor = torch.tensor([motors.index(k) for k in range(model.nu)], device=world.device)
        root = model.joint("robot/root")
        q, v = int(root.qposadr[0]), int(root.dofadr[0])
        lift = [int(model.sensor(f"{FOOT_CONTACT}_{foot}_force").adr[0]) + 2 for foot in FEET]
        self._lift = torch.tensor(lift, device=world.device)
        base = int(model.sensor(f"{BASE_CONTACT}_{BASE}_force").adr[0])
        self._base_force = world.sensordata[:, base : base + 3]
        self.state = State.empty(
            world.num_envs,
            world.qpos,
            base_pos=world.qpos[:, q : q + 3],
            base_quat=world.qpos[:, q + 3 : q + 7],
            base_vel=world.qvel[:, v : v + 3],
            base_spin=world.qvel[:, v + 3 : v + 6],
        )
        self._kp = KP * parameters.stiffness[:, None]
        self._ages = parameters.ages()
        oldest = int(self._ages.max())
        self.targets = self.joints.default.expand(oldest + 1, world.num_envs, -1).clone()
        """[actions back, B, 12], rad: what the last actions asked the joints for, the newest first."""

    def act(self, action: Tensor) -> None:
        """Before the physics of a control step: action [B, 12] becomes the joints' target.

        The target is such that the motors, as they are now, would be asked for no more than TORQUE_LIMIT.
        """
        state = self.state
        self._read_joints()
        state.action.copy_(action)
        state.previous_xy.copy_(state.base_pos[:, :2])
        for sums in (state.energy, state.outside, state.overloaded):
            sums.zero_()
        target = self.joints.default + ACTION_SCALE * state.action
        middle, most = state.joint_pos + state.joint_vel * (KD / KP), TORQUE_LIMIT / KP
        if len(self.targets) > 1:
            self.targets[1:].copy_(self.targets[:-1].clone())
        self.targets[0].copy_(torch.minimum(torch.maximum(target, middle - most), middle + most))

    def drive(self, step: int) -> None:
        """Before physics step number `step` of a control step: torques to the motors."""
        state = self.state
        if step:
            self.sum_up()
        torque = self._kp * (self._target(step) - state.joint_pos) - KD * state.joint_vel
        limit = self.joints.max_torque
        state.torque.copy_(torch.minimum(torch.maximum(self.parameters.strength * torque, -limit), limit))
        torch.index_select(state.torque, 1, self._of_motor, out=self.world.ctrl)

    def _target(self, step: int) -> Tensor:
        if len(self.targets) == 1:
            return self.targets[0]
        age = self._ages[step][None, :, None].expand(1, -1, len(JOINTS))
        return self.targets.gather(0, age)[0]

    def sum_up(self) -> None:
        """After a physics step: what of it counts in the reward."""
        state, joints = self.state, self.joints
        self._read_joints()
        state.energy.add_((state.torque * state.joint_vel).square().sum(-1))
        quarter = (joints.high - joints.low) / 4
        outside = (state.joint_pos < joints.low + quarter) | (state.joint_pos > joints.high - quarter)
        state.outside.add_(outside.sum(-1))
        state.overloaded.logical_or_((state.torque.abs() > TORQUE_LIMIT).any(-1))

    def feel(self) -> None:
        """After all physics steps of a control step: contacts, before anything else writes the sensors."""
        state = self.state
        torch.linalg.vector_norm(self._base_force, dim=-1, out=state.base_force)
        contact = self.world.sensordata[:, self._lift] < -CONTACT_N  # the force is that by the foot
        here = contact | state.on_ground  # sensed in this step or the last: bouncing is no flight
        state.landed.copy_((state.air_time > 0) & here)
        torch.add(state.air_time, CONTROL_DT, out=state.flight)
        state.air_time.copy_(state.flight.masked_fill(here, 0.0))
        state.on_ground.copy_(contact)

    def restart(self, fresh: Tensor, qpos: Tensor, qvel: Tensor, command: Tensor) -> None:
        """Environments of `fresh` [B, bool] take up these states [B, …]; the others stay as they are."""
        state, chosen = self.state, fresh[:, None]
        self.world.put(fresh, qpos, qvel)
        state.command.copy_(torch.where(chosen, command, state.command))
        self.targets.copy_(torch.where(chosen, self.joints.default, self.targets))
        for wide in (state.action, state.torque, state.air_time, state.flight):
            wide.masked_fill_(chosen, 0.0)
        for total in (state.energy, state.outside, state.base_force):
            total.masked_fill_(fresh, 0.0)
        for feet in (state.on_ground, state.landed):
            feet.masked_fill_(chosen, False)
        state.overloaded.masked_fill_(fresh, False)
        self._read_joints()

    def _read_joints(self) -> None:
        torch.index_select(self.world.qpos, 1, self._q, out=self.state.joint_pos)
        torch.index_select(self.world.qvel, 1, self._v, out=self.state.joint_vel)
