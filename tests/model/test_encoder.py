import pytest
import torch
from torch import Tensor, nn

from body_transformer import Layout, PolicyConfig
from body_transformer.model.encoder import Encoder, EncoderLayer
from body_transformer.model.trunk import build_encoder

from .bodies import chain, make_policy, random_obs, scrambled, small

OPTIONS = [(norm, activation) for norm in ("post", "pre") for activation in ("relu", "gelu")]
WIDTH, HEADS, HIDDEN = 16, 4, 24
SIZES = {"embed_dim": WIDTH, "num_heads": HEADS, "ff_dim": HIDDEN}


def torch_layer(layer: EncoderLayer, norm: str, activation: str) -> nn.TransformerEncoderLayer:
    """Return PyTorch's own layer with the same weights."""
    options = {"dropout": 0.0, "batch_first": True, "norm_first": norm == "pre", "dtype": layer.linear1.weight.dtype}
    reference = nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, activation=activation, **options)
    renamed = {
        name.replace("attention.in_proj.", "self_attn.in_proj_").replace("attention.", "self_attn."): value
        for name, value in layer.state_dict().items()
    }
    reference.load_state_dict(renamed)
    return reference


def run_reference(encoder: Encoder, tokens: Tensor, norm: str, activation: str, masks: list[Tensor | None]) -> Tensor:
    """Run PyTorch's layers, each with its own mask."""
    for layer, mask in zip(encoder.layers, masks, strict=True):
        tokens = torch_layer(layer, norm, activation)(tokens, src_mask=mask)
    return encoder.norm(tokens)


@pytest.mark.parametrize(("norm", "activation"), OPTIONS)
@pytest.mark.parametrize("masked", [True, False])
def test_a_layer_equals_torchs_with_the_same_weights(norm, activation, masked, layout):
    layer = scrambled(EncoderLayer(small(**SIZES, norm=norm, activation=activation))).double()
    mask = torch.tensor(layout.graph.mask) if masked else None
    x = torch.randn(3, 6, WIDTH, dtype=torch.float64)
    expected = torch_layer(layer, norm, activation)(x, src_mask=~mask if masked else None)
    torch.testing.assert_close(layer(x, mask, None), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("norm", "activation"), OPTIONS)
@pytest.mark.parametrize(
    ("variant", "masked"),
    [("transformer", [False] * 4), ("bot-hard", [True] * 4), ("bot-mix", [True, False, True, False])],
)
def test_the_stack_equals_torchs_with_the_variants_masks(norm, activation, variant, masked, layout):
    config = small(**SIZES, num_layers=4, variant=variant, norm=norm, activation=activation)
    encoder = scrambled(Encoder(layout.graph, config)).double()
    forbidden = ~torch.tensor(layout.graph.mask)
    x = torch.randn(3, 6, WIDTH, dtype=torch.float64)
    expected = run_reference(encoder, x, norm, activation, [forbidden if m else None for m in masked])
    torch.testing.assert_close(encoder(x), expected, atol=1e-12, rtol=0)


def test_soft_adds_one_learned_scalar_per_hop_distance_to_the_scores_of_every_head_and_layer(layout):
    encoder = scrambled(Encoder(layout.graph, small(**SIZES, variant="bot-soft"))).double()
    assert encoder.hop_bias.shape == (layout.graph.diameter + 1,)
    bias = torch.stack([encoder.hop_bias[hops] for hops in torch.tensor(layout.graph.hops).flatten()]).view(6, 6)
    x = torch.randn(3, 6, WIDTH, dtype=torch.float64)
    expected = run_reference(encoder, x, "post", "relu", [bias] * 3)  # a float mask is added to every head's scores
    torch.testing.assert_close(encoder(x), expected, atol=1e-12, rtol=0)


def test_every_hop_distances_scalar_gets_a_gradient(layout):
    encoder = Encoder(layout.graph, small(variant="bot-soft"))
    encoder(torch.randn(3, 6, 8)).square().sum().add(encoder(torch.randn(3, 6, 8)).pow(3).sum()).backward()
    assert (encoder.hop_bias.grad != 0).all()


@pytest.mark.parametrize("variant", ["transformer", "bot-hard", "bot-mix", "bot-hard-random", "bot-mix-random"])
def test_only_soft_has_hop_scalars(variant, layout):
    assert Encoder(layout.graph, small(variant=variant)).hop_bias is None


def test_pre_norm_ends_with_one_more_layer_norm_and_post_norm_does_not(layout):
    def norms(norm: str) -> int:
        encoder = Encoder(layout.graph, small(norm=norm, num_layers=3))
        return sum(isinstance(module, nn.LayerNorm) for module in encoder.modules())

    assert (norms("post"), norms("pre")) == (6, 7)


def test_the_positional_encoding_is_one_vector_per_node_added_to_the_tokens(layout):
    with_position = make_policy(layout)
    without = make_policy(layout, positional_encoding=False)
    assert without.encoder.position is None
    without.load_state_dict({k: v for k, v in with_position.state_dict().items() if k != "encoder.position"})
    obs = random_obs(layout)
    tokens = without.tokenizer(obs) + with_position.encoder.position
    torch.testing.assert_close(with_position(obs), without.head(without.encoder(tokens)))


# -- initial weights ---------------------------------------------------------------------------------------------------


def test_the_encoder_starts_as_torchs_layers_do(layout):
    torch.manual_seed(0)
    layer = Encoder(layout.graph, small(embed_dim=64, ff_dim=128)).layers[0]
    bound = (6 / (64 + 3 * 64)) ** 0.5  # Xavier on the stacked projection
    assert 0.99 * bound < layer.attention.in_proj.weight.abs().max() <= bound
    assert layer.attention.in_proj.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.03)
    assert not layer.attention.in_proj.bias.any()
    assert not layer.attention.out_proj.bias.any()
    for linear in (layer.attention.out_proj, layer.linear1, layer.linear2):
        bound = linear.in_features**-0.5
        assert 0.98 * bound < linear.weight.abs().max() <= bound
        assert linear.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)
    assert 0.8 * 64**-0.5 < layer.linear1.bias.abs().max() <= 64**-0.5
    for norm in (layer.norm1, layer.norm2):
        assert (norm.weight == 1).all()
        assert not norm.bias.any()


def test_every_layer_has_its_own_weights_at_the_start(layout):
    first, second, _ = Encoder(layout.graph, small()).layers
    assert not torch.equal(first.attention.in_proj.weight, second.attention.in_proj.weight)
    assert not torch.equal(first.linear1.weight, second.linear1.weight)


def test_positions_and_hop_scalars_start_standard_normal():
    encoder = make_policy(chain(40), variant="bot-soft", embed_dim=64).encoder
    assert encoder.position.std().item() == pytest.approx(1, abs=0.1)
    assert encoder.hop_bias.std().item() == pytest.approx(1, abs=0.4)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("variant", ["mlp", "transformer", "bot-soft"])
@pytest.mark.parametrize("init", ["normal", "normal-encoder"])
def test_normal_init_draws_its_own_parts_and_no_others(init, variant, shared):
    layout: Layout = chain(40)
    sizes = {"embed_dim": 32, "ff_dim": 64, "mlp_dim": 40, "norm": "pre", "shared_tokenizer": shared}
    policy = make_policy(layout, variant=variant, init=init, **sizes)
    for name, parameter in policy.named_parameters():
        if init == "normal-encoder" and not name.startswith("encoder."):
            assert parameter.all(), name
            if parameter.numel() > 30:  # PyTorch's own is uniform; normal weights exceed two deviations
                assert parameter.abs().max() < 2 * parameter.std(), name
        elif "norm" in name and name.endswith("weight"):
            assert (parameter == 1).all(), name
        elif name.endswith("in_proj.weight"):
            bound = (6 / (32 + 96)) ** 0.5
            assert 0.98 * bound < parameter.abs().max() <= bound, name
        elif name.endswith("bias") and not name.endswith("hop_bias"):
            assert not parameter.any(), name
        else:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.3), name
            assert parameter.mean().abs() < 0.01, name


def test_with_the_far_init_far_nodes_have_much_more_influence_in_a_masked_encoder():
    layout = chain(6)
    tokens = torch.randn(32, 6, 64)

    def influence(init: str) -> float:
        torch.manual_seed(0)
        encoder = build_encoder(layout, PolicyConfig(variant="bot-hard", init=init))
        moved = tokens.clone()
        moved[:, 0] += 1.0
        with torch.no_grad():
            return float((encoder(moved) - encoder(tokens))[:, 5].abs().mean())

    assert influence("far") > 100 * influence("normal")
