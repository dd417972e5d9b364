"""Who is timed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .attention import Ours, Paper, Textbook, Vanilla
from .compiled import Compiled, why_not
from .masks import Mask, check

Floats = npt.NDArray[Any]


class Attention(Protocol):
    def __call__(self, q: Floats, k: Floats, v: Floats) -> Floats:
        """[N, D] three times -> [N, D]"""


class TorchSdpa:
    """PyTorch's own attention, which computes all pairs whatever the mask."""

    def __init__(self, mask: Mask, head_dim: int, dtype: npt.DTypeLike) -> None:
        import torch

        check(mask)
        self.mask = torch.tensor(mask)
        self.as_tensor = torch.from_numpy
        self.attend = torch.nn.functional.scaled_dot_product_attention

    def __call__(self, q: Floats, k: Floats, v: Floats) -> Floats:
        queries, keys, values = (self.as_tensor(x)[None, None] for x in (q, k, v))
        out: Floats = self.attend(queries, keys, values, attn_mask=self.mask)[0, 0].numpy()
        return out


@dataclass(frozen=True)
class Contender:
    label: str
    """What tables and figures call it."""
    prepare: Callable[[Mask, int, npt.DTypeLike], Attention]
    """(mask, head_dim, dtype) -> the attention; what is known from the mask alone is done here."""
    is_ours: bool = False
    """Whether it is this project's."""


CONTENDERS: Mapping[str, Contender] = {
    "vanilla": Contender("NumPy vanilla", Vanilla),
    "textbook": Contender("NumPy textbook", Textbook),
    "paper": Contender("NumPy paper", Paper),
    "ours": Contender("NumPy ours", Ours, is_ours=True),
    "ours-c": Contender("C ours", Compiled, is_ours=True),
    "sdpa": Contender("torch SDPA", TorchSdpa),
}


def available() -> dict[str, Contender]:
    """Those that can run here: C needs a compiler that works."""
    return {name: one for name, one in CONTENDERS.items() if one.prepare is not Compiled or why_not() is None}


TOLERANCE = {"float32": 1e-4, "float64": 1e-10}
"""How far two contenders' outputs may lie apart, with inputs of order one."""


def check_agreement(outputs: Mapping[str, Floats], dtype: str) -> None:
    """Who computes something else has no business in the table."""
    for name, out in outputs.items():
        apart = float(np.abs(out - outputs["vanilla"]).max())
        if not apart < TOLERANCE[dtype]:
            raise ArithmeticError(f"{name} is {apart:.2g} away from vanilla in {dtype}; allowed: {TOLERANCE[dtype]:g}")
