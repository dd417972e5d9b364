"""Corrections to Triton's interpreter, which runs kernels without a GPU: bfloat16 and TF32 as on a GPU, in less time.

Triton 3.6 and 3.7 keep bfloat16 as its 16 raw bits: `tl.dot` multiplies these as integers, and a cast from float32
truncates where a GPU rounds to the nearest even. They compute TF32 products in float32, where a GPU truncates operands.
Every call of a function in a kernel searches the language for operators to replace, which the kernel's launch did.
"""

from functools import cache
from typing import Any

import numpy as np


def use() -> None:
    """Install the corrections; call this before any kernel is imported, with TRITON_INTERPRET=1 in the environment."""
    import triton.language as tl
    from triton._C.libtriton.ir import INPUT_PRECISION
    from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder, InterpreterError, TensorHandle

    def values(handle: Any, precision: Any) -> np.ndarray:
        if handle.dtype.scalar == tl.bfloat16:
            return (handle.data.astype(np.uint32) << 16).view(np.float32)
        if handle.dtype.scalar == tl.float32 and precision == INPUT_PRECISION.TF32:
            return (np.ascontiguousarray(handle.data).view(np.uint32) & 0xFFFFE000).view(np.float32)
        return handle.data

    def dot(self: Any, a: Any, b: Any, d: Any, precision: Any, *rest: Any) -> Any:
        product = np.matmul(values(a, precision), values(b, precision), dtype=d.data.dtype)
        return TensorHandle(product + d.data, d.dtype.scalar)

    original = InterpreterBuilder.cast_impl

    def cast(self: Any, source: Any, target: Any) -> Any:
        if source.dtype.scalar != tl.float32 or target.scalar != tl.bfloat16:
            return original(self, source, target)
        bits = np.ascontiguousarray(source.data).view(np.uint32)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        nan = (bits & 0x7FFFFFFF) > 0x7F800000  # the carry would turn a NaN into an infinity or a zero
        return TensorHandle(np.where(nan, 0x7FC0, rounded).astype(np.uint16), target.scalar)

    call_with_search = InterpretedFunction.__call__

    @cache
    def languages(function: Any) -> list[Any]:
        return [value for value in function.__globals__.values() if value is tl or value is tl.core]

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if any(tl.core.is_builtin(language.load) for language in languages(self.fn)):
            return call_with_search(self, *args, **kwargs)
        try:
            return self.rewrite()(*args, **kwargs)
        except Exception as error:
            raise InterpreterError(repr(error)) from error

    InterpretedFunction.__call__ = call
    InterpreterBuilder.create_dot = dot
    InterpreterBuilder.cast_impl = cast
    InterpreterBuilder.create_fp_trunc = cast
