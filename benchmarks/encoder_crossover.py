"""Time all implementations of the encoder over sizes: the basis of `ops/encoder_stack/choose.py`.

    python benchmarks/encoder_crossover.py            # needs CUDA

Each row has the median milliseconds of forward and backward with each implementation, as a replayed CUDA graph; a star
marks the fastest. "layers" is the encoder layer by layer, as it runs for sizes that the operator does not support.
"""

import argparse
from functools import partial

import torch
from attention_crossover import marked

from body_transformer import BodyGraph, PolicyConfig
from body_transformer.bench.clocks import Effort, Step
from body_transformer.bench.harness import Bench, Contender, Timing
from body_transformer.bench.masks import random_parents
from body_transformer.bench.steps import TimedModel, gradient_steps
from body_transformer.model.encoder import Encoder
from body_transformer.ops.encoder_stack import BACKENDS, PRECISIONS

Row = tuple[int, int, int, int, int, int]
"""B, N, E, FF, heads and layers."""
ROWS: list[Row] = [
    *((batch, 16, 64, 128, 2, 10) for batch in (64, 2048, 8192)),
    *((8192 * 16 // num_nodes, num_nodes, 64, 128, 2, 4) for num_nodes in (8, 32, 48, 64)),
    *((2048, num_nodes, width, 2 * width, 4, 4) for num_nodes in (16, 32, 64) for width in (32, 128)),
    *((256, num_nodes, width, 4 * width, 4, 4) for num_nodes in (32, 100) for width in (128, 256)),
]
IMPLEMENTATIONS = ("layers", "fused", "wide")


def body(num_nodes: int) -> BodyGraph:
    """Return a tree with this number of parts."""
    names = [str(node) for node in range(num_nodes)]
    parents = random_parents(num_nodes, 0)
    return BodyGraph.from_edges(names, [(str(parent), str(node + 1)) for node, parent in enumerate(parents)])


def training_steps(name: str, row: Row, precision: str) -> list[Step]:
    batch, num_nodes, width, ff_dim, heads, layers = row
    torch.manual_seed(0)
    config = PolicyConfig(num_layers=layers, embed_dim=width, ff_dim=ff_dim, num_heads=heads, positional_encoding=False)
    encoder = Encoder(body(num_nodes), config).cuda()
    encoder.backend = name
    inputs = [torch.randn(batch, num_nodes, width, device="cuda") for _ in range(2)]
    return gradient_steps(TimedModel(encoder, list(encoder.parameters())), inputs, precision)


def table_row(row: Row, precision: str, effort: Effort) -> str:
    _, num_nodes, width, _, heads, layers = row
    contenders = [
        Contender(name, partial(training_steps, name, row, precision))
        for name in IMPLEMENTATIONS
        if name == "layers" or BACKENDS[name].supports(num_nodes, width, heads, layers)
    ]
    timings = Bench(device="cuda").time(str(row), contenders, effort)
    times = marked([timings.get(name, Timing()).ms for name in IMPLEMENTATIONS])
    return f"{row!s:>32} {precision:>9} " + " ".join(f"{cell:>10}" for cell in times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--precision", choices=PRECISIONS, nargs="*", default=PRECISIONS)
    parser.add_argument("--seconds", type=float, default=0.1, help="seconds per measurement")
    parser.add_argument("--rows", type=int, nargs="*", default=range(len(ROWS)), help="indices of rows; by default all")
    options = parser.parse_args()
    print(f"{'(B, N, E, FF, H, L)':>32} precision " + " ".join(f"{name:>10}" for name in IMPLEMENTATIONS))
    for row in (ROWS[k] for k in options.rows):
        for precision in options.precision:
            print(table_row(row, precision, Effort(budget_s=options.seconds, min_samples=5)), flush=True)


if __name__ == "__main__":
    main()
