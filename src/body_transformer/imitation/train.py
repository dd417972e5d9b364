"""The loop: demonstrations -> policy."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass

import torch
from accelerate import Accelerator

from ..checkpoint import TrainingState, newest_checkpoint, save_checkpoint
from ..metrics_log import MetricsLog
from ..model.config import PolicyConfig
from ..model.policy import Policy
from ..run import Run
from ..training.evaluation import to_metrics
from ..training.progress import Progress
from ..training.ranks import Ranks
from ..training.saving import Saver
from ..training.seeds import derived_seed
from ..training.stopping import StopRequest
from .batches import Batches, num_batches
from .config import ImitationConfig
from .episodes import Episodes, Floats
from .evaluate import evaluate
from .losses import Cloning
from .statistics import mean_and_var, obs_statistics
from .task import Task
from .update import Update


@dataclass(frozen=True)
class Job:
    """All that a training run is made of."""

    run: Run
    episodes: Episodes
    task: Task | None
    """Where the policy is tried out; none = never."""
    policy: PolicyConfig
    config: ImitationConfig
    seed: int
    resume: bool = False
    wandb_project: str | None = None
    cpu: bool = False
    """Stay on the CPU even where there is a GPU."""


def train(job: Job, progress: Progress) -> Policy:
    """Clones the demonstrations' actions; returns the policy, which the run's newest checkpoint holds too."""
    ranks = Ranks.from_environment()
    with ranks.joined("cuda" if _on_gpu(job) else "cpu"), job.run.at_work() if ranks.is_first else nullcontext():
        return _learned(job, progress)


def _learned(job: Job, progress: Progress) -> Policy:
    with closing(progress):
        loop = _Loop(job, progress)
        with StopRequest() as stop:  # before that there is nothing to keep
            loop.run(stop)
    return loop.policy


class _Loop:
    def __init__(self, job: Job, progress: Progress) -> None:
        self.job, self.config, self.progress = job, job.config, progress
        self.accelerator = Accelerator(mixed_precision=_mixed_precision(job), cpu=job.cpu)
        if self.config.precision == "tf32":
            torch.set_float32_matmul_precision("high")
        found = newest_checkpoint(job.run.folder) if job.resume else None
        self.batches = Batches(
            job.episodes,
            self.config.batch_size,
            job.seed,
            rank=self.accelerator.process_index,
            num_ranks=self.accelerator.num_processes,
        )
        self.num_steps = total_steps(self.config, job.episodes.num_steps)
        self.policy = found.policy if found else self._new_policy()
        module = Cloning(self.policy, self.config.loss, torch.from_numpy(job.episodes.obs_ids))
        self.update = Update(module, self.config.weight_decay, self.accelerator)
        self.step, self.loss_count = 0, 0
        if found:
            self.update.restore(self.policy, found.state.tensors)
            self.step, self.loss_count = found.state.values["step"], found.state.values["loss_count"]
        lines = list(job.run.metrics()) if found else []
        self.elapsed_s = max((line.get("time_s", 0.0) for line in lines if line["step"] <= self.step), default=0.0)

    def _new_policy(self) -> Policy:
        job = self.job
        torch.manual_seed(job.seed)
        policy = Policy(job.episodes.layout, job.policy)
        found = obs_statistics(job.episodes, self.accelerator, self.progress.reading)
        policy.normalizer.set_statistics(*mean_and_var(job.episodes.layout, found))
        return policy

    @property
    def is_main(self) -> bool:
        return bool(self.accelerator.is_main_process)

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self, stop: StopRequest) -> None:
        job = self.job
        if self.is_main:
            job.run.forget_after(self.step)
        log = MetricsLog(job.run.folder, self.step, job.wandb_project, job.run.description()) if self.is_main else None
        self.begun = time.perf_counter()
        saver = Saver(self._save, self.config.checkpoint_every_s)
        self.progress.start(self.step, self.num_steps)
        try:
            for used_obs, actions in self._batches_left():
                self.update(used_obs, actions, learning_rate(self.config, self.step, self.num_steps))
                self.step, self.loss_count = self.step + 1, self.loss_count + 1
                self.progress.advance(self.step)
                if self.step % self.config.log_every == 0 or self.step == self.num_steps:
                    self._log(log)
                if self._is_time_to_evaluate():
                    self._evaluate(log)
                saver.after(self.step, stop, self.accelerator.device)
            self._save()
        finally:
            if log is not None:
                log.close()

    def _batches_left(self) -> Iterator[tuple[Floats, Floats]]:
        while self.step < self.num_steps:
            epoch, first = divmod(self.step, len(self.batches))
            for batch in self.batches.epoch(epoch, first):
                yield batch
                if self.step == self.num_steps:
                    return

    def _is_time_to_evaluate(self) -> bool:
        config, epoch = self.config, len(self.batches)
        if self.job.task is None or config.eval_every is None or self.step % (config.eval_every * epoch):
            return False
        return config.eval_last is None or self.step > self.num_steps - config.eval_last * epoch

    # -- what is written -----------------------------------------------------------------------------------------------

    def _log(self, log: MetricsLog | None) -> None:
        loss = float(self.accelerator.reduce(self.update.loss_sum, "mean")) / max(self.loss_count, 1)
        self.update.loss_sum.zero_()
        self.loss_count = 0
        if not math.isfinite(loss):
            raise ValueError(
                f"the loss is {loss} at step {self.step}: a smaller learning rate may help (it is "
                f"{self.config.learning_rate:g}); earlier checkpoints are kept in {self.job.run.folder}"
            )
        self.progress.show(loss)
        if log is not None:
            log.write(
                self.step,
                {
                    "epoch": self.step / len(self.batches),
                    "time_s": self._time_s(),
                    "train/loss": loss,
                    "train/learning_rate": learning_rate(self.config, self.step, self.num_steps),
                },
            )

    def _time_s(self) -> float:
        """Spent on training so far, evaluations left out."""
        now = time.perf_counter()
        self.elapsed_s, self.begun = self.elapsed_s + now - self.begun, now
        return round(self.elapsed_s, 3)

    def _evaluate(self, log: MetricsLog | None) -> None:
        if log is None or self.job.task is None:
            return
        time_s, seed = self._time_s(), derived_seed(self.job.seed, self.step)
        found = evaluate(self.policy, self.job.task, self.config.eval_episodes, seed)
        log.write(self.step, {"epoch": self.step / len(self.batches), "time_s": time_s, **to_metrics(found)})
        self.begun = time.perf_counter()

    def _save(self) -> None:
        if not self.is_main:
            return
        broken = [name for name, value in self.policy.named_parameters() if not torch.isfinite(value).all()]
        if broken:
            raise ValueError(
                f"weights are not finite at step {self.step} ({broken[0]} and {len(broken) - 1} more): this checkpoint "
                f"is not written; earlier ones are kept in {self.job.run.folder}"
            )
        values = {"step": self.step, "loss_count": self.loss_count}
        state = TrainingState(self.update.tensors(self.policy), values)
        save_checkpoint(self.job.run.folder, self.step, self.policy, state, self.config.keep_checkpoints)


def total_steps(config: ImitationConfig, num_samples: int) -> int:
    """Updates in all."""
    return config.num_steps or (config.num_epochs or 0) * num_batches(num_samples, config.batch_size)


def learning_rate(config: ImitationConfig, step: int, num_steps: int) -> float:
    """Rises over the warm-up, then stays, or falls to zero as half a cosine."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return config.learning_rate
    done = (step - config.warmup_steps) / max(1, num_steps - config.warmup_steps)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))


def _on_gpu(job: Job) -> bool:
    return torch.cuda.is_available() and not job.cpu


def _mixed_precision(job: Job) -> str:
    precision = job.config.precision
    return "bf16" if precision == "bf16" or (precision == "auto" and _on_gpu(job)) else "no"
