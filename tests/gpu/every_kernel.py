"""Run every kernel once on small odd sizes: `compute-sanitizer python -m tests.gpu.every_kernel`."""

import itertools

import torch

from body_transformer.ops.body_attention import body_attention, sparse

from ..ops.encoder_cases import Case, draw_problem, outcome

FUSED = [
    Case(5, 13, 48, 100, 2),
    Case(70, 16, 64, 128, 2),  # nothing is padded, and sums have several shares
    Case(5, 50, 32, 100, 2),
    Case(5, 13, 64, 128, 2),
    Case(5, 5, 64, 128, 2),
]


def attention(backend: str, dtype: torch.dtype, num_nodes: int, hub: bool) -> None:
    q, k, v = (torch.randn(3, 2, num_nodes, 24, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3))
    bias = torch.randn(num_nodes, num_nodes, device="cuda", requires_grad=True)
    mask = torch.eye(num_nodes, dtype=torch.bool, device="cuda")
    mask[0] |= hub
    mask[:, 0] |= hub
    body_attention(q, k, v, mask, bias, backend=backend).sum().backward()


def encoder(case: Case, backend: str, precision: str) -> None:
    problem = draw_problem(case, "cuda")
    outcome(problem, backend=backend, precision=precision)
    problem.call(backend=backend, precision=precision)  # without saved activations another kernel runs


def main() -> None:
    sparse.MIN_PROGRAMS = 1  # several samples per program
    for dtype, nodes in itertools.product((torch.float32, torch.bfloat16), (13, 50)):
        attention("tile", dtype, nodes, hub=True)
        attention("triton", dtype, nodes, hub=False)
        attention("triton", dtype, nodes, hub=True)
    for precision in ("bf16", "tf32", "fp32"):
        for case in FUSED:
            encoder(case, "fused", precision)
        encoder(Case(5, 13, 136, 100, 2), "wide", precision)
    encoder(Case(5, 50, 128, 100, 2), "fused", "bf16")
    torch.cuda.synchronize()
    print("every kernel ran")


if __name__ == "__main__":
    main()
