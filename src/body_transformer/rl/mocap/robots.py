"""The walkers of a world: state, servos, sensors, and the frames at which their episodes begin and end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...imitation.tasks.mocap.snippets import Snippet
from ..envs.terms import RlTask, TaskRobots
from ..envs.world import FreeBody, World, adjacent
from ..episode_metrics import PlannedEpisode
from .model import DECIMATION, FILTER_S, PHYSICS_DT, TORQUE_SENSORS, TOUCH_SENSORS
from .motions import TRAIN, ClipFile, Motions
from .options import ExpertOptions
from .sampling import FrameSampler
from .servo import Servo

LIMBS = ("rradius", "lradius", "rfoot", "lfoot", "head")
"""Bodies in the order of clip files; observations have all but the head."""


@dataclass(frozen=True)
class ExpertState:
    """B environments after the physics of a control step, and the clips that they track."""

    root: FreeBody
    root_quat: Tensor
    """[B, 4], root to world, of unit length."""
    previous_quat: Tensor
    """[B, 4]: the same at the beginning of the control step."""
    joint_pos: Tensor
    """[B, 56], rad; frozen fingers are at 0."""
    joint_vel: Tensor
    """[B, 56], rad/s."""
    activation: Tensor
    """[B, 56], of the actuators."""
    control: Tensor
    """[B, 56], in [-1, 1]: the control of the last step, which recordings hold as its action."""
    body_pos: Tensor
    """[B, 31, 3], m, world: all bodies but the root."""
    body_quat: Tensor
    """[B, 31, 4], body to world."""
    center: Tensor
    """[B, 3], m: centre of mass."""
    limb_ids: Tensor
    """[5]: indices of LIMBS among the bodies."""
    touch: Tensor
    """[B, 10], N; 0 in a fresh episode."""
    torque: Tensor
    """[B, 6], Nm; 0 in a fresh episode."""
    motions: Motions
    frame: Tensor
    """[B]: the current frame of the reference."""
    end: Tensor
    """[B]: the frame at which the episode is over."""


@dataclass(frozen=True, kw_only=True)
class ExpertTask(RlTask[ExpertState]):
    """A task on the clips of a file."""

    clips: ClipFile
    snippets: tuple[Snippet, ...] = ()
    """The snippets of an evaluation, one per environment; empty in training."""
    options: ExpertOptions

    def make_robots(self, world: World, seed: int) -> Walkers:
        """Return the walkers of a world. The seed is not used, because PyTorch's generator draws the starts."""
        return Walkers(world, self)


class Walkers(TaskRobots[ExpertState]):
    """The walkers of a world."""

    locates_bodies = True

    def __init__(self, world: World, task: ExpertTask) -> None:
        model, self.world, self.task = world.model, world, task
        self.servo = Servo.of_walker(world.device, world.qpos.dtype)
        motions = Motions.read(task.clips, self.servo.file_order, world.device, world.qpos.dtype)
        self.sampler = FrameSampler(motions, _training_clips(motions, task.clips), task.options)
        bodies = task_bodies(task)
        body_ids = adjacent([model.body(f"robot/{name}").id for name in bodies])
        root_id = model.body("robot/root").id
        simulated = [model.actuator(k).name.removeprefix("robot/") for k in range(model.nu)]
        ids = [model.joint(f"robot/{joint}").id for joint in simulated]
        self._simulated = self._tensor([self.servo.joints.index(joint) for joint in simulated])
        """Indices of the simulated joints among all 56; the model may lack fingers and thumbs."""
        self._qpos_ids, self._dof_ids = (self._tensor(table[ids]) for table in (model.jnt_qposadr, model.jnt_dofadr))
        self._sensors = [
            world.sensordata[:, adjacent([int(model.sensor(f"robot/{name}").adr[0]) for name in names], width)]
            for names, width in ((TOUCH_SENSORS, 1), (TORQUE_SENSORS, 3))
        ]
        num_envs, root = world.num_envs, FreeBody.of(world, "robot/root")
        entries = {"joint_pos": 56, "joint_vel": 56, "activation": 56, "control": 56, "touch": 10, "torque": 6}
        self.state = ExpertState(
            root=root,
            root_quat=world.xquat[:, root_id],
            previous_quat=world.qpos.new_zeros(num_envs, 4),
            **{name: world.qpos.new_zeros(num_envs, size) for name, size in entries.items()},
            body_pos=world.xpos[:, body_ids],
            body_quat=world.xquat[:, body_ids],
            center=world.subtree_com[:, root_id],
            limb_ids=self._tensor([bodies.index(name) for name in LIMBS]),
            motions=motions,
            frame=torch.zeros(num_envs, dtype=torch.long, device=world.device),
            end=torch.zeros(num_envs, dtype=torch.long, device=world.device),
        )
        self._failed = torch.zeros(num_envs, dtype=torch.bool, device=world.device)
        spans = [motions.frames(snippet) for snippet in task.snippets]
        self.spans = self._tensor(spans).T if spans else None
        """First and last frames of the next episodes, [2, B], where they are fixed; None in training."""
        self.plan = [
            PlannedEpisode(task.clips.splits[snippet.clip], snippet.clip, last - first)
            for snippet, (first, last) in zip(task.snippets, spans, strict=True)
        ]

    def _tensor(self, values: Sequence[object]) -> Tensor:
        return torch.as_tensor(values, dtype=torch.long, device=self.world.device)

    def seed(self, seed: int) -> None:
        """Do nothing: evaluations have fixed starts, and training draws them from PyTorch's generator."""

    # -- a control step ------------------------------------------------------------------------------------------------

    def act(self, action: Tensor) -> None:
        """Advance to the next frame of the reference, and add the actions [B, 56] to the controls that follow it.

        A control holds for the whole control step.
        """
        state, motions = self.state, self.state.motions
        torch.minimum(state.frame + 1, state.end, out=state.frame)
        target = motions.joint_pos[state.frame], motions.joint_vel[state.frame]
        state.control.copy_(self.executed(self.servo.corrected(*target, self.task.options.action_scale * action)))
        self.world.ctrl.copy_(state.control[:, self._simulated])
        state.previous_quat.copy_(state.root_quat)
        kept = (1 - PHYSICS_DT / FILTER_S) ** DECIMATION
        state.activation.copy_(torch.lerp(state.control, state.activation, kept))  # for fingers that are not simulated

    def executed(self, control: Tensor) -> Tensor:
        """Return the controls [B, 56] to execute, given the policy's; recordings add noise."""
        return control

    def read_sensors(self) -> None:
        """Read joints and sensors, and note failures."""
        state = self.state
        self._read_joints()
        for own, sensed in zip((state.touch, state.torque), self._sensors, strict=True):
            own.copy_(sensed)
        failed = torch.stack([failure(state) for failure in self.task.failures]).any(0)
        self._failed.copy_(failed | self.world.broken())
        self.sampler.note(state.frame, self._failed)

    def _read_joints(self) -> None:
        state, world = self.state, self.world
        for own, simulated, ids in (
            (state.joint_pos, world.qpos, self._qpos_ids),
            (state.joint_vel, world.qvel, self._dof_ids),
            (state.activation, world.act, slice(None)),
        ):
            own.index_copy_(1, self._simulated, simulated[:, ids])

    # -- starts --------------------------------------------------------------------------------------------------------

    def restart(self, fresh: Tensor) -> None:
        """Place the walkers of `fresh` [B, bool] on the first frame of their next episode."""
        state, motions, world = self.state, self.state.motions, self.world
        if self.spans is None:
            frame = self.sampler.draw_after(state.frame, self._failed)
            options, end = self.task.options, motions.last[motions.clip[frame]]
            noise, at_rest = options.start_noise, options.start_at_rest
        else:
            (frame, end), noise, at_rest = self.spans, 0.0, 1.0
        joint_pos, joint_vel = motions.joint_pos[frame], motions.joint_vel[frame]
        activation = self.servo.control(joint_pos, joint_vel, lead_s=0.0)
        activation = activation * (torch.rand_like(activation[:, :1]) >= at_rest)
        joint_pos = joint_pos + noise * torch.randn_like(joint_pos)
        joint_vel = joint_vel + 10 * noise * torch.randn_like(joint_vel)
        qpos, qvel = torch.zeros_like(world.qpos), torch.zeros_like(world.qvel)
        qpos[:, :7] = torch.cat([motions.root_pos[frame], motions.root_quat[frame]], 1)
        qvel[:, :6] = torch.cat([motions.root_vel[frame], motions.root_spin[frame]], 1)
        qpos.index_copy_(1, self._qpos_ids, joint_pos[:, self._simulated])
        qvel.index_copy_(1, self._dof_ids, joint_vel[:, self._simulated])
        world.set_state(fresh, qpos, qvel)
        chosen = fresh[:, None]
        for own, new in (
            (world.act, activation[:, self._simulated]),
            (state.activation, activation),
            (state.previous_quat, motions.root_quat[frame]),
        ):
            own.copy_(torch.where(chosen, new, own))
        for own, new in ((state.frame, frame), (state.end, end)):
            own.copy_(torch.where(fresh, new, own))
        for sensed in (state.touch, state.torque):
            sensed.masked_fill_(chosen, 0.0)
        self._failed.masked_fill_(fresh, False)
        self._read_joints()

    # -- checkpoint ----------------------------------------------------------------------------------------------------

    def episode_state(self) -> dict[str, Tensor]:
        return super().episode_state() | {"failed": self._failed}

    def training_state(self) -> dict[str, Tensor]:
        return self.sampler.state()

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        self.sampler.restore(tensors)


def task_bodies(task: ExpertTask) -> tuple[str, ...]:
    """Return the bodies in the order of clip files: all but the root, in the order of the tree."""
    (bodies,) = (term.owners.of for term in task.obs["actor"] if term.name == "reference_rel_bodies_pos_local")
    return bodies


def _training_clips(motions: Motions, clips: ClipFile) -> Tensor:
    """Return the numbers of the training clips."""
    numbers = [motions.index[name] for name, split in clips.splits.items() if split == TRAIN]
    return torch.tensor(sorted(numbers), device=motions.clip.device)
