"""`bot bench encoder`: the whole encoder, the whole policy's step, a whole imitation step, and how exact they are."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from .accuracy import find_errors
from .chart import Chart
from .encoder_job import EncoderJob, Subject, load_subject
from .floors import BACKWARD, floor_ms
from .measure import Contender, Say, complaints, measure
from .policy import time_policy
from .results import ResultTable
from .stacks import Stack, stack_kinds
from .step_table import Parts, step_chart, step_row, step_table
from .steps import forward_steps, gradient_steps, optimiser_steps
from .timing import Step
from .witness import what_ran

MakeSteps = Callable[[Stack, list[Tensor], str], list[Step]]
"""An encoder, sets of tokens and a precision -> what is timed."""


def run(job: EncoderJob, say: Say) -> tuple[list[ResultTable], list[str], Chart]:
    """The tables, what went wrong, and the chart."""
    notes: list[str] = []
    if any(name in COMPILED_PARTS for name in job.rows):
        rates = ", ".join(f"{name} {rate / 1e12:.3g} TFLOP/s" for name, rate in job.rates.items())
        notes.append(f"floor: the arithmetic alone, at the rate of a large product in this run ({rates})")
    tables: list[ResultTable] = []
    for name in job.rows:
        found, wrong = PARTS[name](job, say)
        tables += found
        notes += wrong
    return tables, notes, step_chart(tables)


def time_ppo(job: EncoderJob, say: Say) -> Parts:
    """The humanoid's encoder at the paper's PPO minibatch, and the forward pass of a rollout's step."""
    subject = load_subject(job, "humanoid-mod")
    train, rollout = job.sizes.train, job.sizes.rollout

    both = _stack_table(
        job, subject, "ppo", f"humanoid encoder, batch {train}, forward+backward", train, BACKWARD, gradient_steps, say
    )
    forward = _stack_table(
        job, subject, "rollout", f"humanoid encoder, batch {rollout}, forward", rollout, 1, forward_steps, say
    )
    return [both[0], forward[0]], [*both[1], *forward[1]]


def time_imitation(job: EncoderJob, say: Say) -> Parts:
    """MoCapAct's encoder: one whole step of AdamW."""
    subject = load_subject(job, "mocapact")
    batch = job.sizes.imitation

    def steps(stack: Stack, inputs: list[Tensor], precision: str) -> list[Step]:
        targets = subject.draw(batch, len(inputs), seed=2)
        return optimiser_steps(stack, inputs, targets, precision, torch.optim.AdamW)

    title = f"MoCapAct encoder, batch {batch}, forward+backward+AdamW"
    table, notes = _stack_table(job, subject, "imitation", title, batch, BACKWARD, steps, say)
    return [table], notes


def _stack_table(
    job: EncoderJob,
    subject: Subject,
    key: str,
    title: str,
    batch: int,
    factor: int,
    make_steps: MakeSteps,
    say: Say,
) -> tuple[ResultTable, list[str]]:
    """Every kind of encoder at every precision; `factor` is the arithmetic over that of a forward pass."""
    token_bytes = 4 * batch * subject.layout.graph.num_nodes * subject.config.embed_dim
    inputs = subject.draw(batch, job.num_sets(2 * token_bytes), seed=1)
    flops = factor * batch * subject.flops()
    kinds = stack_kinds(job.peers, job.compile_peers)
    ran: dict[tuple[str, str], str] = {}

    def build(name: str, precision: str) -> list[Step]:
        stack = kinds[name].make(subject.weights, precision)
        if name == "ours":
            ran[name, precision] = what_ran(forward_steps(stack, inputs[:1], precision)[0])
        return make_steps(stack, inputs, precision)

    names = [(name, precision) for name in kinds for precision in job.precisions]
    contenders = [Contender(f"{name} {precision}", partial(build, name, precision)) for name, precision in names]
    outcomes = measure(contenders, job.device, job.effort, lambda name: say(f"{title}: {name}"))
    rows = [
        step_row(name, kinds[name].title, precision, outcomes[f"{name} {precision}"], floor, ran.get((name, precision)))
        for (name, precision), floor in ((one, floor_ms(flops, job.rates[one[1]])) for one in names)
    ]
    return step_table(key, title, rows), complaints(title, outcomes)


PARTS: dict[str, Callable[[EncoderJob, Say], Parts]] = {
    "ppo": time_ppo,
    "policy": time_policy,
    "imitation": time_imitation,
    "errors": find_errors,
}
"""What there is to run, by its name on the command line."""
COMPILED_PARTS = ("ppo", "policy", "imitation")
"""Those that are timed, with peers that are compiled."""
