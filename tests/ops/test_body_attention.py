"""The specification of masked attention against its definition, computed in scalars."""

import math

import pytest
import torch
from torch import Tensor

from body_transformer.ops.body_attention.reference import body_attention

from .attention_cases import asymmetric, make_problem

SHAPES = [(1, 1, 1, 1), (2, 1, 5, 3), (1, 4, 16, 8), (3, 2, 33, 5), (0, 2, 4, 3)]


def problem(shape: tuple[int, int, int, int]) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return q, k, v [B, H, N, D], a mask [N, N] with self-loops, and a bias [N, N]."""
    drawn = make_problem(shape, asymmetric(shape[2]), torch.float64, bias=True)
    return drawn.q, drawn.k, drawn.v, drawn.mask, drawn.bias.double()


def pair_by_pair(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None) -> Tensor:
    """Compute the definition in scalars."""
    out = torch.zeros_like(v)
    batch, heads, size, width = q.shape
    for b in range(batch):
        for h in range(heads):
            for i in range(size):
                js = [j for j in range(size) if mask is None or mask[i, j]]
                scores = [float(q[b, h, i] @ k[b, h, j]) / math.sqrt(width) for j in js]
                if bias is not None:
                    scores = [score + float(bias[i, j]) for score, j in zip(scores, js, strict=True)]
                weights = [math.exp(score - max(scores)) for score in scores]
                for weight, j in zip(weights, js, strict=True):
                    out[b, h, i] += weight / sum(weights) * v[b, h, j]
    return out


@pytest.mark.parametrize("with_bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("with_mask", [False, True], ids=["", "mask"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "B{}H{}N{}D{}".format(*s))
def test_it_equals_the_definition_computed_in_scalars(shape, with_mask, with_bias):
    q, k, v, mask, bias = problem(shape)
    options = mask if with_mask else None, bias if with_bias else None
    torch.testing.assert_close(body_attention(q, k, v, *options), pair_by_pair(q, k, v, *options))


def test_gradients_of_every_input_and_of_the_bias_are_correct():
    q, k, v, mask, bias = problem((2, 2, 4, 3))
    inputs = [x.detach().requires_grad_() for x in (q, k, v, bias)]
    assert torch.autograd.gradcheck(lambda q, k, v, bias: body_attention(q, k, v, mask, bias), inputs)


def test_a_masked_pair_has_no_influence_and_no_gradient():
    q, k, v, mask, bias = (x.detach() for x in problem((1, 1, 6, 3)))
    row = 2
    for x in (k, v, bias):
        x.requires_grad_()
    body_attention(q, k, v, mask, bias)[:, :, row].square().sum().backward()
    assert ((v.grad[0, 0] != 0).all(-1) == mask[row]).all()
    assert not k.grad[0, 0][~mask[row]].any()
    assert not bias.grad[~mask].any()
    changed = [x.detach().clone() for x in (k, v)]
    for x in changed:
        x[:, :, ~mask[row]] += 10
    with torch.no_grad():
        before, after = body_attention(q, k, v, mask), body_attention(q, *changed, mask)
    assert torch.equal(before[:, :, row], after[:, :, row])


def test_rows_of_the_mask_are_queries_and_columns_are_keys():
    v = torch.arange(3.0).view(1, 1, 3, 1)
    mask = torch.tensor([[1, 0, 0], [1, 0, 0], [0, 0, 1]], dtype=torch.bool)  # 1 attends to 0, not the reverse
    out = body_attention(torch.zeros_like(v), torch.zeros_like(v), v, mask)
    assert out.flatten().tolist() == [0, 0, 2]


def test_a_masked_pair_stays_masked_however_low_the_other_scores_are():
    q, k, v, mask, _ = problem((1, 2, 6, 3))
    low = torch.full((6, 6), -1e12, dtype=torch.float64).masked_fill(~mask, 1e12)
    torch.testing.assert_close(body_attention(q, k, v, mask, low), body_attention(q, k, v, mask), atol=1e-3, rtol=0)
