"""`bot bench ppo`: environment steps per second, and the time of a PPO iteration with each architecture."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import cycle
from typing import TYPE_CHECKING, Any

import torch

from ..experiment import load_experiment
from ..training.cuda_graphs import CudaGraphed
from .chart import Chart, Panel
from .clocks import now
from .harness import BenchJob
from .results import ResultColumn, ResultTable

if TYPE_CHECKING:
    from ..rl.config import RlConfig
    from ..rl.ppo import Collector

BASELINE = "mlp"
ALL = ("mlp", "transformer", "bot-hard", "bot-mix")
WARM_UP = 5
"""Iterations in which kernels are compiled and steps captured."""


@dataclass(frozen=True, kw_only=True)
class PpoJob(BenchJob):
    """What `bot bench ppo` times."""

    task: str
    """A reinforcement-learning experiment."""
    variants: Sequence[str]
    num_envs: Sequence[int]
    """Numbers of robots with which environments alone are timed."""
    rounds: int
    """Timed iterations of each variant; variants take turns."""

    @property
    def config(self) -> RlConfig:
        found = load_experiment(self.task).rl
        assert found is not None
        return (
            replace(found, num_envs=8, num_steps_per_env=4, num_mini_batches=2, num_learning_epochs=2)
            if self.quick
            else found
        )

    @property
    def warm_up(self) -> int:
        """Iterations or calls before the first timed one."""
        return 1 if self.quick else WARM_UP

    @property
    def torch_device(self) -> str:
        return "cuda:0" if self.device == "cuda" else self.device


def run(job: PpoJob) -> tuple[list[ResultTable], Chart]:
    """Return the tables and the chart; note the sizes."""
    tables = [time_environments(job), *time_iterations(job)]
    config = job.config
    job.notes.extend(
        [
            f"an iteration: {config.num_envs} robots x {config.num_steps_per_env} steps, {config.num_mini_batches} "
            f"minibatches x {config.num_learning_epochs} epochs, actor and critic; the variants take turns, medians of "
            f"{job.rounds} each",
            "parts are timed alone, one after the other; the rest of an iteration is launching, copying and waiting",
        ]
    )
    names = {"collect_ms": "collecting", "learn_ms": "learning", "total_ms": "iteration"}
    series = {title: tables[1].numbers(key) for key, title in names.items()}
    return tables, Chart(f"PPO on {job.task}", [Panel(tables[1].title, list(job.variants), series)])


# -- environments ------------------------------------------------------------------------------------------------------

ENVIRONMENT_COLUMNS = (
    ResultColumn("num_envs", "robots", "count"),
    ResultColumn("steps_per_s", "steps/s", "count"),
    ResultColumn("step_ms", "step, ms", "number"),
    ResultColumn("physics_ms", "physics, ms", "number"),
    ResultColumn("terms_ms", "observation, reward, resets, ms", "number"),
)


def time_environments(job: PpoJob) -> ResultTable:
    rows = [time_environment(job, num_envs) for num_envs in job.num_envs]
    return ResultTable("environment", f"{job.task} alone, random actions", ENVIRONMENT_COLUMNS, rows)


def time_environment(job: PpoJob, num_envs: int) -> dict[str, Any]:
    from ..rl.registry import make_env

    job.say(f"{job.task}, {num_envs} robots")
    env = make_env(job.task, num_envs, 0, job.torch_device)
    with closing(env), torch.inference_mode():
        env.reset()
        shape = (16, num_envs, env.action_manager.total_action_dim)
        actions = torch.rand(shape, device=job.torch_device) * 2 - 1
        step_ms, terms_ms = time_step(env, actions, 5 if job.quick else 300, job)
    return {
        "num_envs": num_envs,
        "steps_per_s": num_envs / step_ms * 1e3,
        "step_ms": step_ms,
        "physics_ms": step_ms - terms_ms,
        "terms_ms": terms_ms,
    }


def time_step(env: Any, actions: torch.Tensor, repeats: int, job: PpoJob) -> tuple[float, float]:
    """Return the milliseconds of a step, with actions [k, B, A] in turn, and of the part after its physics.

    On hills the ground under the robots is set up with the physics.
    """
    taken = cycle(actions)
    return timed(lambda: env.step(next(taken)), repeats, job), timed(env.post_physics, repeats, job)


# -- iterations --------------------------------------------------------------------------------------------------------

ITERATION_COLUMNS = (
    ResultColumn("variant", "variant"),
    ResultColumn("total_ms", "ms", "number"),
    ResultColumn("ratio", f"time / {BASELINE}", "ratio"),
    ResultColumn("collect_ms", "collecting, ms", "number"),
    ResultColumn("learn_ms", "learning, ms", "number"),
    ResultColumn("steps_per_s", "steps/s", "count"),
)
PART_COLUMNS = (
    ResultColumn("variant", "variant"),
    ResultColumn("physics_ms", "physics", "number"),
    ResultColumn("terms_ms", "observation, reward, resets", "number"),
    ResultColumn("act_ms", "networks, acting", "number"),
    ResultColumn("gradients_ms", "networks, gradients", "number"),
    ResultColumn("optimizer_ms", "clipping, Adam", "number"),
    ResultColumn("rest_ms", "rest", "number"),
)


def time_iterations(job: PpoJob) -> list[ResultTable]:
    """Time whole iterations of all variants in turns, then the parts of each."""
    collectors = {}
    for variant in job.variants:
        job.say(f"building {variant}")
        collectors[variant] = make_collector(job, variant)
    times: dict[str, list[tuple[float, float]]] = {variant: [] for variant in collectors}
    for number in range(job.warm_up + job.rounds):
        job.say(f"iteration {number + 1} of {job.warm_up + job.rounds}")
        for variant, collector in collectors.items():
            found = iterate(collector, job.device)
            if number >= job.warm_up:
                times[variant].append(found)
    rows = []
    for variant, collector in collectors.items():
        job.say(f"parts of {variant}")
        collect_ms, learn_ms = (statistics.median(values) for values in zip(*times[variant], strict=True))
        total_ms = statistics.median(a + b for a, b in times[variant])
        rows.append({"variant": variant, "total_ms": total_ms, "collect_ms": collect_ms, "learn_ms": learn_ms})
        rows[-1] |= parts_of(collector, job, total_ms)
        collector.env.close()
    base = next((row["total_ms"] for row in rows if row["variant"] == BASELINE), None)
    for row in rows:
        row["ratio"] = row["total_ms"] / base if base else None
    return [
        ResultTable("iteration", "an iteration of PPO", ITERATION_COLUMNS, rows),
        ResultTable("parts", "parts of an iteration, ms", PART_COLUMNS, rows),
    ]


def make_collector(job: PpoJob, variant: str) -> Collector:
    from mjlab.rl import RslRlVecEnvWrapper

    from ..rl.learner import Learner
    from ..rl.ppo import Collector
    from ..rl.registry import make_env

    config = job.config
    env = make_env(job.task, config.num_envs, 0, job.torch_device)
    wrapped = RslRlVecEnvWrapper(env)
    obs = wrapped.get_observations()
    torch.manual_seed(0)
    policy = load_experiment(job.task).policy_config(variant)
    return Collector(wrapped, obs, Learner(env, obs, policy, config).ppo)


def iterate(collector: Collector, device: str) -> tuple[float, float]:
    """Return the milliseconds of collecting and of learning."""
    start = now(device)
    collector.collect()
    middle = now(device)
    collector.compute_returns()
    collector.ppo.update()
    end = now(device)
    return 1e3 * (middle - start), 1e3 * (end - middle)


def parts_of(collector: Collector, job: PpoJob, total_ms: float) -> dict[str, float]:
    """Return the milliseconds of each part of an iteration."""
    env, on_gpu = collector.env.unwrapped, job.device == "cuda"
    config, ppo = collector.ppo.config, collector.ppo
    repeats = 2 if job.quick else 20
    collector.collect()
    collector.compute_returns()
    batch = [tensor.clone() for tensor in next(iter(ppo.minibatches()))]
    gradients = CudaGraphed(ppo.compute_gradients) if on_gpu else ppo.compute_gradients
    adam = CudaGraphed(ppo.apply_gradients) if on_gpu else ppo.apply_gradients
    updates = config.num_mini_batches * config.num_learning_epochs
    gradients_ms = timed(lambda: gradients(*batch), repeats, job) * updates
    adam_ms = timed(adam, repeats, job) * updates
    with torch.inference_mode():
        act_ms = timed(lambda: ppo.act(collector.obs), repeats, job)
        step_ms, terms_ms = time_step(env, ppo.rollout.actions, repeats, job)
    parts = {
        "physics_ms": (step_ms - terms_ms) * config.num_steps_per_env,
        "terms_ms": terms_ms * config.num_steps_per_env,
        "act_ms": act_ms * config.num_steps_per_env,
        "gradients_ms": gradients_ms,
        "optimizer_ms": adam_ms,
    }
    steps_per_s = config.num_envs * config.num_steps_per_env / total_ms * 1e3
    return {**parts, "rest_ms": total_ms - sum(parts.values()), "steps_per_s": steps_per_s}


def timed(work: Callable[[], object], repeats: int, job: PpoJob) -> float:
    """Return the milliseconds of one call among many, once warm."""
    for _ in range(job.warm_up):
        work()
    start = now(job.device)
    for _ in range(repeats):
        work()
    return 1e3 * (now(job.device) - start) / repeats
