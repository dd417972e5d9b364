"""The encoder at full size on a GPU; the tests of tests/ops and tests/model, at small sizes, run on a GPU too."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from body_transformer import BodyGraph, Layout, Policy, PolicyConfig, robots
from body_transformer.model.encoder import Encoder
from body_transformer.ops.encoder_stack import BACKENDS, PRECISIONS

from ..model.bodies import ops_of
from ..ops.encoder_cases import (
    PAPER,
    Case,
    Problem,
    draw_problem,
    draw_smooth,
    errors,
    exact,
    exact_output,
    in_tf32,
    named,
    outcome,
    plain,
    poisoned_memory,
    same_bits,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")

PRECISION = pytest.mark.parametrize("precision", PRECISIONS)
COARSE = pytest.mark.parametrize("precision", ["tf32", "bf16"])
OPERATOR = "body_transformer.encoder_stack.default"


@pytest.fixture(scope="module")
def layout() -> Layout:
    return Layout.proprioceptive(BodyGraph.from_file(robots.path("humanoid")))


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@contextmanager
def asking_for(precision: str) -> Iterator[None]:
    """Set PyTorch's precision as a user does."""
    with tf32(precision == "tf32"), torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
        yield


# -- numbers -----------------------------------------------------------------------------------------------------------


def torchs_own(problem: Problem, precision: str) -> dict[str, Tensor]:
    with tf32(precision == "tf32"):
        return plain(problem, autocast=torch.bfloat16 if precision == "bf16" else None)


IMITATION = Case(16, 32, 320, 1024, 5)


@COARSE
@pytest.mark.parametrize(
    "case",
    [
        *(replace(IMITATION, num_layers=depth) for depth in (2, 16)),
        PAPER,
        replace(PAPER, pattern="hard", mask="asymmetric"),
        Case(301, 50, 96, 200, 3, 4),
        Case(301, 50, 64, 104, 4, 4),
        Case(301, 64, 32, 72, 4, 4),
        Case(301, 13, 36, 100, 3, 4),
        Case(301, 13, 32, 64, 1, 4),
        Case(301, 5, 64, 64, 2, 3, "hard"),
        Case(301, 13, 64, 128, 2, 4),  # the kernels of `hopper` from here on, as for the paper's sizes
        Case(301, 16, 64, 128, 2, 1),
    ],
    ids=str,
)
def test_it_is_as_accurate_as_pytorch_in_the_same_precision(precision, case):
    ratios: dict[str, list[float]] = {}
    backend = "wide" if case.embed_dim == IMITATION.embed_dim else "fused"
    for seed in range(3):
        problem = draw_problem(case, "cuda", seed)
        expected = exact(problem)
        with poisoned_memory():
            found = errors(outcome(problem, precision=precision, backend=backend), expected)
        theirs = errors(torchs_own(problem, precision), expected)
        if precision == "tf32":  # with TF32 set, cuBLAS still computes some small products in full float32
            rounded = errors(in_tf32(problem), expected)
            theirs = {name: max(error, rounded[name]) for name, error in theirs.items()}
        for name, error in theirs.items():
            ratios.setdefault(name, []).append(found[name] / error)
    averages = {name: sum(values) / len(values) for name, values in ratios.items()}
    assert max(averages.values()) <= 1.5, averages


@pytest.mark.parametrize(
    "case", [Case(61, 16, 64, 128, 2, 1), Case(101, 13, 48, 100, 3, 1, "hard"), Case(9, 64, 128, 128, 2, 1)], ids=str
)
def test_float32_is_exact_over_many_programs(case):
    problem = draw_smooth(case, "cuda")
    with poisoned_memory():
        wrong = errors(outcome(problem), exact(problem))
    assert max(wrong.values()) < 1e-5, wrong


@PRECISION
@pytest.mark.parametrize("num_nodes", [16, 64])
def test_the_widest_supported_head_fits_the_gpu(precision, num_nodes):
    limits = BACKENDS["fused"]
    width, heads = limits.embed_dim[1], limits.embed_dim[1] // limits.max_head_dim
    found = outcome(draw_problem(Case(5, num_nodes, width, 128, heads, 1), "cuda"), precision=precision)
    assert all(value.isfinite().all() for value in found.values())


@PRECISION
def test_the_same_inputs_give_the_same_bits(precision):
    problem = draw_problem(replace(PAPER, batch=8192), "cuda")
    first = outcome(problem, precision=precision)
    assert all(same_bits(outcome(problem, precision=precision), first) for _ in range(3))


@COARSE
@pytest.mark.parametrize(
    "case",
    [
        Case(203, 16, 64, 128, 2),
        Case(203, 16, 64, 64, 2),
        Case(203, 13, 32, 64, 1),
        Case(203, 50, 64, 100, 4),
        Case(203, 50, 16, 100, 1),
    ],
    ids=str,
)
def test_kernels_have_no_races(precision, case):
    problem = draw_problem(case, "cuda")
    first = outcome(problem, precision=precision)
    assert all(same_bits(outcome(problem, precision=precision), first) for _ in range(30))


@COARSE
def test_a_large_batch_is_correct_at_both_ends_and_in_its_sums(precision):
    whole = draw_problem(replace(PAPER, batch=60_000), "cuda")
    found = outcome(whole, precision=precision)
    halves = []
    for half in (slice(0, 30_000), slice(30_000, None)):
        part = replace(whole, x=whole.x[half], grad_out=whole.grad_out[half])
        halves.append(outcome(part, precision=precision))
    for name in ("out", "x"):
        together = torch.cat([half[name] for half in halves])
        assert (found[name] - together).norm() < 1e-3 * together.norm()
    for name in found.keys() - {"out", "x"}:
        together = halves[0][name] + halves[1][name]
        assert (found[name] - together).norm() < 1e-2 * together.norm(), name


def test_inference_keeps_only_its_output_in_memory():
    problem = draw_problem(replace(PAPER, batch=8192), "cuda")
    with torch.no_grad():
        problem.call(precision="bf16")
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        out = problem.call(precision="bf16")
        weights = sum(parameter.nbytes for parameter in problem.parameters)
        assert torch.cuda.max_memory_allocated() - before < out.nbytes + 3 * weights + 2**20


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@PRECISION
def test_it_runs_on_the_device_of_its_tensors(precision):
    case = replace(PAPER, batch=37, num_layers=2)
    here, there = draw_problem(case, "cuda:0", 0), draw_problem(case, "cuda:1", 0)
    found, expected = outcome(there, precision=precision), outcome(here, precision=precision)
    assert all(torch.equal(found[name].cpu(), expected[name].cpu()) for name in expected)


# -- PyTorch's transforms ----------------------------------------------------------------------------------------------


@PRECISION
def test_a_captured_training_step_replays_on_new_inputs(precision):
    case = replace(PAPER, batch=37, num_layers=3)
    static, fresh = draw_problem(case, "cuda"), draw_problem(case, "cuda")
    leaves = static.leaves()

    def step() -> list[Tensor]:
        out = static.call(leaves[0], leaves[1:], precision=precision)
        return [out.detach(), *torch.autograd.grad(out, leaves, static.grad_out)]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    fresh.mask = static.mask
    expected = outcome(fresh, precision=precision)
    with torch.no_grad():
        for old, new in zip([*leaves, static.grad_out], [*fresh.leaves(), fresh.grad_out], strict=True):
            old.copy_(new)
    graph.replay()
    assert same_bits(named(*found), expected)


def test_an_unknown_mask_during_capture_is_a_clear_error():
    problem = draw_problem(replace(PAPER, batch=2, num_layers=1), "cuda")
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="call the operator once with the same mask tensor"), torch.cuda.graph(graph):
        problem.call()


@COARSE
def test_with_a_known_mask_the_host_does_not_wait(precision):
    problem = draw_problem(replace(PAPER, batch=64, num_layers=2), "cuda")
    outcome(problem, precision=precision)
    torch.cuda.set_sync_debug_mode("error")
    try:
        outcome(problem, precision=precision)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@PRECISION
def test_torch_compile_needs_no_graph_break(precision):
    problem = draw_problem(replace(PAPER, batch=37, num_layers=2), "cuda")
    compiled = torch.compile(lambda *args, **options: problem.call(*args, **options) * 1.0, fullgraph=True)
    assert same_bits(outcome(problem, compiled, precision=precision), outcome(problem, precision=precision))


def test_torch_compile_with_its_own_cuda_graphs_supports_a_policy(layout):
    policy = Policy(layout, PolicyConfig(num_layers=2)).cuda()
    with asking_for("bf16"), torch.no_grad():
        compiled = torch.compile(policy, mode="reduce-overhead")
        for _ in range(4):  # warm-up, recording, replays
            obs = torch.randn(64, layout.obs_dim, device="cuda")
            found, expected = compiled(obs).float(), policy(obs).float()
            assert (found - expected).norm() < 3e-2 * expected.norm()


# -- precision, and use by policies ------------------------------------------------------------------------------------


@PRECISION
def test_the_precision_follows_pytorchs_settings(precision):
    problem = draw_problem(replace(PAPER, batch=37, num_layers=2), "cuda")
    expected = problem.call(precision=precision)
    with asking_for(precision):
        assert torch.equal(problem.call(precision=None), expected)


def test_under_autocast_to_float16_the_reference_runs():
    problem = draw_problem(replace(PAPER, batch=37, num_layers=2), "cuda")
    expected = exact_output(problem)
    with torch.autocast("cuda", torch.float16):
        found = problem.call(precision=None, backend=None)
    assert (found - expected).norm() < 1e-2 * expected.norm()


@COARSE
@pytest.mark.parametrize(("width", "num_heads"), [(64, 2), (320, 5)])
@pytest.mark.parametrize("variant", ["bot-mix", "bot-hard", "transformer", "bot-mix-random"])
def test_a_policy_uses_the_operator_by_default(layout, precision, width, num_heads, variant):
    policy = Policy(layout, PolicyConfig(variant=variant, num_layers=2, embed_dim=width, num_heads=num_heads)).cuda()
    obs = torch.randn(37, layout.obs_dim, device="cuda")
    with asking_for(precision):
        assert ops_of(policy, obs)[OPERATOR] == 1
        found = policy(obs).float()
        policy.encoder.backend = "layers"
        layered = policy(obs).float()
    expected = policy.double()(obs.double())
    assert (found - expected).norm() < 3 * (layered - expected).norm()


@PRECISION
@pytest.mark.parametrize("changes", [{"norm": "pre"}, {"activation": "gelu"}, {"variant": "bot-soft"}], ids=str)
def test_encoders_that_the_operator_does_not_support_run_layer_by_layer(layout, precision, changes):
    policy = Policy(layout, PolicyConfig(num_layers=2, **changes)).cuda()
    obs = torch.randn(37, layout.obs_dim, device="cuda")
    with asking_for(precision):
        assert not ops_of(policy, obs)[OPERATOR]
        out = policy(obs).float()
    out.square().sum().backward()
    expected = policy.double()(obs.double())
    assert (out - expected).norm() < 5e-2 * expected.norm()
    assert all(parameter.grad.isfinite().all() for parameter in policy.parameters())
    if policy.encoder.hop_bias is not None:
        assert (policy.encoder.hop_bias.grad != 0).all()


# -- training ----------------------------------------------------------------------------------------------------------


def final_loss(layout: Layout, backend: str, precision: str, seed: int, steps: int = 200) -> tuple[float, float]:
    """Learn a neighbour's value with Adam in batches of 32; return the first loss and the mean of the last twenty."""
    torch.manual_seed(seed)
    encoder = Encoder(layout.graph, PolicyConfig()).cuda()
    encoder.backend = backend
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
    losses = []
    with tf32(precision == "tf32"):
        for _ in range(steps):
            x = torch.randn(32, layout.graph.num_nodes, 64, device="cuda")
            with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
                out = encoder(x)
            loss = F.mse_loss(out, x.roll(1, dims=1).tanh())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return float(losses[0]), float(torch.stack(losses[-20:]).mean())


@COARSE
def test_two_hundred_steps_end_at_the_references_loss(layout, precision):
    ends: dict[str, list[float]] = {}
    for backend in ("fused", "reference"):
        runs = [final_loss(layout, backend, precision, seed) for seed in range(5)]
        assert all(last < 0.9 * first for first, last in runs)
        ends[backend] = [last for _, last in runs]
    spread = max(ends["reference"]) - min(ends["reference"])
    between = [abs(ours - theirs) for ours, theirs in zip(ends["fused"], ends["reference"], strict=True)]
    assert sum(between) / len(between) < spread, ends
