"""Errors against float64: a check of attention before it is timed, and a table of the encoder's errors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..ops.body_attention import reference
from .attention_peers import DTYPES, Attention, Inputs
from .encoder_peers import ENCODERS, PLAIN, TimedExperiment
from .harness import Bench, first_line
from .results import ResultColumn, ResultTable
from .steps import TimedModel, forward, output_and_gradients

CHECKED_SAMPLES = 2
"""Number of samples per batch that are compared with float64."""


def relative_error(value: Tensor, truth: Tensor) -> float:
    return float((value.detach().double() - truth.detach()).norm() / truth.detach().norm())


# -- attention ---------------------------------------------------------------------------------------------------------


def check(attention: Attention, mask: Tensor, inputs: Inputs, dtype: str, is_ours: bool = False) -> None:
    """Compare the output with float64 before the attention is timed; raise ValueError if it is wrong.

    The whole batch is computed, as in the timed run, and its first samples are compared. For this package (`is_ours`)
    the tolerance is lower, and the gradients are compared too.
    """
    numbers, model = DTYPES[dtype], TimedModel(attention)
    tolerance = numbers.our_tolerance if is_ours else numbers.tolerance
    exact = few_samples(inputs, torch.float64)
    truth = reference.body_attention(*exact[:3], mask)
    _compare("output", forward(model, inputs[:3], numbers.matmul)[:CHECKED_SAMPLES], truth, tolerance)
    if is_ours:
        few = few_samples(inputs, numbers.dtype)
        found = output_and_gradients(model, few[:3], few[3], numbers.matmul)[1:]
        grads = torch.autograd.grad(truth, exact[:3], exact[3])
        for name, value, wanted in zip("qkv", found, grads, strict=True):
            _compare(f"gradient of {name}", value, wanted, tolerance)


def few_samples(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """Return copies of the first samples, with q, k and v as leaves."""
    q, k, v, grad = (x.detach()[:CHECKED_SAMPLES].to(dtype) for x in inputs)
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), grad


def _compare(what: str, value: Tensor, truth: Tensor, tolerance: float) -> None:
    error = relative_error(value, truth)
    if not error < tolerance:  # also true of NaN
        raise ValueError(f"wrong {what}: relative error {error:.1e}; at most {tolerance:.0e} is allowed")


# -- encoder -----------------------------------------------------------------------------------------------------------

ERROR_COLUMNS = (
    ResultColumn("precision", "precision"),
    ResultColumn("quantity", "relative error of"),
    ResultColumn("ours", "ours", "error"),
    ResultColumn("torch", "PyTorch", "error"),
    ResultColumn("ratio", "ours / PyTorch", "ratio"),
)


def find_errors(bench: Bench, timed: TimedExperiment, batch: int, precisions: Sequence[str]) -> ResultTable:
    """Tabulate the errors of the encoder and of PyTorch in the same precision, both against float64."""
    x, grad = timed.draw(batch, 2, seed=3)
    exact = PLAIN.make(timed.in_float64())
    truth = output_and_gradients(exact, (x.double().requires_grad_(),), grad.double(), "fp32")
    x.requires_grad_()
    rows = []
    for precision in precisions:
        bench.say(f"errors: {precision}")
        try:
            kinds = (ENCODERS["ours"], PLAIN)
            results = [output_and_gradients(kind.make(timed), (x,), grad, precision) for kind in kinds]
        except Exception as error:
            bench.notes.append(f"errors, {precision}: {first_line(error)}")
            continue
        ours, theirs = ([relative_error(a, b) for a, b in zip(result, truth, strict=True)] for result in results)
        for quantity, a, b in (("output", ours[0], theirs[0]), ("worst gradient", worst(ours[1:]), worst(theirs[1:]))):
            rows.append({"precision": precision, "quantity": quantity, "ours": a, "torch": b, "ratio": a / b})
    title = f"humanoid encoder, batch {batch}: errors against float64, ours and PyTorch's"
    return ResultTable("errors", title, ERROR_COLUMNS, rows)


def worst(errors: Sequence[float]) -> float:
    """Return the largest error, or NaN if any error is NaN, which Python's `max` might skip."""
    return float(torch.tensor(errors, dtype=torch.float64).max())
