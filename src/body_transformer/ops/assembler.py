"""Which ptxas assembles kernels with matrix products.

That of CUDA 12.8, which Triton takes for Hopper, computes the addresses of some matrix operands from registers that
nothing was written to: numbers are wrong, or an access is illegal. It depends on the sizes; the machine code shows it
(tests/ops/compiled_code.py). CUDA 12.9 is free of it, and Triton brings that too, for newer cards.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from threading import Lock

import triton

SOUND = (12, 9)
"""The first version of ptxas that is right."""
SOUND_PTX = 88
"""The assembly language of that version: an older ptxas refuses it."""
NONE_THERE = (
    "the fused kernels need a ptxas of CUDA 12.9 or newer that the driver can load from, and Triton has none; "
    "name one in TRITON_PTXAS_PATH"
)


@cache
def sound_ptxas() -> str | None:
    """The path of one that is right and that the driver can load from; None if there is none."""
    for name in ("ptxas", "ptxas_blackwell"):
        try:
            tool = getattr(triton.knobs.nvidia, name)
        except RuntimeError:  # not installed
            continue
        version = tuple(int(part) for part in tool.version.split("."))
        if version >= SOUND and version[0] <= _driver_version():
            return str(tool.path)
    return None


def sound_options() -> dict[str, int]:
    """For launches within `sound_assembler`: they keep Triton's cache from giving what an older ptxas made."""
    return {} if triton.knobs.runtime.interpret or sound_ptxas() is None else {"ptx_version": SOUND_PTX}


@contextmanager
def sound_assembler(required: bool = True) -> Iterator[None]:
    """What is compiled within is assembled right; where nothing can, it is refused, or done as Triton does it."""
    interpreted = triton.knobs.runtime.interpret
    path = None if interpreted else sound_ptxas()
    if path is None and required and not interpreted:
        raise RuntimeError(f"{NONE_THERE}, or take another backend")
    with nullcontext() if path is None else _ptxas.set_to(path):
        yield


class _Ptxas:
    """Triton's setting, which is the whole process's: set while any thread needs it."""

    def __init__(self) -> None:
        self.lock, self.users = Lock(), 0
        self.before: str | None = None

    @contextmanager
    def set_to(self, path: str) -> Iterator[None]:
        knobs = vars(triton.knobs.nvidia)  # what `knobs.nvidia.scope()` would do, less 20 us in the environment
        with self.lock:
            if self.users == 0:
                self.before = knobs.get("ptxas")
            self.users += 1
            knobs["ptxas"] = path
        try:
            yield
        finally:
            with self.lock:
                self.users -= 1
                if self.users == 0:
                    knobs.pop("ptxas") if self.before is None else knobs.update(ptxas=self.before)


_ptxas = _Ptxas()


def _driver_version() -> int:
    """The CUDA version, without its minor part, whose programs the driver loads; 99 where there is no driver."""
    version = ctypes.c_int(99_000)
    with suppress(OSError):
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    return version.value // 1000
