"""Input checks of body attention, and their messages."""

import pytest
import torch

from body_transformer.ops.body_attention import BACKENDS, body_attention

from .attention_cases import make_problem, star, tree

BACKEND = pytest.mark.parametrize("backend", BACKENDS)


def given(**changes) -> dict[str, object]:
    problem = make_problem((2, 1, 5, 8), star(5), bias=True)
    names = ("q", "k", "v", "mask", "bias")
    return {name: getattr(problem, name) for name in names} | changes


def without_self_loop() -> torch.Tensor:
    mask = star(5)
    mask[3, 3] = False
    return mask


BAD = {
    "no q": (given(q=None), "q must be a tensor; got NoneType"),
    "k of lists": (given(k=[[1.0]]), "k must be a tensor; got list"),
    "mask of NumPy": (given(mask=star(5).numpy()), "mask must be a tensor or None; got ndarray"),
    "bias of one number": (given(bias=0.5), "bias must be a tensor or None; got float"),
    "q of three axes": (given(q=torch.zeros(1, 5, 8)), r"must have one shape \[B, H, N, D\]; got \[1, 5, 8\]"),
    "other shapes": (given(k=torch.zeros(2, 1, 6, 8)), r"one shape .*; got .*\[2, 1, 6, 8\]"),
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
def test_every_backend_refuses_bad_input_with_the_same_message(device, backend, case):
    arguments, message = BAD[case]
    arguments = {name: on(device, x) for name, x in arguments.items()}
    with pytest.raises(ValueError, match=message):
        body_attention(**arguments, backend=backend)


def on(device: str, x: object) -> object:
    return x.to(device) if isinstance(x, torch.Tensor) and not x.is_meta else x


def tensors(num_nodes: int, head_dim: int = 8, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.zeros(1, 1, num_nodes, head_dim, dtype=dtype) for _ in range(3)]


@pytest.mark.parametrize(
    ("backend", "arguments", "message"),
    [
        ("flash", [*tensors(3), tree(3)], "unknown backend 'flash'; have: 'reference', 'neighbours', 'triton', 'tile'"),
        (3, [*tensors(3), tree(3)], "unknown backend 3; have: 'reference', 'neighbours', 'triton', 'tile'"),
        (["tile"], [*tensors(3), tree(3)], r"unknown backend \['tile'\]; did you mean 'tile'"),
        ("tile", [*tensors(129), tree(129)], "backend 'tile' takes up to 128 nodes; got N = 129"),
        ("tile", [*tensors(3, 129), tree(3)], "backend 'tile' takes a head dimension of 1 to 128; got D = 129"),
        ("triton", [*tensors(3, 200), tree(3)], "'triton' takes a head dimension of 1 to 128; got D = 200"),
        ("triton", [*tensors(3, 8, torch.float64), tree(3)], "'triton' takes float16.*q has float64"),
        ("triton", tensors(3), "backend 'triton' needs a mask; without one use 'reference' or 'tile'"),
        ("neighbours", tensors(3), "backend 'neighbours' needs a mask"),
        (
            "triton",
            [*(torch.zeros(1, 1, 1, 1).expand(2**15, 2**15, 2, 1) for _ in range(3)), tree(2)],
            "takes up to 1073741824 rows B·H·N; got 2147483648",
        ),
    ],
)
def test_inputs_beyond_a_backends_limits_are_refused(device, backend, arguments, message):
    with pytest.raises(ValueError, match=message):
        body_attention(*(on(device, x) for x in arguments), backend=backend)


def test_more_nodes_than_the_kernels_support_are_refused_before_the_mask_is_read():
    mask = torch.ones(1, 1, dtype=torch.bool).expand(16_385, 16_385)
    with pytest.raises(ValueError, match="backend 'triton' takes up to 16384 nodes; got N = 16385"):
        body_attention(*tensors(16_385, 1), mask, backend="triton")


def test_kernels_are_refused_on_the_cpu(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    with pytest.raises(ValueError, match="backend 'tile' runs on cuda; q is on cpu"):
        body_attention(*tensors(3), backend="tile")


def test_a_missing_triton_is_an_error_that_names_it(monkeypatch):
    monkeypatch.setattr("body_transformer.ops.dispatch.HAS_TRITON", False)
    with pytest.raises(ValueError, match="backend 'tile' needs the package triton, which is not installed"):
        body_attention(*tensors(3), backend="tile")
