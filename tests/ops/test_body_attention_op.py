"""Body attention as an operator of PyTorch's: tracing, autocast, the memory of masks, the choice, bad input."""

import gc
import subprocess
import sys

import pytest
import torch
from torch import nn

from body_transformer.ops.body_attention import BACKENDS, body_attention, choose_backend, mask_facts
from body_transformer.ops.body_attention.neighbour_lists import ORDERS, build_lists

from .attention_cases import MASKS, asymmetric, errors, exact, make_problem, outcome, star, tree

BACKEND = pytest.mark.parametrize("backend", BACKENDS)


# -- what PyTorch does with an operator --------------------------------------------------------------------------------


@BACKEND
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
def test_pytorchs_own_checks_pass(device, backend, bias):
    problem = make_problem((2, 1, 5, 8), tree(5), bias=bias, device=device)
    q, k, v, *rest = problem.inputs()
    arguments = (q, k, v, problem.mask, *(rest or [None]), backend)
    torch.library.opcheck(torch.ops.body_transformer.body_attention.default, arguments)


@BACKEND
def test_torch_compile_takes_it_whole_with_its_gradients(device, backend):
    problem = make_problem((2, 2, 6, 8), tree(6), bias=True, device=device)
    compiled = torch.compile(body_attention, fullgraph=True, backend="aot_eager")
    found = outcome(compiled, problem, backend=backend)
    assert max(errors(found, exact(problem))) < 1e-5


class Layer(nn.Module):
    def __init__(self, mask: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return body_attention(x, x, x, self.mask) * 2


def test_torch_export_takes_it_with_any_batch_size():
    layer = Layer(tree(6))
    program = torch.export.export(layer, (torch.randn(3, 2, 6, 8),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    for batch in (1, 4):
        x = torch.randn(batch, 2, 6, 8)
        torch.testing.assert_close(program.module()(x), layer(x))


@BACKEND
def test_under_autocast_it_is_computed_in_autocasts_type(device, backend):
    problem = make_problem((2, 1, 5, 8), tree(5), bias=True, device=device)
    with torch.autocast(device, torch.bfloat16):
        out, *grads = outcome(
            lambda *args, **options: body_attention(*args, **options).float(), problem, backend=backend
        )
        assert body_attention(problem.q, problem.k, problem.v, problem.mask, backend=backend).dtype == torch.bfloat16
    assert [grad.dtype for grad in grads] == [torch.float32] * 4
    assert max(errors([out, *grads], exact(problem))) < 2e-2  # the inputs are rounded too


def test_autocast_leaves_float64_alone():
    x = torch.randn(1, 1, 4, 3, dtype=torch.float64)
    with torch.autocast("cpu", torch.bfloat16):
        assert body_attention(x, x, x, tree(4)).dtype == torch.float64


@BACKEND
def test_a_second_derivative_is_refused_in_words(device, backend):
    problem = make_problem((1, 1, 4, 8), tree(4), device=device)
    q, k, v = problem.inputs()
    (grad,) = torch.autograd.grad(
        body_attention(q, k, v, problem.mask, backend=backend).square().sum(), q, create_graph=True
    )
    with pytest.raises(RuntimeError, match="no second derivative"):
        grad.sum().backward()


def test_importing_it_does_not_import_triton():
    code = "import sys; from body_transformer.ops.body_attention import body_attention; print('triton' in sys.modules)"
    code = "import torch, sys; had = 'triton' in sys.modules\n" + code.replace("print(", "print(had or not ")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "True"


# -- the memory of masks -----------------------------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch) -> list[str]:
    """What was read off masks, in order: "facts" or "lists"."""
    made: list[str] = []
    for name, word in (("_read", "facts"), ("build_lists", "lists")):
        original = getattr(mask_facts, name)

        def counted(*args, original=original, word=word):
            made.append(word)
            return original(*args)

        monkeypatch.setattr(mask_facts, name, counted)
    return made


def test_a_mask_is_read_once_for_all_calls_forward_and_backward(reads):
    problem = make_problem((1, 1, 6, 8), asymmetric(6))
    for _ in range(3):
        outcome(body_attention, problem, backend="neighbours")
    assert reads == ["facts", "lists"]


def test_lists_are_not_built_for_who_needs_none(reads):
    problem = make_problem((1, 1, 6, 8), asymmetric(6))
    outcome(body_attention, problem, backend="reference")
    assert reads == ["facts"]


@pytest.mark.parametrize("backend", ["neighbours", "triton"])
def test_a_mask_that_was_changed_in_place_is_read_again(device, backend):
    problem = make_problem((1, 1, 6, 8), tree(6), device=device)
    outcome(body_attention, problem, backend=backend)
    problem.mask[0, 5] = ~problem.mask[0, 5]
    problem.mask[3, :3] = False
    assert max(errors(outcome(body_attention, problem, backend=backend), exact(problem))) < 1e-5


def test_a_mask_that_got_other_memory_is_read_again():
    problem = make_problem((1, 1, 6, 8), tree(6))
    outcome(body_attention, problem, backend="neighbours")
    problem.mask.data = asymmetric(6)
    assert max(errors(outcome(body_attention, problem, backend="neighbours"), exact(problem))) < 1e-5


def test_a_self_loop_that_is_removed_later_is_noticed():
    problem = make_problem((1, 1, 6, 8), tree(6))
    outcome(body_attention, problem)
    problem.mask[2, 2] = False
    with pytest.raises(ValueError, match=r"mask\[2, 2\] is False"):
        outcome(body_attention, problem)


def test_masks_at_the_same_address_are_not_confused_and_the_freed_are_forgotten():
    gc.collect()
    before = len(mask_facts._known)
    addresses = set()
    for seed in range(20):
        problem = make_problem((1, 1, 6, 8), asymmetric(6, seed))
        addresses.add(problem.mask.data_ptr())
        assert max(errors(outcome(body_attention, problem, backend="neighbours"), exact(problem))) < 1e-5
        del problem
    gc.collect()
    assert len(addresses) < 20
    assert len(mask_facts._known) == before


def test_masks_of_inference_mode_cannot_be_stale_either():
    with torch.inference_mode():
        problem = make_problem((1, 1, 6, 8), tree(6))
        given = (problem.q, problem.k, problem.v, problem.mask)
        body_attention(*given, backend="neighbours")
        problem.mask[0, 5] = True
        torch.testing.assert_close(
            body_attention(*given, backend="neighbours"), body_attention(*given, backend="reference")
        )


# -- neighbour lists ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", MASKS)
def test_the_lists_hold_every_one_of_the_mask_once(kind, order):
    mask = MASKS[kind](40)
    lists = build_lists(mask, order)
    for side, matrix in ((lists.rows, mask), (lists.columns, mask.T)):
        assert sorted([*side.light.tolist(), *side.heavy.tolist()]) == list(range(40))
        for node in range(40):
            entries = slice(int(side.start[node]), int(side.start[node + 1]))
            assert side.other[entries].tolist() == matrix[node].nonzero().flatten().tolist()
            assert lists.flat[side.position[entries].long()].tolist() == [
                node * 40 + other if side is lists.rows else other * 40 + node for other in side.other[entries].tolist()
            ]
        assert sum(int(bucket.valid.sum()) for bucket in side.buckets) == lists.num_ones
        assert sum(bucket.valid.numel() for bucket in side.buckets) < 2 * lists.num_ones


@pytest.mark.parametrize(("kind", "slots", "num_heavy"), [("identity", 1, 0), ("star", 2, 1), ("all ones", 1, 40)])
def test_one_hub_does_not_burden_the_others(kind, slots, num_heavy):
    rows = build_lists(MASKS[kind](40)).rows
    assert (rows.slots, len(rows.heavy)) == (slots, num_heavy)


def test_an_order_keeps_neighbours_close():
    shuffled = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    mask = tree(200)[shuffled][:, shuffled]
    spread = {}
    for order in ORDERS:
        place = build_lists(mask, order).rows.light.long().argsort()
        row, column = mask.nonzero().unbind(1)
        spread[order] = float((place[row] - place[column]).abs().float().mean())
    assert max(spread["breadth"], spread["depth"]) < spread["given"] / 5


# -- the choice --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device_type", ["cpu", "cuda", "mps"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("num_nodes", [1, 16, 128, 129, 16_384, 20_000])
@pytest.mark.parametrize("head_dim", [8, 128, 160])
@pytest.mark.parametrize("density", [0.0005, 0.3, 1.0])
def test_the_table_has_a_row_for_everything_and_the_backend_takes_it(device_type, dtype, num_nodes, head_dim, density):
    for bias in (False, True):
        backend = BACKENDS[choose_backend(device_type, dtype, num_nodes, head_dim, density, bias)]
        assert dtype in backend.dtypes
        assert num_nodes <= (backend.max_nodes or num_nodes)
        assert head_dim <= (backend.max_head_dim or head_dim)
        assert device_type == "cuda" or not backend.needs_triton
        assert density < 1 or not backend.needs_mask  # no mask counts as density 1


def test_without_triton_plain_pytorch_is_chosen(monkeypatch):
    monkeypatch.setattr("body_transformer.ops.body_attention.choose.triton_is_there", lambda: False)
    assert choose_backend("cuda", torch.float32, 1024, 64, 0.003) == "neighbours"
    assert choose_backend("cuda", torch.float32, 32, 64, 0.1) == "reference"


def test_the_chosen_backend_is_the_one_that_runs(monkeypatch):
    problem = make_problem((1, 1, 6, 8), tree(6))
    chosen = []
    monkeypatch.setattr(
        "body_transformer.ops.body_attention.op.choose_backend", lambda *args: chosen.append(args) or "neighbours"
    )
    body_attention(problem.q, problem.k, problem.v, problem.mask)
    assert chosen == [("cpu", torch.float32, 6, 8, 16 / 36, False)]


# -- bad input ---------------------------------------------------------------------------------------------------------


def given(**changes) -> dict[str, torch.Tensor]:
    problem = make_problem((2, 1, 5, 8), star(5), bias=True)
    names = ("q", "k", "v", "mask", "bias")
    return {name: getattr(problem, name) for name in names} | changes


def without_self_loop() -> torch.Tensor:
    mask = star(5)
    mask[3, 3] = False
    return mask


BAD = {
    "q of three axes": (given(q=torch.zeros(1, 5, 8)), r"q, k and v must be \[B, H, N, D\] alike; got \[1, 5, 8\]"),
    "other shapes": (given(k=torch.zeros(2, 1, 6, 8)), r"alike; got .*\[2, 1, 6, 8\]"),
    "no nodes": (
        given(**{name: torch.zeros(1, 1, 0, 8) for name in "qkv"}, mask=torch.zeros(0, 0).bool(), bias=None),
        "N and D must be at least 1",
    ),
    "integers": (given(**{name: torch.zeros(2, 1, 5, 8).int() for name in "qkv"}), "one dtype of float16.*got int32"),
    "other types": (given(v=torch.zeros(2, 1, 5, 8).half()), "got float32, float32, float16"),
    "mask of numbers": (given(mask=torch.ones(5, 5)), "mask must have dtype bool; got float32"),
    "mask of another size": (given(mask=star(6)), r"mask must be \[N, N\] with N = 5.*got \[6, 6\]"),
    "mask with a batch": (given(mask=star(5)[None]), r"got \[1, 5, 5\]"),
    "mask elsewhere": (given(mask=star(5).to("meta")), "mask must be on the device of q, (cpu|cuda:0); it is on meta"),
    "a self-loop missing": (
        given(mask=without_self_loop()),
        r"every node must attend to itself; mask\[3, 3\] is False",
    ),
    "bias of integers": (given(bias=torch.zeros(5, 5).int()), "bias must have dtype float16.*got int32"),
    "bias of another size": (given(bias=torch.zeros(5, 4)), r"bias must be \[N, N\] with N = 5.*got \[5, 4\]"),
}


@BACKEND
@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_the_same_words_by_every_backend(device, backend, case):
    arguments, message = BAD[case]
    arguments = {name: on(device, x) for name, x in arguments.items()}
    with pytest.raises(ValueError, match=message):
        body_attention(**arguments, backend=backend)


def on(device: str, x: torch.Tensor | None) -> torch.Tensor | None:
    return x.to(device) if x is not None and not x.is_meta else x


def tensors(num_nodes: int, head_dim: int = 8, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.zeros(1, 1, num_nodes, head_dim, dtype=dtype) for _ in range(3)]


@pytest.mark.parametrize(
    ("backend", "arguments", "message"),
    [
        ("flash", [*tensors(3), tree(3)], "unknown backend 'flash'; have: reference, neighbours, triton, tile"),
        ("tile", [*tensors(129), tree(129)], "backend 'tile' takes up to 128 nodes; got N = 129"),
        ("tile", [*tensors(3, 129), tree(3)], "backend 'tile' takes a head dimension of 1 to 128; got D = 129"),
        ("triton", [*tensors(3, 200), tree(3)], "'triton' takes a head dimension of 1 to 128; got D = 200"),
        ("triton", [*tensors(3, 8, torch.float64), tree(3)], "'triton' takes float16.*q has float64"),
        ("triton", tensors(3), "backend 'triton' needs a mask; without one use 'reference' or 'tile'"),
        ("neighbours", tensors(3), "backend 'neighbours' needs a mask"),
        (
            "triton",
            [*(torch.zeros(1, 1, 1, 1).expand(2**15, 2**15, 2, 1) for _ in range(3)), tree(2)],
            r"takes up to 1073741824 rows B·H·N; q is \[32768, 32768, 2, 1\]",
        ),
    ],
)
def test_what_a_backend_does_not_take_is_said(device, backend, arguments, message):
    with pytest.raises(ValueError, match=message):
        body_attention(*(on(device, x) for x in arguments), backend=backend)


def test_more_nodes_than_the_kernels_take_are_refused_before_the_mask_is_read():
    mask = torch.ones(1, 1, dtype=torch.bool).expand(16_385, 16_385)
    with pytest.raises(ValueError, match="backend 'triton' takes up to 16384 nodes; got N = 16385"):
        body_attention(*tensors(16_385, 1), mask, backend="triton")


def test_kernels_are_refused_on_the_cpu(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    with pytest.raises(ValueError, match="backend 'tile' runs on cuda; q is on cpu"):
        body_attention(*tensors(3), backend="tile")


def test_a_missing_triton_is_named(monkeypatch):
    monkeypatch.setattr("body_transformer.ops.body_attention.check.triton_is_there", lambda: False)
    with pytest.raises(ValueError, match="backend 'tile' needs the package triton, which is not installed"):
        body_attention(*tensors(3), backend="tile")
