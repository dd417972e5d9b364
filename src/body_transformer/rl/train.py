"""The loop: simulator -> policy."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from mjlab.envs import ManagerBasedRlEnv
from mjlab.rl import RslRlVecEnvWrapper

from ..body.compare import check_same
from ..checkpoint import Checkpoint, TrainingState, newest_checkpoint, newest_path, save_checkpoint
from ..errors import listing
from ..metrics_log import MetricsLog
from ..model.config import PolicyConfig
from ..model.policy import Policy
from ..run import EVALUATION, Run
from ..training.evaluation import Summary, to_metrics, write_evaluation
from ..training.progress import Progress
from ..training.ranks import Ranks
from ..training.saving import Saver
from ..training.seeds import derived_seed
from ..training.stopping import StopRequest
from .broken import broken_envs, is_policys_doing, save_broken, unlearnable_envs
from .collect import Collector
from .config import RlConfig
from .curriculum import terrain_levels, use_terrain_levels
from .evaluate import evaluate, recorded
from .learner import Learner
from .registry import make_env

BROKEN = "broken_states_{rank}.safetensors"
SPLIT = "rollouts"
LEVELS = "terrain_levels"
FINAL = 2**32 - 1
"""Stands for the iteration in the seed of the last evaluation, so that it is the same however long training was."""


@dataclass(frozen=True)
class Job:
    """All that a training run is made of."""

    run: Run
    policy: PolicyConfig
    config: RlConfig
    seed: int
    device: str
    resume: bool = False
    wandb_project: str | None = None
    say: Callable[[str], object] = lambda text: None
    """Hears which entry of the observation went to which body part."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """For the run's description, once its checkpoint has been read: what it goes on with from there."""


def train(job: Job, progress: Progress) -> Policy:
    """Learns by PPO; returns the policy, which the run's newest checkpoint holds too."""
    ranks = Ranks.from_environment()
    with ranks.joined(job.device), job.run.at_work() if ranks.is_first else nullcontext(), closing(progress):
        loop = _Loop(replace(job, device=ranks.device(job.device)), ranks, progress)
        with closing(loop), StopRequest() as stop:
            loop.run(stop)
    return loop.learner.policy()


class _Loop:
    def __init__(self, job: Job, ranks: Ranks, progress: Progress) -> None:
        self.job, self.config, self.ranks, self.progress = job, job.config, ranks, progress
        own_seed = derived_seed(job.seed, ranks.rank)
        env = self._make_env(ranks.share(self.config.num_envs, "num_envs"), own_seed)
        self.env = RslRlVecEnvWrapper(env)
        obs = self.env.get_observations()
        torch.manual_seed(job.seed)  # the same weights in every process
        multi_gpu = None if ranks.size == 1 else {"global_rank": ranks.rank, "world_size": ranks.size}
        self.learner = Learner(env, obs, job.policy, self.config, multi_gpu=multi_gpu)
        torch.manual_seed(own_seed)  # and other actions
        self.collector = Collector(self.env, obs, self.learner)
        job.say(self.learner.describe())
        self.trial: ManagerBasedRlEnv | None = None
        self.try_out = recorded(self.learner.actor, self.learner.groups["actor"], job.device)
        self.iteration, self.env_steps, self.elapsed_s = 0, 0, 0.0
        found = newest_checkpoint(job.run.folder) if job.resume else None
        if found:
            self._restore(found)
        if self.config.random_initial_step:
            env.episode_length_buf = torch.randint_like(env.episode_length_buf, int(env.max_episode_length))

    def _make_env(self, num_envs: int, seed: int, play: bool = False) -> ManagerBasedRlEnv:
        config = self.config
        return make_env(
            config.task, num_envs, seed, self.job.device, motion=config.motion, play=play, options=config.options
        )

    def run(self, stop: StopRequest) -> None:
        run, log = self.job.run, None
        if self.ranks.is_first:
            (run.folder / EVALUATION).unlink(missing_ok=True)  # of a run that goes on beyond its first end
            run.forget_after(self.iteration)
            run.add({"num_parameters": self._num_parameters, **self.job.facts})
            log = MetricsLog(run.folder, self.iteration, self.job.wandb_project, run.description())
        self.progress.start(self.iteration, self.config.num_iterations)
        saver = Saver(self._save, self.config.checkpoint_every_s)
        begun = self.iteration
        try:
            while self.iteration < self.config.num_iterations:
                self._iterate(log)
                if self._is_time_to_evaluate():
                    self._evaluate(log, self.iteration)
                saver.after(self.iteration, stop, self.job.device)
            if self.iteration > begun:  # otherwise it is what was read, which other processes may still be reading
                self._save()
            self._finish(log)
        finally:
            if log is not None:
                log.close()

    @property
    def _num_parameters(self) -> int:
        """Of all that is learned, the critic too, as the paper counts."""
        models = (self.learner.actor, self.learner.critic)
        return sum(parameter.numel() for model in models for parameter in model.parameters())

    def close(self) -> None:
        for env in (self.env.unwrapped, self.trial):
            if env is not None:
                env.close()

    def _iterate(self, log: MetricsLog | None) -> None:
        begun = time.perf_counter()
        self.collector.collect()
        self._check_physics()  # which waits for the device
        collected = time.perf_counter()
        self.collector.value()
        ppo = self.learner.ppo
        losses = ppo.update()
        self.iteration += 1
        self.learner.limit_std(self.iteration)
        done = time.perf_counter()
        self.elapsed_s += done - begun
        self._check_loss(losses)
        num_steps = self.config.num_envs * self.config.num_steps
        self.env_steps += num_steps
        values = {
            "env_steps": self.env_steps,
            "time_s": round(self.elapsed_s, 3),
            "steps_per_s": num_steps / (done - begun),
            "collect_s": collected - begun,
            "learn_s": done - collected,
            "train/learning_rate": ppo.learning_rate,
            "train/std": self.learner.std(),
            **{f"train/{name}": value for name, value in losses.items()},
            **self.collector.finished.means(),
            **self._broken(),
        }
        if log is not None:
            log.write(self.iteration, values)
        self.progress.advance(self.iteration)
        self.progress.show(losses["value"])

    def _broken(self) -> dict[str, float]:
        """How many episodes the simulator has broken since it was asked the last time, of environments that count."""
        count: torch.Tensor | None = getattr(self.env.unwrapped, "broken", None)
        if count is None:
            return {}
        broken = float(count)
        count.zero_()
        return {"train/broken": broken}

    # -- what is tried out and written ---------------------------------------------------------------------------------

    def _is_time_to_evaluate(self) -> bool:
        """The end has an evaluation of its own."""
        every, at = self.config.eval_every, self.iteration
        return every is not None and at % every == 0 and at < self.config.num_iterations

    def _evaluate(self, log: MetricsLog | None, number: int) -> tuple[Summary, int]:
        """In an environment of its own, with the mean action: training's rollouts explore. Returns the seed, too."""
        seed = derived_seed(self.job.seed, number)
        if log is None:
            return {}, seed
        device = torch.device(self.job.device)
        with torch.random.fork_rng([device] if device.type == "cuda" else []):  # training draws as if nothing had been
            if self.trial is None:
                self.trial = self._make_env(self.config.eval_episodes, self.job.seed, play=True)
            found = {SPLIT: evaluate(self.try_out, self.trial, seed)}
        stamp = {"env_steps": self.env_steps, "time_s": round(self.elapsed_s, 3)}
        log.write(self.iteration, {**stamp, **to_metrics(found)})
        return found, seed

    def _finish(self, log: MetricsLog | None) -> None:
        """The last evaluation. Its file marks the run as finished, and so comes last."""
        found, seed = self._evaluate(log, FINAL)
        if log is not None:
            write_evaluation(self.job.run, found, self.config.eval_episodes, seed)

    def _check_physics(self) -> None:
        """States that are not numbers end the run, and are kept to be looked at."""
        env, stored = self.env.unwrapped, self.learner.ppo.storage
        ids = broken_envs(env, stored, self.collector.obs)
        if not len(ids):
            return
        what = "the policy gave actions" if is_policys_doing(stored, ids) else "physics gave values"
        raise ValueError(
            f"{what} that are not finite in {len(ids)} of {env.num_envs} environments at iteration "
            f"{self.iteration + 1}; {self._keep(ids)}; {self._last_good()}"
        )

    def _check_loss(self, losses: Mapping[str, float]) -> None:
        """One that is no number ends the run, and what it was computed from is kept to be looked at."""
        if all(math.isfinite(value) for value in losses.values()):
            return
        ids = unlearnable_envs(self.learner.ppo.storage)
        raise ValueError(
            f"the loss is not finite at iteration {self.iteration}: {dict(losses)}; {len(ids)} of {self.env.num_envs} "
            f"environments may be the cause; {self._keep(ids)}; {self._last_good()}"
        )

    def _keep(self, ids: torch.Tensor) -> str:
        """Writes down how these environments came where they are, and says where."""
        file = self.job.run.folder / BROKEN.format(rank=self.ranks.rank)
        save_broken(file, self.env.unwrapped, self.learner.ppo.storage, ids)
        return f"their states, and what they saw and did, are in {str(file)!r}"

    def _last_good(self) -> str:
        found = newest_path(self.job.run.folder)
        return f"the last good checkpoint is {str(found)!r}" if found else "there is no checkpoint yet"

    def _save(self) -> None:
        if not self.ranks.is_first:
            return
        random = {"random.cpu": torch.get_rng_state()}
        if torch.device(self.job.device).type == "cuda":
            random["random.cuda"] = torch.cuda.get_rng_state(self.job.device)
        learned = self.learner.tensors()
        broken = [name for name, value in learned.items() if not bool(torch.isfinite(value).all())]
        if broken:  # the loss of the last minibatch does not know what its step led to
            raise ValueError(
                f"weights are not finite after iteration {self.iteration}: {listing(broken)}; {self._last_good()}"
            )
        levels = terrain_levels(self.env.unwrapped)
        tensors = {**learned, **random, **({} if levels is None else {LEVELS: levels})}
        values = {"iteration": self.iteration, "env_steps": self.env_steps, "elapsed_s": self.elapsed_s}
        values["common_step_counter"] = int(self.env.unwrapped.common_step_counter)
        state = TrainingState(tensors, values)
        policy = self.learner.policy()
        save_checkpoint(self.job.run.folder, self.iteration, policy, state, self.config.keep_checkpoints)

    def _restore(self, found: Checkpoint) -> None:
        check_same(found.policy.layout, self.learner.layouts["actor"].layout, ("checkpoint", "task"))
        values, tensors = found.state.values, found.state.tensors
        self.iteration, self.elapsed_s = values["iteration"], values["elapsed_s"]
        # not what the settings of now make of the iterations: robots may have been more or fewer until here
        an_iteration = self.config.num_envs * self.config.num_steps
        self.env_steps = values.get("env_steps", self.iteration * an_iteration)  # older checkpoints do not say it
        self.learner.restore(tensors)
        if LEVELS in tensors:
            use_terrain_levels(self.env.unwrapped, tensors[LEVELS])
            self.collector.obs, _ = self.env.reset()  # while no step is counted: mjlab's curricula leave it alone
        self.env.unwrapped.common_step_counter = values["common_step_counter"]
        if not self.ranks.is_first:  # the first one's are on disk; with these, all would explore alike
            torch.manual_seed(derived_seed(self.job.seed, self.ranks.rank, self.iteration))
            return
        torch.set_rng_state(tensors["random.cpu"])
        if "random.cuda" in tensors and torch.device(self.job.device).type == "cuda":
            torch.cuda.set_rng_state(tensors["random.cuda"], self.job.device)
