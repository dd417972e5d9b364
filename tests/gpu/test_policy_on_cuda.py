"""Policies give the same results on a GPU as on a CPU."""

import pytest
import torch

from body_transformer import BodyGraph, Critic, Layout, Policy, PolicyConfig, robots
from body_transformer.model.variants import VARIANTS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


@pytest.fixture(scope="module")
def layout() -> Layout:
    return Layout.proprioceptive(BodyGraph.from_file(robots.path("humanoid")))


@pytest.mark.parametrize("shared_tokenizer", [False, True], ids=["per-node", "shared"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_actions_values_and_gradients_equal_those_of_the_cpu(
    layout: Layout, variant: str, shared_tokenizer: bool
) -> None:
    torch.manual_seed(0)
    config = PolicyConfig(variant=variant, num_layers=3, shared_tokenizer=shared_tokenizer)
    for module in (Policy(layout, config).double(), Critic(layout, config).double()):
        obs = torch.randn(5, layout.obs_dim, dtype=torch.float64)
        results = {}
        for device in ("cpu", "cuda"):
            module.to(device).zero_grad()
            out = module(obs.to(device))
            out.square().sum().backward()
            grads = [p.grad for p in module.parameters() if p.grad is not None]
            # clones: moving a module moves its gradients in place
            results[device] = [tensor.detach().cpu().clone() for tensor in (out, *grads)]
        for on_cpu, on_gpu in zip(results["cpu"], results["cuda"], strict=True):
            torch.testing.assert_close(on_gpu, on_cpu, rtol=1e-9, atol=1e-9)


def test_a_policy_saved_from_the_gpu_loads_on_the_cpu(layout: Layout, tmp_path_factory: pytest.TempPathFactory) -> None:
    policy = Policy(layout, PolicyConfig(num_layers=2))
    obs = torch.randn(5, layout.obs_dim)
    expected = policy(obs)
    folder = tmp_path_factory.mktemp("policy")
    policy.cuda().save(folder)
    assert torch.equal(Policy.load(folder)(obs), expected)


def test_it_compiles_to_the_same_actions(layout: Layout) -> None:
    policy = Policy(layout, PolicyConfig(num_layers=2)).cuda()
    obs = torch.randn(5, layout.obs_dim, device="cuda")
    torch.testing.assert_close(torch.compile(policy)(obs), policy(obs), rtol=1e-4, atol=1e-4)
