"""The humanoids of a world: state, motors, contact sensors and start states."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..envs.terms import RlTask, TaskRobots
from ..envs.world import NUM_STARTS, FreeBody, Place, Starts, World, adjacent, joint_ids, joint_ranges
from ..ground import Ground
from .ground import LimbPlanes
from .model import BODIES, CONTACT, JOINTS, MAX_GEAR

# -- state -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HumanoidJoints:
    """Constants of the 21 joints."""

    middle: Tensor
    """[21], rad, of the range."""
    half_range: Tensor
    """[21], rad."""
    strength: Tensor
    """[21], gear of the motor / the largest gear."""

    @classmethod
    def of(cls, model: mujoco.MjModel, device: torch.device | str = "cpu") -> HumanoidJoints:
        """Read them from the compiled scene."""
        low, high = torch.tensor(joint_ranges(model, JOINTS), dtype=torch.float32, device=device)
        gears = [model.actuator(f"robot/{name}").gear[0] for name in JOINTS]
        strength = torch.tensor(gears, dtype=torch.float32) / MAX_GEAR
        return cls((low + high) / 2, (high - low) / 2, strength.to(device))


@dataclass(frozen=True)
class Stack:
    """Board and cylinder of humanoid-board; the robot senses only the contact forces on its feet."""

    board: FreeBody
    cylinder: FreeBody
    """Its axis is its own x axis."""


@dataclass(frozen=True)
class HumanoidState:
    """B environments after the physics of a control step."""

    root: FreeBody
    """The torso."""
    joint_pos: Tensor
    """[B, 21], rad."""
    joint_vel: Tensor
    """[B, 21], rad/s."""
    contact_force: Tensor
    """[B, 16, 3], N, world, on each body, in the last physics step; zero in a fresh episode."""
    action: Tensor
    """[B, 21], in [-1, 1]: input of the motors."""
    previous_xy: Tensor
    """[B, 2], m: position of the torso when the action was chosen."""
    joints: HumanoidJoints
    stack: Stack | None = None
    """None where neither board nor cylinder are in the scene."""


# -- robots ------------------------------------------------------------------------------------------------------------


class Humanoids(TaskRobots[HumanoidState]):
    """The humanoids of a world."""

    def __init__(self, world: World, seed: int, task: HumanoidTask):
        model, self.world = world.model, world
        motors, expected = [model.actuator(k).name for k in range(model.nu)], [f"robot/{name}" for name in JOINTS]
        if motors != expected:
            raise ValueError(f"the simulator's motors are {motors}, expected {expected}")
        in_qpos, in_qvel = map(adjacent, joint_ids(model, JOINTS))
        forces = adjacent([int(model.sensor(f"{CONTACT}_{body}_force").adr[0]) for body in BODIES], width=3)
        self._force_by_body = world.sensordata[:, forces].view(-1, len(BODIES), 3)
        bodies = ("board/board", "cylinder/cylinder") if "board" in task.scene.entities else ()
        self.state = HumanoidState(
            root=FreeBody.of(world, "robot/root"),
            joint_pos=world.qpos[:, in_qpos],
            joint_vel=world.qvel[:, in_qvel],
            contact_force=world.qpos.new_zeros(world.num_envs, len(BODIES), 3),
            action=world.qpos.new_zeros(world.num_envs, len(JOINTS)),
            previous_xy=world.qpos.new_zeros(world.num_envs, 2),
            joints=HumanoidJoints.of(model, world.device),
            stack=Stack(*(FreeBody.of(world, body) for body in bodies)) if bodies else None,
        )
        rng = np.random.default_rng(seed)
        drawn = draw_starts(model, task.place, rng, NUM_STARTS, task.start_noise_curriculum)
        # float32 in every simulator, so that episodes begin in the same states
        self.starts = Starts(world, drawn, seed, torch.float32)
        self.planes = None if task.ground is None else LimbPlanes(world, task.ground)
        """The uneven ground; flat ground is part of the scene."""
        self.acts_between_physics_steps = self.planes is not None

    def act(self, action: Tensor) -> None:
        """Send the clamped actions [B, 21] to the motors and note the position of the torso."""
        torch.clamp(action, -1.0, 1.0, out=self.state.action)
        self.world.ctrl.copy_(self.state.action)
        self.state.previous_xy.copy_(self.state.root.pos[:, :2])

    def before_physics(self, step: int) -> None:
        """Lay the ground under the robots. The torques stay the same in all physics steps."""
        if self.planes is not None:
            if step:
                self.planes.note()
            self.planes.lay()

    def read_sensors(self) -> None:
        """Read the contact forces on the bodies."""
        torch.neg(self._force_by_body, out=self.state.contact_force)
        if self.planes is not None:
            self.planes.note()

    def restart(self, fresh: Tensor) -> None:
        """Begin the next episode where `fresh` [B, bool]."""
        self.world.set_state(fresh, *self.starts.next(fresh))
        self.state.contact_force.masked_fill_(fresh[:, None, None], 0.0)
        if self.planes is not None:
            self.planes.restart(fresh)

    def episode_state(self) -> dict[str, Tensor]:
        planes = {} if self.planes is None else self.planes.state()
        return super().episode_state() | self.starts.state() | planes

    def fit_model(self, k: int, model: mujoco.MjModel) -> None:
        """Write the ground under robot k into a model of plain MuJoCo."""
        if self.planes is not None:
            self.planes.fit_model(k, model)


@dataclass(frozen=True, kw_only=True)
class HumanoidTask(RlTask[HumanoidState]):
    """A task of the humanoid."""

    place: Place
    """Draws the torso positions where episodes begin."""
    ground: Ground | None = None
    """Uneven ground; flat ground is part of the scene."""
    start_noise_curriculum: bool = False
    """Give every start a share of the random pose, from none to all of it."""

    def make_robots(self, world: World, seed: int) -> Humanoids:
        return Humanoids(world, seed, self)


# -- starts ------------------------------------------------------------------------------------------------------------

JOINT_POS_RAD = 0.2
JOINT_VEL_RAD_S = 0.1


def draw_starts(
    model: mujoco.MjModel, place: Place, rng: np.random.Generator, count: int, start_noise_curriculum: bool = False
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw start states of a whole scene: qpos [count, nq] and qvel [count, nv].

    Joint angles are U(-0.2, 0.2) within the joints' ranges, and joint velocities U(-0.1, 0.1). The torso is upright and
    at rest at a drawn place; other bodies are as in the keyframe of the scene. `entangled` states are drawn again. With
    `start_noise_curriculum`, each start has a random share of these angles and velocities, from none to all of them.
    """
    data, own = mujoco.MjData(model), robot_geoms(model)
    (low, high), (q_ids, v_ids) = joint_ranges(model, JOINTS), joint_ids(model, JOINTS)
    torso = int(model.joint("robot/root").qposadr[0])
    qpos = np.tile(model.key_qpos[0], (count, 1))  # all entities, which mjlab's sim.reset() does not place
    qvel = np.zeros((count, model.nv))
    qpos[:, torso : torso + 3] = place(rng, count)
    qvel[:, v_ids] = rng.uniform(-JOINT_VEL_RAD_S, JOINT_VEL_RAD_S, (count, len(JOINTS)))
    shares = rng.uniform(0, 1, count) if start_noise_curriculum else np.ones(count)
    qvel *= shares[:, None]
    for start, share in zip(qpos, shares, strict=True):
        data.qpos = start
        while True:
            data.qpos[q_ids] = np.clip(share * rng.uniform(-JOINT_POS_RAD, JOINT_POS_RAD, len(JOINTS)), low, high)
            if not entangled(model, data, own):
                break
        start[:] = data.qpos
    return qpos, qvel


def robot_geoms(model: mujoco.MjModel) -> NDArray[np.bool_]:
    """Return which geoms belong to the robot, [geoms]."""
    return np.array([model.body(body).name.startswith("robot/") for body in model.geom_bodyid])


def entangled(model: mujoco.MjModel, data: mujoco.MjData, own: NDArray[np.bool_]) -> bool:
    """Return whether the robot touches itself, or is so deep in a body that it would be pushed out sideways or down.

    Without this check, 23 % of the starts have crossed legs. Forces of hundreds of newtons between them would end the
    episode before its first action. On the board, 1 % have a foot that would come out under it.
    """
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    mujoco.mj_collision(model, data)
    first, second = own[data.contact.geom].T
    normal_z = data.contact.frame[:, 2]  # of the normal from the first geom to the second
    pushed_up = np.where(second, normal_z, -normal_z)
    return bool(((first & second) | ((first | second) & (pushed_up < 0.5))).any())
