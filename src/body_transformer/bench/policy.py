"""The whole policy's step: normaliser, tokenizer, encoder, detokenizer, loss, backward, fused Adam."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from ..model.config import PolicyConfig
from ..model.encoder import Encoder, EncoderLayer
from ..model.policy import Policy
from .encoder_job import EncoderJob, Subject, load_subject
from .floors import BACKWARD, floor_ms, policy_flops
from .measure import Contender, Say, complaints, measure
from .stacks import CompiledLayer, Stack, compiled_layer
from .step_table import Parts, step_row, step_table
from .steps import forward_steps, optimiser_steps
from .timing import Step
from .witness import what_ran

TITLES = {
    "mlp": "mlp, eager",
    "reference": "bot-mix, reference encoder, eager",
    "compiled": "bot-mix, tokenizer, plain layers and detokenizer compiled",
    "ours": "bot-mix, ours",
}


def time_policy(job: EncoderJob, say: Say) -> Parts:
    """The humanoid's policy at the paper's PPO minibatch."""
    subject = load_subject(job, "humanoid-mod")
    title = f"humanoid-mod policy, batch {job.sizes.train}, forward+backward+Adam"
    obs, targets = draw_data(job, subject)
    ran: dict[str, str] = {}

    def build(name: str, precision: str) -> list[Step]:
        stack = build_policy(name, subject, job.device)
        if name == "ours":
            ran[precision] = what_ran(forward_steps(stack, obs[:1], precision)[0])
        return optimiser_steps(stack, obs, targets, precision, torch.optim.Adam)

    names = entrants(job)
    contenders = [Contender(f"{name} {precision}", partial(build, name, precision)) for name, precision in names]
    outcomes = measure(contenders, job.device, job.effort, lambda name: say(f"{title}: {name}"))
    rows = []
    for name, precision in names:
        flops = BACKWARD * job.sizes.train * policy_flops(subject.layout, config_of(name, subject.config))
        floor = floor_ms(flops, job.rates[precision])
        outcome, own = outcomes[f"{name} {precision}"], ran.get(precision) if name == "ours" else None
        rows.append(step_row(name, TITLES[name], precision, outcome, floor, own))
    return [step_table("policy", title, rows)], complaints(title, outcomes)


def entrants(job: EncoderJob) -> list[tuple[str, str]]:
    """Who takes part, at which precision. Compiling takes minutes: it is done for the fastest arithmetic alone."""
    precisions = dict.fromkeys(TITLES, job.precisions) | {"compiled": job.precisions[:1]}
    names = [name for name in TITLES if name == "ours" or (job.peers and (job.compile_peers or name != "compiled"))]
    return [(name, precision) for name in names for precision in precisions[name]]


def config_of(name: str, config: PolicyConfig) -> PolicyConfig:
    return PolicyConfig.from_dict({**config.to_dict(), "variant": "mlp"}) if name == "mlp" else config


def build_policy(name: str, subject: Subject, device: str) -> Stack:
    torch.manual_seed(0)
    policy = Policy(subject.layout, config_of(name, subject.config)).to(device)
    if name in ADAPT:
        ADAPT[name](policy)
    learned = [parameter for key, parameter in policy.named_parameters() if key != "log_std"]  # not in this loss
    return Stack(policy, learned)


def _take_the_reference(policy: Policy) -> None:
    policy.encoder.backend = "reference"  # type: ignore[assignment]  # a plain attribute of Encoder


def _compile_in_parts(policy: Policy) -> None:
    """Layer by layer, which compiles one layer, not ten."""
    encoder = policy.encoder
    assert isinstance(encoder, Encoder)
    encoder.backend = "layers"
    run = compiled_layer()
    layers = [layer for layer in encoder.layers if isinstance(layer, EncoderLayer)]
    encoder.layers = nn.ModuleList(CompiledLayer(layer, encoder.num_heads, run) for layer in layers)
    for part in (policy.normalizer, policy.tokenizer, policy.detokenizer):
        part.compile(dynamic=False)


ADAPT: dict[str, Callable[[Policy], None]] = {"reference": _take_the_reference, "compiled": _compile_in_parts}
"""What is done to the policy before it is timed."""


def draw_data(job: EncoderJob, subject: Subject) -> tuple[list[Tensor], list[Tensor]]:
    """Sets of observations and target actions."""
    batch, layout = job.sizes.train, subject.layout
    generator = torch.Generator(device=job.device).manual_seed(1)

    def draw(width: int) -> Tensor:
        return torch.randn(batch, width, generator=generator, device=job.device)

    count = min(4, job.num_sets(4 * batch * layout.obs_dim))
    return [draw(layout.obs_dim) for _ in range(count)], [draw(layout.action_dim) for _ in range(count)]
