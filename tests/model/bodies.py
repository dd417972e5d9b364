"""Small bodies and policies, and a hypothesis strategy for layouts."""

from collections import Counter
from itertools import pairwise
from typing import Any

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from body_transformer import BodyGraph, Layout, Policy, PolicyConfig, Term
from body_transformer.model.variants import VARIANTS

from ..random_graphs import graphs

ENCODERS = [name for name, variant in VARIANTS.items() if variant.encoder == "transformer"]
SMALL = {"embed_dim": 8, "num_layers": 3, "num_heads": 2, "ff_dim": 16, "mlp_dim": 12}

some = settings(max_examples=40, deadline=None)
few = settings(max_examples=15, deadline=None)


def small(**changes: Any) -> PolicyConfig:
    return PolicyConfig(**SMALL | changes)


def make_policy(layout: Layout, seed: int = 0, **changes: Any) -> Policy:
    torch.manual_seed(seed)
    return Policy(layout, small(**changes))


def random_obs(layout: Layout, batch: int = 5, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, layout.obs_dim, generator=generator, dtype=dtype)


def chain(num_nodes: int) -> Layout:
    """Return the layout of n0 - n1 - n2 - … with two entries and one action per node."""
    nodes = [f"n{k}" for k in range(num_nodes)]
    graph = BodyGraph.from_edges(nodes, pairwise(nodes))
    return Layout(graph, [Term.bodies("pos", nodes, 2)], [Term.bodies("ctrl", nodes, 1)])


def uneven_body() -> Layout:
    """Return a layout with every irregularity.

    The body has a loop, a root that is not first, and nodes without entries or actions. One node has entries in several
    places. Unused entries are at the start, in the middle and at the end.
    """
    graph = BodyGraph.from_edges(
        ["hand", "torso", "arm", "leg", "foot", "head"],
        [("torso", "arm"), ("arm", "hand"), ("torso", "leg"), ("leg", "foot"), ("torso", "head")],
        extra_edges=[("hand", "foot")],
    )
    obs = [
        Term.unused("clock", 1),
        Term.node("foot_contact", "foot", 3),
        Term.root("gravity", 3),
        Term.unused("camera", 2),
        Term.bodies("pos", ["leg", "hand", "foot"], 1, steps=2),
        Term.node("arm_pos", "arm", 1),
        Term.unused("spare", 1),
    ]
    return Layout(graph, obs, [Term.bodies("ctrl", ["leg", "hand", "arm"], 2), Term.node("turn", "leg", 1)])


@st.composite
def layouts(draw: st.DrawFn, min_nodes: int = 1, max_nodes: int = 12, loops: bool = True) -> Layout:
    """Draw a body, and entries and actions of random nodes in random order."""
    graph = draw(graphs(min_nodes, max_nodes, loops))
    owners = draw(st.lists(st.sampled_from([*graph.nodes, None]), min_size=1, max_size=16))
    obs = [
        Term.unused(f"o{k}", 2) if owner is None else Term.node(f"o{k}", owner, draw(st.integers(1, 2)))
        for k, owner in enumerate(owners)
    ]
    owners = draw(st.lists(st.sampled_from(graph.nodes), min_size=1, max_size=8))
    return Layout(graph, obs, [Term.node(f"a{k}", owner, 1) for k, owner in enumerate(owners)])


def scrambled(module: nn.Module, scale: float = 0.3) -> nn.Module:
    """Add noise to all weights, so that a forgotten bias or norm changes the output."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator))
    return module


class _OpCounter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.ops: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ops[str(func)] += 1
        return func(*args, **(kwargs or {}))


def ops_of(module: nn.Module, *args: Tensor) -> Counter[str]:
    """Count the runs of each PyTorch operation in one forward."""
    with _OpCounter() as counter, torch.no_grad():
        module(*args)
    return counter.ops
