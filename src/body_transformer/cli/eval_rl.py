"""`bot eval` for policies trained by reinforcement learning: one episode per robot, in either simulator."""

from __future__ import annotations

from contextlib import closing, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from ..body.compare import check_same
from ..experiment import load_experiment
from ..rl.config import RlConfig
from ..rl.registry import TASKS, make_env, make_env_cfg, need_mjlab, task_options, task_spec
from .output import bars
from .run_options import EvalOptions, device_of, machine

if TYPE_CHECKING:
    from ..body.layout import Layout
    from ..model.policy import Policy
    from ..policy_folder import PolicyFolder
    from ..rl.envs.cpu import CpuEnv
    from ..rl.envs.fast import FastEnv
    from ..rl.envs.mjlab import MjlabEnv
    from ..rl.episode_metrics import EpisodeMetrics
    from ..training.evaluation import Summary


def evaluate_rl(options: EvalOptions, found: PolicyFolder, config: RlConfig) -> tuple[Summary, dict[str, Any]]:
    """Evaluate a policy; return its metrics, and a description of task, simulator, machine and planned clips."""
    from ..model.policy import Policy
    from ..video import opengl

    if options.split:
        raise ValueError("--split is for runs of imitation; this policy was trained by reinforcement learning")
    task, simulator = config.task, options.simulator or "warp"
    if simulator == "mujoco" and task not in TASKS:
        raise ValueError(f"--simulator mujoco supports the tasks {', '.join(TASKS)}; this policy's task is {task}")
    # OpenGL comes first: importing mjlab selects a backend, and a missing backend should fail before the rollouts.
    with opengl() if options.video is not None else nullcontext():
        need_mjlab()
        device = device_of(options.cpu)
        policy = Policy.load(found.path).to(device).eval()
        episodes = {"warp": in_warp, "mujoco": in_mujoco}[simulator](policy, config, device, options)
        if options.video is not None:
            write_film(policy, config, options)
    about = {"policy": str(options.run), "task": task, "simulator": simulator, "machine": machine(device == "cpu")}
    clips = episodes.by_clip()
    return episodes.summary(), about | ({"clips": clips} if clips else {})


def in_warp(policy: Policy, config: RlConfig, device: str, options: EvalOptions) -> EpisodeMetrics:
    """Evaluate in mjlab's simulator, MuJoCo Warp."""
    from ..rl.evaluate import cuda_graphed, mean_action, rollouts
    from ..rl.infer_layout import infer_layout

    env = make_env(
        config.task, options.episodes, options.seed, device, motion=config.motion, play=True, options=config.options
    )
    with closing(env):
        check_same(policy.layout, infer_layout(env, ["actor"], config.layout_overrides).layout)
        return rollouts(cuda_graphed(mean_action(policy), ["actor"], device), env, options.seed)


def in_mujoco(policy: Policy, config: RlConfig, device: str, options: EvalOptions) -> EpisodeMetrics:
    """Evaluate one of our tasks in plain MuJoCo, on the CPU; the policy stays on its device."""
    from ..rl.evaluate import mean_action, rollouts

    check_same(policy.layout, task_layout(config))
    play = task_spec(config.task).play
    if play is not None:
        with bars(hidden=options.json) as shown:
            watch = partial(shown.update, shown.add_task("episodes", total=None))
            return play(policy, task_options(config.task, config.options), options.episodes, watch)
    with closing(cpu_env(config, options.episodes, options.seed)) as env, bars(hidden=options.json) as shown:
        watch = partial(shown.advance, shown.add_task("steps", total=env.max_episode_length + 1))
        return rollouts(mean_action(policy), env, options.seed, watch)


def task_layout(config: RlConfig) -> Layout:
    """Return the layout of one of our tasks; layout overrides need mjlab's environment, which has their names."""
    if not config.layout_overrides:
        return load_experiment(config.task).layout()
    from ..rl.infer_layout import infer_layout

    with closing(make_env(config.task, 1, 0, "cpu", options=config.options)) as env:
        return infer_layout(env, ["actor"], config.layout_overrides).layout


def write_film(policy: Policy, config: RlConfig, options: EvalOptions) -> None:
    """Film one more episode: in plain MuJoCo, or in mjlab's simulator for a task of mjlab."""
    from ..rl.evaluate import mean_action
    from ..rl.film import film
    from ..video import write_video

    assert options.video is not None
    env: CpuEnv | FastEnv | MjlabEnv
    if config.task in TASKS:
        env = cpu_env(config, 1, options.seed)
    else:
        env = make_env(config.task, 1, options.seed, "cpu", motion=config.motion, play=True)
        policy = policy.to("cpu")
    with closing(env), bars(hidden=options.json) as shown:
        drawn = shown.add_task("pictures", total=None)
        frames, frames_hz = film(
            mean_action(policy),
            env,
            options.seed,
            on_done=lambda done, total: shown.update(drawn, completed=done, total=total),
        )
    write_video(options.video, frames, frames_hz)


def cpu_env(config: RlConfig, num_envs: int, seed: int) -> CpuEnv:
    """Return an environment of one of our tasks in plain MuJoCo."""
    from ..rl.envs.cpu import CpuEnv

    return CpuEnv(make_env_cfg(config.task, num_envs, seed, play=True, options=config.options))
