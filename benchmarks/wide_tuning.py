"""Profile an optimizer step at the paper's imitation size, for tuning the wide encoder.

    python benchmarks/wide_tuning.py [--batch 256] [--no-peer]

Needs a GPU. Times are medians of CUDA graph replays in microseconds.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from triton.runtime.errors import OutOfResources

from body_transformer.bench.clocks import Effort, capture, time_with_events, warm_up
from body_transformer.bench.encoder_peers import compiled_layer
from body_transformer.bench.masks import tree_mask
from body_transformer.bench.steps import kernel_times
from body_transformer.ops.body_attention import tile
from body_transformer.ops.encoder_stack import encoder_stack, reference
from body_transformer.ops.encoder_stack.packing import Call
from body_transformer.ops.encoder_stack.wide import gradients, passes, products, rows, storage
from body_transformer.ops.encoder_stack.wide.passes import PackedAttention
from body_transformer.ops.encoder_stack.wide.rows import Tiles

NODES, WIDTH, HIDDEN, LAYERS, HEADS, EPS = 32, 320, 1024, 16, 5, 1e-5
MASKED = [layer % 2 == 0 for layer in range(LAYERS)]
NORM_TILES = [Tiles(1024, 1), Tiles(1024, 2), Tiles(2048, 4), Tiles(4096, 4), Tiles(4096, 8)]
NORM_BACKWARD_TILES = [
    Tiles(2048, 4, 264),
    Tiles(2048, 4, 528),
    Tiles(4096, 4, 132),
    Tiles(4096, 4, 264),
    Tiles(4096, 8, 264),
]
RELU_BACKWARD_TILES = [
    Tiles(4096, 4, 264, columns=256),
    Tiles(4096, 4, 132, columns=256),
    *(Tiles(4096, 4, programs, stages=2, columns=256) for programs in (66, 132, 198, 264)),
    Tiles(4096, 4, 132, stages=3, columns=256),
    Tiles(2048, 4, 198, stages=3, columns=256),
    Tiles(8192, 8, 128, columns=256),
    Tiles(8192, 8, 256, columns=256),
    Tiles(4096, 4, 256, columns=512),
    Tiles(4096, 4, 264, stages=2, columns=512),
    Tiles(4096, 4, 66, stages=2, columns=128),
]
ATTENTION_SETTINGS = [tile.TileLaunch(32, pack, warps, 256) for pack, warps in ((1, 1), (1, 2), (1, 4), (2, 2), (4, 4))]


def parameters() -> list[nn.Parameter]:
    """Return matrices with the scale of an untrained encoder's, and identity LayerNorms."""
    e, f = WIDTH, HIDDEN
    shapes = [(3 * e, e), (3 * e,), (e, e), (e,), (e,), (e,), (f, e), (f,), (e, f), (e,), (e,), (e,)]
    scales = [(3 * s[1]) ** -0.5 if len(s) == 2 else 0.0 for s in shapes] * LAYERS
    drawn = [torch.randn(s, device="cuda") * scale for s, scale in zip(shapes * LAYERS, scales, strict=True)]
    return [nn.Parameter(p + 1 if k % 12 in (4, 10) else p) for k, p in enumerate(drawn)]


def wide_encoder(x: Tensor, mask: Tensor, weights: list[Any]) -> Tensor:
    return encoder_stack(x, weights, mask, MASKED, HEADS, eps=EPS, precision="bf16", backend="wide")


def plain_encoder(x: Tensor, mask: Tensor, weights: list[Tensor]) -> Tensor:
    return reference.encoder_stack(x, weights, mask, MASKED, HEADS, EPS)


def captured(step: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    warm_up([step])
    return capture(step)[0]


def replay_us(graph: torch.cuda.CUDAGraph, repeats: int = 60) -> float:
    for _ in range(10):
        graph.replay()
    return 1e3 * time_with_events([graph.replay], Effort(min_samples=repeats, max_samples=repeats))


def optimizer_step(encode: Callable[[Tensor, list[nn.Parameter]], Tensor], batch: int) -> Callable[[], None]:
    """Return a step: forward, mean squared loss, backward, fused AdamW. x gets a gradient, as after a tokenizer."""
    weights = parameters()
    x = torch.randn(batch, NODES, WIDTH, device="cuda", requires_grad=True)
    target = torch.randn_like(x)
    adam = torch.optim.AdamW(weights, lr=1e-4, fused=True, capturable=True)

    def step() -> None:
        adam.zero_grad(set_to_none=True)
        x.grad = None
        F.mse_loss(encode(x, weights), target).backward()
        adam.step()

    return step


def measure_step(batch: int, mask: Tensor) -> None:
    graph = captured(optimizer_step(lambda x, w: wide_encoder(x, mask, w), batch))
    print(f"\nwhole optimizer step, bf16: {replay_us(graph):.0f} us", flush=True)
    show_kernels(graph)


def measure_peer(batch: int, mask: Tensor) -> None:
    layer = compiled_layer()

    def encode(x: Tensor, weights: list[nn.Parameter]) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            for index, masked in enumerate(MASKED):
                own = weights[12 * index : 12 * index + 12]
                x = layer(x, own, mask if masked else None, HEADS, F.scaled_dot_product_attention)
            return x.float()

    graph = captured(optimizer_step(encode, batch))
    print(f"\npeer, whole optimizer step, compiled layer in bf16: {replay_us(graph):.0f} us")


class Buffers:
    """Inputs and outputs of the parts of a step."""

    def __init__(self, batch: int, mask: Tensor) -> None:
        weights = [p.detach() for p in parameters()]
        x = torch.randn(batch, NODES, WIDTH, device="cuda")
        self.stack = storage.layers(weights)
        self.operands = storage.Operands.empty(weights, torch.bfloat16)
        self.operands.fill(self.stack)
        self.kept = storage.Activations.empty(LAYERS, x, HIDDEN, torch.bfloat16)
        self.gradients = passes._empty_gradients(LAYERS, self.kept)
        for tensor in (*self.kept, *self.gradients):
            tensor.normal_()
        self.update, self.through = torch.randn_like(self.kept.x[0]), torch.randn_like(self.kept.x[0])
        self.rest = torch.zeros_like(self.update)
        self.attention = PackedAttention(x, Call(mask, MASKED, HEADS, EPS, "bf16"))
        self.stacks = gradients.empty_stacks(weights)

    def add_norm(self, k: int, tiles: Tiles = rows.NORM) -> None:
        stream, out = rows.Stream(self.kept.x[k], self.rest), rows.Stream(self.kept.y[k], self.rest)
        weights = (self.stack[k].norm1, self.stack[k].shift1)
        rows.add_norm(self.update, self.stack[k].out_bias, stream, *weights, out, self.kept.norm(k, 0), EPS, tiles)

    def norm_backward(self, k: int, tiles: Tiles = rows.NORM_BACKWARD, sums: Tensor | None = None) -> None:
        g = self.gradients
        sums = g.norm_sums[k, 0] if sums is None else sums
        weight, norm = self.stack[k].norm1, self.kept.norm(k, 0)
        rows.norm_backward(self.through, g.update2[k], norm, weight, g.update1[k], sums, tiles)

    def relu_backward(self, k: int, tiles: Tiles = rows.RELU_BACKWARD, sums: Tensor | None = None) -> None:
        sums = self.gradients.hidden_sums[k] if sums is None else sums
        rows.relu_backward(self.gradients.hidden[k], self.kept.hidden[k], sums, tiles)


Part = tuple[str, Callable[[int], Any], int]


def parts(b: Buffers) -> Iterator[Part]:
    """Yield (name, function of the layer k, number of layers per call)."""
    product, linear, relu = products.product, products.linear, products.linear_relu
    o, g, kept = b.operands.by_layer(), b.gradients, b.kept
    yield "cast", lambda k: b.operands.fill(b.stack), LAYERS
    yield "qkv", lambda k: linear(kept.x[k], o[k].in_weight, o[k].in_bias, kept.qkv[k]), 1
    yield "attention", lambda k: b.attention.forward(kept.qkv[k], k % 2 == 0, kept.heads[k]), 1
    yield "out", lambda k: product(kept.heads[k], o[k].out_weight.t(), b.update), 1
    yield "add_norm (two per layer)", b.add_norm, 1
    yield "ff1", lambda k: relu(kept.y[k], o[k].weight1, o[k].bias1, kept.hidden[k]), 1
    yield "ff2", lambda k: product(kept.hidden[k], o[k].weight2.t(), b.update), 1
    yield "norm_backward (two per layer)", b.norm_backward, 1
    yield "d ff2", lambda k: product(g.update2[k], o[k].weight2, g.hidden[k]), 1
    yield "relu_backward", b.relu_backward, 1
    yield "d ff1", lambda k: product(g.hidden[k], o[k].weight1, b.through), 1
    yield "d out", lambda k: product(g.update1[k], o[k].out_weight, b.update), 1
    yield "d attention", lambda k: b.attention.backward(kept.qkv[k], k % 2 == 0, b.update, g.qkv[k]), 1
    yield "d qkv", lambda k: product(g.qkv[k], o[k].in_weight, b.through), 1
    yield "gradients of parameters", lambda k: gradients.add_run(b.stacks, 0, kept, g), LAYERS


def row_parts(b: Buffers) -> Iterator[Part]:
    """Yield the kernels between the products with several tile sizes."""
    for tiles in NORM_TILES:
        yield f"add_norm {shape(tiles)}", lambda k, t=tiles: b.add_norm(k, t), 1
    for tiles in NORM_BACKWARD_TILES:
        sums = b.update.new_empty(tiles.partials(len(b.update), WIDTH), 3, WIDTH, dtype=torch.float32)
        yield f"norm_backward {shape(tiles)}", lambda k, t=tiles, s=sums: b.norm_backward(k, t, s), 1
    for tiles in RELU_BACKWARD_TILES:
        sums = b.update.new_empty(tiles.partials(len(b.update), HIDDEN), HIDDEN, dtype=torch.float32)
        yield f"relu_backward {shape(tiles)}", lambda k, t=tiles, s=sums: b.relu_backward(k, t, s), 1


def attention_parts(b: Buffers) -> Iterator[Part]:
    """Yield the attention with several launch settings."""
    g, kept, settings = b.gradients, b.kept, tile.SETTINGS
    for setting in ATTENTION_SETTINGS:
        tile.SETTINGS = (setting,)
        name = f"pack {setting.pack} w{setting.warps}{' (used)' if setting in settings else ''}"
        yield f"attention {name}", lambda k: b.attention.forward(kept.qkv[k], k % 2 == 0, kept.heads[k]), 1
        yield f"d attention {name}", lambda k: b.attention.backward(kept.qkv[k], k % 2 == 0, b.update, g.qkv[k]), 1
    tile.SETTINGS = settings


def shape(tiles: Tiles) -> str:
    used = " (used)" if tiles in (rows.NORM, rows.NORM_BACKWARD, rows.RELU_BACKWARD) else ""
    return f"{tiles.entries} c{tiles.columns} w{tiles.warps} p{tiles.programs} s{tiles.stages}{used}"


def measure_parts(title: str, found: Iterator[Part]) -> None:
    """Time each part over all layers in turn, so that the cache has as little of its data as in a real step."""
    print(f"\n{title}, us per layer")
    for name, part, covers in found:

        def all_layers(part: Callable[[int], Any] = part, covers: int = covers) -> None:
            for _ in range(2):
                for index in range(0, LAYERS, covers):
                    part(index)

        try:
            cost = f"{replay_us(captured(all_layers), 20) / 2 / LAYERS:7.2f}"
        except OutOfResources as error:  # tiles that do not fit on this GPU
            cost = str(error)
        print(f"  {name:44} {cost}", flush=True)


def show_kernels(graph: torch.cuda.CUDAGraph) -> None:
    kernels = kernel_times(graph.replay, 3)
    print(f"\nprofile of a step: {sum(num for *_, num in kernels):.0f} launches, us per step / launches / kernel")
    for name, us, launches in kernels[:20]:
        print(f"  {us:8.1f} {launches:5.0f} {name[:110]}")


def check_errors(batch: int, mask: Tensor) -> None:
    """Compare ours and PyTorch's autocast with float64."""
    weights = [p.detach() for p in parameters()]
    x, grad_out = torch.randn(2, batch, NODES, WIDTH, device="cuda").unbind(0)

    def run(encode: Callable[[Tensor, list[Tensor]], Tensor], dtype: torch.dtype) -> list[Tensor]:
        leaves = [t.to(dtype).clone().requires_grad_() for t in (x, *weights)]
        out = encode(leaves[0], leaves[1:])
        return [out.detach(), *torch.autograd.grad(out, leaves, grad_out.to(out.dtype))]

    def autocast(x: Tensor, weights: list[Tensor]) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return plain_encoder(x, mask, weights)

    exact = run(lambda x, w: plain_encoder(x, mask, w), torch.float64)
    mine = run(lambda x, w: wide_encoder(x, mask, w), torch.float32)
    theirs = run(autocast, torch.float32)

    def error(found: list[Tensor], index: int) -> float:
        return float((found[index].double() - exact[index]).norm() / exact[index].norm().clamp(min=1e-12))

    ratios = [(error(mine, k) / max(error(theirs, k), 1e-12), k) for k in range(len(exact)) if exact[k].norm() > 1e-6]
    errors = [f"{what} {error(mine, k):.2e} / {error(theirs, k):.2e}" for k, what in enumerate(("output", "x"))]
    median = statistics.median(ratio for ratio, _ in ratios)
    print(f"\nbf16 against float64, ours / torch autocast: {', '.join(errors)}, ", end="")
    print(f"worst ratio {max(ratios)}, median {median:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--no-peer", action="store_true", help="skip the compiled peer")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    mask = tree_mask(NODES).cuda()
    print(torch.cuda.get_device_name(), torch.__version__, f"batch {arguments.batch}")
    check_errors(16, mask)
    measure_step(arguments.batch, mask)
    buffers = Buffers(arguments.batch, mask)
    measure_parts("parts", parts(buffers))
    measure_parts("entries of a tile, its columns, warps, programs, stages", row_parts(buffers))
    measure_parts("(sample, head) pairs per program, warps", attention_parts(buffers))
    if not arguments.no_peer:
        measure_peer(arguments.batch, mask)


if __name__ == "__main__":
    main()
