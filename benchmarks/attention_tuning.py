"""Find the best launch settings of body attention's kernels, for the tables in `sparse.py` and `tile.py`.

    python benchmarks/attention_tuning.py            # on a GPU; takes minutes

Bodies are random trees; times are medians of CUDA-graph replays in milliseconds. Several processes compile the kernels
first.
"""

import argparse
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from types import ModuleType

import torch
from torch import Tensor

from body_transformer.bench.clocks import Effort, time_as_graph, warm_up
from body_transformer.bench.masks import tree_mask
from body_transformer.ops.body_attention import sparse, tile

SHAPES = [(8192, 2, 16, 32), (256, 5, 32, 64), (1024, 4, 128, 64), (128, 4, 1024, 64), (16, 4, 4096, 64)]
BARS = {torch.bfloat16: (0.33, 0.10, 0.36, 0.36, 0.20), torch.float32: (0.40, 0.25, 0.80, 0.63, 0.47)}
"""Upper bounds on the time of forward and backward, in milliseconds."""
BYTES_PER_SECOND = 4.3e12  # measured on an H200; q, k, v, out and their gradients move at least once

SAMPLES = (1, 2, 4, 8)
TILES = {  # pairs per program, warps, bytes of a row in one product
    16: [(4, 4, 128), (8, 4, 128), (8, 8, 128), (1, 1, 128), (2, 2, 128)],
    32: [(1, 4, 256), (1, 2, 256), (1, 4, 128), (1, 2, 128), (4, 4, 128)],
    128: [(1, 8, 128), (1, 8, 64), (1, 4, 128), (1, 4, 64)],
}


@dataclass
class Problem:
    q: Tensor
    k: Tensor
    v: Tensor
    grad_out: Tensor
    mask: Tensor

    @classmethod
    def make(cls, shape: tuple[int, ...], dtype: torch.dtype) -> "Problem":
        drawn = (torch.randn(shape, device="cuda", dtype=dtype) for _ in range(4))
        return cls(*drawn, mask=tree_mask(shape[2]).cuda())


def milliseconds(step: Callable[[], object]) -> float:
    warm_up([step])
    return time_as_graph([step], Effort(budget_s=0.05))


# -- settings ----------------------------------------------------------------------------------------------------------


def launches(row_bytes: int, samples: tuple[int, ...]) -> list[sparse.SparseLaunch]:
    """Return settings in which a thread has 16 bytes of one or two rows, with and without a register limit."""
    rows = 512 // row_bytes  # rows per warp
    shapes = [(rows * warps, warps, registers) for warps in (1, 2, 4, 8) for registers in (None, 64)]
    shapes += [(2 * rows * warps, warps, None) for warps in (2, 4)]
    return [sparse.SparseLaunch(512, block, warps, each, bound) for block, warps, bound in shapes for each in samples]


@contextmanager
def launched(name: str, setting: sparse.SparseLaunch) -> Iterator[None]:
    """Launch the sparse kernel of this name with `setting`."""
    before = sparse.SETTINGS[name]
    sparse.SETTINGS[name] = (setting,)
    try:
        yield
    finally:
        sparse.SETTINGS[name] = before


@contextmanager
def tiled(pack: int, warps: int, piece: int) -> Iterator[None]:
    before = tile.SETTINGS
    tile.SETTINGS = (tile.TileLaunch(128, pack, warps, piece),)
    try:
        yield
    finally:
        tile.SETTINGS = before


def steps_of(module: ModuleType, problem: Problem) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return the forward and the backward step of `sparse` or `tile`."""
    p, out = problem, torch.empty_like(problem.q)
    grads = [torch.empty_like(p.q) for _ in range(3)]
    return (
        lambda: module.forward(p.q, p.k, p.v, p.mask, None, out),
        lambda: module.backward(p.q, p.k, p.v, p.mask, None, p.grad_out, *grads),
    )


def compile_sparse(shape: tuple[int, ...], dtype: torch.dtype, settings: list[sparse.SparseLaunch]) -> None:
    """Compile the kernels with all settings, to fill Triton's cache on disk from a separate process."""
    problem = Problem.make(shape, dtype)
    for setting in settings:
        with launched("forward", setting), launched("rows", setting), launched("columns", setting):
            run_once(steps_of(sparse, problem))


def compile_tile(shape: tuple[int, ...], dtype: torch.dtype, configs: list[tuple[int, int, int]]) -> None:
    problem = Problem.make(shape, dtype)
    for config in configs:
        with tiled(*config):
            run_once(steps_of(tile, problem))


def run_once(steps: Iterable[Callable[[], object]]) -> None:
    for step in steps:
        step()


def sweep_sparse(problem: Problem) -> str:
    """Find the best setting of each kernel; return them and the times of a step with all of them, as text."""
    forward, backward = steps_of(sparse, problem)
    default = milliseconds(forward), milliseconds(backward)
    best: dict[str, sparse.SparseLaunch] = {}
    lines = []
    for name, step in (("forward", forward), ("rows", backward), ("columns", backward)):
        times: dict[sparse.SparseLaunch, float] = {}
        for setting in launches(row_bytes(problem.q), SAMPLES):
            with launched(name, setting):
                times[setting] = milliseconds(step)
        ranked = sorted(times, key=lambda setting: times[setting])
        best[name] = ranked[0]
        lines.append(
            f"    {name:8}" + "; ".join(f"{setting_text(setting)} {times[setting]:.4f}" for setting in ranked[:8])
        )
    with launched("forward", best["forward"]), launched("rows", best["rows"]), launched("columns", best["columns"]):
        tuned = milliseconds(forward), milliseconds(backward)
    first = f"default {default[0]:.4f}/{default[1]:.4f} | best {tuned[0]:.4f}/{tuned[1]:.4f}"
    return "\n".join([first, *lines])


def row_bytes(x: Tensor) -> int:
    return x.shape[-1] * x.element_size()


def setting_text(setting: sparse.SparseLaunch) -> str:
    return f"{setting.block}/{setting.warps}/{setting.samples}/{setting.registers or '-'}"


def sweep_tile(problem: Problem) -> str:
    found = []
    for config in TILES[problem.q.shape[2]]:
        with tiled(*config):
            found.append(f"{config} " + "/".join(f"{milliseconds(step):.3f}" for step in steps_of(tile, problem)))
    return "; ".join(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--skip-tile", action="store_true")
    options = parser.parse_args()
    start = time.perf_counter()
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        jobs = []
        for shape, dtype in itertools.product(SHAPES, BARS):
            settings = launches(shape[3] * dtype.itemsize, samples=(1,))
            jobs += [pool.submit(compile_sparse, shape, dtype, settings[i::3]) for i in range(3)]
            if shape[2] in TILES and not options.skip_tile:
                jobs.append(pool.submit(compile_tile, shape, dtype, TILES[shape[2]]))
        for job in jobs:
            job.result()
    print(f"compiled in {time.perf_counter() - start:.0f} s; forward/backward in ms; block/warps/samples/registers")
    for dtype, bars in BARS.items():
        for shape, bar in zip(SHAPES, bars, strict=True):
            problem = Problem.make(shape, dtype)
            floor = 12 * problem.q.numel() * problem.q.element_size() / BYTES_PER_SECOND * 1e3
            print(f"{shape} {str(dtype)[6:]}: bar {bar:.2f} floor {floor:.3f} (both passes)")
            print(f"  sparse {sweep_sparse(problem)}", flush=True)
            if shape[2] in TILES and not options.skip_tile:
                print(f"  tile {sweep_tile(problem)}", flush=True)
    print(f"{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
