"""Critic: observation -> value."""

from torch import Tensor, nn

from ..body.layout import Layout
from .build import build_detokenizer, build_encoder, build_tokenizer
from .config import PolicyConfig
from .normalizer import Normalizer
from .policy import check_obs, count_parameters


class Critic(nn.Module):
    """A value a node, averaged over the nodes; the mlp variant has one for all. Shares no weights with the policy."""

    __jit_unused_properties__ = ("num_parameters",)  # TorchScript would try to compile it

    def __init__(self, layout: Layout, config: PolicyConfig | None = None) -> None:
        super().__init__()
        self.layout = layout
        self.config = config = config or PolicyConfig()
        self.obs_dim = layout.obs_dim
        num_values = 1 if config.architecture.encoder == "mlp" else layout.graph.num_nodes
        self.normalizer = Normalizer(layout.obs_dim, config.obs_clip)
        self.tokenizer = build_tokenizer(layout, config)
        self.detokenizer = build_detokenizer(range(num_values), layout.graph, config)
        self.encoder = build_encoder(layout.graph, config)

    def forward(self, obs: Tensor) -> Tensor:
        """[B, O] -> [B]"""
        check_obs(obs, self.obs_dim)
        obs = self.normalizer(obs)
        tokens = self.tokenizer(obs, self.encoder.position)  # [B, N, E]
        tokens = self.encoder(tokens, placed=True)  # [B, N, E]
        value: Tensor = self.detokenizer.mean(tokens)  # [B]
        return value

    @property
    def num_parameters(self) -> int:
        return count_parameters(self)
