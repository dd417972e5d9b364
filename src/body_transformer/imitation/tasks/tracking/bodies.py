"""Several humanoids that step together, each with its own clip, tilt and loads, and the expert that controls them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt
from mujoco.rollout import Rollout

from .model import HANDS, MAX_ACTION, PHYSICS_STEPS, actuator_joint_ids, pinned_model, torque_scale
from .motions import LOOKAHEAD, Doubles, TrackingStart

FEEDBACK_RAD_S = 12.0
"""Bandwidth of the expert's feedback, critically damped. The control rate of 314 rad/s is much higher, so the delay of
holding an action for a step does no harm."""

MAX_ERROR_RAD = 0.25
"""Mean absolute error of the joints above which the clip is lost and the episode ends."""


class Bodies:
    """Running episodes: the bodies start on their references, and every `step` takes one action per body.

    Joints are in the model's order. A body does not depend on the others.
    """

    def __init__(self, starts: Sequence[TrackingStart], first: int = 0) -> None:
        self.starts = list(starts)
        self.ids = first + np.arange(len(self.starts))
        """[B] episode numbers of the bodies, counted from `first`."""
        self.time = 0
        """Number of steps taken."""
        self._data = mujoco.MjData(pinned_model())
        self._models = [_model(start, self._data) for start in self.starts]
        self._rollout = Rollout(nthread=0)
        self._clip_pos = np.stack([start.clip.pos for start in self.starts])  # [B, T, J]
        self._clip_vel = np.stack([start.clip.vel for start in self.starts])
        self._clip_acc = np.stack([start.clip.acc for start in self.starts])
        self._gravity = np.stack([start.gravity for start in self.starts])
        self._payloads = np.array([start.payloads_kg for start in self.starts])
        self.pos = self._clip_pos[:, 0].copy()
        """[B, J] rad"""
        self.vel = self._clip_vel[:, 0].copy()
        """[B, J] rad/s"""

    def __len__(self) -> int:
        return len(self.starts)

    def observe(self) -> Doubles:
        """Return the entries of all observable terms, [B, entries], in the order of `observation._terms`."""
        ahead = slice(self.time + 1, self.time + 1 + LOOKAHEAD)
        pos_errors = self._clip_pos[:, ahead] - self.pos[:, None]  # [B, steps, J]
        vel_errors = self._clip_vel[:, ahead] - self.vel[:, None]
        parts = (self._gravity, self.pos, self.vel, pos_errors, vel_errors, self._payloads)
        return np.concatenate([part.reshape(len(self), -1) for part in parts], 1)

    def expert(self) -> Doubles:
        """Return the expert's actions [B, J] by computed torque, with the simulator's own model."""
        now = self.time
        # An action is held for a step, so it aims at the acceleration in the middle of the step.
        reference = (self._clip_acc[:, now] + self._clip_acc[:, now + 1]) / 2
        pos_error, vel_error = self._clip_pos[:, now] - self.pos, self._clip_vel[:, now] - self.vel
        acc = reference + FEEDBACK_RAD_S**2 * pos_error + 2 * FEEDBACK_RAD_S * vel_error
        torques = np.empty_like(self.pos)
        data = self._data
        for k, model in enumerate(self._models):
            data.qpos[:], data.qvel[:], data.qacc[:] = self.pos[k], self.vel[k], acc[k]
            mujoco.mj_inverse(model, data)
            torques[k] = data.qfrc_inverse
        return np.clip(torques / torque_scale(), -MAX_ACTION, MAX_ACTION)

    def step(self, actions: npt.ArrayLike) -> None:
        """Hold the actions [B, J], clipped to ±MAX_ACTION, for one control step."""
        controls = np.clip(np.asarray(actions, dtype=np.float64), -MAX_ACTION, MAX_ACTION)[:, actuator_joint_ids()]
        state = np.concatenate([np.zeros((len(self), 1)), self.pos, self.vel], 1)  # time, qpos, qvel
        controls = np.repeat(controls[:, None], PHYSICS_STEPS, 1)
        states, _ = self._rollout.rollout(self._models, self._data, state, controls)
        num_joints = self.pos.shape[1]
        self.pos, self.vel = states[:, -1, 1 : 1 + num_joints].copy(), states[:, -1, 1 + num_joints :].copy()
        self.time += 1

    def errors(self) -> Doubles:
        """Return the current errors [B, J], reference minus body, in rad."""
        return self._clip_pos[:, self.time] - self.pos

    def keep(self, mask: npt.NDArray[np.bool_]) -> None:
        """Remove the bodies [B] where the mask is False."""
        if mask.all():
            return
        self.starts = [start for start, kept in zip(self.starts, mask, strict=True) if kept]
        self._models = [model for model, kept in zip(self._models, mask, strict=True) if kept]
        for name in ("ids", "_clip_pos", "_clip_vel", "_clip_acc", "_gravity", "_payloads", "pos", "vel"):
            setattr(self, name, getattr(self, name)[mask])


def lost(errors: Doubles) -> npt.NDArray[np.bool_]:
    """Return [B] whether the errors [B, J] are too large or NaN."""
    within: npt.NDArray[np.bool_] = np.abs(errors).mean(1) <= MAX_ERROR_RAD
    return ~within


def _model(start: TrackingStart, data: Any) -> Any:
    """Return the pinned humanoid with the tilt and loads of `start`; `data` is overwritten."""
    model = copy.copy(pinned_model())
    model.body("torso").quat[:] = start.torso_quat
    for hand, payload_kg in zip(HANDS, start.payloads_kg, strict=True):
        body = model.body(hand)
        body.inertia[:] *= 1 + payload_kg / body.mass[0]  # as if the hand had a higher density
        body.mass[:] += payload_kg
    mujoco.mj_setConst(model, data)  # quantities that MuJoCo derives from masses
    return model
