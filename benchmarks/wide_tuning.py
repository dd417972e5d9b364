"""What an optimiser step costs at the paper's imitation size, and where the time goes: for tuning the wide encoder.

    python benchmarks/wide_tuning.py [--peer whole|layer|none] [--batch 256]

Needs a GPU. Times are medians of CUDA graph replays in microseconds.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from triton.runtime.errors import OutOfResources

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from body_transformer.ops.encoder_stack import wide, wide_fused, wide_gradients, wide_products, wide_rows, wide_storage
from body_transformer.ops.encoder_stack.wide_fused import Tile

NODES, WIDTH, HIDDEN, LAYERS, HEADS, EPS = 32, 320, 1024, 16, 5, 1e-5
MASKED = [layer % 2 == 0 for layer in range(LAYERS)]
SCHEDULES = {
    "all layers at once": wide_gradients.Schedule(16, False),
    "8 layers at once": wide_gradients.Schedule(8, False),
    "4 layers at once": wide_gradients.Schedule(4, False),
    "1 layer at once": wide_gradients.Schedule(1, False),
    "8 layers, side stream": wide_gradients.Schedule(8, True),
    "4 layers, side stream": wide_gradients.Schedule(4, True),
    "2 layers, side stream": wide_gradients.Schedule(2, True),
    "1 layer, side stream": wide_gradients.Schedule(1, True),
}
RELU_TILES = [Tile(128, 128, 64, 8, 3), Tile(128, 128, 64, 4, 3), Tile(128, 256, 64, 8, 3), Tile(64, 128, 64, 4, 3)]
ROW_TILES = [(1024, 2), (1024, 4), (2048, 4), (4096, 4), (4096, 8)]  # entries, warps
ROW_BACKWARD_TILES = [  # entries, warps, programs
    *((2048, 4, 264), (2048, 4, 528), (2048, 4, 1024), (4096, 8, 132), (4096, 8, 264), (4096, 8, 512)),
    *((4096, 4, 264), (4096, 4, 512), (8192, 8, 132), (8192, 8, 264)),
]
NORM_TILES = [Tile(64, 0, 64, 8, 3), Tile(64, 0, 64, 8, 4), Tile(64, 0, 64, 16, 4), Tile(64, 0, 32, 8, 6)]


def parameters() -> list[nn.Parameter]:
    """As a fresh encoder has them."""
    found: list[Tensor] = []
    for _ in range(LAYERS):
        attention, linear1, linear2 = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
        in_weight = nn.init.xavier_uniform_(torch.empty(3 * WIDTH, WIDTH))
        ones, zeros = torch.ones(WIDTH), torch.zeros(WIDTH)
        found += [in_weight, torch.zeros(3 * WIDTH), attention.weight, zeros, ones, zeros]
        found += [linear1.weight, linear1.bias, linear2.weight, linear2.bias, ones, zeros]
    return [nn.Parameter(tensor.detach().clone().cuda()) for tensor in found]


def tree_mask() -> Tensor:
    mask = torch.eye(NODES, dtype=torch.bool)
    for node in range(1, NODES):
        parent = int(torch.randint(node, ()))
        mask[node, parent] = mask[parent, node] = True
    return mask.cuda()


class WideEncoder(torch.autograd.Function):
    """The functions under test, as autograd sees them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, schedule: wide_gradients.Schedule, *weights: Tensor) -> Tensor:
        out, saved = wide.forward(x, list(weights), mask, MASKED, HEADS, EPS, "bf16", save=True)
        ctx.save_for_backward(x, mask, *weights, *saved)
        ctx.schedule = schedule
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        x, mask, *rest = ctx.saved_tensors
        weights, saved = rest[: 12 * LAYERS], rest[12 * LAYERS :]
        arguments = (weights, mask, MASKED, HEADS, EPS, "bf16")
        grad_x, gradients = wide.backward(grad_out, saved, x, *arguments, schedule=ctx.schedule)
        return grad_x, None, None, *gradients


def plain_layer(x: Tensor, mask: Tensor | None, weights: list[Tensor]) -> Tensor:
    in_w, in_b, out_w, out_b, n1_w, n1_b, w1, b1, w2, b2, n2_w, n2_b = weights
    batch, nodes, width = x.shape
    q, k, v = F.linear(x, in_w, in_b).view(batch, nodes, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
    attended = F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).reshape(batch, nodes, width)
    x = F.layer_norm(x + F.linear(attended, out_w, out_b), (width,), n1_w, n1_b, EPS)
    return F.layer_norm(x + F.linear(F.linear(x, w1, b1).relu(), w2, b2), (width,), n2_w, n2_b, EPS)


def plain_encoder(layer: Callable[..., Tensor], x: Tensor, mask: Tensor, weights: list[Tensor]) -> Tensor:
    for index, masked in enumerate(MASKED):
        x = layer(x, mask if masked else None, weights[12 * index : 12 * index + 12])
    return x


def capture(step: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def replay_us(graph: torch.cuda.CUDAGraph, repeats: int = 60) -> float:
    for _ in range(10):
        graph.replay()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return statistics.median(times)


def optimiser_step(encode: Callable[[Tensor, list[nn.Parameter]], Tensor], batch: int) -> Callable[[], None]:
    """Forward, mean-square loss, backward, fused AdamW; x needs its gradient, as below it lies a tokenizer."""
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


def measure_schedules(batch: int, mask: Tensor) -> None:
    print("\nwhole optimiser step, bf16, us")
    for name, schedule in SCHEDULES.items():
        step = optimiser_step(lambda x, w, s=schedule: WideEncoder.apply(x, mask, s, *w), batch)
        print(f"  {name:28} {replay_us(capture(step)):8.0f}", flush=True)


def measure_split(batch: int, mask: Tensor) -> None:
    weights = parameters()
    x = torch.randn(batch, NODES, WIDTH, device="cuda")
    grad_out = torch.randn_like(x)
    for precision in ("bf16", "tf32"):
        arguments = (weights, mask, MASKED, HEADS, EPS, precision)

        def both(arguments: tuple[Any, ...] = arguments) -> None:
            _, saved = wide.forward(x, *arguments, save=True)
            wide.backward(grad_out, saved, x, *arguments)

        keep = replay_us(capture(lambda arguments=arguments: wide.forward(x, *arguments, save=True)))
        lose = replay_us(capture(lambda arguments=arguments: wide.forward(x, *arguments, save=False)))
        whole = replay_us(capture(both))
        print(f"{precision}: forward {lose:.0f}, forward that saves {keep:.0f}, forward and backward {whole:.0f} us")


def measure_peer(kind: str, batch: int, mask: Tensor) -> None:
    if kind == "none":
        return
    start = time.time()
    layer = torch.compile(plain_layer) if kind == "layer" else plain_layer
    encoder = torch.compile(plain_encoder) if kind == "whole" else plain_encoder

    def encode(x: Tensor, weights: list[nn.Parameter]) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return encoder(layer, x, mask, list(weights)).float()

    step = optimiser_step(encode, batch)
    step()
    compiled = time.time() - start
    print(f"  peer: compiled {kind}, as a graph {replay_us(capture(step)):6.0f}   (compiled in {compiled:.0f} s)")


class Buffers:
    """What the parts of a real step read and write."""

    def __init__(self, batch: int, mask: Tensor) -> None:
        rows = batch * NODES
        self.stack = wide_storage.layers([p.detach() for p in parameters()])
        flat = wide_storage.cast_operands(self.stack, torch.bfloat16)
        self.operands = wide_storage.operand_views(flat, self.stack)
        self.kept = wide_storage.Activations.empty(LAYERS, rows, self.operands[0])
        self.gradients = wide_storage.Gradients.empty(self.kept, wide_rows.num_partials(rows))
        for tensor in (*self.kept, *self.gradients):
            tensor.normal_()
        self.update, self.through = torch.randn_like(self.kept.x[0]), torch.randn_like(self.kept.x[0])
        self.rest = torch.zeros_like(self.update)
        self.attention = wide._Attention(self.kept.x[0].view(batch, NODES, WIDTH), HEADS, mask, "bf16")
        self.totals = wide_gradients.WeightGradients(self.kept, self.gradients, wide_gradients.SCHEDULE)

    def norm(self, k: int) -> wide_rows.Norm:
        return wide_rows.Norm(self.kept.normal[k, 0], self.kept.scale[k, 0])

    def streams(self, k: int) -> tuple[wide_rows.Stream, wide_rows.Stream]:
        return wide_rows.Stream(self.kept.x[k], self.rest), wide_rows.Stream(self.kept.y[k], self.rest)

    def add_norm(self, k: int) -> None:
        (stream, out), layer = self.streams(k), self.stack[k]
        weights = layer.norm1_weight, layer.norm1_bias
        wide_rows.add_norm(self.update, layer.out_bias, stream, *weights, out, self.norm(k), EPS)

    def norm_backward(self, k: int) -> None:
        g, weight = self.gradients, self.stack[k].norm1_weight
        wide_rows.norm_backward(self.through, g.update2[k], self.norm(k), weight, g.update1[k], g.norm_sums[k, 0])

    def product_add_norm(self, left: Tensor, weight: Tensor, k: int, tile: Tile) -> None:
        (stream, out), layer = self.streams(k), self.stack[k]
        weights = layer.norm1_weight, layer.norm1_bias
        wide_fused.product_add_norm(left, weight, layer.out_bias, stream, *weights, out, self.norm(k), EPS, tile)

    def product_norm_backward(self, left: Tensor, weight: Tensor, k: int, tile: Tile) -> None:
        g, gain = self.gradients, self.stack[k].norm1_weight
        sums = g.norm_sums[k, 0]
        wide_fused.product_norm_backward(left, weight, g.update2[k], self.norm(k), gain, g.update1[k], sums, tile)

    def relu_product(self, k: int, tile: Tile) -> None:
        g, weight = self.gradients, self.operands[k].weight2
        wide_fused.relu_backward_product(g.update2[k], weight, self.kept.hidden[k], g.hidden[k], g.hidden_sums[k], tile)

    def weight_product(self, which: int, k: int, at_once: int) -> None:
        (left, right), out = self.totals.factors[which], self.totals.weights[which]
        run = slice(k, k + at_once)
        wide_products.product(left[run].transpose(1, 2), right[run], out[run])


Part = tuple[str, Callable[[int], Any], int]


def parts(b: Buffers) -> Iterator[Part]:
    """(name, what it does for layer k, how many layers one call covers)."""
    product, linear, relu = wide_products.product, wide_products.linear, wide_products.linear_relu
    o, g, kept = b.operands, b.gradients, b.kept
    yield "cast", lambda k: wide_storage.cast_operands(b.stack, torch.bfloat16), LAYERS
    yield "qkv", lambda k: linear(kept.x[k], o[k].in_weight, o[k].in_bias, kept.qkv[k]), 1
    yield "attention", lambda k: b.attention.forward(kept.qkv[k], k % 2 == 0, kept.heads[k]), 1
    yield "out", lambda k: product(kept.heads[k], o[k].out_weight.t(), b.update), 1
    yield "add_norm (two a layer)", b.add_norm, 1
    yield "ff1", lambda k: relu(kept.y[k], o[k].weight1, o[k].bias1, kept.hidden[k]), 1
    yield "ff2", lambda k: product(kept.hidden[k], o[k].weight2.t(), b.update), 1
    yield "norm_backward (two a layer)", b.norm_backward, 1
    yield "d ff2", lambda k: product(g.update2[k], o[k].weight2, g.hidden[k]), 1
    yield "relu_backward", lambda k: wide_rows.relu_backward(g.hidden[k], kept.hidden[k], g.hidden_sums[k]), 1
    yield "d ff1", lambda k: product(g.hidden[k], o[k].weight1, b.through), 1
    yield "d out", lambda k: product(g.update1[k], o[k].out_weight, b.update), 1
    yield "d attention", lambda k: b.attention.backward(kept.qkv[k], k % 2 == 0, b.update, g.qkv[k]), 1
    yield "d qkv", lambda k: product(g.qkv[k], o[k].in_weight, b.through), 1
    for which, name in enumerate(("in", "out", "1", "2")):
        for at_once in (1, 4, 16):
            yield f"weight {name}, {at_once} at once", lambda k, w=which, n=at_once: b.weight_product(w, k, n), at_once
    yield "sum of qkv", lambda k: g.qkv.sum(1, dtype=torch.float32), LAYERS
    yield "sum of norm_sums", lambda k: g.norm_sums.sum(2), LAYERS
    yield "sum of hidden_sums", lambda k: g.hidden_sums.sum(1), LAYERS


def fused_parts(b: Buffers) -> Iterator[Part]:
    """Products together with what follows them, in several shapes."""
    o, g, kept = b.operands, b.gradients, b.kept
    for tile in RELU_TILES:
        yield f"d ff2 + relu {shape(tile)}", lambda k, t=tile: b.relu_product(k, t), 1
    for t in NORM_TILES:
        yield f"out + norm {shape(t)}", lambda k, t=t: b.product_add_norm(kept.heads[k], o[k].out_weight, k, t), 1
        yield f"ff2 + norm {shape(t)}", lambda k, t=t: b.product_add_norm(kept.hidden[k], o[k].weight2, k, t), 1
        yield f"d qkv + norm {shape(t)}", lambda k, t=t: b.product_norm_backward(g.qkv[k], o[k].in_weight, k, t), 1
        yield f"d ff1 + norm {shape(t)}", lambda k, t=t: b.product_norm_backward(g.hidden[k], o[k].weight1, k, t), 1


def row_parts(b: Buffers) -> Iterator[Part]:
    """The LayerNorm kernels in several shapes."""
    for entries, warps in ROW_TILES:
        wide_rows.FORWARD_TILE, wide_rows.FORWARD_WARPS = entries, warps
        yield f"add_norm tile {entries} w{warps}", b.add_norm, 1
    for entries, warps, programs in ROW_BACKWARD_TILES:
        wide_rows.BACKWARD_TILE, wide_rows.BACKWARD_WARPS = entries, warps
        sums = b.gradients.norm_sums.new_empty(LAYERS, 1, programs, 3, WIDTH)
        b.gradients = b.gradients._replace(norm_sums=sums)
        yield f"norm_backward tile {entries} w{warps} p{programs}", b.norm_backward, 1


def shape(tile: Tile) -> str:
    return f"{tile.rows}x{tile.columns}x{tile.depth} w{tile.warps} s{tile.stages}"


def measure_parts(batch: int, mask: Tensor) -> None:
    """Each part goes through all layers in turn, so that it finds its data in the cache no more than in a real step."""
    print("\nparts, us a layer")
    buffers = Buffers(batch, mask)
    for name, part, covers in chain(parts(buffers), fused_parts(buffers), row_parts(buffers)):

        def all_layers(part: Callable[[int], Any] = part, covers: int = covers) -> None:
            for _ in range(2):
                for index in range(0, LAYERS, covers):
                    part(index)

        try:
            cost = f"{replay_us(capture(all_layers), 20) / 2 / LAYERS:7.2f}"
        except OutOfResources as error:  # a shape that this card does not hold
            cost = str(error)
        print(f"  {name:36} {cost}", flush=True)


def profile(batch: int, mask: Tensor) -> None:
    step = optimiser_step(lambda x, w: WideEncoder.apply(x, mask, wide_gradients.SCHEDULE, *w), batch)
    graph = capture(step)
    graph.replay()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as record:
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
    rows = sorted(record.key_averages(), key=lambda row: -row.self_device_time_total)
    print(f"\nprofile of a step: {sum(row.count for row in rows) // 3} launches, us of a step / launches / kernel")
    for row in rows[:25]:
        print(f"  {row.self_device_time_total / 3:8.1f} {row.count // 3:5} {row.key[:110]}")


def check_errors(batch: int, mask: Tensor) -> None:
    """Ours and torch's autocast against float64."""
    weights = [p.detach() for p in parameters()]
    x, grad_out = torch.randn(2, batch, NODES, WIDTH, device="cuda").unbind(0)

    def run(encode: Callable[[Tensor, list[Tensor]], Tensor], dtype: torch.dtype) -> list[Tensor]:
        leaves = [t.to(dtype).clone().requires_grad_() for t in (x, *weights)]
        out = encode(leaves[0], leaves[1:])
        return [out.detach(), *torch.autograd.grad(out, leaves, grad_out.to(out.dtype))]

    def autocast(x: Tensor, weights: list[Tensor]) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return plain_encoder(plain_layer, x, mask, weights)

    exact = run(lambda x, w: plain_encoder(plain_layer, x, mask, w), torch.float64)
    mine = run(lambda x, w: WideEncoder.apply(x, mask, wide_gradients.SCHEDULE, *w), torch.float32)
    theirs = run(autocast, torch.float32)

    def error(found: list[Tensor], index: int) -> float:
        return float((found[index].double() - exact[index]).norm() / exact[index].norm().clamp(min=1e-12))

    ratios = [(error(mine, k) / max(error(theirs, k), 1e-12), k) for k in range(len(exact)) if exact[k].norm() > 1e-6]
    print(f"\nbf16 against float64, ours / torch autocast: output {error(mine, 0):.2e} / {error(theirs, 0):.2e}, "
          f"x {error(mine, 1):.2e} / {error(theirs, 1):.2e}, worst ratio {max(ratios)}, "
          f"median {statistics.median(r for r, _ in ratios):.2f}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", choices=["whole", "layer", "none"], default="layer")
    parser.add_argument("--batch", type=int, default=256)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    mask = tree_mask()
    print(torch.cuda.get_device_name(), torch.__version__, f"batch {arguments.batch}")
    check_errors(16, mask)
    measure_schedules(arguments.batch, mask)
    measure_split(arguments.batch, mask)
    profile(arguments.batch, mask)
    measure_parts(arguments.batch, mask)
    measure_peer(arguments.peer, arguments.batch, mask)


if __name__ == "__main__":
    main()
