"""Sparse attention in C, since NumPy's calls cost more than the arithmetic that is left.

The source is compiled for this processor on first use, by the installed C compiler.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from functools import cache
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bodies import Mask
from .masks import MaskRows

Floats = npt.NDArray[Any]

SOURCE = Path(__file__).with_name("neighbour_attention.c")
HEAD_DIMS = (16, 32, 64, 128)
"""Widths that the source is compiled for."""
MACROS = {"float32": ("-DREAL=float", "-DEXP=expf"), "float64": ("-DREAL=double", "-DEXP=exp")}
FLAGS = ("-O3", "-march=native", "-ffast-math", "-fPIC")


def find_compiler() -> str | None:
    """Return the compiler that `CC` names, else cc, gcc or clang; None without any."""
    return next(filter(None, map(shutil.which, filter(None, (os.environ.get("CC"), "cc", "gcc", "clang")))), None)


def why_not() -> str | None:
    """Return why the source cannot be compiled here; None if it can."""
    try:
        _library(find_compiler(), "float32")
    except OSError as error:
        return str(error)
    return None


def compiler_version() -> str:
    """Return the first line of the compiler's `--version`, or why no compiler works."""
    problem, compiler = why_not(), find_compiler()
    if problem or compiler is None:
        return f"none: C is left out ({problem})"
    try:
        return _run(compiler, "--version").partition("\n")[0]
    except OSError:  # it compiles, but has no --version
        return compiler


@cache
def _library(compiler: str | None, dtype: str) -> Any:
    if compiler is None:
        raise OSError("no C compiler found: CC, cc, gcc and clang were tried")
    with tempfile.TemporaryDirectory() as folder:
        unlinked, library = f"{folder}/attention.o", f"{folder}/attention.so"
        _run(compiler, *FLAGS, *MACROS[dtype], "-c", str(SOURCE), "-o", unlinked)
        # without -ffast-math: linking with it makes the whole process round tiny numbers to zero
        _run(compiler, "-shared", unlinked, "-o", library, "-lm")
        if not Path(library).exists():
            raise OSError(f"{compiler} made no library")
        function = ctypes.CDLL(library).neighbour_attention
    p, n = ctypes.c_void_p, ctypes.c_int64
    function.argtypes = (p, p, p, p, p, n, n, ctypes.c_double, p, p)
    function.restype = None
    return function


def _run(*command: str) -> str:
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        words = run.stderr.strip()[:500] or f"status {run.returncode}"
        raise OSError(f"{' '.join(command)} failed: {words}")
    return run.stdout


class CompiledAttention:
    """Scores, softmax and values where the mask is True, in C on one thread."""

    def __init__(self, mask: Mask, head_dim: int, dtype: npt.DTypeLike) -> None:
        if head_dim not in HEAD_DIMS:
            raise ValueError(f"head_dim {head_dim}; the compiled attention has {', '.join(map(str, HEAD_DIMS))}")
        self.dtype = np.dtype(dtype)
        if self.dtype.name not in MACROS:
            raise ValueError(f"dtype {self.dtype}; the compiled attention has {', '.join(MACROS)}")
        lists = MaskRows.of(mask)
        self.shape = (len(mask), head_dim)
        self.out = np.empty(self.shape, dtype)
        self.kept = (lists.starts.astype(np.int32), lists.neighbours.astype(np.int32))
        self.weights = np.empty(len(lists.neighbours), dtype)
        starts, neighbours = (array.ctypes.data for array in self.kept)
        scale = 1 / sqrt(head_dim)
        self.function = _library(find_compiler(), self.dtype.name)
        self.rest = (starts, neighbours, *self.shape, scale, self.weights.ctypes.data, self.out.ctypes.data)

    def __call__(self, q: Floats, k: Floats, v: Floats) -> Floats:
        if not q.shape == k.shape == v.shape == self.shape or not q.dtype == k.dtype == v.dtype == self.dtype:
            given = ", ".join(f"{x.dtype} {list(x.shape)}" for x in (q, k, v))
            raise ValueError(f"q, k and v must be {self.dtype} {list(self.shape)}; got {given}")
        self.function(_address(q), _address(k), _address(v), *self.rest)
        return self.out


def _address(x: Floats) -> int:
    # raises for an array that is not contiguous or not writable; `x.ctypes.data` takes three times as long
    return ctypes.addressof(ctypes.c_char.from_buffer(x))  # type: ignore[arg-type]
