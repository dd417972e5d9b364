"""Update: a batch's loss, its gradients, a step of AdamW."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.optim import AdamW

from ..model.policy import Policy
from ..training.cuda_graphs import CudaGraphed
from .episodes import Floats


class Update:
    """Changes the policy inside `module`, a loss of observations and actions; on one GPU as a recording."""

    def __init__(self, module: nn.Module, weight_decay: float, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        self.device = accelerator.device
        on_gpu = self.device.type == "cuda"
        module.to(self.device)
        # what a recording reads must be on the GPU: the rate, and how many steps were made
        rate: float | Tensor = torch.zeros((), device=self.device) if on_gpu else 0.0
        optimizer = AdamW(module.parameters(), rate, weight_decay=weight_decay, fused=on_gpu, capturable=on_gpu)
        self.module, self.optimizer = accelerator.prepare(module, optimizer)
        self.loss_sum = torch.zeros((), device=self.device, dtype=torch.float64)
        """Of all updates since somebody set it to zero."""
        # several processes exchange gradients on the way, which is not recorded
        self._compute = CudaGraphed(self._plain) if on_gpu and accelerator.num_processes == 1 else self._plain

    def __call__(self, used_obs: Floats, actions: Floats, learning_rate: float) -> None:
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(learning_rate)
            else:
                group["lr"] = learning_rate
        self._compute(*(self._to_device(array) for array in (used_obs, actions)))

    def _plain(self, used_obs: Tensor, actions: Tensor) -> Tensor:
        loss: Tensor = self.module(used_obs, actions)
        self.accelerator.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.loss_sum += loss.detach()
        return loss.detach()

    def _to_device(self, array: Floats) -> Tensor:
        tensor = torch.from_numpy(array)
        return tensor.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else tensor

    # -- what a checkpoint keeps ---------------------------------------------------------------------------------------

    def tensors(self, policy: Policy) -> dict[str, Tensor]:
        state: Mapping[Tensor, Mapping[str, Any]] = self.optimizer.state
        of_optimizer = {
            f"optimizer.{name}.{key}": value
            for name, parameter in policy.named_parameters()
            for key, value in state.get(parameter, {}).items()
        }
        return {"loss_sum": self.loss_sum, **of_optimizer}

    def restore(self, policy: Policy, tensors: Mapping[str, Tensor]) -> None:
        self.loss_sum.copy_(tensors["loss_sum"])
        for name, parameter in policy.named_parameters():
            prefix = f"optimizer.{name}."
            found = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
            if not found:
                raise ValueError(f"the checkpoint's training state lacks {prefix}*")
            self.optimizer.state[parameter] = {
                key: value.to(parameter.device, copy=True) for key, value in found.items()
            }
