"""What is known about a mask: read off it once, which makes the host wait for the GPU, and then looked up."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar, cast

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from .neighbour_lists import Buckets, NeighbourLists, build_buckets, build_lists

Built = TypeVar("Built")


@dataclass
class MaskFacts:
    """Holds no reference to the mask, so that the mask can be freed."""

    state: tuple[object, ...]
    density: float
    row_without_self_loop: int | None
    _derived: dict[str, object] = field(default_factory=dict, repr=False)

    def derived(self, mask: Tensor, name: str, build: Callable[[Tensor], Built]) -> Built:
        """`build(mask)`, built when first asked for by this name.

        `mask` is the one that these facts are of. What is built must hold neither it nor its memory, as a view would:
        it lives in here for as long as the mask does.
        """
        if name not in self._derived:
            _refuse_while_capturing(mask)
            self._derived[name] = _outside_graph_pools(build, mask)
        return cast(Built, self._derived[name])

    def lists(self, mask: Tensor) -> NeighbourLists:
        return self.derived(mask, "neighbour lists", build_lists)

    def buckets(self, mask: Tensor) -> Buckets:
        lists = self.lists(mask)
        return self.derived(mask, "buckets", lambda _: build_buckets(lists))


_known: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
"""By identity, so that another tensor at a freed one's address is a stranger."""


def facts_of(mask: Tensor) -> MaskFacts:
    """Of a bool mask [N, N]; as fresh as the mask, unless it was changed behind PyTorch's back (`.data`, NumPy)."""
    if mask.is_inference():  # has no version counter, so a change would go unnoticed
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
            "body_attention has not seen this mask yet and cannot read it while a CUDA graph is captured; "
            "call it once with this very mask tensor before the capture"
        )


def _outside_graph_pools(build: Callable[[Tensor], Built], mask: Tensor) -> Built:
    """`build(mask)`, on a thread of its own.

    While `torch.compile` warms up for its CUDA graphs, whatever the calling thread allocates lies in their pool, which
    is used again for other tensors: nothing that is kept may lie there.
    """
    if not mask.is_cuda:
        return build(mask)
    written = torch.cuda.current_stream(mask.device).record_event()

    def work() -> Built:
        with torch.cuda.device(mask.device):
            stream = torch.cuda.current_stream()  # the default one: another thread's choice does not hold here
            stream.wait_event(written)
            built = build(mask)
            stream.synchronize()  # so that it can be used on every stream
        return built

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()
