"""Behaviour cloning: demonstrations -> policy."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.optim import AdamW

from ..checkpoint import TENSORS, VALUES, Checkpoint, TrainingState, newest_checkpoint, save_checkpoint
from ..metrics import MetricsLog
from ..model.config import PolicyConfig
from ..model.policy import Policy
from ..run import Run
from ..schema import build, is_number
from ..training.cuda_graphs import CudaGraphed
from ..training.evaluation import to_metrics
from ..training.progress import Progress
from ..training.ranks import Ranks, derived_seed
from ..training.stopping import Saver, StopRequest
from .actors import acting
from .batches import Batches, num_batches
from .config import ImitationConfig
from .demonstrations import obs_mean_and_var
from .episodes import Episodes, Floats
from .losses import CloningLoss
from .on_device import DeviceBatches, OnDevice
from .tasks.base import ImitationTask, evaluate


@dataclass(frozen=True)
class CloningJob:
    """Everything that defines a training run."""

    run: Run
    episodes: Episodes
    task: ImitationTask | None
    """Task in which the policy is evaluated; None = never."""
    policy: PolicyConfig
    config: ImitationConfig
    seed: int
    resume: bool = False
    wandb_project: str | None = None
    cpu: bool = False
    """Train on the CPU even if there is a GPU."""

    @property
    def on_gpu(self) -> bool:
        return torch.cuda.is_available() and not self.cpu


def train(job: CloningJob, progress: Progress) -> Policy:
    """Clone the actions of the demonstrations; return the policy, which the run's newest checkpoint also holds."""
    ranks = Ranks.from_environment()
    at_work = job.run.at_work() if ranks.is_first else nullcontext()
    with ranks.joined("cuda" if job.on_gpu else "cpu"), at_work:
        return _train(job, progress)  # its local variables are freed before the process group is destroyed


def _train(job: CloningJob, progress: Progress) -> Policy:
    with closing(progress):
        loop = _CloningLoop(job, progress)
        with StopRequest() as stop:  # before this point there is nothing to save
            loop.run(stop)
    return loop.policy


@dataclass(frozen=True)
class _CloningCounts:
    """Numbers in a checkpoint."""

    step: int
    loss_count: int
    """Updates since the last logged line."""


class _CloningLoop:
    """State of a run, and the loop over its updates."""

    def __init__(self, job: CloningJob, progress: Progress) -> None:
        self.job, self.config, self.progress = job, job.config, progress
        bf16 = self.config.precision == "bf16" or (self.config.precision == "auto" and job.on_gpu)
        self.accelerator = Accelerator(mixed_precision="bf16" if bf16 else "no", cpu=job.cpu)
        if self.config.precision == "tf32":
            torch.set_float32_matmul_precision("high")
        make_batches = DeviceBatches if isinstance(job.episodes, OnDevice) else Batches
        self.batches: Batches | DeviceBatches = make_batches(
            job.episodes,  # type: ignore[arg-type]  # mypy joins the two classes
            self.config.batch_size,
            job.seed,
            rank=self.accelerator.process_index,
            num_ranks=self.accelerator.num_processes,
        )
        self.num_steps = total_steps(self.config, job.episodes.num_steps)
        found = newest_checkpoint(job.run.folder) if job.resume else None
        self.policy = found.policy if found else self._new_policy()
        loss = CloningLoss(self.policy, self.config.loss, torch.from_numpy(job.episodes.obs_ids))
        self.update = Update(loss, self.config.weight_decay, self.accelerator)
        self.step, self.loss_count = 0, 0
        if found:
            self._restore(found)
        lines = list(job.run.metrics()) if found else []
        times = (line.get("time_s") for line in lines if line["step"] <= self.step)
        self.elapsed_s = max((float(time_s) for time_s in times if is_number(time_s)), default=0.0)

    def _restore(self, found: Checkpoint) -> None:
        try:
            counts = build(_CloningCounts, found.state.values, VALUES)
            if counts.step != found.step:
                raise ValueError(f"{VALUES} is of step {counts.step}")
            self.update.restore(self.policy, found.state.tensors)
        except ValueError as error:
            raise ValueError(f"cannot resume from the checkpoint {found.path}: {error}") from None
        self.step, self.loss_count = counts.step, counts.loss_count

    def _new_policy(self) -> Policy:
        torch.manual_seed(self.job.seed)
        policy = Policy(self.job.episodes.layout, self.job.policy)
        mean, var = obs_mean_and_var(self.job.episodes, self.accelerator, self.progress.reading)
        policy.normalizer.set_statistics(mean, var)
        return policy

    # -- the loop ------------------------------------------------------------------------------------------------------

    def run(self, stop: StopRequest) -> None:
        """Update until `num_steps`, with logged lines, evaluations and checkpoints in between."""
        run, is_main = self.job.run, bool(self.accelerator.is_main_process)
        if is_main:
            run.forget_after(self.step)
        log = MetricsLog(run.folder, self.step, self.job.wandb_project, run.description()) if is_main else None
        self.timed_since = time.perf_counter()
        saver = Saver(self._save, self.config.checkpoint_every_s, run.folder)
        self.progress.start(self.step, self.num_steps)
        with closing(log) if log else nullcontext():
            for used_obs, actions in self._remaining_batches():
                self.update(used_obs, actions, learning_rate(self.config, self.step, self.num_steps))
                self.step, self.loss_count = self.step + 1, self.loss_count + 1
                self.progress.advance(self.step)
                if self.step % self.config.log_every == 0 or self.step == self.num_steps:
                    self._log(log)
                if self._evaluation_is_due():
                    self._evaluate(log)
                saver.after(self.step, stop, self.accelerator.device)
            self._save()

    def _remaining_batches(self) -> Iterator[tuple[Floats | Tensor, Floats | Tensor]]:
        while self.step < self.num_steps:
            epoch, first = divmod(self.step, len(self.batches))
            for batch in self.batches.epoch(epoch, first):
                yield batch
                if self.step == self.num_steps:
                    return

    def _evaluation_is_due(self) -> bool:
        config, epoch = self.config, len(self.batches)
        period = config.eval_every_steps or (config.eval_every or 0) * epoch
        if self.job.task is None or not period or self.step % period:
            return False
        return config.eval_last is None or self.step > self.num_steps - config.eval_last * epoch

    # -- output --------------------------------------------------------------------------------------------------------

    def _log(self, log: MetricsLog | None) -> None:
        loss = float(self.accelerator.reduce(self.update.loss_sum, "mean")) / max(self.loss_count, 1)
        self.update.loss_sum.zero_()
        self.loss_count = 0
        if not math.isfinite(loss):
            raise ValueError(
                f"the loss is {loss} at step {self.step}: try a smaller learning rate (it is "
                f"{self.config.learning_rate:g}); earlier checkpoints are kept in {self.job.run.folder}"
            )
        self.progress.show(loss)
        if log is not None:
            rate = learning_rate(self.config, self.step, self.num_steps)
            log.write(self.step, {**self._times(), "train/loss": loss, "train/learning_rate": rate})

    def _times(self) -> dict[str, float]:
        """Update the training time, without evaluations; return it and the number of epochs."""
        now = time.perf_counter()
        self.elapsed_s, self.timed_since = self.elapsed_s + now - self.timed_since, now
        return {"epoch": self.step / len(self.batches), "time_s": round(self.elapsed_s, 3)}

    def _evaluate(self, log: MetricsLog | None) -> None:
        if log is None or self.job.task is None:
            return
        times = self._times()
        seed = derived_seed(self.job.seed, self.step)
        found = evaluate(acting(self.policy), self.job.task, self.config.eval_episodes, seed)
        log.write(self.step, {**times, **to_metrics(found)})
        self.timed_since = time.perf_counter()

    def _save(self) -> None:
        if not self.accelerator.is_main_process:
            return
        self.job.run.check_there()
        broken = [name for name, value in self.policy.named_parameters() if not torch.isfinite(value).all()]
        if broken:
            raise ValueError(
                f"weights are not finite at step {self.step} ({broken[0]} and {len(broken) - 1} more): this checkpoint "
                f"is not written; earlier ones are kept in {self.job.run.folder}"
            )
        values = {"step": self.step, "loss_count": self.loss_count}
        state = TrainingState(self.update.tensors(self.policy), values)
        save_checkpoint(self.job.run.folder, self.step, self.policy, state, self.config.keep_checkpoints)


class Update:
    """One update: loss of a batch, gradients and a step of AdamW. On a single GPU it is recorded once and replayed."""

    def __init__(self, loss: nn.Module, weight_decay: float, accelerator: Accelerator) -> None:
        """Prepare updates of `loss`, which maps observations and actions to a scalar."""
        self.accelerator = accelerator
        self.device = accelerator.device
        on_gpu = self.device.type == "cuda"
        loss.to(self.device)
        # a recorded update reads the learning rate and the number of steps from the GPU
        rate: float | Tensor = torch.zeros((), device=self.device) if on_gpu else 0.0
        optimizer = AdamW(loss.parameters(), rate, weight_decay=weight_decay, fused=on_gpu, capturable=on_gpu)
        self.loss, self.optimizer = accelerator.prepare(loss, optimizer)
        self.loss_sum = torch.zeros((), device=self.device, dtype=torch.float64)
        """Sum of the losses since the last logged line."""
        # with several processes an update exchanges gradients and is not recorded
        self._compute = CudaGraphed(self._plain) if on_gpu and accelerator.num_processes == 1 else self._plain

    def __call__(self, used_obs: Floats | Tensor, actions: Floats | Tensor, learning_rate: float) -> None:
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(learning_rate)
            else:
                group["lr"] = learning_rate
        self._compute(*(self._to_device(array) for array in (used_obs, actions)))

    def _plain(self, used_obs: Tensor, actions: Tensor) -> Tensor:
        loss: Tensor = self.loss(used_obs, actions)
        self.accelerator.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.loss_sum += loss.detach()
        return loss.detach()

    def _to_device(self, array: Floats | Tensor) -> Tensor:
        if isinstance(array, Tensor):
            return array.to(self.device, non_blocking=True)  # it is there already, unless it was made elsewhere
        tensor = torch.from_numpy(array)
        return tensor.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else tensor

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def tensors(self, policy: Policy) -> dict[str, Tensor]:
        """Return the tensors that a checkpoint keeps beside the policy."""
        state: Mapping[Tensor, Mapping[str, Any]] = self.optimizer.state
        of_optimizer = {
            f"optimizer.{name}.{key}": value
            for name, parameter in policy.named_parameters()
            for key, value in state.get(parameter, {}).items()
        }
        return {"loss_sum": self.loss_sum, **of_optimizer}

    def restore(self, policy: Policy, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state from the tensors of a checkpoint."""
        self.loss_sum.copy_(_state_tensor(tensors, "loss_sum", torch.Size()))
        for name, parameter in policy.named_parameters():
            shapes = {"step": torch.Size(), "exp_avg": parameter.shape, "exp_avg_sq": parameter.shape}
            self.optimizer.state[parameter] = {
                key: _state_tensor(tensors, f"optimizer.{name}.{key}", shape).to(parameter.device, copy=True)
                for key, shape in shapes.items()
            }


def _state_tensor(tensors: Mapping[str, Tensor], name: str, shape: torch.Size) -> Tensor:
    """Return a tensor of a checkpoint; refuse a missing one, another shape, and one of whole numbers."""
    if name not in tensors:
        raise ValueError(f"{TENSORS} has no tensor {name}")
    found = tensors[name]
    if found.shape != shape or not found.is_floating_point():
        raise ValueError(f"{name} in {TENSORS} must be floats {list(shape)}; got {found.dtype} {list(found.shape)}")
    return found


def total_steps(config: ImitationConfig, num_samples: int) -> int:
    """Return the number of updates of a run."""
    return config.num_steps or (config.num_epochs or 0) * num_batches(num_samples, config.batch_size)


def learning_rate(config: ImitationConfig, step: int, num_steps: int) -> float:
    """Return the learning rate: it rises over the warm-up, then is constant or falls to zero as half a cosine."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return config.learning_rate
    done = (step - config.warmup_steps) / max(1, num_steps - config.warmup_steps)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
