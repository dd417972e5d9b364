"""Policy: observation -> action. Critic: observation -> value. Both are a trunk with a head."""

import os

import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal

from ..body.layout import Layout
from .config import PolicyConfig
from .trunk import Trunk, check_arguments


class Policy(Trunk):
    """A robot's policy. `forward` computes the deterministic (mean) action, as the exported policy does."""

    log_std: Tensor | None

    def __init__(self, layout: Layout, config: PolicyConfig | None = None) -> None:
        config = check_arguments("Policy", layout, config)
        super().__init__(layout, config, layout.action_node_ids.tolist())
        self.squash = nn.Tanh() if config.squash == "tanh" else nn.Identity()
        log_std = torch.full((layout.action_dim,), config.init_std).log()
        if config.head == "deterministic":
            self.log_std = None
        elif config.std == "learned":
            self.log_std = nn.Parameter(log_std)
        else:
            self.register_buffer("log_std", log_std)

    def forward(self, obs: Tensor) -> Tensor:
        """[B, O] -> [B, A]"""
        return self.head(self.encode(obs))

    def head(self, tokens: Tensor) -> Tensor:
        """[B, N, E] -> [B, A]"""
        actions: Tensor = self.squash(self.detokenizer(tokens))
        return actions

    def distribution(self, obs: Tensor) -> Independent[Normal]:
        """Return the Gaussian over actions of a policy with a Gaussian head."""
        if self.log_std is None:
            raise ValueError("this policy is deterministic; PolicyConfig(head='gaussian') has a distribution")
        mean = self(obs)
        return Independent(Normal(mean, self.log_std.exp().expand_as(mean)), 1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `policy.safetensors` and `policy.json` into the folder `path`."""
        from .storage import save_policy

        save_policy(self, path)

    @classmethod
    def load(cls, source: str | os.PathLike[str]) -> "Policy":
        """Load a saved or exported policy, a checkpoint, a run's newest checkpoint, or `pretrained:NAME`."""
        from .storage import load_policy

        return load_policy(cls, source)


class Critic(Trunk):
    """A value function: the mean of one value per node, or a single value in the mlp variant.

    A critic shares no weights with its policy.
    """

    def __init__(self, layout: Layout, config: PolicyConfig | None = None) -> None:
        config = check_arguments("Critic", layout, config)
        num_values = 1 if config.architecture.encoder == "mlp" else layout.graph.num_nodes
        super().__init__(layout, config, range(num_values))

    def forward(self, obs: Tensor) -> Tensor:
        """[B, O] -> [B]"""
        return self.head(self.encode(obs))

    def head(self, tokens: Tensor) -> Tensor:
        """[B, N, E] -> [B]"""
        return self.detokenizer.mean(tokens)
