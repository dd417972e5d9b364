"""The analysis's implementations of masked attention against the reference."""

import numpy as np
import pytest
import torch

from body_transformer.bench.masks import BODIES, random_mask
from body_transformer.bench.paper.algorithms import IMPLEMENTATIONS, CompiledAttention, check_agreement
from body_transformer.bench.paper.compiled import why_not
from body_transformer.ops.body_attention import reference

TOLERANCE = {"float64": 1e-12, "float32": 2e-6}

needs_compiler = pytest.mark.skipif(why_not() is not None, reason="no working C compiler")
every_implementation = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs_compiler) if name == "ours-c" else name for name in IMPLEMENTATIONS]
)


def draw(num_nodes: int, head_dim: int, dtype: str, scale: float = 1.0) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(num_nodes + head_dim)
    return tuple((scale * rng.standard_normal((num_nodes, head_dim))).astype(dtype) for _ in range(3))


def exact(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return the reference's output in float64."""
    tensors = (torch.from_numpy(x.astype("float64"))[None, None] for x in (q, k, v))
    return reference.body_attention(*tensors, torch.tensor(mask))[0, 0].numpy()


@every_implementation
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("num_nodes", "sparsity"), [(1, 0.0), (2, 0.5), (13, 0.78), (33, 0.0), (64, 0.908), (128, 0.908)]
)
@pytest.mark.parametrize("head_dim", [16, 32, 64, 128])
def test_every_implementation_agrees_with_the_reference(
    name: str, dtype: str, num_nodes: int, sparsity: float, head_dim: int
) -> None:
    mask = random_mask(num_nodes, sparsity, np.random.default_rng(3))
    q, k, v = draw(num_nodes, head_dim, dtype)
    out = IMPLEMENTATIONS[name].make(mask, head_dim, dtype)(q, k, v)
    assert out.dtype == dtype
    np.testing.assert_allclose(out, exact(q, k, v, mask), atol=TOLERANCE[dtype], rtol=0)


@every_implementation
def test_a_row_that_attends_only_to_itself_keeps_its_value(name: str) -> None:
    q, k, v = draw(9, 16, "float64")
    out = IMPLEMENTATIONS[name].make(np.eye(9, dtype=bool), 16, "float64")(q, k, v)
    np.testing.assert_allclose(out, v, rtol=1e-15)


@every_implementation
def test_large_scores_do_not_overflow(name: str) -> None:
    mask = random_mask(24, 0.8, np.random.default_rng(0))
    q, k, v = draw(24, 32, "float32", scale=100.0)
    out = IMPLEMENTATIONS[name].make(mask, 32, "float32")(q, k, v)
    np.testing.assert_allclose(out, exact(q, k, v, mask), rtol=1e-2, atol=0.1)


@every_implementation
def test_a_second_call_does_not_depend_on_the_first(name: str) -> None:
    mask = random_mask(24, 0.8, np.random.default_rng(0))
    attention = IMPLEMENTATIONS[name].make(mask, 32, "float64")
    attention(*draw(24, 32, "float64", scale=50.0))
    q, k, v = draw(24, 32, "float64")
    np.testing.assert_allclose(attention(q, k, v), exact(q, k, v, mask), atol=1e-12)


@pytest.mark.parametrize("name", ["ours", pytest.param("ours-c", marks=needs_compiler)])
def test_a_nan_of_a_masked_node_does_not_reach_a_row(name: str) -> None:
    mask = np.eye(6, dtype=bool)
    mask[0] = mask[1, 2] = True
    q, k, v = draw(6, 16, "float64")
    k[0] = v[0] = np.nan
    assert np.isfinite(IMPLEMENTATIONS[name].make(mask, 16, "float64")(q, k, v)[1:]).all()


@every_implementation
@pytest.mark.parametrize("body", BODIES)
def test_every_implementation_agrees_with_the_reference_on_real_bodies(name: str, body: str) -> None:
    mask = BODIES[body]()
    q, k, v = draw(len(mask), 32, "float64")
    out = IMPLEMENTATIONS[name].make(mask, 32, "float64")(q, k, v)
    np.testing.assert_allclose(out, exact(q, k, v, mask), atol=1e-12)


# -- in C --------------------------------------------------------------------------------------------------------------


@needs_compiler
def test_the_compiled_attention_refuses_inputs_of_another_shape_dtype_or_stride() -> None:
    attention = CompiledAttention(np.eye(8, dtype=bool), 16, "float32")
    right = np.zeros((8, 16), dtype="float32")
    for wrong in (np.zeros((8, 16)), np.zeros((7, 16), dtype="float32"), np.zeros((8, 32), dtype="float32")):
        with pytest.raises(ValueError, match=r"must be float32 \[8, 16\]; got"):
            attention(right, wrong, right)
    with pytest.raises((ValueError, TypeError, BufferError)):
        attention(right, np.zeros((16, 8), dtype="float32").T, right)


@needs_compiler
def test_loading_the_compiled_attention_does_not_round_tiny_numbers_to_zero() -> None:
    CompiledAttention(np.eye(4, dtype=bool), 16, "float32")
    tiny = np.array([1e-40], dtype="float32")
    assert (tiny * np.float32(0.5))[0] != 0


@needs_compiler
def test_a_nan_is_propagated_in_c() -> None:
    q, k, v = draw(6, 16, "float32")
    v[2, 3] = np.nan
    out = CompiledAttention(np.ones((6, 6), dtype=bool), 16, "float32")(q, k, v)
    assert np.isnan(out[:, 3]).all()


def test_an_implementation_with_a_different_output_is_refused() -> None:
    right, wrong = np.zeros((2, 2)), np.full((2, 2), 1e-3)
    check_agreement({"vanilla": right, "ours": right}, "float32")
    with pytest.raises(ArithmeticError, match=r"ours differs from vanilla by 0\.001"):
        check_agreement({"vanilla": right, "ours": wrong}, "float32")
    with pytest.raises(ArithmeticError, match="ours differs from vanilla by nan"):
        check_agreement({"vanilla": right, "ours": wrong * np.nan}, "float32")
