"""Detokenizers: tokens -> outputs, which are the actions of a policy or the nodes' values of a critic."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .tokenizer import MAX_DENSE, place_rows, slots_of


class Detokenizer(nn.Module):
    """One linear layer per node, computed for all nodes at once: output j reads the token of node `node_ids[j]`.

    `weight` and `bias` have one row per output: the parameters of one `nn.Linear` per node. On a CPU all nodes are
    padded with zeros to K outputs, the largest number of any node, for one batched product. On a GPU it is a single
    product with a matrix [A, N E], as in the tokenizer.
    """

    slot_ids: Tensor
    place_ids: Tensor

    def __init__(self, node_ids: Sequence[int], embed_dim: int, num_nodes: int) -> None:
        super().__init__()
        self.num_nodes = num_nodes
        slot_ids, self.max_outputs = slots_of(node_ids)
        places = [row * num_nodes + node for row, node in enumerate(node_ids)]
        self.register_buffer("slot_ids", torch.from_numpy(slot_ids), persistent=False)
        self.register_buffer("place_ids", torch.tensor(places, dtype=torch.int64), persistent=False)
        self.is_small = len(places) * num_nodes * embed_dim <= MAX_DENSE
        self.weight = nn.Parameter(torch.empty(len(node_ids), embed_dim))
        self.bias = nn.Parameter(torch.empty(len(node_ids)))
        _init_like_linear(self.weight, self.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, N, E] -> [B, A]"""
        if tokens.is_cuda and self.is_small:
            return self._dense_product(tokens)
        weight = place_rows(self.weight, self.slot_ids, self.num_nodes * self.max_outputs)
        weight = weight.view(self.num_nodes, self.max_outputs, -1)  # [N, K, E]
        values = torch.bmm(tokens.transpose(0, 1), weight.transpose(1, 2))  # [N, B, K]
        return values.transpose(0, 1).flatten(1).index_select(1, self.slot_ids) + self.bias

    def mean(self, tokens: Tensor) -> Tensor:
        """[B, N, E] -> [B]: the mean of a critic's values, one per node.

        It is one product with a vector; the values themselves are not computed.
        """
        return torch.mv(tokens.flatten(1), self.weight.flatten() / self.num_nodes) + self.bias.mean()

    def _dense_product(self, tokens: Tensor) -> Tensor:
        whole = place_rows(self.weight, self.place_ids, len(self.weight) * self.num_nodes)
        return F.linear(tokens.flatten(1), whole.view(len(self.weight), -1), self.bias)


class SharedDetokenizer(nn.Module):
    """One linear layer that all nodes share: the k-th output of a node reads its token through row k."""

    slot_ids: Tensor

    def __init__(self, node_ids: Sequence[int], embed_dim: int, num_nodes: int) -> None:
        super().__init__()
        slot_ids, max_outputs = slots_of(node_ids)
        self.register_buffer("slot_ids", torch.from_numpy(slot_ids), persistent=False)
        self.weight = nn.Parameter(torch.empty(max_outputs, embed_dim))
        self.bias = nn.Parameter(torch.empty(max_outputs))
        _init_like_linear(self.weight, self.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, N, E] -> [B, A]"""
        values = F.linear(tokens, self.weight, self.bias)  # [B, N, K]
        return values.flatten(1).index_select(1, self.slot_ids)

    def mean(self, tokens: Tensor) -> Tensor:
        """[B, N, E] -> [B]"""
        return self.forward(tokens).mean(-1)


def _init_like_linear(weight: Tensor, bias: Tensor) -> None:
    """Initialise as `nn.Linear` does: uniform in ±1/√(number of inputs)."""
    bound = weight.shape[1] ** -0.5
    nn.init.uniform_(weight, -bound, bound)
    nn.init.uniform_(bias, -bound, bound)
