"""Ways to run a policy on one observation; each hands back the action where the robot needs it, in the CPU's memory."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..model.policy import Policy
from .timing import Step, capture, warm_up


@dataclass(frozen=True)
class Runner:
    title: str
    device: str
    make: Callable[[Policy, Tensor], Step]
    """A policy and an observation [1, O], both on the CPU -> one run."""


def _eager(policy: Policy, obs: Tensor) -> Step:
    def step() -> Tensor:
        with torch.inference_mode():
            out: Tensor = policy(obs)
            return out

    return step


def _onnx_runtime(policy: Policy, obs: Tensor) -> Step:
    onnxruntime: Any = import_module("onnxruntime")
    import_module("onnx")  # the exporter asks for it deep inside; here its absence has a name
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(_exported(policy, obs), options, providers=["CPUExecutionProvider"])
    feed = {"obs": obs.numpy()}
    return lambda: session.run(["action"], feed)


def _exported(policy: Policy, obs: Tensor) -> bytes:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own, about its exporter
        file = Path(folder, "policy.onnx")
        # the older exporter: a tenth of the newer one's time, and ONNX Runtime is as fast on the graphs of either
        torch.onnx.export(policy, (obs,), file, input_names=["obs"], output_names=["action"], dynamo=False)
        return file.read_bytes()


def _eager_on_gpu(policy: Policy, obs: Tensor) -> Step:
    policy, source = policy.to("cuda"), obs.pin_memory()

    def step() -> Tensor:
        with torch.inference_mode():
            out: Tensor = policy(source.to("cuda", non_blocking=True)).cpu()
            return out

    return step


def _graph_on_gpu(policy: Policy, obs: Tensor) -> Step:
    policy, source = policy.to("cuda"), obs.pin_memory()
    held = obs.to("cuda")

    @torch.no_grad()
    def forward() -> Tensor:
        out: Tensor = policy(held)
        return out

    warm_up([forward])
    graph, action = capture(forward)

    def step() -> Tensor:
        held.copy_(source, non_blocking=True)
        graph.replay()
        return action.cpu()

    return step


RUNNERS = {
    "eager": Runner("PyTorch eager", "cpu", _eager),
    "onnx": Runner("ONNX Runtime", "cpu", _onnx_runtime),
    "eager_gpu": Runner("PyTorch eager", "cuda", _eager_on_gpu),
    "graph": Runner("CUDA graph", "cuda", _graph_on_gpu),
}
