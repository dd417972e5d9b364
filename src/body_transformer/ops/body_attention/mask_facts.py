"""What is known about a mask: read off it once, which makes the host wait for the GPU, and then looked up."""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from .neighbour_lists import NeighbourLists, build_lists


@dataclass
class MaskFacts:
    """Holds no reference to the mask, so that the mask can be freed."""

    state: tuple[object, ...]
    density: float
    row_without_self_loop: int | None
    _lists: NeighbourLists | None = field(default=None, repr=False)

    def lists(self, mask: Tensor) -> NeighbourLists:
        """Built when first asked for."""
        if self._lists is None:
            _refuse_while_capturing(mask)
            self._lists = build_lists(mask)
        return self._lists


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
