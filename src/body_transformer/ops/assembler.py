"""Which ptxas assembles kernels with matrix products.

That of CUDA 12.8, which Triton takes for Hopper, computes the addresses of some matrix operands from registers that
nothing was written to: numbers are wrong, or an access is illegal. It depends on the sizes; the machine code shows it
(tests/ops/compile_for_hopper.py). CUDA 12.9 is free of it, and Triton brings that too, for newer cards.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from threading import Lock

import triton

SOUND = (12, 9)
"""The first version of ptxas that is right."""


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


def complaint() -> str:
    """What is said where there is none."""
    return (
        f"the fused kernels need a ptxas of CUDA {SOUND[0]}.{SOUND[1]} or newer that the driver can load from, and "
        "Triton has none; name one in TRITON_PTXAS_PATH"
    )


def sound_options() -> dict[str, int]:
    """For launches within `sound_assembler`: PTX of CUDA 12.9. An older ptxas refuses it, and Triton's cache does not
    take for it what an older one once made of the same kernel."""
    there = not triton.knobs.runtime.interpret and sound_ptxas() is not None
    return {"ptx_version": 88} if there else {}


@contextmanager
def sound_assembler(required: bool = True) -> Iterator[None]:
    """What is compiled within is assembled right; where nothing can, it is refused, or done as Triton does it."""
    path = None if triton.knobs.runtime.interpret else sound_ptxas()
    if path is not None:
        _enter(path)
        try:
            yield
        finally:
            _leave()
    elif required and not triton.knobs.runtime.interpret:
        raise RuntimeError(f"{complaint()}, or take another backend")
    else:
        yield


_lock = Lock()
_users: list[str | None] = []
"""For each of those within, of whatever thread, what Triton was set to before the first came."""


def _enter(path: str) -> None:
    knobs = vars(triton.knobs.nvidia)  # what `knobs.nvidia.scope()` would do, less 20 us in the environment
    with _lock:
        _users.append(_users[0] if _users else knobs.get("ptxas"))
        knobs["ptxas"] = path


def _leave() -> None:
    knobs = vars(triton.knobs.nvidia)
    with _lock:
        before = _users.pop()
        if not _users:
            knobs.pop("ptxas") if before is None else knobs.update(ptxas=before)


def _driver_version() -> int:
    """The CUDA version, without its minor part, whose programs the driver loads; 99 where there is no driver."""
    version = ctypes.c_int(99_000)
    with suppress(OSError):
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    return version.value // 1000
