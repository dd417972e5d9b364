"""The tasks to train on: ours by name, mjlab's own as `mjlab:NAME`."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import yaml

from ..array_files import ArrayArchive
from ..errors import install, listing, unknown
from ..schema import build
from ..size_limits import check_memory

if TYPE_CHECKING:
    from mjlab.envs import ManagerBasedRlEnvCfg

    from ..model.policy import Policy
    from .envs.fast import FastEnv
    from .envs.mjlab import MjlabEnv
    from .envs.terms import RlTask
    from .episode_metrics import EpisodeMetrics

TASKS = {
    "humanoid-mod": "humanoid.mod",
    "humanoid-hill": "humanoid.hill",
    "humanoid-board": "humanoid.board",
    "a1-walk": "a1.walk",
    "a1-command": "a1.command",
    "mocap-expert": "mocap.expert",
}
"""Our tasks -> the module of rl/ whose SPEC, a `TaskSpec`, describes them."""
NEED_DATA = ("mocap-expert",)
"""Tasks with a required option that names the user's data."""
MJLAB = "mjlab:"
MOTION = ("joint_pos", "joint_vel", "body_pos_w", "body_quat_w", "body_lin_vel_w", "body_ang_vel_w")
"""Arrays that mjlab reads from a recorded motion, [T, …] each."""
NO_MJLAB = f"reinforcement learning needs mjlab; install it with: {install('rl')}"


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """The interface of a task's module."""

    task: Callable[..., RlTask[Any]]
    """(seed, options if the task has any) -> the task of a training."""
    evaluated: Callable[[Any, int], RlTask[Any]] = lambda task, num_envs: task
    """(task of a training, largest number of environments) -> the task of its evaluations."""
    options: type | None = None
    """Dataclass of the task's options."""
    paths: tuple[str, ...] = ()
    """Options that are paths of files."""
    play: Callable[[Policy, Any, int, Callable[..., object]], EpisodeMetrics] | None = None
    """(policy, options, number of episodes, progress) -> an evaluation in a simulator of the task's own, which replaces
    plain MuJoCo."""


def names() -> list[str]:
    """Return all tasks: ours, then mjlab's with their prefix."""
    need_mjlab()
    import mjlab.tasks  # noqa: F401  (fills the registry)
    from mjlab.tasks.registry import list_tasks

    return [*TASKS, *(MJLAB + name for name in list_tasks() if name not in TASKS)]


def make_env_cfg(
    name: str,
    num_envs: int,
    seed: int,
    motion: str | None = None,
    play: bool = False,
    options: Mapping[str, str] | None = None,
) -> ManagerBasedRlEnvCfg:
    """Return mjlab's configuration of a task, ours or `mjlab:NAME`.

    Args:
        name: the task.
        num_envs: number of environments, one robot each.
        seed: seed of the start states.
        motion: the file that a tracking task follows.
        play: configure for evaluation. mjlab's tasks get mjlab's configuration for playing, without noise and pushes,
            but their episodes end as in training. Ours are those of `TaskSpec.evaluated`.
        options: options of one of our tasks, as YAML.
    """
    if num_envs < 1:
        raise ValueError(f"num_envs must be 1 or more; got {num_envs}")
    if not 0 <= seed < 2**32:
        raise ValueError(f"a seed must be from 0 to 2**32 - 1; got {seed}")
    need_mjlab()
    if name not in TASKS and name not in names():
        raise ValueError(unknown("task", name, names()))
    if name.startswith(MJLAB):
        if options:
            raise ValueError(f"{name} has no options; got {listing(options)}")
        return _mjlab_cfg(name, num_envs, seed, motion, play)
    if motion is not None:
        raise ValueError(f"{name} does not follow a recorded motion; got {motion!r}")
    from .envs.mjlab import env_cfg

    spec, parsed = task_spec(name), task_options(name, options or {})
    task = spec.task(seed) if spec.options is None else spec.task(seed, parsed)
    if play:
        task = spec.evaluated(task, num_envs)
    return env_cfg(task, task.num_envs or num_envs, seed)


def task_spec(name: str) -> TaskSpec:
    """Return the description of one of our tasks."""
    need_mjlab()
    spec: TaskSpec = import_module(f".{TASKS[name]}", __package__).SPEC
    return spec


def task_options(name: str, given: Mapping[str, str]) -> Any:
    """Build the options of one of our tasks from YAML values; None for a task without options."""
    kind = task_spec(name).options
    if kind is None:
        if given:
            raise ValueError(f"{name} has no options; got {listing(given)}")
        return None
    found = {}
    for option, value in given.items():
        try:
            found[option] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise ValueError(f"option {option} of {name} must be YAML; got {value!r}") from None
    return build(kind, found, f"options of {name}", what="option")


def with_absolute_paths(name: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a task with absolute paths of files, for a later resume from another folder."""
    paths = task_spec(name).paths if name in TASKS else ()
    return {key: str(Path(value).expanduser().absolute()) if key in paths else value for key, value in options.items()}


def make_env(
    name: str,
    num_envs: int,
    seed: int,
    device: str,
    motion: str | None = None,
    play: bool = False,
    options: Mapping[str, str] | None = None,
) -> FastEnv | MjlabEnv:
    """Return an environment of a task; the arguments are those of `make_env_cfg`."""
    cfg = make_env_cfg(name, num_envs, seed, motion, play, options)
    from mjlab.tasks.registry import load_rl_cfg

    from .envs.fast import FastEnv
    from .envs.mjlab import MjlabEnv

    with quiet():
        if name in TASKS:
            return FastEnv(cfg, device)
        return MjlabEnv(cfg, device, load_rl_cfg(name.removeprefix(MJLAB)).clip_actions)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep mjlab's tables out of the command's standard output, and Warp's list of modules from now on."""
    import warp

    warp.config.log_level = max(warp.config.log_level, warp.LOG_WARNING)
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        yield


def _mjlab_cfg(name: str, num_envs: int, seed: int, motion: str | None, play: bool) -> ManagerBasedRlEnvCfg:
    from mjlab.tasks.registry import load_env_cfg

    training = load_env_cfg(name.removeprefix(MJLAB))
    cfg = load_env_cfg(name.removeprefix(MJLAB), play)
    # in mjlab's configuration for playing, episodes may be endless and robots may leave the terrain
    cfg.episode_length_s, cfg.terminations = training.episode_length_s, training.terminations
    cfg.scene.num_envs = num_envs
    cfg.seed = seed
    _set_motion(name, cfg, motion)
    return cfg


def _set_motion(name: str, cfg: ManagerBasedRlEnvCfg, motion: str | None) -> None:
    followers: list[Any] = [command for command in cfg.commands.values() if hasattr(command, "motion_file")]
    if motion is not None and not followers:
        raise ValueError(f"{name} does not follow a recorded motion; got {motion!r}")
    for command in followers:
        command.motion_file = motion or command.motion_file
        if not command.motion_file:
            how = "name it with --rl.motion FILE.npz, as mjlab's csv_to_npz writes it"
            raise ValueError(f"{name} follows a recorded motion: {how}")
        if not Path(command.motion_file).is_file():
            raise FileNotFoundError(f"the motion file {command.motion_file!r} does not exist")
        _check_motion(command.motion_file)


def _check_motion(file: str) -> None:
    """Raise ValueError for a file that is not a motion; mjlab would read it only after a run has begun."""
    try:
        with ArrayArchive(file) as data:
            headers = {name: data.header(name) for name in MOTION}
        check_memory("the motion", sum(one.num_bytes for one in headers.values()), Path(file).stat().st_size)
        lengths = {name: one.shape[0] for name, one in headers.items()}
    except (OSError, ValueError, KeyError, IndexError, EOFError, BadZipFile, zlib.error) as error:
        raise ValueError(f"{file!r} is not a motion as mjlab's csv_to_npz writes it: {error}") from None
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        raise ValueError(f"{file!r} is not a motion: its arrays have different lengths, or none: {lengths}")


def need_mjlab() -> None:
    """Raise ValueError with the command that installs mjlab, if it is missing."""
    try:
        import mjlab  # noqa: F401
    except ModuleNotFoundError as missing:
        if missing.name != "mjlab":  # a dependency of mjlab
            raise
        raise ValueError(NO_MJLAB) from missing
