"""Work on a GPU, recorded once and replayed: starting many small kernels one by one takes longer than they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor

Out = TypeVar("Out")
"""What is returned: a tensor, or a tuple of them."""

NUM_PLAIN = 3
"""Calls before recording: kernels are compiled, libraries make their plans, optimizers their state."""


class Replayed(Generic[Out]):
    """A function of CUDA tensors that does the same for all inputs of the same shapes.

    The first calls with certain shapes run as they are; the next one is recorded, and from then on that recording is
    replayed. What the function changes in place (weights, sums) it changes every time. What it returns is good until
    the next call, and what it reads on the host (a Python number) stays as it was when it was recorded.
    """

    def __init__(self, compute: Callable[..., Out]) -> None:
        self._compute = compute
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._num_calls: dict[tuple[torch.Size, ...], int] = {}
        self._recordings: dict[tuple[torch.Size, ...], _Recording[Out]] = {}

    def __call__(self, *inputs: Tensor) -> Out:
        shapes = tuple(tensor.shape for tensor in inputs)
        if shapes not in self._recordings:
            calls = self._num_calls[shapes] = self._num_calls.get(shapes, 0) + 1
            if calls <= NUM_PLAIN:
                return self._plainly(*inputs)
            self._recordings[shapes] = _Recording(self._compute, inputs, self._stream)
        return self._recordings[shapes].replay(*inputs)

    def _plainly(self, *inputs: Tensor) -> Out:
        """On the stream that will be recorded: autograd remembers on which stream a gradient was first summed."""
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            out = self._compute(*inputs)
        current.wait_stream(self._stream)
        return out


class _Recording(Generic[Out]):
    def __init__(self, compute: Callable[..., Out], examples: tuple[Tensor, ...], stream: torch.cuda.Stream) -> None:
        self._inputs = [tensor.clone() for tensor in examples]
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=stream):
            self._out = compute(*self._inputs)

    def replay(self, *inputs: Tensor) -> Out:
        for mine, given in zip(self._inputs, inputs, strict=True):
            mine.copy_(given)
        self._graph.replay()
        return self._out
