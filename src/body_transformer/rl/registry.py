"""The tasks one can train on: ours by name, mjlab's own as `mjlab:NAME`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..body.messages import unknown
from .config import RlConfig

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
NO_MJLAB = "reinforcement learning needs mjlab; install it with: pip install 'body-transformer[rl]'"


def names() -> list[str]:
    """All tasks: ours, then mjlab's with their prefix."""
    return [*TASKS, *(MJLAB + name for name in _mjlab_names())]


def make_env_cfg(name: str, num_envs: int, seed: int, motion: str | None = None) -> ManagerBasedRlEnvCfg:
    """mjlab's configuration of a task, ours or `mjlab:NAME`; `motion` is the file that a tracking task follows."""
    if num_envs < 1:
        raise ValueError(f"an environment has at least 1 robot, not num_envs={num_envs}")
    if seed < 0:
        raise ValueError(f"a seed is 0 or more, not {seed}")
    need_mjlab()
    if name not in TASKS and name not in names():
        raise ValueError(unknown("task", name, names()))
    if name.startswith(MJLAB):
        return _mjlab_cfg(name, num_envs, seed, motion)
    if motion is not None:
        raise ValueError(f"{name} follows no recorded motion; got {motion!r}")
    cfg: ManagerBasedRlEnvCfg = import_module(f".{TASKS[name]}", __package__).cfg(num_envs, seed)
    return cfg


def make_env(
    name: str, num_envs: int, seed: int, device: str, lean: bool = True, motion: str | None = None
) -> ManagerBasedRlEnv:
    """An environment of a task. `lean`: with our quick step; mjlab's own tasks always have mjlab's."""
    cfg = make_env_cfg(name, num_envs, seed, motion)
    from mjlab.envs import ManagerBasedRlEnv

    kind: type[ManagerBasedRlEnv] = ManagerBasedRlEnv
    if lean and name in TASKS:
        kind = beside(name, "lean").LeanEnv
    with quiet():
        return kind(cfg, device=device)


def beside(name: str, module: str) -> Any:
    """Of one of our tasks: a module of its robot's package: `lean`, `plain` or `film`."""
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


def _mjlab_cfg(name: str, num_envs: int, seed: int, motion: str | None) -> ManagerBasedRlEnvCfg:
    from mjlab.tasks.registry import load_env_cfg

    cfg = load_env_cfg(name.removeprefix(MJLAB))
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


def mjlab_config(name: str) -> RlConfig:
    """How mjlab trains one of its tasks, as far as our PPO has that setting."""
    if name not in names():
        raise ValueError(unknown("task", name, names()))
    from mjlab.tasks.registry import load_rl_cfg

    theirs: Any = load_rl_cfg(name.removeprefix(MJLAB))
    _check_vectors(name, theirs.obs_groups)
    ppo = theirs.algorithm
    return RlConfig(
        task=name,
        num_steps=theirs.num_steps_per_env,
        num_iterations=theirs.max_iterations,
        num_epochs=ppo.num_learning_epochs,
        num_minibatches=ppo.num_mini_batches,
        blocks=False,
        gamma=ppo.gamma,
        lam=ppo.lam,
        clip=ppo.clip_param,
        learning_rate=ppo.learning_rate,
        schedule=ppo.schedule,
        desired_kl=ppo.desired_kl,
        min_learning_rate=1e-5,
        value_coef=ppo.value_loss_coef,
        entropy_coef=ppo.entropy_coef,
        bound_coef=0.0,
        max_grad_norm=ppo.max_grad_norm,
        reward_scale=1.0,
        normalize_obs=theirs.actor.obs_normalization,
        normalize_values=False,
    )


def _check_vectors(name: str, obs_groups: Mapping[str, Sequence[str]]) -> None:
    """Who learned without the groups of images would learn another task."""
    for kind in ("actor", "critic"):
        groups = obs_groups.get(kind, (kind,))
        if set(groups) - {"actor", "critic"}:
            raise ValueError(
                f"{name} observes more than vectors: {', '.join(groups)}; a Body Transformer has no place for images"
            )


def need_mjlab() -> None:
    """Says how to get it where it is not installed."""
    try:
        import mjlab  # noqa: F401
    except ModuleNotFoundError as missing:
        if missing.name != "mjlab":  # something that mjlab itself needs
            raise
        raise ValueError(NO_MJLAB) from missing
