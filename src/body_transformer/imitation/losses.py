"""What cloning minimises."""

import math

from torch import Tensor, nn

from ..model.config import PolicyConfig
from ..model.policy import Policy


def squared_error(policy: Policy, obs: Tensor, actions: Tensor) -> Tensor:
    """[B, O], [B, A] -> [], the mean over batch and actions."""
    return nn.functional.mse_loss(policy(obs).float(), actions)


def negative_likelihood(policy: Policy, obs: Tensor, actions: Tensor) -> Tensor:
    """[B, O], [B, A] -> [], the mean over the batch; the policy's head is a Gaussian."""
    assert policy.log_std is not None, "check_loss lets no other policy pass"
    log_std = policy.log_std.float()
    off = (actions - policy(obs).float()) * (-log_std).exp()
    loss: Tensor = (0.5 * off.square() + log_std + 0.5 * math.log(2 * math.pi)).sum(-1).mean()
    return loss


LOSSES = {"mse": squared_error, "likelihood": negative_likelihood}


def check_loss(loss: str, policy: PolicyConfig) -> None:
    """The loss trains all that the policy has."""
    if loss == "likelihood" and policy.head != "gaussian":
        raise ValueError(f"loss 'likelihood' needs a policy with a Gaussian head; got head={policy.head!r}")
    if loss == "mse" and policy.head == "gaussian" and policy.std == "learned":
        raise ValueError("loss 'mse' learns no standard deviation: take loss 'likelihood', or a policy of std 'fixed'")


class Cloning(nn.Module):
    """The loss of a policy, as a module: what several processes share gradients of."""

    obs_ids: Tensor

    def __init__(self, policy: Policy, loss: str, obs_ids: Tensor) -> None:
        super().__init__()
        check_loss(loss, policy.config)
        self.policy = policy
        self.loss = LOSSES[loss]
        self.register_buffer("obs_ids", obs_ids, persistent=False)

    def forward(self, used_obs: Tensor, actions: Tensor) -> Tensor:
        """[B, len(obs_ids)], [B, A] -> []; entries that no node owns are zero."""
        obs = used_obs.new_zeros(len(used_obs), self.policy.obs_dim)
        obs[:, self.obs_ids] = used_obs
        return self.loss(self.policy, obs, actions)
