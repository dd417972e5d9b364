"""Which ptxas assembles the fused kernels.

That of CUDA 12.8, which Triton takes for Hopper, computes addresses of some matrix operands from registers that nothing
was written to: numbers are wrong, or an access is illegal. tests/ops/compile_for_hopper.py sees it in the machine code
of kernels for more than 32 nodes. CUDA 12.9 is free of it, and Triton brings that too, for newer cards.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
import triton

SOUND = (12, 9)
"""The first version of ptxas that is right."""
MAX_NODES_OF_ANY = 32
"""Bodies up to so many nodes are right with any ptxas."""


@cache
def sound_ptxas() -> str | None:
    """The path of one that is right and that the driver can load from; None if there is none."""
    knobs = triton.knobs.nvidia
    for tool in (knobs.ptxas, knobs.ptxas_blackwell):
        version = tuple(int(part) for part in tool.version.split("."))
        if version >= SOUND and version[0] <= _driver_version():
            return str(tool.path)
    return None


@contextmanager
def assembler_for(num_nodes: int) -> Iterator[None]:
    """What is compiled within is right for bodies of so many nodes."""
    if num_nodes <= MAX_NODES_OF_ANY or triton.knobs.runtime.interpret:
        yield
        return
    path = sound_ptxas()
    if path is None:
        raise RuntimeError(
            f"the fused encoder for {num_nodes} nodes needs ptxas {SOUND[0]}.{SOUND[1]} or newer, and Triton has "
            f"{triton.knobs.nvidia.ptxas.version}; name one in TRITON_PTXAS_PATH, or take backend='wide'"
        )
    with triton.knobs.nvidia.scope():
        triton.knobs.nvidia.ptxas = path
        yield


def _driver_version() -> int:
    """The CUDA version, without its minor part, whose programs the driver loads; without a card nothing is loaded."""
    if not torch.cuda.is_available():
        return 10**9
    return int(torch._C._cuda_getDriverVersion()) // 1000  # type: ignore[attr-defined]
