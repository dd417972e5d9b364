"""The wide encoder against the reference in float64: outputs and every gradient."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from body_transformer.ops.encoder_stack import PARAMETERS, reference, wide
from body_transformer.ops.encoder_stack.packing import Call
from body_transformer.ops.encoder_stack.wide import gradients
from body_transformer.ops.encoder_stack.wide.storage import Activations

EPS = 1e-5


@dataclass
class Case:
    """An encoder's size, and its masked layers."""

    batch: int
    num_nodes: int
    width: int
    hidden: int
    num_heads: int
    masked: tuple[bool, ...]

    def parameters(self) -> list[Tensor]:
        e, f = self.width, self.hidden
        shapes = [(3 * e, e), (3 * e,), (e, e), (e,), (e,), (e,), (f, e), (f,), (e, f), (e,), (e,), (e,)]
        scales = [s[-1] ** -0.5 if len(s) == 2 else 0.1 for s in shapes]
        drawn = [torch.randn(s) * scale for _ in self.masked for s, scale in zip(shapes, scales, strict=True)]
        return [p + 1 if k % 12 in (4, 10) else p for k, p in enumerate(drawn)]  # LayerNorm's weights lie around 1

    def mask(self) -> Tensor:
        """Draw a random tree with self-loops."""
        mask = torch.eye(self.num_nodes, dtype=torch.bool)
        for node in range(1, self.num_nodes):
            parent = int(torch.randint(node, ()))
            mask[node, parent] = mask[parent, node] = True
        return mask


CASES = {
    "mixed masks": Case(4, 8, 32, 64, 2, (True, False)),
    "all masked": Case(2, 16, 64, 32, 4, (True, True)),
    "no mask at all": Case(2, 4, 16, 16, 1, (False,)),
    "nothing divides": Case(3, 5, 48, 100, 3, (True, False, True)),
    "width 40": Case(3, 5, 40, 100, 5, (False, True)),
    "one node": Case(5, 1, 24, 20, 1, (True,)),
    "one sample of many nodes": Case(1, 33, 32, 24, 2, (True, False)),
}


@dataclass
class Data:
    x: Tensor
    parameters: list[Tensor]
    mask: Tensor
    grad_out: Tensor
    case: Case

    @classmethod
    def of(cls, case: Case, device: str, seed: int = 0) -> "Data":
        torch.manual_seed(seed)
        shape = (case.batch, case.num_nodes, case.width)
        tensors = torch.randn(shape), case.parameters(), case.mask(), torch.randn(shape)
        x, parameters, mask, grad_out = tensors
        return cls(x.to(device), [p.to(device) for p in parameters], mask.to(device), grad_out.to(device), case)


def plain(data: Data, dtype: torch.dtype) -> dict[str, Tensor]:
    """Return output and gradients of the reference, optionally under autocast."""
    leaves = [t.detach().to(dtype).clone().requires_grad_() for t in (data.x, *data.parameters)]
    x, *parameters = leaves
    out = reference.encoder_stack(x, parameters, data.mask, data.case.masked, data.case.num_heads, EPS)
    with torch.autocast(data.x.device.type, enabled=False):
        found = torch.autograd.grad(out, leaves, data.grad_out.to(out.dtype))
    return _named(out.detach(), found[0], list(found[1:]))


def ours(data: Data, precision: str) -> dict[str, Tensor]:
    out, _, grad_x, stacks = passes(data, precision)
    found = wide.parameter_gradients(stacks, data.parameters)
    assert all(g.dtype == torch.float32 and g.is_contiguous() for g in found)
    return _named(out, grad_x, found)


def passes(data: Data, precision: str) -> tuple[Tensor, list[Tensor], Tensor, list[Tensor]]:
    """Return the output, the saved tensors, the gradient of x, and the stacked gradients of the parameters."""
    case = data.case
    call = Call(data.mask, list(case.masked), case.num_heads, EPS, precision)
    out, *saved = wide.forward(data.x, data.parameters, call, save=True)
    grad_x, *stacks = wide.backward(data.grad_out, saved, data.x, data.parameters, call)
    return out, saved, grad_x, stacks


def _named(out: Tensor, grad_x: Tensor, gradients: list[Tensor]) -> dict[str, Tensor]:
    named = {f"{k // 12}.{PARAMETERS[k % 12]}": gradient for k, gradient in enumerate(gradients)}
    return {"out": out, "x": grad_x, **named}


def errors(found: dict[str, Tensor], exact: dict[str, Tensor]) -> dict[str, float]:
    assert found.keys() == exact.keys()
    assert all(found[name].shape == exact[name].shape for name in exact)
    return {name: float((found[name].double() - e).norm() / e.norm().clamp(min=1e-6)) for name, e in exact.items()}


@pytest.fixture(autouse=True)
def _poisoned_memory() -> Iterator[None]:
    """Fill uninitialised memory with NaN, so that its use is noticed."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)  # fills the tensors of torch.empty
    yield
    torch.use_deterministic_algorithms(deterministic)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_float32_gives_the_output_and_every_gradient_of_the_reference(case: Case, device: str) -> None:
    data = Data.of(case, device)
    wrong = errors(ours(data, "fp32"), plain(data, torch.float64))
    assert max(wrong.values()) < 1e-5, wrong


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_bfloat16_is_close_to_the_reference(case: Case, device: str) -> None:
    data = Data.of(case, device)
    wrong = errors(ours(data, "bf16"), plain(data, torch.float64))
    assert wrong["out"] < 1e-2, wrong
    # a ReLU input that changes sign makes single gradients wrong; see the next test
    assert max(wrong.values()) < 0.2, wrong


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the yardstick is torch on a GPU")
@pytest.mark.parametrize("precision", ["bf16", "tf32"])
@pytest.mark.parametrize("depth", [2, 16])
def test_low_precision_is_as_accurate_as_pytorch(precision: str, depth: int) -> None:
    case = Case(16, 32, 320, 1024, 5, tuple(layer % 2 == 0 for layer in range(depth)))
    data = Data.of(case, "cuda")
    exact = plain(data, torch.float64)
    mine = errors(ours(data, precision), exact)
    allowed, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, precision == "tf32"
    try:
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            theirs = errors(plain(data, torch.float32), exact)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed
    assert all(mine[name] <= 1.5 * theirs[name] for name in exact), {n: (mine[n], theirs[n]) for n in exact}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_same_inputs_give_the_same_bits(precision: str, device: str) -> None:
    data = Data.of(CASES["nothing divides"], device)
    first, second = ours(data, precision), ours(data, precision)
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(("run_bytes", "at_once"), [(2**30, 3), (2**15, 2), (1, 1)])
def test_gradients_do_not_depend_on_how_many_layers_are_computed_at_once(
    run_bytes: int, at_once: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Data.of(CASES["nothing divides"], device)
    whole = ours(data, "fp32")
    monkeypatch.setattr(gradients, "MAX_RUN_BYTES", run_bytes)
    found = ours(data, "fp32")
    kept = Activations.empty(3, data.x, data.case.hidden, torch.float32)
    assert gradients.layers_at_once(kept) == at_once
    assert max(errors(found, {name: value.double() for name, value in whole.items()}).values()) < 1e-6


def test_all_sixteen_layers_of_the_imitation_size_are_computed_at_once_in_bfloat16() -> None:
    x = torch.empty(256, 32, 320, device="meta")
    kept = Activations.empty(16, x, 1024, torch.bfloat16)
    assert gradients.layers_at_once(kept) == 16
    assert gradients.layers_at_once(Activations.empty(16, x, 1024, torch.float32)) == 8


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("batch", [0, 3])
def test_the_fake_passes_return_tensors_like_the_real_ones(precision: str, batch: int, device: str) -> None:
    data = Data.of(Case(batch, 5, 48, 100, 3, (True, False)), device)
    out, saved, grad_x, stacks = passes(data, precision)
    arguments = (data.x, data.parameters, data.case.num_heads, precision)
    assert layouts(wide.fake_forward(*arguments, save=True)) == layouts([out, *saved])
    assert layouts(wide.fake_forward(*arguments, save=False)) == layouts([out])
    assert layouts(wide.fake_backward(data.x, data.parameters)) == layouts([grad_x, *stacks])


def layouts(tensors: list[Tensor]) -> list[tuple[object, ...]]:
    return [(t.shape, t.stride(), t.dtype, t.device) for t in tensors]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_no_two_results_share_memory_with_each_other_or_with_an_argument(precision: str, device: str) -> None:
    data = Data.of(CASES["mixed masks"], device)
    out, saved, grad_x, stacks = passes(data, precision)
    tensors = [out, *saved, grad_x, *stacks, data.x, data.grad_out, *data.parameters]
    assert len({tensor.untyped_storage().data_ptr() for tensor in tensors}) == len(tensors)


def test_a_forward_pass_that_saves_nothing_gives_the_same_output(device: str) -> None:
    data = Data.of(CASES["nothing divides"], device)
    call = Call(data.mask, list(data.case.masked), data.case.num_heads, EPS, "bf16")
    kept, *_ = wide.forward(data.x, data.parameters, call, save=True)
    (out,) = wide.forward(data.x, data.parameters, call, save=False)
    assert torch.equal(out, kept)


def _transposed(x: Tensor) -> Tensor:
    return x.transpose(0, 2).contiguous().transpose(0, 2)


def _with_gaps(x: Tensor) -> Tensor:
    return torch.cat([x, torch.full_like(x, torch.nan)], 2)[:, :, : x.shape[2]]


@pytest.mark.parametrize("laid_out", [_transposed, _with_gaps])
def test_strides_of_inputs_do_not_matter_and_inputs_are_not_modified(
    laid_out: Callable[[Tensor], Tensor], device: str
) -> None:
    data = Data.of(CASES["mixed masks"], device)
    dense, before = ours(data, "fp32"), data.x.clone()
    data.x, data.grad_out = laid_out(data.x), laid_out(data.grad_out)
    data.parameters = [p if p.dim() == 1 else p.t().contiguous().t() for p in data.parameters]
    strided = ours(data, "fp32")
    assert all(torch.equal(dense[name], strided[name]) for name in dense)
    assert torch.equal(data.x, before)


def test_an_expanded_gradient_is_read_correctly(device: str) -> None:
    data = Data.of(CASES["mixed masks"], device)
    data.grad_out = torch.full_like(data.grad_out, 0.5)
    dense = ours(data, "fp32")
    data.grad_out = data.grad_out[:1, :1, :1].expand(data.x.shape)
    expanded = ours(data, "fp32")
    assert all(torch.equal(dense[name], expanded[name]) for name in dense)


def test_an_empty_batch_gives_an_empty_output_and_zero_gradients(device: str) -> None:
    data = Data.of(Case(0, 5, 16, 8, 2, (True, False)), device)
    found = ours(data, "bf16")
    assert found["out"].shape == found["x"].shape == (0, 5, 16)
    assert all(not gradient.any() for gradient in found.values())


def test_a_layer_without_a_mask_and_a_masked_layer_with_a_full_mask_are_the_same(device: str) -> None:
    data = Data.of(CASES["mixed masks"], device)
    data.mask.fill_(True)
    seen = ours(data, "fp32")
    data.case = Case(4, 8, 32, 64, 2, (False, False))
    unseen = ours(data, "fp32")
    assert max(errors(seen, {name: value.double() for name, value in unseen.items()}).values()) < 1e-6
