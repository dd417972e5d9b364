"""From the actions of B A1s to the torques of their motors, as on the robot: the steps of deploy/action_pipeline.py."""

from __future__ import annotations

import torch
from torch import Tensor

from ...deploy.control import Filter, butterworth
from .model import ACTION_SCALE, CONTROL_DT, JOINTS, KD, KP, TORQUE_LIMIT
from .options import WalkOptions
from .parameters import A1Parameters
from .state import A1Joints


class A1Motors:
    """Targets of the last actions, and motors that follow them.

    An action becomes a target. The target is bounded, filtered, lost with some probability, and used after the latency
    of its robot. It moves in equal parts from the target before, and a motor with a gain and damping follows.
    """

    def __init__(
        self, like: Tensor, joints: A1Joints, parameters: A1Parameters, options: WalkOptions, low_pass: Filter
    ):
        """Take a tensor with a row per robot; `low_pass` is the robot's filter of targets."""
        self._joints, self._strength, self._loss = joints, parameters.strength, options.loss
        self._is_bounded, self._interpolates = options.bound_targets, options.interpolate
        self._kp, self._kd = KP * parameters.stiffness[:, None], KD * parameters.damping[:, None]
        self._ages, self._shares = parameters.ages(), parameters.shares(like)
        num_targets = int(self._ages.max()) + 1 + self._interpolates
        self.targets = joints.default.expand(num_targets, len(like), -1).clone()
        """[actions back, B, 12], rad: joint targets of the last actions, the newest first."""
        self._filter = butterworth(low_pass.cutoff_hz, 1 / CONTROL_DT) if options.filter else None
        self._memory = like.new_zeros(2, len(like), len(JOINTS))
        """The filter's two memories, in the transposed direct form II."""

    def aim(self, action: Tensor, joint_pos: Tensor, joint_vel: Tensor) -> None:
        """Take over the actions [B, 12] of robots with these joint angles and velocities."""
        target = self._joints.default + ACTION_SCALE * action
        if self._is_bounded:
            middle, most = joint_pos + joint_vel * (KD / KP), TORQUE_LIMIT / KP
            target = torch.minimum(torch.maximum(target, middle - most), middle + most)
        if self._filter is not None:
            target = self._filtered(target)
        if self._loss:
            lost = torch.rand_like(target[:, :1]) < self._loss
            target = torch.where(lost, self.targets[0], target)
        if len(self.targets) > 1:
            self.targets[1:].copy_(self.targets[:-1].clone())
        self.targets[0].copy_(target)

    def _filtered(self, target: Tensor) -> Tensor:
        assert self._filter is not None
        b0, b1, b2, a1, a2 = self._filter
        first, second = self._memory
        output: Tensor = b0 * target + first
        self._memory.copy_(torch.stack([b1 * target - a1 * output + second, b2 * target - a2 * output]))
        return output

    def target(self, step: int) -> Tensor:
        """Return the joint targets that act in physics step number `step` of a control step, [B, 12], rad."""
        if len(self.targets) == 1:
            return self.targets[0]
        age = self._ages[step][None, :, None].expand(1, -1, len(JOINTS))
        newer = self.targets.gather(0, age)[0]
        if not self._interpolates:
            return newer
        older = self.targets.gather(0, age + 1)[0]
        return older + self._shares[step] * (newer - older)

    def torque(self, step: int, joint_pos: Tensor, joint_vel: Tensor) -> Tensor:
        """Return the torques of the motors in a physics step, [B, 12], Nm."""
        torque = self._kp * (self.target(step) - joint_pos) - self._kd * joint_vel
        limit = self._joints.max_torque
        return torch.minimum(torch.maximum(self._strength * torque, -limit), limit)

    def restart(self, chosen: Tensor) -> None:
        """Forget the targets where `chosen` [B, 1, bool], as if the default pose had always been the target."""
        default = self._joints.default
        self.targets.copy_(torch.where(chosen, default, self.targets))
        if self._filter is not None:
            b0, _, b2, _, a2 = self._filter
            steady = torch.stack([default * (1 - b0), default * (b2 - a2)])[:, None]
            self._memory.copy_(torch.where(chosen, steady, self._memory))

    def state(self) -> dict[str, Tensor]:
        """Return the tensors from which running episodes continue."""
        return {"targets": self.targets} | ({"filter": self._memory} if self._filter is not None else {})
