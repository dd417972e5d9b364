"""The whole policy's step: normaliser, tokenizer, encoder, detokenizer, loss, backward, fused Adam."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..model.config import PolicyConfig
from ..model.policy import Policy
from .encoder_job import EncoderJob, Subject, load_subject
from .floors import BACKWARD, floor_ms, policy_flops
from .measure import Contender, Say, complaints, measure
from .stacks import Stack
from .step_table import Parts, step_row, step_table
from .steps import optimiser_steps
from .timing import Step, num_sets

TITLES = {
    "mlp": "mlp, eager",
    "reference": "bot-mix, reference encoder, eager",
    "reference_compiled": "bot-mix, reference encoder, compiled",
    "ours": "bot-mix, ours",
}


def time_policy(job: EncoderJob, say: Say) -> Parts:
    """The humanoid's policy at the paper's PPO minibatch."""
    subject = load_subject(job, "humanoid-mod")
    title = f"humanoid-mod policy, batch {job.sizes.train}, forward+backward+Adam"
    peers = [name for name in TITLES if name != "ours" and (job.compile_peers or "compiled" not in name)]
    names = [(name, precision) for name in [*(peers if job.peers else []), "ours"] for precision in job.precisions]
    obs, targets = draw_data(job, subject)
    contenders = [
        Contender(f"{name} {precision}", partial(build, name, subject, obs, targets, precision))
        for name, precision in names
    ]
    outcomes = measure(contenders, job.device, job.effort, lambda name: say(f"{title}: {name}"))
    rows = []
    for name, precision in names:
        flops = BACKWARD * job.sizes.train * policy_flops(subject.layout, config_of(name, subject.config))
        floor = floor_ms(flops, job.rates[precision])
        rows.append(step_row(name, TITLES[name], precision, outcomes[f"{name} {precision}"], floor))
    return [step_table("policy", title, rows)], complaints(title, outcomes)


def config_of(name: str, config: PolicyConfig) -> PolicyConfig:
    return PolicyConfig.from_dict({**config.to_dict(), "variant": "mlp"}) if name == "mlp" else config


def build(name: str, subject: Subject, obs: list[Tensor], targets: list[Tensor], precision: str) -> list[Step]:
    torch.manual_seed(0)
    policy = Policy(subject.layout, config_of(name, subject.config)).to(obs[0].device)
    if name.startswith("reference"):
        policy.encoder.backend = "reference"  # type: ignore[assignment]  # a plain attribute of Encoder
    forward: Any = torch.compile(policy, dynamic=False) if name == "reference_compiled" else policy
    learned = [parameter for key, parameter in policy.named_parameters() if key != "log_std"]  # not in this loss
    return optimiser_steps(Stack(forward, learned), obs, targets, precision, torch.optim.Adam)


def draw_data(job: EncoderJob, subject: Subject) -> tuple[list[Tensor], list[Tensor]]:
    """Sets of observations and target actions."""
    batch, layout = job.sizes.train, subject.layout
    generator = torch.Generator(device=job.device).manual_seed(1)

    def draw(width: int) -> Tensor:
        return torch.randn(batch, width, generator=generator, device=job.device)

    count = 1 if job.quick else min(4, num_sets(4 * batch * layout.obs_dim, job.device))
    return [draw(layout.obs_dim) for _ in range(count)], [draw(layout.action_dim) for _ in range(count)]
