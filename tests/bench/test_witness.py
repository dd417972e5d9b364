"""What a step really ran, as the tables say."""

import torch

from body_transformer.bench.encoder_job import EncoderJob, load_subject
from body_transformer.bench.policy import build_policy, entrants
from body_transformer.bench.witness import ELSE, what_ran
from body_transformer.ops.body_attention import body_attention


def test_an_operator_of_ours_is_seen_with_its_backend() -> None:
    q, mask = torch.randn(2, 1, 5, 8), torch.eye(5, dtype=torch.bool)
    assert what_ran(lambda: body_attention(q, q, q, mask, backend="neighbours")) == "body_attention neighbours"
    assert what_ran(lambda: q + 1) == ELSE


def test_the_encoder_is_seen_with_backend_and_precision(device: str) -> None:
    job = EncoderJob("cpu", [], peers=True, compile_peers=False, quick=True)
    stack = build_policy("ours", load_subject(job, "humanoid-mod"), device)
    stack.forward.encoder.backend = "fused"
    obs = torch.randn(2, stack.forward.layout.obs_dim, device=device)
    with torch.autocast(device, enabled=False):
        assert what_ran(lambda: stack.forward(obs)) == "encoder_stack fused fp32"


def test_the_compiled_policy_takes_part_in_the_fastest_arithmetic_alone() -> None:
    job = EncoderJob("cuda", [], peers=True, compile_peers=True)
    named = entrants(job)
    assert [precision for name, precision in named if name == "compiled"] == ["bf16"]
    assert [precision for name, precision in named if name == "ours"] == ["bf16", "tf32"]
    alone = entrants(EncoderJob("cuda", [], peers=False, compile_peers=True))
    assert {name for name, _ in alone} == {"ours"}
