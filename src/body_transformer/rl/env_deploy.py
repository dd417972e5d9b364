"""Everything that a robot needs to run a policy, read from the mjlab environment of its training.

These are the numbers of an experiment's `deploy` section, and the robot's model. Noise, pushes and delays of the
training are left out: a robot has its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

import mujoco
import numpy as np
import torch
from mjlab.envs import mdp
from mjlab.envs.mdp.actions import JointPositionAction
from mjlab.managers.scene_entity_config import SceneEntityCfg
from mjlab.sensor import BuiltinSensor
from mjlab.tasks.registry import load_rl_cfg
from mjlab.tasks.velocity.mdp import UniformVelocityCommand

from ..body.compare import check_same
from ..body.layout import Layout, Term
from ..deploy.config import DeployConfig, ObsSource, Sections, Training, contract_sections
from ..deploy.control import JOINT_SOURCES, Source
from .config import RlConfig
from .env_robot import EnvRobot
from .infer_layout import infer_layout
from .registry import MJLAB, make_env
from .term_owners import with_defaults

if TYPE_CHECKING:
    from mjlab.envs import ManagerBasedRlEnv
    from mjlab.managers.observation_manager import ObservationTermCfg

FUNCTIONS: Mapping[Any, Source] = {
    mdp.base_lin_vel: "linear_velocity",
    mdp.base_ang_vel: "angular_velocity",
    mdp.projected_gravity: "projected_gravity",
    mdp.joint_pos_rel: "joint_pos",
    mdp.joint_vel_rel: "joint_vel",
    mdp.last_action: "previous_action",
    mdp.generated_commands: "command",
}
"""mjlab's observation functions -> the quantities that a robot measures."""
SENSORS: Mapping[int, Source] = {
    int(mujoco.mjtSensor.mjSENS_GYRO): "angular_velocity",
    int(mujoco.mjtSensor.mjSENS_VELOCIMETER): "linear_velocity",
}
"""Types of MuJoCo sensors -> the quantities that a robot's IMU measures."""
VELOCITY_LIMITS = {
    "go1": {"*_hip_joint": 30.1, "*_thigh_joint": 30.1, "*_calf_joint": 20.06},
    "g1_29dof_rev_1_0": {
        "*_hip_pitch_joint": 32.0,
        "*_hip_yaw_joint": 32.0,
        "*_hip_roll_joint": 20.0,
        "*_knee_joint": 20.0,
        "*_ankle_*_joint": 37.0,
        "waist_yaw_joint": 32.0,
        "waist_pitch_joint": 37.0,
        "waist_roll_joint": 37.0,
        "*_shoulder_*_joint": 37.0,
        "*_elbow_joint": 37.0,
        "*_wrist_roll_joint": 37.0,
        "*_wrist_pitch_joint": 22.0,
        "*_wrist_yaw_joint": 22.0,
    },
}
"""Model -> joint -> rad/s, from the motors in mjlab's `*_constants.py`; its actuators have no such setting."""


Place = tuple[float, float, float]
"""m, in the frame of the robot's root body."""
ORIGIN: Place = (0.0, 0.0, 0.0)


class _Measured(NamedTuple):
    """The source of an observation term, and the place of a linear velocity."""

    source: Source
    place: Place | None = None


def task_sections(layout: Layout, config: RlConfig, num_steps: int = 0) -> Sections:
    """Return a contract's sections for a policy of one of mjlab's tasks; the arguments are those of `sections_of`."""
    with closing(make_env(config.task, 1, 0, "cpu", config.motion)) as env:
        check_same(layout, infer_layout(env, ["actor"], config.layout_overrides).layout, ("policy", config.task))
        return sections_of(env, layout, num_steps, load_rl_cfg(config.task.removeprefix(MJLAB)).clip_actions)


def sections_of(
    env: ManagerBasedRlEnv, layout: Layout, num_steps: int = 0, clip_actions: float | None = None
) -> Sections:
    """Return a contract's sections for a policy with this layout.

    An environment that no contract can describe is a ValueError with the reason. A term that a robot cannot measure has
    no source, so `bot deploy` refuses the policy and names the term.

    Args:
        env: the environment; its curricula advance to `num_steps`.
        layout: the policy's, for the observation group "actor".
        num_steps: steps per environment of the training, which set the range of the command.
        clip_actions: the runner's symmetric bound on actions.
    """
    robot, actions = EnvRobot(env), _joint_actions(env)
    joints = tuple(name for action in actions for name in action.target_names)
    data = robot.entity.data.default_joint_pos[0].tolist()
    default = {name: data[robot.entity.joint_names.index(name)] for name in joints}
    obs, imu = _obs_sources(robot, layout, default)
    spec = robot.entity.cfg.build().spec  # with the robot's own names, and with its actuators
    for name in ("cone", "impratio", "integrator"):
        setattr(spec.option, name, getattr(env.sim.mj_model.opt, name))
    gains = _gains(robot, spec)
    kp, kd = ({joint: gains[joint][k] for joint in joints} for k in (0, 1))
    command_range = _command_range(env, num_steps) if "command" in {found.source for found in obs.values()} else None
    deploy = DeployConfig(
        kind="position",
        hz=1 / env.step_dt,
        obs=obs,
        action_scale=_per_joint(actions, "scale"),
        action_offset=_per_joint(actions, "offset"),
        action_clip=clip_actions,
        default_pose=default,
        kp=kp,
        kd=kd,
        velocity_limits=_velocity_limits(robot, spec, joints),
        command=tuple(float(np.clip(0.0, low, high)) for low, high in command_range or ()),
        command_range=command_range,
        imu=imu,
        training=Training(kp, kd),
    )
    return contract_sections(deploy, spec, layout)


# -- actions -----------------------------------------------------------------------------------------------------------


def _joint_actions(env: ManagerBasedRlEnv) -> list[JointPositionAction]:
    """Return the action terms; refuse actions that are not target positions of joints."""
    manager = env.action_manager
    actions = [manager.get_term(name) for name in manager.active_terms]
    for name, action in zip(manager.active_terms, actions, strict=True):
        if type(action) is not JointPositionAction:
            raise ValueError(
                f"action {name!r} is a {type(action).__name__}; a robot takes the targets of a JointPositionAction"
            )
        if action.cfg.clip is not None:
            raise ValueError(f"action {name!r} clips its targets, which a contract cannot express")
    return actions  # type: ignore[return-value]


def _per_joint(actions: Sequence[JointPositionAction], name: str) -> dict[str, float]:
    """Return `scale` or `offset` by joint."""
    found: dict[str, float] = {}
    for action in actions:
        value = torch.as_tensor(getattr(action, name))
        row = value.expand(1, action.action_dim)[0] if value.ndim == 0 else value[0]
        found |= dict(zip(action.target_names, row.tolist(), strict=True))
    return found


def _gains(robot: EnvRobot, spec: mujoco.MjSpec) -> dict[str, tuple[float, float]]:
    """Return kp and kd of each joint with a position controller, from its configuration or, without one, its model."""
    servos = {actuator.target: actuator for actuator in spec.actuators}
    found = {}
    for actuator in robot.entity.actuators:
        for joint in actuator.target_names:
            servo, cfg = servos.get(joint), actuator.cfg
            kp, kd = getattr(cfg, "stiffness", 0.0), getattr(cfg, "damping", 0.0)
            if not kp and servo is not None:
                kp, kd = -servo.biasprm[1], -servo.biasprm[2]
            if not kp:
                raise ValueError(f"joint {joint!r} has no position controller, but a {type(actuator).__name__}")
            found[joint] = float(kp), float(kd)
    return found


def _velocity_limits(robot: EnvRobot, spec: mujoco.MjSpec, joints: Sequence[str]) -> dict[str, float]:
    """Return the speed limit of each joint, rad/s; infinite where none is known."""
    known = VELOCITY_LIMITS.get(spec.modelname, {})
    limits = {
        joint: float(getattr(actuator.cfg, "velocity_limit", np.inf))
        for actuator in robot.entity.actuators
        for joint in actuator.target_names
    }
    listed = {joint: value for joint in joints for pattern, value in known.items() if fnmatchcase(joint, pattern)}
    return {joint: min(limits[joint], listed.get(joint, np.inf)) for joint in joints}


# -- observations ------------------------------------------------------------------------------------------------------


def _obs_sources(robot: EnvRobot, layout: Layout, default: Mapping[str, float]) -> tuple[dict[str, ObsSource], Place]:
    """Return the sources of the terms that a robot measures, and the place of its IMU; `default` is the pose."""
    manager, terms = robot.env.observation_manager, {term.name: term for term in layout.obs}
    sources: dict[str, ObsSource] = {}
    places: set[Place] = set()
    for name in manager.active_terms["actor"]:
        cfg, term = manager.get_term_cfg("actor", name), terms.get(name)
        found = _source(robot, cfg)
        if found is None or term is None or not _fits(term, found.source, tuple(default)):
            continue
        zeros = (0.0,) * (term.size // term.steps)
        offset = tuple(default.values()) if found.source == "joint_pos" else zeros
        sources[name] = _obs_source(name, cfg, found.source, offset)
        if found.place is not None:
            places.add(found.place)
    if len(places) > 1:
        raise ValueError(f"linear velocities must be those of one place of the robot; got {sorted(places)}")
    return sources, next(iter(places), ORIGIN)


def _source(robot: EnvRobot, cfg: ObservationTermCfg) -> _Measured | None:
    """Return the measured quantity of a term; None if only the simulator has it."""
    params = with_defaults(cfg.func, cfg.params)
    entities = [value for value in params.values() if isinstance(value, SceneEntityCfg)]
    if any(entity.name != robot.name for entity in entities):
        return None
    if cfg.func is mdp.builtin_sensor:
        return _imu(robot, params["sensor_name"])
    source = FUNCTIONS.get(cfg.func)
    if source == "command":
        command = robot.env.command_manager.get_term(params["command_name"])
        return _Measured(source) if isinstance(command, UniformVelocityCommand) else None
    if source is None:
        return None
    return _Measured(source, ORIGIN if source == "linear_velocity" else None)


def _imu(robot: EnvRobot, name: str) -> _Measured | None:
    """Return the quantity of a sensor of an IMU that sits on the robot's root, parallel to it."""
    model = robot.env.sim.mj_model
    if not isinstance(robot.env.scene[name], BuiltinSensor):
        return None
    sensor = model.sensor(name)
    source = SENSORS.get(int(sensor.type[0]))
    if source is None:
        return None
    site = int(sensor.objid[0])
    on_root = model.body(model.site_bodyid[site]).name == f"{robot.name}/{robot.entity.body_names[0]}"
    if not on_root or not np.allclose(model.site_quat[site], (1, 0, 0, 0), atol=1e-6):
        raise ValueError(f"the IMU of sensor {name!r} must sit on the robot's root body, parallel to it")
    x, y, z = model.site_pos[site].tolist()
    return _Measured(source, (x, y, z) if source == "linear_velocity" else None)


def _fits(term: Term, source: Source, joints: Sequence[str]) -> bool:
    """Return whether a term about joints has one entry for each joint that the actions drive, in their order."""
    return source not in JOINT_SOURCES or (term.kind == "joints" and term.of == tuple(joints))


def _obs_source(name: str, cfg: ObservationTermCfg, source: Source, offset: Sequence[float]) -> ObsSource:
    """Return the computation of a term. mjlab clips before it scales, a contract afterwards."""
    scale = torch.ones(()) if cfg.scale is None else torch.as_tensor(cfg.scale)
    clip = None
    if cfg.clip is not None:
        if scale.ndim or scale <= 0:
            raise ValueError(f"observation {name!r} must have one scale above 0, because it is clipped; got {scale}")
        clip = (float(cfg.clip[0] * scale), float(cfg.clip[1] * scale))
    return ObsSource(source, tuple(offset), tuple(scale.expand(len(offset)).tolist()), clip)


def _command_range(env: ManagerBasedRlEnv, num_steps: int) -> tuple[tuple[float, float], ...] | None:
    """Return the range of each entry of the velocity command after so many steps of the training."""
    env.common_step_counter = num_steps
    env.curriculum_manager.compute(torch.arange(env.num_envs, device=env.device))
    for name in env.command_manager.active_terms:
        command = env.command_manager.get_term(name)
        if isinstance(command, UniformVelocityCommand):
            ranges = command.cfg.ranges
            return tuple(
                (float(low), float(high)) for low, high in (ranges.lin_vel_x, ranges.lin_vel_y, ranges.ang_vel_z)
            )
    return None
