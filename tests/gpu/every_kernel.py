"""Runs every kernel once on small odd sizes: `compute-sanitizer python tests/gpu/every_kernel.py`."""

import itertools

import torch

from body_transformer.ops.body_attention import body_attention
from body_transformer.ops.encoder_stack import encoder_stack


def attention(backend: str, dtype: torch.dtype, num_nodes: int, hub: bool) -> None:
    q, k, v = (torch.randn(3, 2, num_nodes, 24, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3))
    bias = torch.randn(num_nodes, num_nodes, device="cuda", requires_grad=True)
    mask = torch.eye(num_nodes, dtype=torch.bool, device="cuda")
    mask[0] |= hub
    mask[:, 0] |= hub
    body_attention(q, k, v, mask, bias, backend=backend).sum().backward()


def encoder(backend: str, precision: str, num_nodes: int, embed_dim: int, f: int = 100, batch: int = 5) -> None:
    e = embed_dim
    shapes = [(3 * e, e), (3 * e,), (e, e), (e,), (e,), (e,), (f, e), (f,), (e, f), (e,), (e,), (e,)]
    parameters = [torch.randn(shape, device="cuda", requires_grad=True) for shape in shapes * 2]
    x = torch.randn(batch, num_nodes, e, device="cuda", requires_grad=True)
    mask = torch.eye(num_nodes, dtype=torch.bool, device="cuda")
    encoder_stack(x, parameters, mask, [True, False], 2, precision=precision, backend=backend).sum().backward()
    with torch.no_grad():
        encoder_stack(x, parameters, mask, [True, False], 2, precision=precision, backend=backend)


def main() -> None:
    for dtype, nodes in itertools.product((torch.float32, torch.bfloat16), (13, 50)):
        attention("tile", dtype, nodes, hub=True)
        attention("triton", dtype, nodes, hub=False)
        attention("triton", dtype, nodes, hub=True)
    for precision in ("bf16", "tf32", "fp32"):
        encoder("fused", precision, 13, 48)
        encoder("fused", precision, 16, 64, f=128, batch=70)  # nothing is padded, and sums have several shares
        encoder("fused", precision, 50, 32)
        encoder("wide", precision, 13, 136)
    encoder("fused", "bf16", 50, 128)
    torch.cuda.synchronize()
    print("every kernel ran")


if __name__ == "__main__":
    main()
