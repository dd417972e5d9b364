"""The MLP baseline of the paper: the same tokenizer, then all tokens as one vector."""

from torch import Tensor, nn


class MLPEncoder(nn.Module):
    """Three linear layers over all tokens at once, with ReLUs between them."""

    def __init__(self, num_nodes: int, embed_dim: int, hidden_dim: int) -> None:
        super().__init__()
        flat_dim = num_nodes * embed_dim
        self.position = None  # the place in the flat vector already identifies the node
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(flat_dim, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, flat_dim),
            nn.Unflatten(1, (num_nodes, embed_dim)),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, N, E] -> [B, N, E]"""
        out: Tensor = self.layers(tokens)
        return out


class FlatDetokenizer(nn.Module):
    """One linear layer from all tokens to all outputs."""

    def __init__(self, num_nodes: int, embed_dim: int, out_dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(num_nodes * embed_dim, out_dim)

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, N, E] -> [B, A]"""
        out: Tensor = self.linear(tokens.flatten(1))
        return out

    def mean(self, tokens: Tensor) -> Tensor:
        """[B, N, E] -> [B]"""
        return self.forward(tokens).mean(-1)
