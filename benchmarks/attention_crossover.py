"""Time all backends of body attention over sizes and densities: the basis of `ops/body_attention/choose.py`.

    python benchmarks/attention_crossover.py                   # on the CPU
    python benchmarks/attention_crossover.py --device cuda

Each row has the median milliseconds of forward and backward with each backend; a star marks the fastest. Masks are
trees, or random with a given density.
"""

import argparse
from functools import partial

import numpy as np
import torch
from torch import Tensor

from body_transformer.bench.clocks import Effort, Step
from body_transformer.bench.harness import Bench, Contender, Timing
from body_transformer.bench.masks import random_mask, tree_mask
from body_transformer.ops.body_attention import BACKENDS, body_attention

Row = tuple[int, int, int, int, float | None]
"""B, H, N, D and the density of the mask; None = a tree."""
CPU_ROWS: list[Row] = [
    (batch, 2, num_nodes, 32, density)
    for num_nodes in (64, 128, 192, 256, 384, 512, 1024)
    for batch in (1, 8, 32)
    for density in (None, 0.02, 0.04)
    if batch * num_nodes**2 < 2**23
]
CUDA_ROWS: list[Row] = [
    (max(1, 2**22 // (num_nodes * 256)), 4, num_nodes, 64, density)
    for num_nodes in (16, 32, 64, 128, 256, 1024, 4096)
    for density in (None, 0.01, 0.03, 0.06, 0.1, 0.18, 0.25, 0.5, 1.0)
]
ROWS = {"cpu": CPU_ROWS, "cuda": CUDA_ROWS}
BACKENDS_ON = {"cpu": ["reference", "neighbours"], "cuda": list(BACKENDS)}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
MAX_ELEMENTS = 2**31  # largest dense score matrix, or gathered keys, that is tried


def make_mask(num_nodes: int, density: float | None) -> Tensor:
    """Return a tree, or a random mask of the given density with self-loops."""
    if density is None:
        return tree_mask(num_nodes)
    sparsity = 1 - max(density, 1 / num_nodes)
    return torch.from_numpy(random_mask(num_nodes, sparsity, np.random.default_rng(0)))


def training_step(backend: str, inputs: list[Tensor], mask: Tensor, bias: Tensor | None) -> list[Step]:
    leaves = [*inputs, *([] if bias is None else [bias])]
    grad_out = torch.randn_like(inputs[0])
    return [lambda: torch.autograd.grad(body_attention(*inputs, mask, bias, backend=backend), leaves, grad_out)]


def table_row(row: Row, backends: list[str], device: str, dtype: torch.dtype, bias: bool, effort: Effort) -> str:
    *shape, density = row
    batch, heads, num_nodes, head_dim = shape
    mask = make_mask(num_nodes, density).to(device)
    inputs = [torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for _ in range(3)]
    added = torch.randn(num_nodes, num_nodes, device=device, requires_grad=True) if bias else None
    elements = {"reference": num_nodes**2, "neighbours": int(mask.sum()) * head_dim}
    contenders = [
        Contender(backend, partial(training_step, backend, inputs, mask, added))
        for backend in backends
        if batch * heads * elements.get(backend, 0) <= MAX_ELEMENTS
        and not BACKENDS[backend].refusal(dtype, num_nodes, head_dim)
    ]
    timings = Bench(device=device).time(str(row), contenders, effort)
    kind = "tree" if density is None else "random"
    cells = " ".join(f"{cell:>12}" for cell in marked([timings.get(name, Timing()).ms for name in backends]))
    return f"{shape!s:>22} {kind:>6} {float(mask.float().mean()):8.4f} {cells}"


def marked(times: list[float | None]) -> list[str]:
    """Return milliseconds as text, with a star at the smallest and a dash for None."""
    best = min((ms for ms in times if ms is not None), default=None)
    return ["-" if ms is None else f"{ms:.3f}{'*' if ms == best else ' '}" for ms in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=ROWS, default="cpu")
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--backends", choices=BACKENDS, nargs="*", help="by default all backends of the device")
    parser.add_argument("--bias", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.1, help="seconds per measurement")
    parser.add_argument("--threads", type=int, default=1, help="threads on the CPU")
    parser.add_argument("--rows", type=int, nargs="*", help="indices of rows; by default all")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    backends = options.backends or BACKENDS_ON[options.device]
    print(f"{'[B, H, N, D]':>22} {'mask':>6} {'density':>8} " + " ".join(f"{name:>12}" for name in backends))
    effort = Effort(budget_s=options.seconds, min_samples=5)
    rows = ROWS[options.device]
    for k in range(len(rows)) if options.rows is None else options.rows:
        print(table_row(rows[k], backends, options.device, DTYPES[options.dtype], options.bias, effort), flush=True)


if __name__ == "__main__":
    main()
