"""Tokenizers: observation entries -> one token per node."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..body.layout import UNUSED, Layout

MAX_DENSE = 1 << 22
"""Largest number of entries of a mostly empty matrix that, on a GPU, replaces one product per node."""


class Tokenizer(nn.Module):
    """One linear layer per node, computed for all nodes at once.

    `weight` has one row per used entry and `bias` one row per node: the parameters of one `nn.Linear` per node. On a
    CPU all nodes are padded with zeros to K entries, the longest node's, for one batched product. On a GPU, N small
    products would leave most of it idle, so it computes a single product with a matrix [used, N E] that is zero
    elsewhere.
    """

    slot_ids: Tensor
    entry_ids: Tensor
    used_ids: Tensor
    place_ids: Tensor

    def __init__(self, layout: Layout, embed_dim: int) -> None:
        super().__init__()
        self.num_nodes = layout.graph.num_nodes
        entry_ids, slot_ids, counts = _slots(layout)
        self.max_entries = entry_ids.shape[1]
        self.register_buffer("entry_ids", torch.from_numpy(entry_ids.reshape(-1)), persistent=False)
        self.register_buffer("slot_ids", torch.from_numpy(slot_ids), persistent=False)
        used = np.flatnonzero(layout.obs_node_ids != UNUSED)
        places = np.arange(len(used)) * self.num_nodes + layout.obs_node_ids[used]
        self.register_buffer("used_ids", torch.from_numpy(used), persistent=False)
        self.register_buffer("place_ids", torch.from_numpy(places), persistent=False)
        self.uses_all = len(used) == layout.obs_dim
        self.is_small = len(used) * self.num_nodes * embed_dim <= MAX_DENSE
        self.weight = nn.Parameter(torch.empty(len(slot_ids), embed_dim))
        self.bias = nn.Parameter(torch.empty(self.num_nodes, embed_dim))
        self._init_like_linear(layout, counts)

    def _init_like_linear(self, layout: Layout, counts: list[int]) -> None:
        """Initialise each node's weights as `nn.Linear` does: uniform in ±1/√(number of its entries)."""
        bound = torch.tensor([max(count, 1) ** -0.5 for count in counts])
        node_ids = torch.from_numpy(layout.obs_node_ids[layout.obs_node_ids != UNUSED])
        with torch.no_grad():
            self.weight.uniform_(-1.0, 1.0).mul_(bound[node_ids, None])
            self.bias.uniform_(-1.0, 1.0).mul_(bound[:, None])

    def forward(self, obs: Tensor, position: Tensor | None = None) -> Tensor:
        """[B, O] -> [B, N, E]; `position` [N, E] is added to the biases, once for all samples."""
        bias = self.bias if position is None else self.bias + position
        if obs.is_cuda and self.is_small:
            return self._dense_product(obs, bias)
        entries = F.pad(obs, (0, 1))[:, self.entry_ids]  # the added zero fills the padding, even if an entry is NaN
        entries = entries.view(-1, self.num_nodes, self.max_entries)  # [B, N, K]
        slots = self.weight.new_zeros(self.num_nodes * self.max_entries, self.weight.shape[1])
        weight = slots.index_copy(0, self.slot_ids, self.weight).view(self.num_nodes, self.max_entries, -1)  # [N, K, E]
        return torch.bmm(entries.transpose(0, 1), weight).transpose(0, 1) + bias

    def _dense_product(self, obs: Tensor, bias: Tensor) -> Tensor:
        entries = obs if self.uses_all else obs[:, self.used_ids]  # [B, used]
        num_used, embed_dim = self.weight.shape
        zeros = self.weight.new_zeros(num_used * self.num_nodes, embed_dim)
        whole = zeros.index_copy(0, self.place_ids, self.weight).view(num_used, self.num_nodes * embed_dim)
        return torch.addmm(bias.view(-1), entries, whole).view(-1, self.num_nodes, embed_dim)


class SharedTokenizer(nn.Module):
    """One linear layer that all nodes share, on their entries padded with zeros to the longest node."""

    entry_ids: Tensor

    def __init__(self, layout: Layout, embed_dim: int) -> None:
        super().__init__()
        entry_ids, _, _ = _slots(layout)
        self.num_nodes, self.max_entries = entry_ids.shape
        self.register_buffer("entry_ids", torch.from_numpy(entry_ids.reshape(-1)), persistent=False)
        self.linear = nn.Linear(self.max_entries, embed_dim)

    def forward(self, obs: Tensor, position: Tensor | None = None) -> Tensor:
        """[B, O] -> [B, N, E]; `position` [N, E] is added."""
        entries = F.pad(obs, (0, 1))[:, self.entry_ids].view(-1, self.num_nodes, self.max_entries)  # [B, N, K]
        tokens: Tensor = self.linear(entries)
        return tokens if position is None else tokens + position


def _slots(layout: Layout) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Return the entry in each slot [N, K] (O = padding), the slot of each used entry, and the entries per node."""
    node_ids = layout.obs_node_ids
    counts = [int((node_ids == node).sum()) for node in range(layout.graph.num_nodes)]
    num_slots = max(*counts, 1)
    entry_ids = np.full((layout.graph.num_nodes, num_slots), layout.obs_dim, dtype=np.int64)
    slot_ids = np.empty(layout.obs_dim, dtype=np.int64)
    for node, count in enumerate(counts):
        entry_ids[node, :count] = np.flatnonzero(node_ids == node)
        slot_ids[entry_ids[node, :count]] = node * num_slots + np.arange(count)
    return entry_ids, slot_ids[node_ids != UNUSED], counts
