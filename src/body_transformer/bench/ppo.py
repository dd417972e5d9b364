"""`bot bench ppo`: environment steps per second, and the time of a PPO iteration with each architecture."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import cycle
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.benchmark import timer

from ..experiment import load_experiment
from ..training.cuda_graphs import CudaGraphed
from .harness import Bench
from .results import ResultColumn, ResultTable

if TYPE_CHECKING:
    from ..rl.config import RlConfig
    from ..rl.ppo import Collector

BASELINE = "mlp"
ALL = ("mlp", "transformer", "bot-hard", "bot-mix")


def run(bench: Bench, task: str, variants: Sequence[str], num_envs: Sequence[int], rounds: int) -> list[ResultTable]:
    """Time a reinforcement-learning experiment.

    Args:
        bench: the run.
        task: name of the experiment.
        variants: architectures whose PPO iterations are timed.
        num_envs: numbers of robots for which the environments alone are timed.
        rounds: timed iterations of each variant.
    """
    environments = [time_environment(bench, task, num) for num in num_envs]
    config = config_of(task, bench.quick)
    iterations = time_iterations(bench, task, variants, rounds)
    bench.notes.extend(
        [
            f"an iteration: {config.num_envs} robots x {config.num_steps_per_env} steps, {config.num_mini_batches} "
            f"minibatches x {config.num_learning_epochs} epochs, actor and critic; medians of {rounds} iterations, "
            "variants in turns",
            "parts are timed alone, one after the other; the rest is launches, copies and waiting",
        ]
    )
    title = f"an iteration of PPO on {task}"
    return [
        ResultTable("environment", f"{task} alone, random actions", ENVIRONMENT_COLUMNS, environments),
        ResultTable("iteration", title, ITERATION_COLUMNS, iterations, "{variant}", ITERATION_SERIES),
        ResultTable("parts", "parts of an iteration, ms", PART_COLUMNS, iterations),
    ]


def config_of(task: str, quick: bool = False) -> RlConfig:
    config = load_experiment(task).rl
    assert config is not None
    if quick:
        return replace(config, num_envs=8, num_steps_per_env=4, num_mini_batches=2, num_learning_epochs=2)
    return config


def torch_device(bench: Bench) -> str:
    """Return PyTorch's name of the device."""
    return "cuda:0" if bench.device == "cuda" else bench.device


def num_warm_up(bench: Bench) -> int:
    """Return the number of untimed iterations or calls before the first timed one: they compile and capture."""
    return 1 if bench.quick else 5


# -- environments ------------------------------------------------------------------------------------------------------

ENVIRONMENT_COLUMNS = (
    ResultColumn("num_envs", "robots", "count"),
    ResultColumn("steps_per_s", "steps/s", "count"),
    ResultColumn("step_ms", "step, ms", "number"),
    ResultColumn("physics_ms", "physics, ms", "number"),
    ResultColumn("terms_ms", "observation, reward, resets, ms", "number"),
)


def time_environment(bench: Bench, task: str, num_envs: int) -> dict[str, Any]:
    from ..rl.registry import make_env

    bench.say(f"{task}, {num_envs} robots")
    device = torch_device(bench)
    env = make_env(task, num_envs, 0, device)
    with closing(env), torch.inference_mode():
        env.reset()
        actions = torch.rand((16, num_envs, env.action_manager.total_action_dim), device=device) * 2 - 1
        step_ms, terms_ms = time_step(bench, env, actions, 5 if bench.quick else 300)
    return {
        "num_envs": num_envs,
        "steps_per_s": num_envs / step_ms * 1e3,
        "step_ms": step_ms,
        "physics_ms": step_ms - terms_ms,
        "terms_ms": terms_ms,
    }


def time_step(bench: Bench, env: Any, actions: torch.Tensor, repeats: int) -> tuple[float, float]:
    """Return the milliseconds of a whole step, and of its part after the physics.

    The actions [k, B, A] are used in rotation. On hills, fitting the ground under the robots is part of the physics.
    """
    taken = cycle(actions)
    return mean_ms(bench, lambda: env.step(next(taken)), repeats), mean_ms(bench, env.post_physics, repeats)


def mean_ms(bench: Bench, work: Callable[[], object], repeats: int) -> float:
    """Return the mean milliseconds per call, after a warm-up."""
    for _ in range(num_warm_up(bench)):
        work()
    start = timer()  # waits for the GPU
    for _ in range(repeats):
        work()
    return 1e3 * (timer() - start) / repeats


# -- iterations --------------------------------------------------------------------------------------------------------

ITERATION_COLUMNS = (
    ResultColumn("variant", "variant"),
    ResultColumn("total_ms", "ms", "number"),
    ResultColumn("ratio", f"time / {BASELINE}", "ratio"),
    ResultColumn("collect_ms", "collecting, ms", "number"),
    ResultColumn("learn_ms", "learning, ms", "number"),
    ResultColumn("steps_per_s", "steps/s", "count"),
)
ITERATION_SERIES = {
    "collecting": itemgetter("collect_ms"),
    "learning": itemgetter("learn_ms"),
    "iteration": itemgetter("total_ms"),
}
PART_COLUMNS = (
    ResultColumn("variant", "variant"),
    ResultColumn("physics_ms", "physics", "number"),
    ResultColumn("terms_ms", "observation, reward, resets", "number"),
    ResultColumn("act_ms", "networks, acting", "number"),
    ResultColumn("gradients_ms", "networks, gradients", "number"),
    ResultColumn("optimizer_ms", "clipping, Adam", "number"),
    ResultColumn("rest_ms", "rest", "number"),
)


def time_iterations(bench: Bench, task: str, variants: Sequence[str], rounds: int) -> list[dict[str, Any]]:
    """Time whole iterations of all variants in turns, then the parts of each."""
    collectors = {}
    for variant in variants:
        bench.say(f"building {variant}")
        collectors[variant] = make_collector(task, variant, config_of(task, bench.quick), torch_device(bench))
    times: dict[str, list[tuple[float, float]]] = {variant: [] for variant in collectors}
    for number in range(num_warm_up(bench) + rounds):
        bench.say(f"iteration {number + 1} of {num_warm_up(bench) + rounds}")
        for variant, collector in collectors.items():
            found = iterate(collector)
            if number >= num_warm_up(bench):
                times[variant].append(found)
    rows: list[dict[str, Any]] = []
    for variant, collector in collectors.items():
        bench.say(f"parts of {variant}")
        collect_ms, learn_ms = (statistics.median(values) for values in zip(*times[variant], strict=True))
        total_ms = statistics.median(a + b for a, b in times[variant])
        whole = {"variant": variant, "total_ms": total_ms, "collect_ms": collect_ms, "learn_ms": learn_ms}
        rows.append(whole | parts_of(bench, collector, total_ms))
        collector.env.close()
    base = next((row["total_ms"] for row in rows if row["variant"] == BASELINE), None)
    return [row | {"ratio": row["total_ms"] / base if base else None} for row in rows]


def make_collector(task: str, variant: str, config: RlConfig, device: str) -> Collector:
    from ..rl.learner import Learner
    from ..rl.ppo import Collector
    from ..rl.registry import make_env
    from ..rl.rollout import grouped

    env = make_env(task, config.num_envs, 0, device)
    obs = grouped(env.reset()[0])
    torch.manual_seed(0)
    policy = load_experiment(task).policy_config(variant)
    return Collector(env, obs, Learner(env, obs, policy, config).ppo)


def iterate(collector: Collector) -> tuple[float, float]:
    """Run one iteration; return the milliseconds of collecting and of learning."""
    start = timer()
    collector.collect()
    middle = timer()
    collector.compute_returns()
    collector.ppo.update()
    end = timer()
    return 1e3 * (middle - start), 1e3 * (end - middle)


def parts_of(bench: Bench, collector: Collector, total_ms: float) -> dict[str, float]:
    """Return the milliseconds of each part of an iteration."""
    env, ppo = collector.env, collector.ppo
    config, repeats = ppo.config, 2 if bench.quick else 20
    collector.collect()
    collector.compute_returns()
    batch = [tensor.clone() for tensor in next(iter(ppo.minibatches()))]
    on_gpu = bench.device == "cuda"
    gradients = CudaGraphed(ppo.compute_gradients) if on_gpu else ppo.compute_gradients
    adam = CudaGraphed(ppo.apply_gradients) if on_gpu else ppo.apply_gradients
    updates = config.num_mini_batches * config.num_learning_epochs
    gradients_ms = mean_ms(bench, lambda: gradients(*batch), repeats) * updates
    adam_ms = mean_ms(bench, adam, repeats) * updates
    with torch.inference_mode():
        act_ms = mean_ms(bench, lambda: ppo.act(collector.obs), repeats)
        step_ms, terms_ms = time_step(bench, env, ppo.rollout.actions, repeats)
    parts = {
        "physics_ms": (step_ms - terms_ms) * config.num_steps_per_env,
        "terms_ms": terms_ms * config.num_steps_per_env,
        "act_ms": act_ms * config.num_steps_per_env,
        "gradients_ms": gradients_ms,
        "optimizer_ms": adam_ms,
    }
    steps_per_s = config.num_envs * config.num_steps_per_env / total_ms * 1e3
    return {**parts, "rest_ms": total_ms - sum(parts.values()), "steps_per_s": steps_per_s}
