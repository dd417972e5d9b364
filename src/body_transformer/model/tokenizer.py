"""Tokenizers: observation entries -> one token per node."""

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..body.layout import UNUSED, Layout

Ids = npt.NDArray[np.int64]

MAX_DENSE = 1 << 22
"""Largest number of entries of the matrix with which a GPU computes all nodes in one product. Most are zero."""


class Tokenizer(nn.Module):
    """One linear layer per node, computed for all nodes at once.

    `weight` has one row per used entry and `bias` one row per node: the parameters of one `nn.Linear` per node. On a
    CPU all nodes are padded with zeros to K entries, the largest number of any node, for one batched product. On a GPU
    it is a single product with a matrix [used, N E] that is zero outside the nodes' blocks. N small products would
    leave most of the GPU idle.
    """

    slot_ids: Tensor
    entry_ids: Tensor
    used_ids: Tensor
    place_ids: Tensor

    def __init__(self, layout: Layout, embed_dim: int) -> None:
        super().__init__()
        self.num_nodes = layout.graph.num_nodes
        used, slot_ids, entry_ids = _entry_slots(layout)
        self.max_entries = len(entry_ids) // self.num_nodes
        node_ids = slot_ids // self.max_entries
        place_ids = np.arange(len(used)) * self.num_nodes + node_ids
        self.register_buffer("entry_ids", torch.from_numpy(entry_ids), persistent=False)
        self.register_buffer("slot_ids", torch.from_numpy(slot_ids), persistent=False)
        self.register_buffer("used_ids", torch.from_numpy(used), persistent=False)
        self.register_buffer("place_ids", torch.from_numpy(place_ids), persistent=False)
        self.uses_all = len(used) == layout.obs_dim
        self.is_small = len(used) * self.num_nodes * embed_dim <= MAX_DENSE
        self.weight = nn.Parameter(torch.empty(len(used), embed_dim))
        self.bias = nn.Parameter(torch.empty(self.num_nodes, embed_dim))
        self._init_like_linear(node_ids)

    def _init_like_linear(self, node_ids: Ids) -> None:
        """Initialise each node's weights as `nn.Linear` does: uniform in ±1/√(number of its entries)."""
        counts = np.bincount(node_ids, minlength=self.num_nodes).tolist()
        bound = torch.tensor([max(count, 1) ** -0.5 for count in counts])
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
        weight = place_rows(self.weight, self.slot_ids, self.num_nodes * self.max_entries)
        weight = weight.view(self.num_nodes, self.max_entries, -1)  # [N, K, E]
        return torch.bmm(entries.transpose(0, 1), weight).transpose(0, 1) + bias

    def _dense_product(self, obs: Tensor, bias: Tensor) -> Tensor:
        entries = obs if self.uses_all else obs[:, self.used_ids]  # [B, used]
        num_used, embed_dim = self.weight.shape
        whole = place_rows(self.weight, self.place_ids, num_used * self.num_nodes)  # [used N, E]
        whole = whole.view(num_used, self.num_nodes * embed_dim)
        return torch.addmm(bias.view(-1), entries, whole).view(-1, self.num_nodes, embed_dim)


class SharedTokenizer(nn.Module):
    """One linear layer that all nodes share, on their entries padded with zeros to the largest number of any node."""

    entry_ids: Tensor

    def __init__(self, layout: Layout, embed_dim: int) -> None:
        super().__init__()
        _, _, entry_ids = _entry_slots(layout)
        self.num_nodes = layout.graph.num_nodes
        self.max_entries = len(entry_ids) // self.num_nodes
        self.register_buffer("entry_ids", torch.from_numpy(entry_ids), persistent=False)
        self.linear = nn.Linear(self.max_entries, embed_dim)

    def forward(self, obs: Tensor, position: Tensor | None = None) -> Tensor:
        """[B, O] -> [B, N, E]; `position` [N, E] is added."""
        entries = F.pad(obs, (0, 1))[:, self.entry_ids].view(-1, self.num_nodes, self.max_entries)  # [B, N, K]
        tokens: Tensor = self.linear(entries)
        return tokens if position is None else tokens + position


def place_rows(rows: Tensor, ids: Tensor, count: int) -> Tensor:
    """Return [count, E]: row j at `ids[j]`, and zeros elsewhere."""
    return rows.new_zeros(count, rows.shape[1]).index_copy(0, ids, rows)


def slots_of(node_ids: npt.ArrayLike) -> tuple[Ids, int]:
    """Return the slot of each entry among [N, K], and K, the largest number of entries of a node."""
    ids = np.asarray(node_ids, dtype=np.int64)
    order = np.argsort(ids, kind="stable")
    starts = np.searchsorted(ids[order], ids)  # place of each entry's node in that order
    ranks = np.empty_like(ids)
    ranks[order] = np.arange(len(ids)) - starts[order]  # the number of earlier entries of the same node
    most = int(ranks.max(initial=0)) + 1
    return ids * most + ranks, most


def _entry_slots(layout: Layout) -> tuple[Ids, Ids, Ids]:
    """Return the used entries, the slot of each, and the entry in each slot [N K] (O = padding)."""
    used = np.flatnonzero(layout.obs_node_ids != UNUSED)
    slot_ids, most = slots_of(layout.obs_node_ids[used])
    entry_ids = np.full(layout.graph.num_nodes * most, layout.obs_dim)
    entry_ids[slot_ids] = used
    return used, slot_ids, entry_ids
