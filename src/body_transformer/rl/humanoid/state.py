"""What the terms of the humanoid tasks see: the simulator's memory as tensors, taken once, and the little beside it."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import torch
from torch import Tensor

from ..world import World
from .model import BODIES, CONTACT, JOINTS, MAX_GEAR


@dataclass(frozen=True)
class State:
    """All environments after the physics of a control step. B environments, quaternions w x y z."""

    torso_pos: Tensor
    """[B, 3], m, world."""
    torso_quat: Tensor
    """[B, 4], torso to world."""
    torso_vel: Tensor
    """[B, 3], m/s, world."""
    torso_spin: Tensor
    """[B, 3], rad/s, in the torso's own frame, as the simulator holds it."""
    joint_pos: Tensor
    """[B, 21], rad."""
    joint_vel: Tensor
    """[B, 21], rad/s."""
    contact_force: Tensor
    """[B, 16, 3], N, world, on each body, in the last physics step; zero in a fresh episode."""
    action: Tensor
    """[B, 21], in [-1, 1]: what the motors were given."""
    previous_xy: Tensor
    """[B, 2], m: where the torso was when the action was chosen."""


@dataclass(frozen=True)
class Free:
    """A free body in all environments: views of the simulator's memory."""

    pos: Tensor
    """[B, 3], m, world."""
    quat: Tensor
    """[B, 4], body to world."""
    vel: Tensor
    """[B, 3], m/s, world."""
    spin: Tensor
    """[B, 3], rad/s, in the body's own frame."""

    @classmethod
    def of(cls, world: World, joint: str) -> Free:
        """The body that this free joint moves."""
        found = world.model.joint(joint)
        q, v = int(found.qposadr[0]), int(found.dofadr[0])
        qpos, qvel = world.qpos, world.qvel
        return cls(qpos[:, q : q + 3], qpos[:, q + 3 : q + 7], qvel[:, v : v + 3], qvel[:, v + 3 : v + 6])


@dataclass(frozen=True)
class Stack:
    """Who stands on what in humanoid-board; the robot senses of it what its feet feel."""

    torso: Free
    board: Free
    cylinder: Free
    """Its axis is its own x axis."""

    @classmethod
    def of(cls, world: World) -> Stack:
        return cls(*(Free.of(world, joint) for joint in ("robot/root", "board/board", "cylinder/cylinder")))


@dataclass(frozen=True)
class Joints:
    """Constants of the 21 joints."""

    middle: Tensor
    """[21], rad, of the range."""
    half_range: Tensor
    """[21], rad."""
    strength: Tensor
    """[21], gear of the motor / the largest gear."""

    @classmethod
    def of(cls, model: mujoco.MjModel, prefix: str = "", device: str | torch.device = "cpu") -> Joints:
        """From a compiled model in which the robot's names begin with `prefix`."""
        ranges = torch.tensor([model.joint(prefix + name).range.tolist() for name in JOINTS], dtype=torch.float32)
        gears = torch.tensor([model.actuator(prefix + name).gear[0] for name in JOINTS], dtype=torch.float32)
        low, high = ranges.to(device).unbind(-1)
        return cls((low + high) / 2, (high - low) / 2, (gears / MAX_GEAR).to(device))


class Memory:
    """The simulator's memory and the state on top of it, which are read and written at every step."""

    def __init__(self, world: World):
        model, self._world = world.model, world
        self.qpos, self.qvel, self.warmstart, self.ctrl = world.qpos, world.qvel, world.warmstart, world.ctrl
        _check_order([model.actuator(k).name for k in range(model.nu)], [f"robot/{name}" for name in JOINTS])
        torso = Free.of(world, "robot/root")
        joints = [model.joint(f"robot/{name}") for name in JOINTS]
        joint_q = _run([int(joint.qposadr[0]) for joint in joints])
        joint_v = _run([int(joint.dofadr[0]) for joint in joints])
        forces = _run([int(model.sensor(f"{CONTACT}_{body}_force").adr[0]) for body in BODIES], width=3)
        self._force_by_body = world.sensordata[:, forces].view(-1, len(BODIES), 3)
        self.state = State(
            torso_pos=torso.pos,
            torso_quat=torso.quat,
            torso_vel=torso.vel,
            torso_spin=torso.spin,
            joint_pos=self.qpos[:, joint_q],
            joint_vel=self.qvel[:, joint_v],
            contact_force=world.qpos.new_zeros(world.num_envs, len(BODIES), 3),
            action=world.qpos.new_zeros(world.num_envs, len(JOINTS)),
            previous_xy=world.qpos.new_zeros(world.num_envs, 2),
        )

    def act(self, action: Tensor) -> None:
        """Before the physics of a step: action [B, 21] goes to the motors, clamped; the place is noted."""
        torch.clamp(action, -1.0, 1.0, out=self.state.action)
        self.ctrl.copy_(self.state.action)
        self.state.previous_xy.copy_(self.state.torso_pos[:, :2])

    def feel(self) -> None:
        """After the physics of a step: contact forces on the bodies, before anything else writes the sensors."""
        torch.neg(self._force_by_body, out=self.state.contact_force)

    def restart(self, fresh: Tensor, qpos: Tensor, qvel: Tensor) -> None:
        """Environments of `fresh` [B, bool] take up qpos [B, nq] and qvel [B, nv]; the others stay as they are."""
        self._world.put(fresh, qpos, qvel)
        self.state.contact_force.masked_fill_(fresh[:, None, None], 0.0)


def _run(addresses: list[int], width: int = 1) -> slice:
    """Entries of `width` that lie one after the other, as a slice."""
    first = addresses[0]
    if addresses != list(range(first, first + width * len(addresses), width)):
        raise ValueError(f"entries are not adjacent in the simulator's memory: {addresses}")
    return slice(first, first + width * len(addresses))


def _check_order(have: list[str], expected: list[str]) -> None:
    if have != expected:
        raise ValueError(f"the simulator's motors are {have}, expected {expected}")
