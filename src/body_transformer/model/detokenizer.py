"""Tokens -> outputs: the actions of a policy, or the nodes' values of a critic."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Detokenizer(nn.Module):
    """Each node's own linear layer, all nodes at once: output j reads the token of node `node_ids[j]`."""

    node_ids: Tensor

    def __init__(self, node_ids: Sequence[int], embed_dim: int) -> None:
        super().__init__()
        self.register_buffer("node_ids", torch.tensor(list(node_ids), dtype=torch.int64), persistent=False)
        self.weight = nn.Parameter(torch.empty(len(node_ids), embed_dim))
        self.bias = nn.Parameter(torch.empty(len(node_ids)))
        _init_like_linear(self.weight, self.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, N, E] -> [B, A]"""
        return (tokens[:, self.node_ids] * self.weight).sum(-1) + self.bias


class SharedDetokenizer(nn.Module):
    """One linear layer for all nodes: the k-th output of any node reads its token through row k."""

    node_ids: Tensor
    row_ids: Tensor

    def __init__(self, node_ids: Sequence[int], embed_dim: int) -> None:
        super().__init__()
        nodes = list(node_ids)
        row_ids = [nodes[:j].count(node) for j, node in enumerate(nodes)]
        self.register_buffer("node_ids", torch.tensor(nodes, dtype=torch.int64), persistent=False)
        self.register_buffer("row_ids", torch.tensor(row_ids, dtype=torch.int64), persistent=False)
        self.weight = nn.Parameter(torch.empty(max(row_ids) + 1, embed_dim))
        self.bias = nn.Parameter(torch.empty(max(row_ids) + 1))
        _init_like_linear(self.weight, self.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, N, E] -> [B, A]"""
        return (tokens[:, self.node_ids] * self.weight[self.row_ids]).sum(-1) + self.bias[self.row_ids]


def _init_like_linear(weight: Tensor, bias: Tensor) -> None:
    """As `nn.Linear` does: uniform in ±1/√(number of inputs)."""
    bound = weight.shape[1] ** -0.5
    nn.init.uniform_(weight, -bound, bound)
    nn.init.uniform_(bias, -bound, bound)
