"""What really ran: the operators of ours that a step called, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .timing import Step

OWN = "body_transformer"
ELSE = "PyTorch's layers"
"""What a step ran that called no operator of ours."""


class Witness(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operator that is called inside, and remembers ours: `encoder_stack fused bf16`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: dict[str, None] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func.namespace == OWN:
            names = [argument.name for argument in func._schema.arguments]
            given = dict(zip(names, args, strict=False)) | dict(kwargs or {})
            settings = [given[name] for name in ("backend", "precision") if given.get(name)]
            self.seen[" ".join([func._schema.name.partition("::")[2], *settings])] = None
        return func(*args, **(kwargs or {}))


def what_ran(forward: Step) -> str:
    """`encoder_stack fused bf16`, read off one call."""
    with torch.no_grad(), Witness() as witness:
        forward()
    return ", ".join(witness.seen) or ELSE
