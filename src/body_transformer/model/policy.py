"""Policy: observation -> action."""

import os

import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal

from ..body.layout import Layout
from .build import build_detokenizer, build_encoder, build_tokenizer
from .config import PolicyConfig
from .normalizer import Normalizer


class Policy(nn.Module):
    """A robot's policy; `forward` is the deterministic (mean) action, which is what an exported policy computes."""

    __jit_unused_properties__ = ("num_parameters",)  # TorchScript would try to compile it

    log_std: Tensor | None

    def __init__(self, layout: Layout, config: PolicyConfig | None = None) -> None:
        super().__init__()
        self.layout = layout
        self.config = config = config or PolicyConfig()
        self.obs_dim = layout.obs_dim
        self.normalizer = Normalizer(layout.obs_dim, config.obs_clip)
        self.tokenizer = build_tokenizer(layout, config)
        self.detokenizer = build_detokenizer(layout.action_node_ids.tolist(), layout.graph, config)
        self.encoder = build_encoder(layout.graph, config)
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
        check_obs(obs, self.obs_dim)
        obs = self.normalizer(obs)
        tokens = self.tokenizer(obs, self.encoder.position)  # [B, N, E]
        tokens = self.encoder(tokens, placed=True)  # [B, N, E]
        actions: Tensor = self.squash(self.detokenizer(tokens))  # [B, A]
        return actions

    def distribution(self, obs: Tensor) -> Independent[Normal]:
        """The Gaussian over actions, for a policy whose head is one."""
        if self.log_std is None:
            raise ValueError("this policy is deterministic; PolicyConfig(head='gaussian') has a distribution")
        mean = self(obs)
        return Independent(Normal(mean, self.log_std.exp().expand_as(mean)), 1)

    @property
    def num_parameters(self) -> int:
        return count_parameters(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes `policy.safetensors` and `policy.json` into the folder `path`."""
        from .storage import save_policy

        save_policy(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Policy":
        """Reads what `save` wrote; anything else is refused with the reason."""
        from .storage import load_policy

        return load_policy(path)


def check_obs(obs: Tensor, obs_dim: int) -> None:
    """The network is built for exactly these entries."""
    # In a trace sizes are tensors. (TorchScript reads "type:" comments itself; of mypy's it knows the bare one only.)
    if torch.jit.is_tracing():  # type: ignore
        return
    if obs.ndim != 2 or obs.shape[1] != obs_dim:
        raise ValueError(f"obs must be [B, {obs_dim}]; got {list(obs.shape)}")


def count_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
