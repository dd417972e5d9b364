import math
import re

import pytest

from body_transformer import PolicyConfig
from body_transformer.model.variants import VARIANTS
from body_transformer.schema import build, plain

from .bodies import make_policy

WHOLE_NUMBERS = ["embed_dim", "num_layers", "num_heads", "ff_dim", "mlp_dim"]
CHOICES = {
    "variant": ["mlp", "transformer", "bot-hard", "bot-mix", "bot-soft", "bot-hard-random", "bot-mix-random"],
    "norm": ["post", "pre"],
    "activation": ["relu", "gelu"],
    "head": ["deterministic", "gaussian"],
    "std": ["learned", "fixed"],
    "squash": ["none", "tanh"],
    "init": ["torch", "normal", "normal-encoder", "far"],
}


def test_the_table_has_the_papers_architectures():
    assert list(VARIANTS) == CHOICES["variant"]


@pytest.mark.parametrize(
    ("variants", "masked"),
    [
        (("bot-hard", "bot-hard-random"), [True, True, True, True, True]),
        (("bot-mix", "bot-mix-random"), [True, False, True, False, True]),
        (("transformer", "bot-soft"), [False, False, False, False, False]),
    ],
)
def test_hard_masks_every_layer_mix_every_other_from_the_first_and_the_rest_none(variants, masked, layout):
    for variant in variants:
        assert make_policy(layout, variant=variant, num_layers=5).encoder.masked == masked


@pytest.mark.parametrize("variant", ["bot-hard", "bot-mix"])
def test_the_body_variants_use_the_bodys_mask(variant, layout):
    assert (make_policy(layout, variant=variant).encoder.mask.numpy() == layout.graph.mask).all()


@pytest.mark.parametrize("variant", ["bot-hard-random", "bot-mix-random"])
def test_the_random_variants_mask_depends_on_mask_seed_alone(variant, layout):
    def mask(seed: int, mask_seed: int):
        return make_policy(layout, seed, variant=variant, mask_seed=mask_seed).encoder.mask

    assert (mask(0, 1) == mask(5, 1)).all()
    assert any((mask(0, 1) != mask(0, other)).any() for other in (2, 3, 4))


# -- PolicyConfig ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, {"variant": "bot-soft", "obs_clip": 5.0, "head": "gaussian", "mask_seed": 3}])
def test_a_config_is_restored_from_a_dict(changes):
    config = PolicyConfig(**changes)
    assert set(plain(config)) == set(PolicyConfig.__dataclass_fields__)
    assert build(PolicyConfig, plain(config), "policy") == build(PolicyConfig, changes, "policy") == config


def test_a_config_cannot_be_changed():
    with pytest.raises(AttributeError):
        PolicyConfig().embed_dim = 3


@pytest.mark.parametrize("field", CHOICES)
def test_a_wrong_choice_is_an_error_that_suggests_the_nearest_and_lists_all(field):
    given = CHOICES[field][-1] + "x"
    with pytest.raises(ValueError, match=f"{field}.*{given}.*did you mean {CHOICES[field][-1]!r}") as error:
        PolicyConfig(**{field: given})
    assert all(repr(choice) in str(error.value) for choice in CHOICES[field])


def test_heads_that_do_not_divide_the_width_are_an_error():
    with pytest.raises(ValueError, match="num_heads must divide embed_dim; got num_heads=3, embed_dim=64"):
        PolicyConfig(num_heads=3)


def test_the_mlp_accepts_any_number_of_heads():
    assert PolicyConfig(variant="mlp", num_heads=3).num_heads == 3


WRONG = {
    **{field: [None, 3, ["x"]] for field in CHOICES},
    **{field: [0, -1, 2.0, True, "8", None, math.nan] for field in WHOLE_NUMBERS},
    "init_std": [0, -1.0, math.inf, math.nan, "1", None],
    "obs_clip": [0, -1.0, math.inf, math.nan, "1"],
    "positional_encoding": ["no", "false", 1, None],
    "shared_tokenizer": ["no", "false", 1, None],
    "mask_seed": [-1, 1.5, 2**32, "3", None, True],  # NumPy refuses them as seeds
}


@pytest.mark.parametrize(("field", "given"), [(field, given) for field, values in WRONG.items() for given in values])
def test_a_value_of_another_type_or_range_is_an_error_that_names_field_and_value(field, given):
    with pytest.raises(ValueError, match=rf"{field}\b.*{re.escape(repr(given))}"):
        PolicyConfig(**{field: given})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"embed_dims": 64}, "unknown key 'embed_dims'; did you mean 'embed_dim'"),
        ({"variant": "bot-hrad"}, "policy.variant: unknown value 'bot-hrad'; did you mean 'bot-hard'"),
    ],
)
def test_a_wrong_key_or_value_is_an_error_that_suggests_the_nearest(data, message):
    with pytest.raises(ValueError, match=message):
        build(PolicyConfig, data, "policy")
