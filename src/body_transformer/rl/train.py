"""The training loop: rollouts, PPO updates, evaluations and checkpoints."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from ..body.compare import check_same
from ..checkpoint import VALUES, Checkpoint, TrainingState, newest_checkpoint, save_checkpoint
from ..files import atomic_write
from ..metrics import MetricsLog
from ..model.config import PolicyConfig
from ..model.policy import Policy
from ..run import EVALUATION, PATHS, Run
from ..schema import build
from ..training.evaluation import Summary, to_metrics, write_evaluation
from ..training.progress import Progress
from ..training.random_state import random_state, restore_random_state
from ..training.ranks import Ranks, derived_seed
from ..training.stopping import Saver, StopRequest
from .config import RlConfig
from .episode_state import continue_episodes, episode_state
from .evaluate import cuda_graphed, rollouts
from .finite import FiniteCheck
from .learner import Learner
from .ppo import Collector
from .registry import make_env
from .rollout import grouped

if TYPE_CHECKING:
    from .envs.fast import FastEnv
    from .envs.mjlab import MjlabEnv

FINAL = 2**32 - 1
"""Replaces the iteration in the seed of the final evaluation, so its starts do not depend on `max_iterations`."""


@dataclass(frozen=True)
class RlJob:
    """Settings of a training run."""

    run: Run
    policy: PolicyConfig
    config: RlConfig
    seed: int
    device: str
    resume: bool = False
    wandb_project: str | None = None
    show_layout: Callable[[str], object] = lambda text: None
    """Called with the allocation of the observation to body parts."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Additions to the run's description, written after its checkpoint has been read."""


def train(job: RlJob, progress: Progress) -> Policy:
    """Train a policy by PPO and return it; the run's newest checkpoint holds it too."""
    ranks = Ranks.from_environment()
    with ranks.joined(job.device), job.run.at_work() if ranks.is_first else nullcontext(), closing(progress):
        loop = TrainingLoop(replace(job, device=ranks.device(job.device)), ranks, progress)
        with closing(loop), StopRequest() as stop:
            loop.run(stop)
    return loop.learner.policy()


@dataclass(frozen=True)
class _PPOCounts:
    """Values of a checkpoint."""

    iteration: int
    elapsed_s: float
    common_step_counter: int
    env_steps: int | None = None


class TrainingLoop:
    """The state of a training run in this process, and its loop."""

    def __init__(self, job: RlJob, ranks: Ranks, progress: Progress) -> None:
        self.job, self.config, self.ranks, self.progress = job, job.config, ranks, progress
        own_seed = derived_seed(job.seed, ranks.rank)
        self.env = env = self._make_env(ranks.share(self.config.num_envs, "num_envs"), own_seed)
        obs = grouped(env.reset()[0])
        torch.manual_seed(job.seed)  # all processes start with the same weights
        self.learner = Learner(env, obs, job.policy, self.config, ranks.size)
        torch.manual_seed(own_seed)  # and explore differently
        self.collector = Collector(env, obs, self.learner.ppo)
        self.check = FiniteCheck(job.run.folder, ranks.rank, env, self.learner.ppo.rollout)
        job.show_layout(self.learner.describe())
        self.eval_env: FastEnv | MjlabEnv | None = None
        self.eval_policy = cuda_graphed(self.learner.actor, self.learner.groups["actor"], job.device)
        self.iteration, self.env_steps, self.elapsed_s = 0, 0, 0.0
        checkpoint = newest_checkpoint(job.run.folder) if job.resume else None
        is_continued = checkpoint is not None and self._restore(checkpoint)
        if self.config.random_initial_step and not is_continued:
            env.episode_length_buf = torch.randint_like(env.episode_length_buf, int(env.max_episode_length))

    def _make_env(self, num_envs: int, seed: int, play: bool = False) -> FastEnv | MjlabEnv:
        config = self.config
        return make_env(
            config.task, num_envs, seed, self.job.device, motion=config.motion, play=play, options=config.options
        )

    def close(self) -> None:
        """Close the environments."""
        for env in (self.env, self.eval_env):
            if env is not None:
                env.close()

    def run(self, stop: StopRequest) -> None:
        """Train until the last iteration or until a stop is requested, then evaluate."""
        log = self._open_log() if self.ranks.is_first else None
        self.progress.start(self.iteration, self.config.max_iterations)
        saver = Saver(self.save, self.config.checkpoint_every_s, self.job.run.folder)
        start = self.iteration
        try:
            while self.iteration < self.config.max_iterations:
                self.iterate(log)
                every = self.config.eval_every
                is_last = self.iteration == self.config.max_iterations  # `finish` evaluates then
                if every is not None and self.iteration % every == 0 and not is_last:
                    self._evaluate(log, self.iteration)
                saver.after(self.iteration, stop, self.job.device)
            if self.iteration > start:  # otherwise the checkpoint is unchanged, and other processes may read it
                self.save()
            stop.end(f"; {saver.advice}")
            self.finish(log)
        finally:
            if log is not None:
                log.close()

    def _open_log(self) -> MetricsLog:
        run = self.job.run
        for name in (EVALUATION, PATHS):  # from the former end, if a finished run is continued
            (run.folder / name).unlink(missing_ok=True)
        run.forget_after(self.iteration)
        run.add({"num_parameters": self.learner.num_parameters, **self.job.facts})
        return MetricsLog(run.folder, self.iteration, self.job.wandb_project, run.description())

    def iterate(self, log: MetricsLog | None) -> None:
        """Collect a rollout, update the policy and log the results."""
        start = time.perf_counter()
        self.collector.collect()
        self.check.check_rollout(self.collector.obs, self.iteration + 1)  # waits for the device
        collected = time.perf_counter()
        self.collector.compute_returns()
        losses = self.learner.ppo.update()
        self.iteration += 1
        self.learner.limit_std(self.iteration)
        end = time.perf_counter()
        self.check.check_losses(losses, self.iteration)
        self.elapsed_s += end - start
        num_steps = self.config.num_envs * self.config.num_steps_per_env
        self.env_steps += num_steps
        values = {
            **self._progress_values(),
            "steps_per_s": num_steps / (end - start),
            "collect_s": collected - start,
            "learn_s": end - collected,
            "train/learning_rate": float(self.learner.ppo.learning_rate),
            "train/std": self.learner.std(),
            **{f"train/{name}": value for name, value in losses.items()},
            **self.collector.episodes.means(),
            **self._num_broken(),
        }
        if log is not None:
            log.write(self.iteration, values)
        self.progress.advance(self.iteration)
        self.progress.show(losses["value"])

    def _progress_values(self) -> dict[str, float]:
        return {"env_steps": self.env_steps, "time_s": round(self.elapsed_s, 3)}

    def _num_broken(self) -> dict[str, float]:
        """Return the number of episodes since the last call that ended because the simulation broke."""
        if self.env.broken is None:
            return {}
        broken = float(self.env.broken)
        self.env.broken.zero_()
        return {"train/broken": broken}

    # -- evaluation ----------------------------------------------------------------------------------------------------

    def _evaluate(self, log: MetricsLog | None, number: int) -> tuple[Summary, int]:
        """Evaluate the mean action in a separate environment; return the results and the seed."""
        seed = derived_seed(self.job.seed, number)
        if log is None:
            return {}, seed
        device = torch.device(self.job.device)
        with torch.random.fork_rng([device] if device.type == "cuda" else []):  # evaluations leave training unchanged
            if self.eval_env is None:
                self.eval_env = self._make_env(self.config.eval_episodes, self.job.seed, play=True)
            episodes = rollouts(self.eval_policy, self.eval_env, seed)
        if number == FINAL and episodes.paths is not None:
            atomic_write(self.job.run.folder / PATHS, json.dumps(episodes.paths.to_json()) + "\n")
        found = episodes.summary()
        log.write(self.iteration, {**self._progress_values(), **to_metrics(found)})
        return found, seed

    def finish(self, log: MetricsLog | None) -> None:
        """Write the final evaluation. Its file marks the run as finished, so it comes last."""
        found, seed = self._evaluate(log, FINAL)
        if log is not None:
            write_evaluation(self.job.run, found, self.config.eval_episodes, seed)

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write a checkpoint; only the first process does."""
        if not self.ranks.is_first:
            return
        self.job.run.check_there()
        learned = self.learner.ppo.training_state()
        self.check.check_weights(learned, self.iteration)
        tensors = {**learned, **random_state(self.job.device), **self.env.training_state()}
        tensors |= episode_state(self.collector)
        values = {"iteration": self.iteration, "env_steps": self.env_steps, "elapsed_s": self.elapsed_s}
        values["common_step_counter"] = int(self.env.common_step_counter)
        state = TrainingState(tensors, values)
        policy = self.learner.policy()
        save_checkpoint(self.job.run.folder, self.iteration, policy, state, self.config.keep_checkpoints)

    def _restore(self, checkpoint: Checkpoint) -> bool:
        """Continue from a checkpoint; return whether its episodes continue, too."""
        check_same(checkpoint.policy.layout, self.learner.layouts["actor"].layout, ("checkpoint", "task"))
        counts, tensors = build(_PPOCounts, checkpoint.state.values, VALUES), checkpoint.state.tensors
        self.iteration, self.elapsed_s = counts.iteration, counts.elapsed_s
        # Older checkpoints lack env_steps, which does not follow from the iteration if a resume changed num_envs.
        steps_per_iteration = self.config.num_envs * self.config.num_steps_per_env
        self.env_steps = self.iteration * steps_per_iteration if counts.env_steps is None else counts.env_steps
        self.learner.ppo.restore(tensors)
        if self.env.restore(tensors):  # before the step counter is set, because mjlab's curricula skip step 0
            self.collector.reset()
        self.env.common_step_counter = counts.common_step_counter
        several = f"it has the episodes of one of {self.ranks.size} processes" if self.ranks.size > 1 else ""
        why = several or continue_episodes(self.collector, tensors)
        if why and self.ranks.is_first:
            begin = "the run continues in new episodes, unlike an uninterrupted one"
            warnings.warn(f"{begin}: {checkpoint.path} was read, but {why}", stacklevel=2)
        if self.ranks.is_first:
            restore_random_state(tensors, self.job.device)
        else:  # the saved state is that of the first process; shared, all processes would draw the same actions
            torch.manual_seed(derived_seed(self.job.seed, self.ranks.rank, self.iteration))
        return not why
