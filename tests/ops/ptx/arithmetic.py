"""Instructions in which each thread computes with its own registers, as functions on numpy arrays of all threads."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

TYPES: dict[str, type] = {
    "pred": np.bool_,
    "b8": np.uint8,
    **dict.fromkeys(("b16", "u16", "bf16"), np.uint16),
    "s16": np.int16,
    **dict.fromkeys(("b32", "u32"), np.uint32),
    "s32": np.int32,
    "f32": np.float32,
    **dict.fromkeys(("b64", "u64"), np.uint64),
    "s64": np.int64,
}
INTEGERS = ("s16", "u16", "s32", "u32", "s64", "u64")
BITS = ("b16", "b32", "b64")
MODIFIERS = {"rn", "approx", "full", "ftz", "lo"}
"""Parts of an instruction's name without effect here: they restate the default, or allow less accuracy."""


@dataclass(frozen=True)
class Operation:
    """One operation; `apply` takes one array for each of `types`."""

    apply: Callable[..., np.ndarray]
    types: tuple[str, ...]


def bits(values: np.ndarray) -> np.ndarray:
    """Convert to register contents: booleans unchanged, all other values unsigned."""
    return values if values.dtype == bool else np.ascontiguousarray(values).view(f"u{values.itemsize}")


def from_bf16(values: np.ndarray) -> np.ndarray:
    return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_bf16(values: np.ndarray) -> np.ndarray:
    """Round to the nearest, ties to even."""
    wide = bits(values).astype(np.uint64)
    near = (wide + np.uint64(0x7FFF) + ((wide >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), near.astype(np.uint16))


def _pair_of_bf16(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    return np.stack([to_bf16(low), to_bf16(high)], axis=1).view(np.uint32)[:, 0]


def _relu_pair_of_bf16(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    return _pair_of_bf16(np.maximum(high, np.float32(0)), np.maximum(low, np.float32(0)))  # NaN stays NaN


def _fused(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return (a.astype(np.float64) * b + c).astype(np.float32)


def _field(values: np.ndarray, start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Return bits `start` to `start + length` of 32; the range must lie within them."""
    left = (32 - start.astype(np.int64) - length).astype(values.dtype)
    return (values << left) >> (32 - length.astype(np.int64)).astype(values.dtype)


def _shift_left(values: np.ndarray, by: np.ndarray) -> np.ndarray:
    return values << by.astype(values.dtype)


def _shift_right(values: np.ndarray, by: np.ndarray) -> np.ndarray:
    return values >> by.astype(values.dtype)


def _wide(a: np.ndarray, b: np.ndarray, c: np.ndarray | int = 0) -> np.ndarray:
    wide = np.dtype(f"{a.dtype.kind}8")
    return a.astype(wide) * b.astype(wide) + np.asarray(c, wide)


def _high(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (_wide(a, b) >> np.array(32, f"{a.dtype.kind}8")).astype(a.dtype)


def _converted(values: np.ndarray, to: type) -> np.ndarray:
    return values.astype(to)


def _ordered_unequal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a != b) & ~np.isnan(a) & ~np.isnan(b)


ON_INTEGERS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
ON_FLOATS = {
    **{name: Operation(ON_INTEGERS[name], ("f32", "f32")) for name in ("add", "sub", "mul")},
    "max": Operation(np.fmax, ("f32", "f32")),
    "min": Operation(np.fmin, ("f32", "f32")),
    "max.NaN": Operation(np.maximum, ("f32", "f32")),
    "min.NaN": Operation(np.minimum, ("f32", "f32")),
    "div": Operation(np.divide, ("f32", "f32")),
    "fma": Operation(_fused, ("f32", "f32", "f32")),
    "neg": Operation(np.negative, ("f32",)),
    "ex2": Operation(np.exp2, ("f32",)),
    "rsqrt": Operation(lambda x: (1 / np.sqrt(x.astype(np.float64))).astype(np.float32), ("f32",)),
}
ON_BITS = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
COMPARISONS = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
OPERATIONS: dict[str, Operation] = {
    **{f"{name}.{kind}": Operation(apply, (kind, kind)) for name, apply in ON_INTEGERS.items() for kind in INTEGERS},
    **{f"{name}.f32": operation for name, operation in ON_FLOATS.items()},
    **{f"{name}.{k}": Operation(apply, (k, k)) for name, apply in ON_BITS.items() for k in (*BITS, "pred")},
    **{f"not.{kind}": Operation(np.invert, (kind,)) for kind in (*BITS, "pred")},
    **{f"mad.{kind}": Operation(lambda a, b, c: a * b + c, (kind, kind, kind)) for kind in INTEGERS},
    **{f"mul.wide.{kind}": Operation(_wide, (kind, kind)) for kind in ("s32", "u32")},
    **{f"mad.wide.{kind}": Operation(_wide, (kind, kind, f"{kind[0]}64")) for kind in ("s32", "u32")},
    **{f"mul.hi.{kind}": Operation(_high, (kind, kind)) for kind in ("s32", "u32")},
    **{f"shl.{kind}": Operation(_shift_left, (kind, "u32")) for kind in BITS},
    **{f"shr.{kind}": Operation(_shift_right, (kind, "u32")) for kind in (*BITS, *INTEGERS)},
    **{f"bfe.{kind}": Operation(_field, (kind, "u32", "u32")) for kind in ("s32", "u32")},
    **{f"mov.{kind}": Operation(np.copy, (kind,)) for kind in ("pred", "b16", "f32", *INTEGERS)},
    **{f"selp.{kind}": Operation(lambda a, b, p: np.where(p, a, b), (kind, kind, "pred")) for kind in TYPES},
    **{
        f"setp.{name}.{kind}": Operation(compare, (kind, kind))
        for name, compare in COMPARISONS.items()
        for kind in (*BITS, *INTEGERS, "f32")
    },
    "setp.ne.f32": Operation(_ordered_unequal, ("f32", "f32")),
    **{
        f"cvt.{to}.{kind}": Operation(partial(_converted, to=TYPES[to]), (kind,))
        for to in INTEGERS
        for kind in INTEGERS
    },
    "cvt.f32.bf16": Operation(from_bf16, ("bf16",)),
    "cvt.bf16x2.f32": Operation(_pair_of_bf16, ("f32", "f32")),
    "cvt.relu.bf16x2.f32": Operation(_relu_pair_of_bf16, ("f32", "f32")),
}


@cache
def operation(name: str) -> Operation:
    """Return the operation of an instruction's name."""
    found = OPERATIONS.get(".".join(part for part in name.split(".") if part not in MODIFIERS))
    if found is None:
        raise NotImplementedError(f"unknown instruction: {name}")
    return found
