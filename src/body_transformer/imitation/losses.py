"""Losses of behaviour cloning."""

import math

from torch import Tensor, nn

from ..model.config import PolicyConfig
from ..model.policy import Policy


def squared_error(policy: Policy, obs: Tensor, actions: Tensor) -> Tensor:
    """Return the mean squared error over batch and actions, [B, O], [B, A] -> []."""
    return nn.functional.mse_loss(policy(obs).float(), actions)


def negative_likelihood(policy: Policy, obs: Tensor, actions: Tensor) -> Tensor:
    """Return the mean negative log-likelihood of a Gaussian head over the batch, [B, O], [B, A] -> []."""
    assert policy.log_std is not None, "check_loss refuses other policies"
    log_std = policy.log_std.float()
    error = (actions - policy(obs).float()) * (-log_std).exp()
    loss: Tensor = (0.5 * error.square() + log_std + 0.5 * math.log(2 * math.pi)).sum(-1).mean()
    return loss


LOSSES = {"mse": squared_error, "likelihood": negative_likelihood}


def check_loss(loss: str, policy: PolicyConfig) -> None:
    """Check that the loss trains every parameter of the policy."""
    if loss == "likelihood" and policy.head != "gaussian":
        raise ValueError(f"loss 'likelihood' needs a policy with a Gaussian head; got head={policy.head!r}")
    if loss == "mse" and policy.head == "gaussian" and policy.std == "learned":
        raise ValueError("loss 'mse' does not train a learned std: use loss 'likelihood', or a policy with std 'fixed'")


class CloningLoss(nn.Module):
    """Loss of a policy as a module, so that several processes can share its gradients."""

    obs_ids: Tensor

    def __init__(self, policy: Policy, loss: str, obs_ids: Tensor) -> None:
        super().__init__()
        check_loss(loss, policy.config)
        self.policy = policy
        self.loss = LOSSES[loss]
        self.register_buffer("obs_ids", obs_ids, persistent=False)

    def forward(self, used_obs: Tensor, actions: Tensor) -> Tensor:
        """Compute the loss, [B, len(obs_ids)], [B, A] -> []; unused entries of the observation are zero."""
        obs = used_obs.new_zeros(len(used_obs), self.policy.obs_dim)
        obs[:, self.obs_ids] = used_obs
        return self.loss(self.policy, obs, actions)
