"""The choice of the ptxas that assembles kernels with matrix products.

The ptxas of CUDA 12.8, which Triton uses for Hopper, computes the addresses of some matrix operands from registers that
were never written. The results are wrong, or an access is illegal. Whether this happens depends on the sizes and can be
seen in the machine code (tests/ops/compiled_code.py). CUDA 12.9 fixes it; Triton ships that version for newer GPUs.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from threading import Lock

import triton

SOUND = (12, 9)
"""The first correct version of ptxas."""
SOUND_PTX = 88
"""The version of PTX that belongs to that ptxas. An older ptxas rejects it."""
NONE_THERE = (
    "the fused kernels need a ptxas of CUDA 12.9 or newer with output that the driver can load, and Triton has none; "
    "set TRITON_PTXAS_PATH to the path of one"
)


@cache
def sound_ptxas() -> str | None:
    """Return the path of a correct ptxas whose output the driver can load; None if there is none."""
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
    """Return launch options for `sound_assembler`, which keep Triton's cache from returning code of an older ptxas."""
    return {} if triton.knobs.runtime.interpret or sound_ptxas() is None else {"ptx_version": SOUND_PTX}


@contextmanager
def sound_assembler(required: bool = True) -> Iterator[None]:
    """Use a correct ptxas for all kernels that are compiled inside the context.

    If there is none, raise RuntimeError or, if it is not `required`, use Triton's own ptxas.
    """
    interpreted = triton.knobs.runtime.interpret
    path = None if interpreted else sound_ptxas()
    if path is None and required and not interpreted:
        raise RuntimeError(f"{NONE_THERE}, or use another backend")
    with nullcontext() if path is None else _ptxas.set_to(path):
        yield


class _Ptxas:
    """Triton's process-wide setting, kept as long as any thread needs it."""

    def __init__(self) -> None:
        self.lock, self.users = Lock(), 0
        self.before: str | None = None

    @contextmanager
    def set_to(self, path: str) -> Iterator[None]:
        knobs = vars(triton.knobs.nvidia)  # the effect of `knobs.nvidia.scope()` without its 20 us in os.environ
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
    """Return the major CUDA version that the driver supports; 99 without a driver."""
    version = ctypes.c_int(99_000)
    with suppress(OSError):
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    return version.value // 1000
