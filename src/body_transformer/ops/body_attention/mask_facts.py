"""Facts about a mask, cached because computing them makes the host wait for the GPU."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from .neighbour_lists import Buckets, NeighbourLists, build_buckets, build_lists

Built = TypeVar("Built")


@dataclass
class MaskFacts:
    """Cached facts about one mask, without a reference to it, so that it can be freed."""

    state: tuple[object, ...]
    density: float
    row_without_self_loop: int | None
    _lists: NeighbourLists | None = field(default=None, repr=False)
    _buckets: Buckets | None = field(default=None, repr=False)

    def lists(self, mask: Tensor) -> NeighbourLists:
        """Return the neighbour lists of `mask`, the mask of these facts; they are built at the first call."""
        if self._lists is None:
            self._lists = _outside_graph_pools(build_lists, mask)
        return self._lists

    def buckets(self, mask: Tensor) -> Buckets:
        """Return the same lists padded to rectangles."""
        if self._buckets is None:
            lists = self.lists(mask)
            self._buckets = _outside_graph_pools(lambda _: build_buckets(lists), mask)
        return self._buckets


_known: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
"""Keyed by identity, so that a new tensor at a freed one's address is not confused with it."""


def facts_of(mask: Tensor) -> MaskFacts:
    """Return the facts of a bool mask [N, N]; changes in place through `.data` or NumPy go unnoticed."""
    if mask.is_inference():  # it has no version counter, so changes would go unnoticed
        return _read(mask, ())
    state = (mask._version, mask.data_ptr(), mask.device, mask.shape, mask.stride())
    facts: MaskFacts | None = _known.get(mask)  # type: ignore[no-untyped-call]
    if facts is None or facts.state != state:
        facts = _known[mask] = _read(mask, state)
    return facts


def _read(mask: Tensor, state: tuple[object, ...]) -> MaskFacts:
    _refuse_while_capturing(mask)
    missing = ~mask.diagonal()
    num_ones, num_missing, first = torch.stack([mask.sum(), missing.sum(), missing.int().argmax()]).tolist()
    return MaskFacts(state, num_ones / mask.numel(), first if num_missing else None)


def _refuse_while_capturing(mask: Tensor) -> None:
    if mask.is_cuda and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "the mask has not been used yet and cannot be read while a CUDA graph is captured; "
            "call the operator once with the same mask tensor before the capture"
        )


def _outside_graph_pools(build: Callable[[Tensor], Built], mask: Tensor) -> Built:
    """Return `build(mask)`, run on a new thread.

    While `torch.compile` warms up for its CUDA graphs, allocations of the calling thread come from the graphs' memory
    pool. That memory is reused for other tensors, so cached tensors must not be allocated there.
    """
    _refuse_while_capturing(mask)
    if not mask.is_cuda:
        return build(mask)
    written = torch.cuda.current_stream(mask.device).record_event()

    def work() -> Built:
        with torch.cuda.device(mask.device):
            stream = torch.cuda.current_stream()  # the default stream, since the calling thread's does not apply here
            stream.wait_event(written)
            built = build(mask)
            stream.synchronize()  # so that every stream can use it
        return built

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()
