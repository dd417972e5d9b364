"""Several humanoids side by side, each on its own clip, tilt and payloads, in step with each other."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt
from mujoco.rollout import Rollout

from .clips import LOOKAHEAD, Doubles
from .expert import expert_actions, wanted_acc
from .model import HANDS, MAX_ACTION, PHYSICS_STEPS, actuator_joint_ids, pinned_model
from .starts import Start


class Bodies:
    """Live episodes: the bodies begin on their references, and every `step` is one action of each.

    Joints are in the model's order; a body does not depend on which others are there.
    """

    def __init__(self, starts: Sequence[Start]) -> None:
        self.starts = list(starts)
        self.time = 0
        """Steps taken."""
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

    def observe(self) -> dict[str, Doubles]:
        """Term name -> [B, steps, owners, dim]: joints in the model's order, hands in that of `HANDS`."""
        ahead = slice(self.time + 1, self.time + 1 + LOOKAHEAD)
        return {
            "gravity": self._gravity[:, None, None],
            "joint_pos": self.pos[:, None, :, None],
            "joint_vel": self.vel[:, None, :, None],
            "pos_error": (self._clip_pos[:, ahead] - self.pos[:, None])[..., None],
            "vel_error": (self._clip_vel[:, ahead] - self.vel[:, None])[..., None],
            "payload": self._payloads[:, None, :, None],
        }

    def expert(self) -> Doubles:
        """[B, J] what the expert does now."""
        now = self.time
        # An action is held for a step: it aims at the acceleration in the middle of it.
        acc = wanted_acc(
            self._clip_pos[:, now] - self.pos,
            self._clip_vel[:, now] - self.vel,
            (self._clip_acc[:, now] + self._clip_acc[:, now + 1]) / 2,
        )
        return expert_actions(self._models, self._data, self.pos, self.vel, acc)

    def step(self, actions: npt.ArrayLike) -> None:
        """Holds the actions [B, J], cut to ±MAX_ACTION, for one control step."""
        controls = np.clip(np.asarray(actions, dtype=np.float64), -MAX_ACTION, MAX_ACTION)[:, actuator_joint_ids()]
        state = np.concatenate([np.zeros((len(self), 1)), self.pos, self.vel], 1)  # time, qpos, qvel
        controls = np.repeat(controls[:, None], PHYSICS_STEPS, 1)
        states, _ = self._rollout.rollout(self._models, self._data, state, controls)
        num_joints = self.pos.shape[1]
        self.pos, self.vel = states[:, -1, 1 : 1 + num_joints].copy(), states[:, -1, 1 + num_joints :].copy()
        self.time += 1

    def errors(self) -> Doubles:
        """[B, J] the reference minus the body, rad, now."""
        return self._clip_pos[:, self.time] - self.pos

    def keep(self, chosen: npt.NDArray[np.bool_]) -> None:
        """Goes on with these only. A body that is lost must leave: driven on, it may turn ever faster."""
        if chosen.all():
            return
        ids = np.flatnonzero(chosen).tolist()
        self.starts = [self.starts[k] for k in ids]
        self._models = [self._models[k] for k in ids]
        for name in ("_clip_pos", "_clip_vel", "_clip_acc", "_gravity", "_payloads", "pos", "vel"):
            setattr(self, name, getattr(self, name)[ids])


def _model(start: Start, data: Any) -> Any:
    """The pinned humanoid, leaning and loaded as `start` says; `data` is overwritten."""
    model = copy.copy(pinned_model())
    model.body("torso").quat[:] = start.torso_quat
    for hand, payload_kg in zip(HANDS, start.payloads_kg, strict=True):
        body = model.body(hand)
        body.inertia[:] *= 1 + payload_kg / body.mass[0]  # as if the hand were so much denser
        body.mass[:] += payload_kg
    mujoco.mj_setConst(model, data)  # what MuJoCo derives from masses
    return model
