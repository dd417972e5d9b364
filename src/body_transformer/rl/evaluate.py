"""Evaluations: one episode per robot with the mean action, in any simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from tensordict import TensorDict
from torch import Tensor

from ..model.policy import Policy
from ..training.cuda_graphs import CudaGraphed
from .episode_metrics import EpisodeMetrics
from .registry import quiet
from .rollout import grouped
from .walking import WalkingMetrics

if TYPE_CHECKING:
    from .envs.interface import RlEnv

CHECK_EVERY = 50
"""Steps between checks for the end of all episodes on a GPU; in each the host waits for the device."""

Act = Callable[[TensorDict], Tensor]
"""Observations -> actions [B, A]."""


@torch.inference_mode()
def rollouts(act: Act, env: RlEnv, seed: int, watch: Callable[[], object] = lambda: None) -> EpisodeMetrics:
    """Run the first episode of every robot; the same seed gives the same initial states.

    Args:
        act: chooses the actions.
        env: the environments; only the first episode of each counts.
        seed: seed of the starts and of the noise.
        watch: called at the start and after each step.

    Returns:
        Metrics of each episode; see `FirstEpisodes.result`.
    """
    with quiet():  # mjlab prints its seed
        env.reset(seed=seed)  # mjlab draws its terrain here and places the robots on it in the next reset
        obs, _ = env.reset(seed=seed)
    episodes = FirstEpisodes(env)
    on_gpu = episodes.running.device.type == "cuda"
    actions: Tensor | None = None
    watch()
    for step in range(1, env.max_episode_length + 1):
        seen = grouped(obs)
        if on_gpu or actions is None:
            actions = act(seen)
        else:  # a CPU takes less time for fewer robots
            actions[episodes.running] = act(seen[episodes.running]).to(actions)
        obs, rewards, died, timed_out, _ = env.step(actions)
        episodes.add(rewards, died, timed_out)
        watch()
        if (not on_gpu or step % CHECK_EVERY == 0) and not bool(episodes.running.any()):
            break
    return episodes.result()


class FirstEpisodes:
    """Sums over the first episode of each of B environments, on their device."""

    def __init__(self, env: RlEnv) -> None:
        """Begin to count after a reset, while the commands are those of the first episodes."""
        self.env = env
        self.running = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
        self.died = torch.zeros_like(self.running)
        self.returns, self.lengths, self.distances = torch.zeros(
            3, env.num_envs, dtype=torch.float64, device=env.device
        )
        motion = env.motion
        self.walking = None if motion is None else WalkingMetrics(motion, env.step_dt)
        commanded = env.commanded_speed
        self.commanded = None if commanded is None else commanded.clone()

    def add(self, rewards: Tensor, died: Tensor, timed_out: Tensor) -> None:
        """Add the step that the environments have just taken, [B] each."""
        self.returns += rewards * self.running
        self.lengths += self.running
        if self.env.forward_speed is not None:
            self.distances += self.env.forward_speed * self.running
        self.died |= died & self.running
        self.running &= ~(died | timed_out)
        if self.walking is not None and (motion := self.env.motion) is not None:
            self.walking.add(motion, self.running)

    def result(self) -> EpisodeMetrics:
        """Return the metrics of each episode.

        - `total_reward`, not scaled; `length` in steps; `survived`, 0 after a death and 1 otherwise.
        - `forward_speed` in m/s, averaged over the episode, if the environment reports it: along the world's x axis,
          or along the robot's heading if a speed is commanded.
        - `speed_error`, the absolute difference from the commanded speed, if there is one.
        - The metrics of `WalkingMetrics` and the paths of some robots, if they are commanded where to walk.
        - `normalized_length` and `normalized_return` of planned episodes, which survive if they reach their end.
        """
        found = {"total_reward": self.returns, "length": self.lengths, "survived": ~self.died}
        if self.env.forward_speed is not None:
            found["forward_speed"] = self.distances / self.lengths
            if self.commanded is not None:
                found["speed_error"] = (found["forward_speed"] - self.commanded).abs()
        if self.walking is None:
            return EpisodeMetrics(found, self.env.plan)
        return EpisodeMetrics(found, self.env.plan, self.walking.result(), self.walking.paths())


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
        return act(grouped(dict(zip(groups, tensors, strict=True))))

    graphed = CudaGraphed(on_tensors)
    return lambda obs: graphed(*(obs[group] for group in groups))
