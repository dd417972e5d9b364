"""Each pass that rewrites a policy's graph keeps the function and leaves the expected operations."""

from collections import Counter
from functools import partial

import pytest
import torch
from torch import Tensor, fx, nn

from body_transformer.deploy import rewrite as passes
from body_transformer.deploy.rewrite import BATCH, attention, capture, fold_constants, folded_attention, rewritten

from .conftest import make_policy

NODES, WIDTH = 5, 12


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def operations(graph: fx.GraphModule) -> list[str]:
    return [
        str(node.target).removeprefix("aten.").split(".")[0] for node in graph.graph.nodes if node.op == "call_function"
    ]


def assert_same(graph: fx.GraphModule, module: nn.Module, size: int) -> None:
    graph = passes.without_unused(graph)
    for batch in (1, 2, 7):
        obs = drawn(batch, size)
        torch.testing.assert_close(graph(obs), module(obs), atol=1e-12, rtol=1e-12)


class Affine(nn.Module):
    """Sums and products as in a tokenizer, with a bound or branches if requested."""

    def __init__(self, bound: float | None = None, branches: bool = False) -> None:
        super().__init__()
        self.register_buffer("shift", drawn(6))
        self.register_buffer("scale", drawn(6).abs() + 0.5)
        self.register_buffer("ids", torch.tensor([5, 0, 6, 2, 2, 6, 1, 3]))
        self.register_buffer("weight", drawn(2, 4, 3))
        self.bound, self.branches = bound, branches

    def forward(self, obs: Tensor) -> Tensor:
        obs = (obs - self.shift) / self.scale
        if self.bound is not None:
            obs = obs.clamp(-self.bound, self.bound)
        entries = nn.functional.pad(obs, (0, 1))[:, self.ids].view(-1, 2, 4)
        tokens = torch.bmm(entries.transpose(0, 1), self.weight).transpose(0, 1) + self.shift[:3]
        return (tokens + tokens.relu() if self.branches else tokens.relu()).flatten(1)


@pytest.mark.parametrize("bound", [None, 1.0])
@pytest.mark.parametrize("branches", [False, True])
def test_the_first_product_merges_every_affine_operation_but_the_mean(bound, branches):
    module = Affine(bound, branches)
    graph = capture(module, drawn(BATCH, 6))
    fold_constants(graph)
    passes.fold_first_product(graph, drawn(BATCH, 6))
    normalised = ["sub"] if bound is None else ["sub", "div", "clamp"]
    assert operations(graph) == [*normalised, "linear", "reshape", "relu", *["add"] * branches, "flatten"]
    assert_same(graph, module, 6)


def test_a_number_divided_by_the_observation_is_not_affine():
    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("one", drawn(6))

        def forward(self, obs: Tensor) -> Tensor:
            return self.one / obs

    graph = capture(Module(), drawn(BATCH, 6))
    passes.fold_first_product(graph, drawn(BATCH, 6))
    assert operations(graph) == ["div"]


def test_tokens_become_rows_and_reshapes_in_between_are_removed():
    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down, self.norm = nn.Linear(3, 8), nn.Linear(8, 3), nn.LayerNorm(3)

        def forward(self, obs: Tensor) -> Tensor:
            tokens = obs.view(-1, 2, 3)
            return self.norm(tokens + self.down(self.up(tokens).relu())).flatten(1)

    module = Module().double().requires_grad_(False)
    graph = capture(module, drawn(BATCH, 6))
    passes.merge_rows(graph, drawn(BATCH, 6))
    assert " ".join(operations(graph)) == "reshape linear relu linear reshape add layer_norm reshape flatten"
    assert_same(graph, module, 6)


# -- attention ---------------------------------------------------------------------------------------------------------


BIAS = drawn(NODES, NODES)
MASK = torch.eye(NODES).bool() | (BIAS > 0.5)


@pytest.mark.parametrize("last", [[], [MASK], [BIAS]], ids=["plain", "mask", "bias"])
@pytest.mark.parametrize("num_heads", [1, 2, 3])
def test_attention_and_its_replacement_compute_the_same(num_heads, last):
    sizes = [(3 * WIDTH, WIDTH), (3 * WIDTH,), (WIDTH, WIDTH), (WIDTH,)]
    inputs = [drawn(3, NODES, WIDTH), *(drawn(*size) for size in sizes), *last]
    expected, found = (partial(function, num_heads)(*inputs) for function in (attention, folded_attention))
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("num_heads", [1, 2])
@pytest.mark.parametrize("variant", ["bot-mix", "bot-hard", "bot-soft", "transformer"])
def test_every_layer_of_a_policy_is_replaced(variant, num_heads):
    policy = make_policy(variant=variant, num_heads=num_heads, num_layers=2)
    found = Counter(operations(rewritten(policy)))
    biases = {"bot-mix": 1, "transformer": 0}.get(variant, 2)
    assert found["linear"] == 2 * 4 + 2  # two of the attention, two of the feed-forward part; the first and the last
    assert found["add"] == 2 * 2 + biases
    assert found["transpose"] == 2
    assert found["mul"] == found["masked_fill"] == found["permute"] == 0
