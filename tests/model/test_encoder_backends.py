"""Every backend of the operator gives the same encoder."""

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from body_transformer import Layout, Policy
from body_transformer.model.encoder import Encoder

from .bodies import make_policy, ops_of, random_obs, scrambled, small

pytest.importorskip("triton")

WIDTHS = {"fused": 24, "wide": 136, "reference": 24}
BACKEND = pytest.mark.parametrize("backend", WIDTHS)
OPERATOR = "body_transformer.encoder_stack.default"
LAYERED = {"pre-norm": {"norm": "pre"}, "gelu": {"activation": "gelu"}, "bot-soft": {"variant": "bot-soft"}}
"""Encoders that the operator does not support."""
NOISE = 0.05
"""Standard deviation of the noise on the weights; with more noise, rounding errors grow from layer to layer."""


def make_encoder(layout: Layout, device: str, **changes) -> Encoder:
    encoder = Encoder(layout.graph, small(num_layers=2, positional_encoding=False, **changes))
    return scrambled(encoder, NOISE).to(device)


def tokens_for(layout: Layout, width: int, device: str, batch: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(batch, layout.graph.num_nodes, width, generator=generator).to(device)


def results(encoder: Encoder, tokens: Tensor, backend: str | None) -> dict[str, Tensor]:
    """Return the output, the gradient of the tokens, and that of every parameter."""
    encoder.backend = backend
    encoder.zero_grad()
    tokens = tokens.detach().clone().requires_grad_()
    out = encoder(tokens)
    (out * out.detach().sin()).sum().backward()
    grads = {name: parameter.grad.clone() for name, parameter in encoder.named_parameters()}
    return {"out": out.detach(), "tokens": tokens.grad, **grads}


@BACKEND
@pytest.mark.parametrize("variant", ["bot-mix", "bot-hard", "transformer", "bot-mix-random"])
def test_outputs_and_gradients_are_those_of_the_layers_in_float64(layout, device, backend, variant):
    encoder = make_encoder(layout, device, variant=variant, embed_dim=WIDTHS[backend])
    tokens = tokens_for(layout, WIDTHS[backend], device)
    found = results(encoder, tokens, backend)
    expected = results(deepcopy(encoder).double(), tokens.double(), "layers")
    for name, value in expected.items():
        assert (found[name] - value).norm() < 1e-5 * value.norm().clamp(min=1e-2), name


@BACKEND
def test_one_call_of_the_operator_runs_all_layers(layout, device, backend):
    encoder = make_encoder(layout, device, embed_dim=WIDTHS[backend])
    tokens = tokens_for(layout, WIDTHS[backend], device)
    encoder.backend = backend
    assert ops_of(encoder, tokens)[OPERATOR] == (backend != "reference")
    encoder.backend = "layers"
    assert not ops_of(encoder, tokens)[OPERATOR]


def test_half_precision_tokens_reach_the_operator_as_float32_under_autocast(layout, monkeypatch):
    seen = []
    operator = "body_transformer.model.encoder.encoder_stack"
    monkeypatch.setattr(operator, lambda tokens, *rest, **options: seen.append(tokens.dtype) or tokens)
    encoder = make_policy(layout).encoder
    encoder.backend = "fused"
    with torch.autocast("cpu", torch.bfloat16):
        encoder(torch.randn(3, layout.graph.num_nodes, small().embed_dim, dtype=torch.bfloat16))
    assert seen == [torch.float32]


def test_on_the_cpu_a_policy_runs_layer_by_layer_by_default(layout):
    policy = make_policy(layout, embed_dim=24)
    assert policy.encoder.backend is None
    assert not ops_of(policy, random_obs(layout))[OPERATOR]


@pytest.mark.parametrize("changes", LAYERED.values(), ids=LAYERED.keys())
def test_an_encoder_that_the_operator_does_not_support_runs_layer_by_layer(layout, device, changes):
    encoder = make_encoder(layout, device, embed_dim=24, **changes)
    tokens = tokens_for(layout, 24, device)
    expected = results(encoder, tokens, "layers")
    for backend in ("fused", None):
        found = results(encoder, tokens, backend)
        assert not ops_of(encoder, tokens)[OPERATOR]
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value)
    assert "hop_bias" not in expected or (expected["hop_bias"] != 0).all()


# -- checkpoints -------------------------------------------------------------------------------------------------------


@BACKEND
def test_a_checkpoint_of_one_backend_can_be_loaded_with_another(layout, device, backend, tmp_path):
    policy = scrambled(make_policy(layout, embed_dim=WIDTHS[backend], num_layers=2), NOISE).to(device)
    obs = random_obs(layout).to(device)
    plain = policy(obs)
    names = list(policy.state_dict())
    policy.encoder.backend = backend
    assert list(policy.state_dict()) == names
    found = policy(obs)
    policy.save(tmp_path / "policy")
    loaded = Policy.load(tmp_path / "policy").to(device)
    torch.testing.assert_close(loaded(obs), plain)
    torch.testing.assert_close(found, plain, rtol=1e-4, atol=1e-5)
    loaded.encoder.backend = backend
    torch.testing.assert_close(loaded(obs), found)


EXPORTS: dict[str, Callable[[nn.Module, Tensor], nn.Module]] = {
    "export": lambda policy, obs: torch.export.export(policy, (obs,)).module(),
    "trace": lambda policy, obs: torch.jit.trace(policy, obs),
    "script": lambda policy, obs: torch.jit.script(policy),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("export", EXPORTS)
def test_an_exported_policy_is_plain_pytorch(layout, export, device):
    policy = scrambled(make_policy(layout, embed_dim=24, num_layers=2), NOISE).to(device)
    policy.encoder.backend = "fused"
    obs = random_obs(layout).to(device)
    exported = EXPORTS[export](policy, obs)
    assert not ops_of(exported, obs)[OPERATOR]
    policy.encoder.backend = "layers"
    torch.testing.assert_close(exported(obs), policy(obs), rtol=1e-4, atol=1e-5)


# -- modified and hooked layers ----------------------------------------------------------------------------------------


class Wrapped(nn.Module):
    """A wrapper of a layer, as adapters and activation checkpointing use."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *inputs: Tensor) -> Tensor:
        return 0.5 * self.layer(*inputs)


def wrap_a_layer(encoder: Encoder) -> None:
    encoder.layers[0] = Wrapped(encoder.layers[0])


def exchange_a_part(encoder: Encoder) -> None:
    encoder.layers[1].linear1 = nn.Sequential(encoder.layers[1].linear1, nn.Tanh())


def hook_a_part(encoder: Encoder) -> None:
    encoder.layers[0].linear1.register_forward_hook(lambda module, inputs, output: 2 * output)


def change_a_norm(encoder: Encoder) -> None:
    encoder.layers[1].norm1.eps = 0.1


def change_the_activation(encoder: Encoder) -> None:
    encoder.layers[0].activation = F.gelu


def give_a_part_its_own_forward(encoder: Encoder) -> None:
    plain = encoder.layers[1].linear2.forward
    encoder.layers[1].linear2.forward = lambda x: 2 * plain(x)


def take_a_bias_away(encoder: Encoder) -> None:
    encoder.layers[1].linear1 = nn.Linear(24, encoder.layers[1].linear1.out_features, bias=False).to(
        encoder.mask.device
    )


CHANGES = [
    *(wrap_a_layer, exchange_a_part, hook_a_part, change_a_norm),
    *(change_the_activation, give_a_part_its_own_forward, take_a_bias_away),
]


@pytest.mark.parametrize("change", CHANGES)
def test_the_operator_does_not_replace_a_modified_layer(layout, device, change):
    encoder = Encoder(layout.graph, small(embed_dim=24, num_layers=2)).to(device)
    x = tokens_for(layout, 24, device, batch=3)
    change(encoder)
    outputs = []
    for backend in ("layers", "fused"):
        encoder.backend = backend
        outputs.append(encoder(x))
    assert torch.equal(*outputs)


def test_the_hooks_of_a_part_run(layout, device):
    encoder = Encoder(layout.graph, small(embed_dim=24, num_layers=2)).to(device)
    encoder.backend = "fused"
    x = tokens_for(layout, 24, device, batch=3)
    seen = []
    handles = [
        encoder.layers[0].linear1.register_full_backward_pre_hook(lambda module, grads: seen.append("backward")),
        nn.modules.module.register_module_forward_hook(
            lambda module, *_: seen.append("forward") if module is encoder.layers[1].norm2 else None
        ),
    ]
    try:
        for handle in handles:
            seen.clear()
            encoder(x).sum().backward()
            assert seen
            handle.remove()
    finally:
        for handle in handles:
            handle.remove()


def test_functional_transforms_run_layer_by_layer(layout, device):
    encoder = Encoder(layout.graph, small(embed_dim=24, num_layers=1)).to(device)
    encoder.backend = "fused"
    x = tokens_for(layout, 24, device, batch=3)
    assert torch.func.vmap(encoder)(x[:, None]).shape == (3, 1, *x.shape[1:])
    assert torch.func.grad(lambda tokens: encoder(tokens).square().sum())(x).shape == x.shape
