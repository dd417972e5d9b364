"""The model that rsl_rl trains, on a GPU: its precision, and rollouts without synchronisation."""

import pytest
import torch

from body_transformer import BodyGraph, Layout, Term
from body_transformer.model import encoder as encoder_module

rl_model = pytest.importorskip("body_transformer.rl.rsl_rl_model", reason="mjlab is not installed")

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")

NODES = ["torso", *(f"{leg}{part}" for leg in "abcd" for part in (1, 2, 3))]


@pytest.fixture(scope="module")
def layout() -> Layout:
    edges = [("torso" if node[-1] == "1" else f"{node[0]}{int(node[1]) - 1}", node) for node in NODES[1:]]
    graph = BodyGraph.from_edges(NODES, edges, joints={f"{node}_joint": node for node in NODES[1:]})
    joints = list(graph.joints)
    obs = [Term.root("base", 9), Term.joints("pos", joints), Term.joints("vel", joints)]
    return Layout(graph, obs, Term.joints("torque", joints))


def make(layout: Layout, obs_set: str, precision: str):
    torch.manual_seed(0)
    obs = observe(layout)
    gaussian = {"class_name": "GaussianDistribution"} if obs_set == "actor" else None
    size = layout.action_dim if obs_set == "actor" else 1
    options = {"layout": layout, "obs_normalization": True, "distribution_cfg": gaussian, "precision": precision}
    return rl_model.BodyModel(obs, {obs_set: ["state"]}, obs_set, size, **options).cuda()


def observe(layout: Layout, batch: int = 512):
    from tensordict import TensorDict

    generator = torch.Generator("cuda").manual_seed(0)
    obs = torch.randn(batch, layout.obs_dim, device="cuda", generator=generator)
    return TensorDict({"state": obs}, batch_size=[batch])


@pytest.mark.parametrize(("precision", "tolerance"), [("tf32", 5e-3), ("bf16", 5e-2)])
@pytest.mark.parametrize("obs_set", ["actor", "critic"])
def test_a_lower_precision_uses_the_fused_encoder_and_gives_nearly_the_same_output(
    layout, obs_set, precision, tolerance, monkeypatch
):
    backends = []
    stack = encoder_module.encoder_stack

    def spy(*args, backend=None, **kwargs):
        backends.append(backend)
        return stack(*args, backend=backend, **kwargs)

    monkeypatch.setattr(encoder_module, "encoder_stack", spy)
    obs = observe(layout)
    exact, model = make(layout, obs_set, "fp32"), make(layout, obs_set, precision)
    out = model(obs)
    assert backends == ["fused"]
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, exact(obs), atol=tolerance, rtol=tolerance)
    out.square().mean().backward()
    assert all(p.grad is not None for name, p in model.named_parameters() if "std" not in name)


def test_a_step_of_a_rollout_does_not_synchronise(layout):
    actor, critic, obs = make(layout, "actor", "bf16"), make(layout, "critic", "bf16"), observe(layout)

    def step() -> None:
        with torch.inference_mode():
            actions = actor(obs, stochastic_output=True)
            actor.get_output_log_prob(actions)
            critic(obs)
            actor.update_normalization(obs)
            critic.update_normalization(obs)

    step()  # builds the kernels and reads the masks
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
