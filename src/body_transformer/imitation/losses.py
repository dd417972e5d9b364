"""What cloning minimises."""

import math

from torch import Tensor, nn

from ..model.policy import Policy


def squared_error(policy: Policy, obs: Tensor, actions: Tensor) -> Tensor:
    """[B, O], [B, A] -> [], the mean over batch and actions."""
    return nn.functional.mse_loss(policy(obs).float(), actions)


def negative_likelihood(policy: Policy, obs: Tensor, actions: Tensor) -> Tensor:
    """[B, O], [B, A] -> [], the mean over the batch; the policy's head is a Gaussian."""
    if policy.log_std is None:
        raise ValueError("loss 'likelihood' needs a policy with a Gaussian head; got head='deterministic'")
    log_std = policy.log_std.float()
    off = (actions - policy(obs).float()) * (-log_std).exp()
    loss: Tensor = (0.5 * off.square() + log_std + 0.5 * math.log(2 * math.pi)).sum(-1).mean()
    return loss


LOSSES = {"mse": squared_error, "likelihood": negative_likelihood}


class Cloning(nn.Module):
    """The loss of a policy, as a module: what several processes share gradients of."""

    obs_ids: Tensor

    def __init__(self, policy: Policy, loss: str, obs_ids: Tensor) -> None:
        super().__init__()
        if loss == "likelihood" and policy.log_std is None:
            raise ValueError("loss 'likelihood' needs a policy with a Gaussian head; got head='deterministic'")
        self.policy = policy
        self.loss = LOSSES[loss]
        self.register_buffer("obs_ids", obs_ids, persistent=False)

    def forward(self, used_obs: Tensor, actions: Tensor) -> Tensor:
        """[B, len(obs_ids)], [B, A] -> []; entries that no node owns are zero."""
        obs = used_obs.new_zeros(len(used_obs), self.policy.obs_dim)
        obs[:, self.obs_ids] = used_obs
        return self.loss(self.policy, obs, actions)
