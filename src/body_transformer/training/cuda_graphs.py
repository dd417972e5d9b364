"""CUDA graphs: record kernels once and replay them, because a small kernel takes longer to launch than to run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor

Out = TypeVar("Out")
"""The function's result: a tensor, or a tuple of tensors."""

NUM_EAGER = 3
"""Calls before recording, in which kernels are compiled, libraries choose algorithms and optimizers allocate state."""


class CudaGraphed(Generic[Out]):
    """A function of CUDA tensors that does the same work for all inputs of the same shapes.

    The first calls with given shapes run eagerly; the next call is recorded, and all later calls replay the recording.
    In-place changes (of weights, of sums) happen in every replay. Results are overwritten by the next call, and values
    on the host, such as Python numbers, keep their value from the recording.
    """

    def __init__(self, compute: Callable[..., Out]) -> None:
        self._compute = compute
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._num_calls: dict[tuple[torch.Size, ...], int] = {}
        self._replays: dict[tuple[torch.Size, ...], Callable[..., Out]] = {}

    def __call__(self, *inputs: Tensor) -> Out:
        shapes = tuple(tensor.shape for tensor in inputs)
        if shapes not in self._replays:
            calls = self._num_calls[shapes] = self._num_calls.get(shapes, 0) + 1
            if calls <= NUM_EAGER:
                return self._run_eagerly(*inputs)
            self._replays[shapes] = _record(self._compute, inputs, self._stream)
        return self._replays[shapes](*inputs)

    def _run_eagerly(self, *inputs: Tensor) -> Out:
        """Run on the stream of the recording, since autograd accumulates a gradient on the stream of its first use."""
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            out = self._compute(*inputs)
        current.wait_stream(self._stream)
        return out


def _record(compute: Callable[..., Out], examples: tuple[Tensor, ...], stream: torch.cuda.Stream) -> Callable[..., Out]:
    """Record the function for inputs of these shapes; return a function that replays it on new inputs."""
    recorded_inputs = [tensor.clone() for tensor in examples]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        out = compute(*recorded_inputs)

    def replay(*inputs: Tensor) -> Out:
        for recorded, given in zip(recorded_inputs, inputs, strict=True):
            recorded.copy_(given)
        graph.replay()
        return out

    return replay
