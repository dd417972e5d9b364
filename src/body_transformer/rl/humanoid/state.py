"""What the terms of the humanoid tasks see: the simulator's memory as tensors, taken once, and the little beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mujoco
import torch
from torch import Tensor

from .model import BODIES, CONTACT, JOINTS, MAX_GEAR

if TYPE_CHECKING:
    from mjlab.envs import ManagerBasedRlEnv


MAX_SPEED, MAX_TURN = 50.0, 200.0
"""m/s and rad/s; beyond, the simulation has broken. Robots that throw themselves about reach 17 and 71."""


@dataclass(frozen=True)
class World:
    """A simulator of B environments, as far as the tasks know it: MuJoCo Warp's in mjlab, or plain MuJoCo."""

    model: mujoco.MjModel
    qpos: Tensor
    """[B, nq]; this and what follows is the simulator's own memory."""
    qvel: Tensor
    """[B, nv]"""
    warmstart: Tensor
    """[B, nv], accelerations that the solver begins with."""
    ctrl: Tensor
    """[B, 21]"""
    sensordata: Tensor
    """[B, nsensordata]"""
    steps: Callable[[], Tensor]
    """[B]: steps of each present episode."""
    geom_xpos: Tensor | None = None
    """[B, ngeom, 3], m, world; this and the next only of MuJoCo Warp, where geoms of the world can be moved."""
    geom_xmat: Tensor | None = None
    """[B, ngeom, 3, 3]"""

    @classmethod
    def of(cls, env: ManagerBasedRlEnv) -> World:
        """mjlab's arrays as tensors without its wrapping."""
        data: Any = env.sim.data
        return cls(
            env.sim.mj_model,
            qpos=data.qpos._tensor,
            qvel=data.qvel._tensor,
            warmstart=data.qacc_warmstart._tensor,
            ctrl=data.ctrl._tensor,
            sensordata=data.sensordata._tensor,
            steps=lambda: env.episode_length_buf,
            geom_xpos=data.geom_xpos._tensor,
            geom_xmat=data.geom_xmat._tensor,
        )

    @property
    def num_envs(self) -> int:
        return len(self.qpos)

    @property
    def device(self) -> torch.device:
        return self.qpos.device


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
        model = world.model
        self.qpos, self.qvel, self.warmstart, self.ctrl = world.qpos, world.qvel, world.warmstart, world.ctrl
        _check_order([model.actuator(k).name for k in range(model.nu)], [f"robot/{name}" for name in JOINTS])
        root = model.joint("robot/root")
        q, v = int(root.qposadr[0]), int(root.dofadr[0])
        joints = [model.joint(f"robot/{name}") for name in JOINTS]
        joint_q = _run([int(joint.qposadr[0]) for joint in joints])
        joint_v = _run([int(joint.dofadr[0]) for joint in joints])
        forces = _run([int(model.sensor(f"{CONTACT}_{body}_force").adr[0]) for body in BODIES], width=3)
        self._force_by_body = world.sensordata[:, forces].view(-1, len(BODIES), 3)
        self._fastest = world.qvel.new_full((model.nv,), MAX_TURN)
        for joint in map(model.joint, range(model.njnt)):
            if joint.type[0] == mujoco.mjtJoint.mjJNT_FREE:
                self._fastest[int(joint.dofadr[0]) : int(joint.dofadr[0]) + 3] = MAX_SPEED
        self.state = State(
            torso_pos=self.qpos[:, q : q + 3],
            torso_quat=self.qpos[:, q + 3 : q + 7],
            torso_vel=self.qvel[:, v : v + 3],
            torso_spin=self.qvel[:, v + 3 : v + 6],
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

    def broken(self) -> Tensor:
        """[B, bool]: no body moves like that, or the state is no number."""
        return ~((self.qvel.abs() <= self._fastest).all(1) & self.qpos.isfinite().all(1))

    def restart(self, fresh: Tensor, qpos: Tensor, qvel: Tensor) -> None:
        """Environments of `fresh` [B, bool] take up qpos [B, nq] and qvel [B, nv]; the others stay as they are."""
        chosen = fresh[:, None]
        self.qpos.copy_(torch.where(chosen, qpos, self.qpos))
        self.qvel.copy_(torch.where(chosen, qvel, self.qvel))
        self.warmstart.masked_fill_(chosen, 0.0)
        self.state.contact_force.masked_fill_(chosen[..., None], 0.0)


def _run(addresses: list[int], width: int = 1) -> slice:
    """Entries of `width` that lie one after the other, as a slice."""
    first = addresses[0]
    if addresses != list(range(first, first + width * len(addresses), width)):
        raise ValueError(f"entries are not adjacent in the simulator's memory: {addresses}")
    return slice(first, first + width * len(addresses))


def _check_order(have: list[str], expected: list[str]) -> None:
    if have != expected:
        raise ValueError(f"the simulator's motors are {have}, expected {expected}")
