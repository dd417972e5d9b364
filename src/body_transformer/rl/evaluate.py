"""Evaluations: one episode per robot with the mean action, in any simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from tensordict import TensorDict
from torch import Tensor

from ..model.policy import Policy
from ..training.cuda_graphs import CudaGraphed
from ..training.evaluation import Estimate, estimate
from .registry import quiet

if TYPE_CHECKING:
    from mjlab.envs import ManagerBasedRlEnv

    from .envs.cpu import CpuEnv

CHECK_EVERY = 50
"""Steps between checks for the end of all episodes on a GPU; in each the host waits for the device."""

Act = Callable[[TensorDict], Tensor]
"""Observations -> actions [B, A]."""


def evaluate(
    act: Act, env: ManagerBasedRlEnv | CpuEnv, seed: int, watch: Callable[[], object] = lambda: None
) -> dict[str, Estimate]:
    """Return the mean of each metric of `rollouts`."""
    return {name: estimate(values.tolist()) for name, values in rollouts(act, env, seed, watch).items()}


@torch.inference_mode()
def rollouts(
    act: Act, env: ManagerBasedRlEnv | CpuEnv, seed: int, watch: Callable[[], object] = lambda: None
) -> dict[str, Tensor]:
    """Run the first episode of every robot; the same seed gives the same initial states.

    Args:
        act: chooses the actions.
        env: the environments; only the first episode of each counts.
        seed: of the starts and of noise.
        watch: called at the start and after each step.

    Returns:
        Metric -> its value in each episode, [B].

        - `total_reward`, not scaled; `length` in steps; `survived`: 0 after a death, else 1.
        - `forward_speed` in m/s, averaged over the episode, if the environment reports it: along the world's x axis,
          or along the robot's heading if a speed is commanded.
        - `speed_error`, the absolute difference from the commanded speed, if there is one.
    """
    with quiet():  # mjlab prints its seed
        env.reset(seed=seed)  # draws the ground of mjlab's tasks, on which the next reset places the robots
        obs, _ = env.reset(seed=seed)
    running = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
    died = torch.zeros_like(running)
    returns, lengths, distances = (torch.zeros(env.num_envs, dtype=torch.float64, device=env.device) for _ in range(3))
    commanded: Tensor | None = getattr(env, "commanded_speed", None)
    if commanded is not None:
        commanded = commanded.clone()  # the next episode may have another command
    check_every = 1 if running.device.type == "cpu" else CHECK_EVERY
    watch()
    for step in range(1, int(env.max_episode_length) + 1):
        obs, rewards, dies, times_out, _ = env.step(act(TensorDict(dict(obs), batch_size=[env.num_envs])))
        returns += rewards * running
        lengths += running
        distances += getattr(env, "forward_speed", 0.0) * running
        died |= dies & running
        running &= ~(dies | times_out)
        watch()
        if step % check_every == 0 and not bool(running.any()):
            break
    found = {"total_reward": returns, "length": lengths, "survived": ~died}
    if hasattr(env, "forward_speed"):
        found["forward_speed"] = distances / lengths
        if commanded is not None:
            found["speed_error"] = (found["forward_speed"] - commanded).abs()
    return found


def mean_action(policy: Policy) -> Act:
    """Return the policy's mean action as a function of an environment's observations on any device."""
    device = policy.normalizer.shift.device

    def act(obs: TensorDict) -> Tensor:
        actions: Tensor = policy(obs["actor"].to(device))
        return actions

    return act


def cuda_graphed(act: Act, groups: Sequence[str], device: str) -> Act:
    """Record a function of these observation groups as a CUDA graph; on a CPU return it unchanged."""
    if torch.device(device).type != "cuda":
        return act

    def on_tensors(*tensors: Tensor) -> Tensor:
        return act(TensorDict(dict(zip(groups, tensors, strict=True)), batch_size=[len(tensors[0])]))

    graphed = CudaGraphed(on_tensors)
    return lambda obs: graphed(*(obs[group] for group in groups))
