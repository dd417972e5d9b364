"""How exact the encoder is beside PyTorch's own arithmetic of the same precision; float64 is the truth."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .arithmetic import autocast, matmul_precision
from .encoder_job import EncoderJob, load_subject
from .measure import Say, first_line
from .results import Column, ResultTable
from .stacks import OURS, PLAIN, Stack
from .step_table import Parts

COLUMNS = (
    Column("precision", "precision"),
    Column("quantity", "relative error of"),
    Column("ours", "ours", "error"),
    Column("torch", "PyTorch", "error"),
    Column("ratio", "ours / PyTorch", "ratio"),
)


def find_errors(job: EncoderJob, say: Say) -> Parts:
    """Output, and the worst of all gradients, of the humanoid's encoder."""
    subject = load_subject(job, "humanoid-mod")
    batch = job.sizes.errors
    x, grad = subject.draw(batch, 2, seed=3)
    truth = output_and_gradients(PLAIN.make(subject.weights.double(), "fp32"), x.double(), grad.double(), "fp32")
    rows, notes = [], []
    for precision in job.precisions:
        say(f"errors: {precision}")
        try:
            results = [
                output_and_gradients(kind.make(subject.weights, precision), x, grad, precision)
                for kind in (OURS, PLAIN)
            ]
        except Exception as error:
            notes.append(f"errors, {precision}: {first_line(error)}")
            continue
        ours, theirs = ([relative_error(a, b) for a, b in zip(result, truth, strict=True)] for result in results)
        for quantity, a, b in (("output", ours[0], theirs[0]), ("worst gradient", worst(ours[1:]), worst(theirs[1:]))):
            rows.append({"precision": precision, "quantity": quantity, "ours": a, "torch": b, "ratio": a / b})
    title = f"humanoid encoder, batch {batch}: errors against float64, beside PyTorch's of the same precision"
    return [ResultTable("errors", title, COLUMNS, rows)], notes


def output_and_gradients(stack: Stack, x: Tensor, grad: Tensor, precision: str) -> Sequence[Tensor]:
    """The output, then the gradients of the input and of every parameter."""
    x = x.detach().requires_grad_()
    with matmul_precision(precision):
        with autocast(precision, x.device.type):
            out = stack.forward(x)
        return out, *torch.autograd.grad(out, (x, *stack.parameters), grad.to(out.dtype))


def worst(errors: Sequence[float]) -> float:
    """The largest; NaN if one is, which `max` would pass over."""
    return float(torch.tensor(errors, dtype=torch.float64).max())


def relative_error(value: Tensor, truth: Tensor) -> float:
    return float((value.detach().double() - truth.detach()).norm() / truth.detach().norm())
