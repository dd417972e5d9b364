"""Body attention at full size on a GPU; the tests of tests/ops, at small sizes, run on a GPU too."""

import pytest
import torch
from torch import Tensor, nn

from body_transformer.ops.body_attention import body_attention

from ..ops.attention_cases import (
    LIMITS,
    Problem,
    all_ones,
    asymmetric,
    errors,
    exact,
    make_problem,
    outcome,
    star,
    tree,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")

DTYPE = pytest.mark.parametrize("dtype", LIMITS, ids=lambda dtype: str(dtype).removeprefix("torch."))
KERNELS = pytest.mark.parametrize("backend", ["triton", "tile"])


@DTYPE
@KERNELS
@pytest.mark.parametrize(
    "shape",
    [(512, 2, 16, 32), (61, 5, 32, 64), (37, 3, 127, 64), (5, 2, 128, 128), (7, 3, 100, 80), (1001, 1, 13, 8)],
    ids=lambda s: "B{}H{}N{}D{}".format(*s),
)
def test_bodies_of_every_size_are_computed_correctly(dtype, backend, shape):
    problem = make_problem(shape, tree(shape[2]), dtype, bias=True, device="cuda")
    assert max(errors(outcome(body_attention, problem, backend=backend), exact(problem))) < LIMITS[dtype]


@DTYPE
@pytest.mark.parametrize("mask", [tree, star], ids=["tree", "star"])
@pytest.mark.parametrize("size", [1000, 4096])
def test_a_thousand_nodes_and_more_are_computed_correctly(dtype, mask, size):
    problem = make_problem((2, 2, size, 64), mask(size), dtype, device="cuda")
    assert max(errors(outcome(body_attention, problem, backend="triton"), exact(problem))) < LIMITS[dtype]


@pytest.mark.parametrize("mask", [all_ones, asymmetric], ids=["all ones", "asymmetric"])
def test_dense_masks_are_computed_correctly(mask):
    problem = make_problem((3, 2, 300, 40), mask(300), bias=True, device="cuda")
    for backend in ("reference", "neighbours", "triton", None):
        assert max(errors(outcome(body_attention, problem, backend=backend), exact(problem))) < 1e-5


@DTYPE
def test_the_largest_body_is_computed_correctly(dtype):
    problem = make_problem((1, 1, 16_384, 64), tree(16_384), dtype, device="cuda")
    assert max(errors(outcome(body_attention, problem, backend="triton"), exact(problem))) < LIMITS[dtype]


@pytest.mark.parametrize(("backend", "shape"), [("triton", (90, 8, 16_384, 64)), ("tile", (11_000, 8, 128, 64))])
def test_tensors_of_more_than_two_to_the_31_elements_are_correct_at_both_ends(backend, shape):
    batch, heads, size, width = shape
    packed = torch.randn(batch, size, 3, heads, width, device="cuda", dtype=torch.bfloat16)
    assert packed.numel() > 2**31
    q, k, v = packed.permute(2, 0, 3, 1, 4).unbind(0)
    whole = Problem(q, k, v, torch.ones_like(q), tree(size).cuda(), None)
    found = outcome(body_attention, whole, backend=backend)
    for b, h in ((0, 0), (batch - 1, heads - 1)):
        one = (slice(b, b + 1), slice(h, h + 1))
        alone = Problem(q[one], k[one], v[one], whole.grad_out[one], whole.mask, None)
        for x, expected in zip(found, outcome(body_attention, alone, backend=backend), strict=True):
            assert torch.equal(x[one], expected)


@KERNELS
@pytest.mark.parametrize("shape", [(512, 2, 16, 32), (64, 5, 32, 64), (32, 4, 128, 64)])
def test_the_same_inputs_give_the_same_bits(backend, shape):
    problem = make_problem(shape, tree(shape[2]), torch.bfloat16, bias=True, device="cuda")
    first, second = (outcome(body_attention, problem, backend=backend) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_float32_in_a_tile_follows_the_tf32_setting():
    problem = make_problem((16, 2, 32, 64), tree(32), device="cuda")
    worst = {}
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        for allowed in (False, True):
            torch.backends.cuda.matmul.allow_tf32 = allowed
            worst[allowed] = max(errors(outcome(body_attention, problem, backend="tile"), exact(problem)))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert worst[False] < 1e-5 < worst[True] < 1e-3


# -- PyTorch's transforms ----------------------------------------------------------------------------------------------

BACKEND = pytest.mark.parametrize("backend", ["neighbours", "triton", "tile", None])


@BACKEND
def test_torch_compile_needs_no_graph_break(backend):
    problem = make_problem((8, 2, 32, 64), tree(32), bias=True, device="cuda")
    compiled = torch.compile(lambda *args, **options: body_attention(*args, **options) * 1.0, fullgraph=True)
    assert max(errors(outcome(compiled, problem, backend=backend), exact(problem))) < 1e-5


class Layer(nn.Module):
    def __init__(self, backend: str | None) -> None:
        super().__init__()
        self.register_buffer("mask", tree(32).cuda())
        self.backend = backend

    def forward(self, x: Tensor) -> Tensor:
        return body_attention(x * 2, x, x, self.mask, backend=self.backend)


@BACKEND
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_torch_compile_with_its_own_cuda_graphs_accepts_a_new_mask(backend, training):
    layer = Layer(backend)
    compiled = torch.compile(layer, mode="reduce-overhead")
    found, expected = [], []
    for _ in range(4):  # warm-up, recording, replays; the mask is read while the graphs' own memory is in use
        x = torch.randn(8, 2, 32, 64, device="cuda", requires_grad=training)
        for attention, results in ((compiled, found), (layer, expected)):
            out = attention(x)
            results.append(out.detach().clone())
            if training:
                results.append(torch.autograd.grad(out, x, torch.ones_like(out))[0].clone())
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


@BACKEND
def test_a_captured_graph_replays_on_new_inputs(backend):
    problem = make_problem((8, 2, 32, 64), tree(32), device="cuda")
    static = problem.inputs()

    def step() -> list[Tensor]:
        out = body_attention(*static, problem.mask, backend=backend)
        return [out.detach(), *torch.autograd.grad(out, static, problem.grad_out)]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    fresh = make_problem((8, 2, 32, 64), tree(32), device="cuda")
    fresh.grad_out = problem.grad_out
    with torch.no_grad():
        for x, new in zip(static, fresh.inputs(), strict=True):
            x.copy_(new)
    graph.replay()
    assert max(errors(found, exact(fresh))) < 1e-5


def test_an_unknown_mask_during_capture_is_a_clear_error():
    problem = make_problem((1, 1, 8, 16), tree(8), device="cuda")
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="call the operator once with the same mask tensor"), torch.cuda.graph(graph):
        body_attention(problem.q, problem.k, problem.v, problem.mask, backend="triton")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_computes_in_its_dtype(dtype):
    problem = make_problem((8, 2, 32, 64), tree(32), device="cuda")
    with torch.autocast("cuda", dtype):
        out = body_attention(problem.q, problem.k, problem.v, problem.mask)
    assert out.dtype == dtype
    assert max(errors([out], exact(problem)[:1])) < 1e-2


def test_with_a_known_mask_the_host_does_not_wait():
    problem = make_problem((8, 2, 64, 64), tree(64), device="cuda")
    outcome(body_attention, problem, backend="triton")
    torch.cuda.set_sync_debug_mode("error")
    try:
        outcome(body_attention, problem, backend="triton")
    finally:
        torch.cuda.set_sync_debug_mode("default")
