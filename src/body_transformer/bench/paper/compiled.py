"""Sparse attention in C: in NumPy, the overhead of the calls exceeds the arithmetic.

The source is compiled for this processor on first use, by the installed C compiler.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("neighbour_attention.c")
HEAD_DIMS = (16, 32, 64, 128)
"""Widths that the source is compiled for."""
MACROS = {"float32": ("-DREAL=float", "-DEXP=expf"), "float64": ("-DREAL=double", "-DEXP=exp")}
FLAGS = ("-O3", "-march=native", "-ffast-math", "-fPIC")


def find_compiler() -> str | None:
    """Return the compiler that `CC` names, else cc, gcc or clang; None without any."""
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and (path := shutil.which(name)):
            return path
    return None


def why_not() -> str | None:
    """Return why the source cannot be compiled here; None if it can."""
    try:
        library(find_compiler(), "float32")
    except OSError as error:
        return str(error)
    return None


def compiler_version() -> str:
    """Return the first line of the compiler's `--version`, or the reason why C is left out."""
    problem, compiler = why_not(), find_compiler()
    if problem or compiler is None:
        return f"none: C is left out ({problem})"
    try:
        return _run(compiler, "--version").partition("\n")[0]
    except OSError:  # it compiles, but has no --version
        return compiler


@cache
def library(compiler: str | None, dtype: str) -> Any:
    """Compile the source and return its function `neighbour_attention` for this dtype."""
    if compiler is None:
        raise OSError("no C compiler found: CC, cc, gcc and clang were tried")
    with tempfile.TemporaryDirectory() as folder:
        unlinked, linked = f"{folder}/attention.o", f"{folder}/attention.so"
        _run(compiler, *FLAGS, *MACROS[dtype], "-c", str(SOURCE), "-o", unlinked)
        # without -ffast-math: linking with it makes the whole process round tiny numbers to zero
        _run(compiler, "-shared", unlinked, "-o", linked, "-lm")
        if not Path(linked).exists():
            raise OSError(f"{compiler} succeeded, but wrote no library")
        function = ctypes.CDLL(linked).neighbour_attention
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
