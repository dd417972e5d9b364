"""Find the best launch settings of the fused encoder's kernels.

They belong in `ops/encoder_stack/fused/sizes.py` or, on GPUs that use the Hopper kernels, in `hopper/sizes.py`.

    python benchmarks/encoder_tuning.py bf16            # on a GPU, about a minute; tf32 and fp32 too
    python benchmarks/encoder_tuning.py bf16 backward   # one kernel

Times are medians of CUDA-graph replays in milliseconds, for the paper's PPO minibatch (`inference`: a rollout's step).
Each kernel keeps its best setting while the next one is tuned. At the end the whole step is profiled by kernel. Several
processes compile all settings first.
"""

import argparse
import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import torch
from torch import Tensor

from body_transformer.bench.clocks import Effort, time_as_graph, warm_up
from body_transformer.bench.masks import tree_mask
from body_transformer.bench.steps import kernel_times
from body_transformer.ops.encoder_stack import PRECISIONS
from body_transformer.ops.encoder_stack.fused import passes, sizes
from body_transformer.ops.encoder_stack.hopper import sizes as hopper
from body_transformer.ops.encoder_stack.packing import Call

NODES, EMBED, HIDDEN, HEADS, LAYERS = 16, 64, 128, 2, 10
TRAIN, ROLLOUT, TINY = 8192, 2048, 64
"""Batch sizes of a PPO minibatch, of a rollout's step, and for compiling."""
EFFORT = Effort(budget_s=0.1)

Setting = Any
"""Arguments of the launch settings of a kernel, or a number of shares."""
GENERAL_FORWARD: list[Setting] = [
    (128, 128, 4, None, 2),
    (128, 128, 8, 128, 2),
    (128, 128, 8, 128, 1),
    (64, 128, 4, 128, 2),
    (64, 128, 4, 128, 1),
    (64, 64, 4, None, 1),
]
GENERAL: dict[str, list[Setting]] = {
    "inference": GENERAL_FORWARD,
    "forward": GENERAL_FORWARD,
    "backward": [
        (64, 64, 4, 128, 2),
        (64, 64, 4, 168, 2),
        (64, 64, 4, None, 2),
        (64, 128, 4, None, 1),
        (64, 64, 4, None, 1),
        (64, 64, 4, 168, 1),
        (128, 64, 8, None, 1),
    ],
    "feed-forward": [
        (64, 8, 128),
        (64, 8, 128, 2),
        (64, 4, 64),
        (64, 4, 64, 2),
        (32, 4, 64),
        (32, 4, 32),
        (16, 4, 32),
        (16, 2, 32),
    ],
    "product": [(64, 4), (32, 4), (32, 2), (16, 2)],
    "shares": [8, 12, 16, 24, 32, 48, 64],
}
HOPPER_FORWARD: list[Setting] = [
    (8, 4, 64, None),
    (8, 4, 32, None),
    (8, 4, 128, None),
    (4, 4, 64, 168),
    (4, 4, 64, 128),
    (8, 8, 64, 128),
    (8, 8, 32, 128),
    (16, 8, 64, None),
    (16, 16, 64, 128),
]
HOPPER: dict[str, list[Setting]] = {
    "inference": HOPPER_FORWARD,
    "forward": HOPPER_FORWARD,
    "backward": [
        (4, 4, 32, 168),
        (4, 4, 32, None),
        (4, 4, 64, 168),
        (4, 4, 64, None),
        (8, 8, 32, 128),
        (8, 8, 32, None),
        (8, 4, 32, None),
    ],
    "sums": [
        ((64, 3), (64, 4), 0.46),
        ((64, 3), (64, 4), 0.38),
        ((64, 3), (64, 4), 0.54),
        ((64, 4), (64, 4), 0.46),
        ((32, 5), (64, 4), 0.46),
        ((32, 8), (64, 4), 0.46),
    ],
    "programs": [132, 264],
}


@dataclass
class Problem:
    """The humanoid's encoder on random tokens."""

    x: Tensor
    grad: Tensor
    parameters: list[Tensor]
    mask: Tensor
    precision: str

    @classmethod
    def draw(cls, batch: int, precision: str) -> "Problem":
        shapes = sizes.FusedSizes(LAYERS, NODES, EMBED, HIDDEN, HEADS).shapes
        parts = [torch.randn(shape, device="cuda") * shape[-1] ** -0.5 for shape in [*shapes.values()] * LAYERS]
        x, grad = torch.randn(2, batch, NODES, EMBED, device="cuda")
        return cls(x, grad, parts, tree_mask(NODES).cuda(), precision)

    @property
    def call(self) -> Call:
        return Call(self.mask, [layer % 2 == 0 for layer in range(LAYERS)], HEADS, 1e-5, self.precision)

    def forward(self, save: bool) -> list[Tensor]:
        return passes.forward(self.x, self.parameters, self.call, save)

    def backward(self, kept: list[Tensor]) -> list[Tensor]:
        return passes.backward(self.grad, kept, self.x, self.parameters, self.call)

    def step(self) -> list[Tensor]:
        return self.backward(self.forward(save=True)[1:])


def settings_for(precision: str) -> dict[str, list[Setting]]:
    encoder = sizes.FusedSizes(LAYERS, NODES, EMBED, HIDDEN, HEADS)
    return HOPPER if hopper.supports(encoder, precision, torch.device("cuda")) else GENERAL


def use(kernel: str, precision: str, setting: Setting) -> None:
    """Use a setting for every later launch in this process."""
    if settings_for(precision) is HOPPER:
        _use_hopper(kernel, setting)
    elif kernel == "shares":
        sizes.SHARES[precision] = setting
    elif kernel in ("product", "feed-forward"):
        table = sizes.PRODUCT if kernel == "product" else sizes.FEED_FORWARD
        table[precision] = sizes.SumLaunch(*setting)
    else:
        sizes.LAUNCH[kernel][precision] = sizes.Launch(*setting)


def _use_hopper(kernel: str, setting: Setting) -> None:
    if kernel == "programs":
        hopper.PROGRAMS = setting
    elif kernel == "sums":
        hopper.SUMS = hopper.HopperSumLaunch(*setting)
    else:
        hopper.LAUNCH[kernel] = hopper.HopperLaunch(*setting)


def compile_one(kernel: str, precision: str, setting: Setting) -> None:
    """Compile a kernel with one setting, to fill Triton's cache on disk from a separate process."""
    use(kernel, precision, setting)
    problem = Problem.draw(TINY, precision)
    problem.forward(save=False)
    problem.step()
    torch.cuda.synchronize()


def compile_all(precision: str, kernels: Iterable[str]) -> dict[str, list[Setting]]:
    """Compile all settings in parallel; return those that compile, by kernel."""
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        jobs: list[tuple[str, Setting, Future[None]]] = [
            (kernel, setting, pool.submit(compile_one, kernel, precision, setting))
            for kernel in kernels
            for setting in settings_for(precision)[kernel]
        ]
        good: dict[str, list[Setting]] = {kernel: [] for kernel in kernels}
        for kernel, setting, job in jobs:
            if error := job.exception():
                print(f"{kernel} {setting} failed: {str(error).splitlines()[0][:100]}")
            else:
                good[kernel].append(setting)
    return good


def milliseconds(step: Callable[[], object]) -> float:
    warm_up([step])
    return time_as_graph([step], EFFORT)


def sweep(problem: Problem, kernel: str, settings: list[Setting]) -> None:
    """Time all settings of a kernel; the fastest one remains in use."""
    few = Problem.draw(ROLLOUT, problem.precision)
    kept = problem.forward(save=True)[1:]
    steps: dict[str, Callable[[], object]] = {
        "inference": lambda: few.forward(save=False),
        "forward": lambda: problem.forward(save=True),
    }
    times = {}
    for setting in settings:
        use(kernel, problem.precision, setting)
        times[setting] = milliseconds(steps.get(kernel, lambda: problem.backward(kept)))
        print(f"{kernel} {setting!s:28} {times[setting]:.4f}", flush=True)
    use(kernel, problem.precision, min(times, key=lambda setting: times[setting]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("precision", choices=PRECISIONS)
    parser.add_argument("kernels", nargs="*", help=f"any of {', '.join({**GENERAL, **HOPPER})}; by default all")
    options = parser.parse_args()
    known = settings_for(options.precision)
    if unknown := [kernel for kernel in options.kernels if kernel not in known]:
        parser.error(f"unknown kernel {', '.join(unknown)}; have: {', '.join(known)}")
    problem = Problem.draw(TRAIN, options.precision)
    for kernel, settings in compile_all(options.precision, options.kernels or list(known)).items():
        sweep(problem, kernel, settings)
    print(f"{options.precision} forward and backward: {milliseconds(problem.step):.3f} ms")
    for name, us, launches in kernel_times(problem.step, 3)[:8]:
        print(f"{us / 1e3:9.3f} ms x{launches:<3.0f} {name[:70]}")


if __name__ == "__main__":
    main()
