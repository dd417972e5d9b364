"""The tasks one can train on: ours by name, mjlab's own as `mjlab:NAME`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
import yaml

from ..errors import install, listing, unknown

if TYPE_CHECKING:
    from mjlab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg

TASKS = {
    "humanoid-mod": "humanoid.mod",
    "humanoid-hill": "humanoid.hill",
    "humanoid-board": "humanoid.board",
    "a1-walk": "a1.walk",
}
"""Our tasks -> the module of rl/ with their `cfg(num_envs, seed)`; beside it is `lean`, with their quick step."""
MJLAB = "mjlab:"
MOTION = ("joint_pos", "joint_vel", "body_pos_w", "body_quat_w", "body_lin_vel_w", "body_ang_vel_w")
"""What mjlab reads of a recorded motion, [T, …] each."""
NO_MJLAB = f"reinforcement learning needs mjlab; install it with: {install('rl')}"


def names() -> list[str]:
    """All tasks: ours, then mjlab's with their prefix."""
    return [*TASKS, *(MJLAB + name for name in _mjlab_names())]


def make_env_cfg(
    name: str,
    num_envs: int,
    seed: int,
    motion: str | None = None,
    play: bool = False,
    options: Mapping[str, str] | None = None,
) -> ManagerBasedRlEnvCfg:
    """mjlab's configuration of a task, ours or `mjlab:NAME`.

    Args:
        name: the task.
        num_envs: robots side by side.
        seed: of their starts.
        motion: the file that a tracking task follows.
        play: to evaluate in. Of mjlab's tasks that is its own configuration for playing, without noise and pushes;
            episodes end as in training, so that they do end. Of ours, options for training alone are left out.
        options: of one of our tasks, as YAML.
    """
    if num_envs < 1:
        raise ValueError(f"an environment has at least 1 robot, not num_envs={num_envs}")
    if not 0 <= seed < 2**32:
        raise ValueError(f"a seed is 0 or more and less than 2**32, not {seed}")
    need_mjlab()
    if name not in TASKS and name not in names():
        raise ValueError(unknown("task", name, names()))
    if name.startswith(MJLAB):
        if options:
            raise ValueError(f"{name} has no options; got {listing(options)}")
        return _mjlab_cfg(name, num_envs, seed, motion, play)
    if motion is not None:
        raise ValueError(f"{name} follows no recorded motion; got {motion!r}")
    module = import_module(f".{TASKS[name]}", __package__)
    training_only: Sequence[str] = getattr(module, "TRAINING_ONLY", ())
    chosen = _task_options(name, module, options or {})
    if play:
        chosen = {option: value for option, value in chosen.items() if option not in training_only}
    cfg: ManagerBasedRlEnvCfg = module.cfg(num_envs, seed, **chosen)
    return cfg


def _task_options(name: str, module: ModuleType, given: Mapping[str, str]) -> dict[str, Any]:
    known: Sequence[str] = getattr(module, "OPTIONS", ())
    if given and not known:
        raise ValueError(f"{name} has no options; got {listing(given)}")
    found = {}
    for option, value in given.items():
        if option not in known:
            raise ValueError(unknown(f"option of {name}", option, known))
        try:
            found[option] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise ValueError(f"option {option} of {name} must be YAML; got {value!r}") from None
    return found


def make_env(
    name: str,
    num_envs: int,
    seed: int,
    device: str,
    lean: bool = True,
    motion: str | None = None,
    play: bool = False,
    options: Mapping[str, str] | None = None,
) -> ManagerBasedRlEnv:
    """An environment of a task. `lean`: with our quick step; mjlab's own tasks always have mjlab's."""
    cfg = make_env_cfg(name, num_envs, seed, motion, play, options)
    from mjlab.envs import ManagerBasedRlEnv
    from mjlab.tasks.registry import load_rl_cfg

    from .clipped import ClippedEnv

    limit = None if name in TASKS else load_rl_cfg(name.removeprefix(MJLAB)).clip_actions
    kind: type[ManagerBasedRlEnv] = ManagerBasedRlEnv
    if lean and name in TASKS:
        kind = beside(name, "lean").LeanEnv
    with quiet():
        return kind(cfg, device=device) if limit is None else ClippedEnv(cfg, device, limit)


def beside(name: str, module: str) -> Any:
    """Of one of our tasks: a module of its robot's package: `lean` or `plain`."""
    return import_module(f".{TASKS[name].split('.')[0]}.{module}", __package__)


@contextmanager
def quiet() -> Iterator[None]:
    """mjlab's tables are not printed, nor Warp's list of modules, now and later: standard output is the command's."""
    import warp

    warp.config.log_level = max(warp.config.log_level, warp.LOG_WARNING)
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        yield


def _mjlab_names() -> list[str]:
    need_mjlab()
    import mjlab.tasks  # noqa: F401  (fills the registry)
    from mjlab.tasks.registry import list_tasks

    return [name for name in list_tasks() if name not in TASKS]


def _mjlab_cfg(name: str, num_envs: int, seed: int, motion: str | None, play: bool) -> ManagerBasedRlEnvCfg:
    from mjlab.tasks.registry import load_env_cfg

    training = load_env_cfg(name.removeprefix(MJLAB))
    cfg = load_env_cfg(name.removeprefix(MJLAB), play)
    # who plays may go on for ever, and beyond the edge of the ground
    cfg.episode_length_s, cfg.terminations = training.episode_length_s, training.terminations
    cfg.scene.num_envs = num_envs
    cfg.seed = seed
    _set_motion(name, cfg, motion)
    return cfg


def _set_motion(name: str, cfg: ManagerBasedRlEnvCfg, motion: str | None) -> None:
    followers: list[Any] = [command for command in cfg.commands.values() if hasattr(command, "motion_file")]
    if motion is not None and not followers:
        raise ValueError(f"{name} follows no recorded motion; got {motion!r}")
    for command in followers:
        command.motion_file = motion or command.motion_file
        if not command.motion_file:
            how = "name it with --rl.motion FILE.npz, as mjlab's csv_to_npz writes it"
            raise ValueError(f"{name} follows a recorded motion: {how}")
        if not Path(command.motion_file).is_file():
            raise FileNotFoundError(f"the motion {command.motion_file!r} is not there")
        _check_motion(command.motion_file)


def _check_motion(file: str) -> None:
    """Before a run is begun with it: mjlab reads it only then."""
    try:
        with np.load(file, allow_pickle=False) as data:
            lengths = {name: len(data[name]) for name in MOTION}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, BadZipFile) as error:
        raise ValueError(f"{file!r} is no motion as mjlab's csv_to_npz writes it: {error}") from None
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        raise ValueError(f"{file!r} is no motion: its parts have different lengths, or none: {lengths}")


def need_mjlab() -> None:
    """Says how to get it where it is not installed."""
    try:
        import mjlab  # noqa: F401
    except ModuleNotFoundError as missing:
        if missing.name != "mjlab":  # something that mjlab itself needs
            raise
        raise ValueError(NO_MJLAB) from missing
