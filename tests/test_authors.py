"""The authors' weights give the authors' actions."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from body_transformer import Layout, Policy, authors
from body_transformer.experiment import load_experiment

GOLDEN = Path(__file__).parents[2] / "shared" / "reference" / "golden" / "door_hard.safetensors"
EMBED, FF, HEADS, LAYERS, HIDDEN = 8, 12, 2, 3, 10


def test_the_recorded_model_gives_the_recorded_actions() -> None:
    if not GOLDEN.exists():
        pytest.skip(f"no recorded model at {GOLDEN}")
    tensors = load_file(GOLDEN)
    policy = authors.load(GOLDEN, experiment="adroit-door", variant="bot-hard")
    assert (policy.config.embed_dim, policy.config.num_heads, policy.config.num_layers) == (32, 4, 3)
    torch.testing.assert_close(policy(tensors["__obs"]), tensors["__action"], rtol=0, atol=1e-5)


def their_name(node: str) -> str:
    return {"forearm": "forehand"}.get(node, node)


def make_theirs(layout: Layout, variant: str, position: bool = False) -> dict[str, Tensor]:
    """Return random weights under the authors' names, in the authors' shapes."""
    torch.manual_seed(0)
    num_nodes = layout.graph.num_nodes
    shapes: dict[str, tuple[int, ...]] = {"tokenizer.zero_token": (1, EMBED)}
    for node in layout.graph.nodes:
        shapes[f"tokenizer.tokenizers.{their_name(node)}.0.weight"] = (EMBED, len(layout.obs_ids(node)))
        shapes[f"tokenizer.tokenizers.{their_name(node)}.0.bias"] = (EMBED,)
    if variant == "mlp":
        widths = [num_nodes * EMBED, HIDDEN, HIDDEN, num_nodes * EMBED]
        for k in range(3):
            shapes[f"net.model.{2 * k}.weight"] = (widths[k + 1], widths[k])
            shapes[f"net.model.{2 * k}.bias"] = (widths[k + 1],)
        shapes["detokenizer.detokenizers.global.weight"] = (layout.action_dim, num_nodes * EMBED)
        shapes["detokenizer.detokenizers.global.bias"] = (layout.action_dim,)
    else:
        for i in range(LAYERS):
            layer = torch.nn.TransformerEncoderLayer(EMBED, HEADS, FF, batch_first=True)
            shapes |= {f"net.encoder.layers.{i}.{name}": tuple(p.shape) for name, p in layer.named_parameters()}
        for node in layout.graph.nodes:
            shapes[f"detokenizer.detokenizers.{their_name(node)}.weight"] = (len(layout.action_ids(node)), EMBED)
            shapes[f"detokenizer.detokenizers.{their_name(node)}.bias"] = (len(layout.action_ids(node)),)
    if position:
        shapes["net.embed_absolute_position.weight"] = (num_nodes, EMBED)
    tensors = {name: torch.randn(shape) * 0.3 for name, shape in shapes.items()}
    if variant == "bot-soft":
        tensors["net.sp_embeddings.weight"] = torch.randn(layout.graph.diameter + 1, 1)
        tensors["net.shortest_path_matrix"] = torch.from_numpy(layout.graph.hops.copy())
        tensors["net.adjacency_matrix"] = torch.from_numpy(layout.graph.mask.copy()).float()
    return tensors


def their_actions(t: dict[str, Tensor], layout: Layout, variant: str, obs: Tensor) -> Tensor:
    """Return the actions of the authors' network, computed node by node, through PyTorch's own encoder layer."""
    graph = layout.graph
    tokens = torch.stack(
        [
            F.linear(
                obs[:, layout.obs_ids(node)],
                t[f"tokenizer.tokenizers.{their_name(node)}.0.weight"],
                t[f"tokenizer.tokenizers.{their_name(node)}.0.bias"],
            )
            for node in graph.nodes
        ],
        dim=1,
    )
    if variant == "mlp":
        x = tokens.flatten(1)
        for k in (0, 2, 4):
            x = F.linear(x if k == 0 else x.relu(), t[f"net.model.{k}.weight"], t[f"net.model.{k}.bias"])
        name = "detokenizer.detokenizers.global"
        return F.linear(x, t[f"{name}.weight"], t[f"{name}.bias"])
    if "net.embed_absolute_position.weight" in t:
        tokens = tokens + t["net.embed_absolute_position.weight"]
    for i in range(LAYERS):
        layer = torch.nn.TransformerEncoderLayer(EMBED, HEADS, FF, dropout=0.0, batch_first=True, dtype=obs.dtype)
        layer.load_state_dict({name: t[f"net.encoder.layers.{i}.{name}"] for name in layer.state_dict()})
        mask: Tensor | None = None
        if variant == "bot-hard" or (variant == "bot-mix" and i % 2 == 0):
            mask = torch.from_numpy(~graph.mask)
        elif variant == "bot-soft":
            mask = t["net.sp_embeddings.weight"][torch.from_numpy(graph.hops.copy()), 0]
        tokens = layer(tokens, src_mask=mask)
    actions = torch.empty(len(obs), layout.action_dim, dtype=obs.dtype)
    for k, node in enumerate(graph.nodes):
        name = f"detokenizer.detokenizers.{their_name(node)}"
        actions[:, layout.action_ids(node)] = F.linear(tokens[:, k], t[f"{name}.weight"], t[f"{name}.bias"])
    return actions


def assert_theirs(policy: Policy, theirs: dict[str, Tensor], layout: Layout, variant: str) -> None:
    """Compare the actions in double precision, in which the order of a sum does not matter."""
    obs = torch.randn(4, layout.obs_dim, dtype=torch.float64)
    exact = {name: tensor.double() for name, tensor in theirs.items()}
    torch.testing.assert_close(policy.double()(obs), their_actions(exact, layout, variant, obs), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("experiment", ["adroit-door", "adroit-hammer", "adroit-relocate", "mocapact"])
@pytest.mark.parametrize("variant", ["mlp", "transformer", "bot-hard", "bot-mix", "bot-soft"])
def test_every_imitation_variant_computes_the_authors_actions(tmp_path: Path, experiment: str, variant: str) -> None:
    layout = load_experiment(experiment).layout()
    theirs = make_theirs(layout, variant)
    file = tmp_path / "theirs.safetensors"
    save_file(theirs, file)
    policy = authors.load(file, experiment, variant, num_heads=HEADS)
    assert_theirs(policy, theirs, layout, variant)


def test_a_positional_encoding_is_found_in_the_file(tmp_path: Path) -> None:
    layout = load_experiment("adroit-door").layout()
    theirs = make_theirs(layout, "bot-hard", position=True)
    file = tmp_path / "theirs.safetensors"
    save_file(theirs, file, metadata={"num_heads": str(HEADS)})
    policy = authors.load(file, "adroit-door")
    assert policy.config.positional_encoding
    assert_theirs(policy, theirs, layout, "bot-hard")


def test_half_precision_weights_are_loaded(tmp_path: Path) -> None:
    layout = load_experiment("adroit-door").layout()
    theirs = {name: tensor.half() for name, tensor in make_theirs(layout, "bot-hard").items()}
    file = tmp_path / "theirs.safetensors"
    save_file(theirs, file)
    policy = authors.load(file, "adroit-door", num_heads=HEADS)
    assert_theirs(policy, theirs, layout, "bot-hard")


def test_mocapacts_node_order_is_that_of_the_authors() -> None:
    """Positional encodings and the MLP's flat tokens depend on it; tests/test_experiments.py compares Adroit's."""
    mocapact = (
        "root lhipjoint lfemur ltibia lfoot ltoes rhipjoint rfemur rtibia rfoot rtoes lowerback upperback thorax "
        "lowerneck upperneck head face lclavicle lhumerus lradius lwrist lhand lfingers lthumb rclavicle rhumerus "
        "rradius rwrist rhand rfingers rthumb"
    )
    assert list(load_experiment("mocapact").layout().graph.nodes) == mocapact.split()


def test_loading_does_not_change_the_state_of_the_random_generator(tmp_path: Path) -> None:
    file = tmp_path / "theirs.safetensors"
    save_file(make_theirs(load_experiment("adroit-door").layout(), "bot-hard"), file)
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    authors.load(file, "adroit-door", num_heads=HEADS)
    assert torch.equal(torch.rand(1), expected)


def test_files_that_do_not_fit_are_refused_with_the_reason(tmp_path: Path) -> None:
    layout = load_experiment("adroit-door").layout()
    theirs = make_theirs(layout, "bot-hard")
    file = tmp_path / "theirs.safetensors"
    save_file(theirs, file)

    def refused(message: str, **arguments: object) -> None:
        with pytest.raises(ValueError, match=message):
            authors.load(file, **{"experiment": "adroit-door", "num_heads": HEADS, **arguments})  # type: ignore[arg-type]

    refused("has no tensor 'net.sp_embeddings.weight'", variant="bot-soft")
    refused("has no tensor 'net.model.0.bias'", variant="mlp")
    refused(r"tokenizer.tokenizers.forehand.0.weight is \[8, 9\]; expected \[8, 19\]", experiment="adroit-hammer")
    refused("is not an imitation experiment", experiment="humanoid-mod")
    refused("its random masks differ from the authors", variant="bot-hard-random")
    refused("num_heads must be above 0; got 0", num_heads=0)
    refused("num_heads must divide embed_dim", num_heads=3)
    save_file(theirs | {"net.extra.weight": torch.zeros(1)}, file)
    refused("has tensors that 'bot-hard' does not: 'net.extra.weight'")
    save_file(theirs, file, metadata={"num_heads": "two"})
    refused("its metadata has num_heads='two', which is not a number", num_heads=None)
    torch.save(theirs, file)
    refused("pickled files are never opened")
    with pytest.raises(FileNotFoundError, match="no weights at"):
        authors.load(tmp_path / "missing.safetensors", "adroit-door")
