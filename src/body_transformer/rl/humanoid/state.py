"""What the terms of the humanoid tasks see: the simulator's memory as tensors, taken once, and the little beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .model import BODIES, CONTACT, JOINTS, MAX_GEAR

if TYPE_CHECKING:
    import mujoco
    from mjlab.envs import ManagerBasedRlEnv


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
    def of(cls, model: mujoco.MjModel, prefix: str = "", device: str = "cpu") -> Joints:
        """From a compiled model in which the robot's names begin with `prefix`."""
        ranges = torch.tensor([model.joint(prefix + name).range.tolist() for name in JOINTS], dtype=torch.float32)
        gears = torch.tensor([model.actuator(prefix + name).gear[0] for name in JOINTS], dtype=torch.float32)
        low, high = ranges.to(device).unbind(-1)
        return cls((low + high) / 2, (high - low) / 2, (gears / MAX_GEAR).to(device))


class Memory:
    """The simulator's arrays of an environment as tensors without mjlab's wrapping, and the state on top of them."""

    def __init__(self, env: ManagerBasedRlEnv):
        model, data = env.sim.mj_model, env.sim.data
        self.qpos, self.qvel = data.qpos._tensor, data.qvel._tensor  # [B, nq], [B, nv]
        self.warmstart = data.qacc_warmstart._tensor  # [B, nv]
        self.ctrl = data.ctrl._tensor  # [B, 21]
        _check_order([model.actuator(k).name for k in range(model.nu)], [f"robot/{name}" for name in JOINTS])
        root = model.joint("robot/root")
        q, v = int(root.qposadr[0]), int(root.dofadr[0])
        joints = [model.joint(f"robot/{name}") for name in JOINTS]
        self.joint_q = _run([int(joint.qposadr[0]) for joint in joints])
        self.joint_v = _run([int(joint.dofadr[0]) for joint in joints])
        self.torso_q = slice(q, q + 3)
        forces = _run([int(model.sensor(f"{CONTACT}_{body}_force").adr[0]) for body in BODIES], width=3)
        self._force_by_body = data.sensordata._tensor[:, forces].unflatten(-1, (len(BODIES), 3))
        new = {"device": env.device, "dtype": torch.float32}
        self.state = State(
            torso_pos=self.qpos[:, self.torso_q],
            torso_quat=self.qpos[:, q + 3 : q + 7],
            torso_vel=self.qvel[:, v : v + 3],
            torso_spin=self.qvel[:, v + 3 : v + 6],
            joint_pos=self.qpos[:, self.joint_q],
            joint_vel=self.qvel[:, self.joint_v],
            contact_force=torch.zeros(env.num_envs, len(BODIES), 3, **new),
            action=torch.zeros(env.num_envs, len(JOINTS), **new),
            previous_xy=torch.zeros(env.num_envs, 2, **new),
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
