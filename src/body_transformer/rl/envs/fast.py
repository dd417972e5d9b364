"""FastEnv: our tasks on MuJoCo Warp, with all of a step but the physics recorded as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from mjlab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from mjlab.envs.types import VecEnvObs, VecEnvStepReturn
from torch import Tensor

from ...training.cuda_graphs import CudaGraphed
from .interface import RlEnv
from .mjlab import env_cfg, task_of, terms_of
from .terms import TaskTerms
from .world import STATE

Part = Callable[[], tuple[Tensor, ...]]
"""A part of a step, recorded or not."""


class FastEnv(ManagerBasedRlEnv, RlEnv):
    """ManagerBasedRlEnv for our own tasks, with a faster step.

    A step leaves out mjlab's second forward(), resets by masks instead of by indices, and never waits for the device.
    On a GPU, everything but the physics is a CUDA graph. Observations, rewards and ends of episodes are the same,
    except for the random numbers of noise and pushes. `extras["log"]` (episode sums of reward terms and counts of
    terminations) is missing.
    """

    terms: TaskTerms[Any]
    broken: Tensor
    non_finite: Tensor
    _episode_length: Tensor

    def __init__(self, cfg: ManagerBasedRlEnvCfg, device: str) -> None:
        _refuse_changes(cfg)
        super().__init__(cfg, device)
        self.terms = terms_of(self)
        self.robots = self.terms.robots
        self.broken = torch.zeros((), dtype=torch.long, device=device)
        self.non_finite = torch.zeros(self.num_envs, dtype=torch.bool, device=device)
        self._final_state = {name: getattr(self.terms.world, name).clone() for name in ("qpos", "qvel")}
        self.record(CudaGraphed if torch.device(device).type == "cuda" else lambda compute: compute)

    def record(self, recorder: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Wrap all parts of a step except the physics in `recorder`."""
        between = [partial(self.robots.before_physics, step) for step in range(1, self.cfg.decimation)]
        self.begin = recorder(self._begin)
        self.between = [recorder(step) if self.robots.acts_between_physics_steps else step for step in between]
        self.post_physics: Callable[..., Any]
        if self.robots.locates_bodies:  # by kernels of Warp, which a graph of PyTorch cannot record
            self.post_physics = partial(self._post_physics, recorder(self._outcome), recorder(self._observe))
        else:
            self.post_physics = recorder(partial(self._post_physics, self._outcome, self._observe))

    def episode_state(self) -> dict[str, Tensor]:
        """Return the simulator's state, the steps so far, and the state of the robots."""
        world = self.terms.world
        simulated = {name: getattr(world, name) for name in (*STATE, "ctrl")}
        own = {"steps": self.episode_length_buf, **self.robots.episode_state()}
        return {name: value for name, value in (simulated | own).items() if value.numel()}

    def final_state(self) -> dict[str, Tensor]:
        """Return qpos and qvel after the last step's physics; where `non_finite`, after the step that broke them."""
        return self._final_state

    @property
    def episode_length_buf(self) -> Tensor:
        """[B]: steps so far. Assignment copies the values, because CUDA graphs read this tensor."""
        return self._episode_length

    @episode_length_buf.setter
    def episode_length_buf(self, value: Tensor) -> None:
        if hasattr(self, "_episode_length"):
            self._episode_length.copy_(value)
        else:
            self._episode_length = value

    def reset(
        self, *, seed: int | None = None, env_ids: Tensor | None = None, options: dict[str, Any] | None = None
    ) -> tuple[VecEnvObs, dict[str, Any]]:
        """Reset as mjlab does; a seed chooses the starts of all further episodes."""
        if seed is not None:
            self.robots.seed(seed)
        return super().reset(seed=seed, env_ids=env_ids, options=options)

    def step(self, action: Tensor) -> VecEnvStepReturn:
        """Take a step: action [B, A] -> observations, rewards [B], died [B], timed out [B], extras."""
        self.begin(action.to(self.device))
        self.sim.step()
        for prepare in self.between:
            prepare()
            self.sim.step()
        self.common_step_counter += 1
        self._sim_step_counter += self.cfg.decimation
        # clones, because the next step writes into the same tensors
        (reward, died, late, *speed), obs = ([found.clone() for found in part] for part in self.post_physics())
        if speed:
            (self.forward_speed,) = speed
        self.obs_buf, self.reward_buf, self.extras = dict(zip(self.terms.task.obs, obs, strict=True)), reward, {}
        self.reset_terminated, self.reset_time_outs, self.reset_buf = died, late, died | late
        self.observation_manager._obs_buffer = self.obs_buf  # the manager returns these as the last observations
        return self.obs_buf, reward, died, late, self.extras

    def _begin(self, action: Tensor) -> None:
        """Take over the actions and prepare the first physics step."""
        self.robots.act(action)
        self.robots.before_physics(0)

    def _post_physics(self, outcome: Part, observe: Part) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Return the outcome of a step, and the observations after it and after restarts."""
        self.robots.locate()
        found = outcome()
        self.robots.locate()
        return found, observe()

    def _outcome(self) -> tuple[Tensor, ...]:
        """Return reward, died, timed out and the forward speed if the task has one; begin episodes where one ended."""
        terms, robots, world = self.terms, self.robots, self.terms.world
        robots.read_sensors()
        self.episode_length_buf.add_(1)
        died = terms.died()
        late = terms.timed_out(died)
        ended = died | late
        reward = terms.reward(died)
        broken = world.broken()
        self.broken.add_(broken.sum())
        for name, final in self._final_state.items():
            torch.where(self.non_finite[:, None], final, getattr(world, name), out=final)
        self.non_finite.logical_or_(world.non_finite())
        speed = terms.forward_speed()
        speeds = () if speed is None else (speed.masked_fill(broken, 0.0),)
        robots.push()
        robots.restart(ended)
        self.episode_length_buf.masked_fill_(ended, 0)
        return reward, died, late, *speeds

    def _observe(self) -> tuple[Tensor, ...]:
        """Return the observation of every group."""
        return tuple(self.terms.observations().values())


def _refuse_changes(cfg: ManagerBasedRlEnvCfg) -> None:
    """Raise ValueError for a configuration that differs from the task's own, except for the weights of rewards."""
    own = env_cfg(task_of(cfg), cfg.scene.num_envs, cfg.seed or 0)
    by_name = ("actions", "events", "rewards", "terminations", "commands", "curriculum", "metrics", "recorders")
    for field in (*by_name, "observations", "scale_rewards_by_dt", "auto_reset"):
        have, expected = getattr(cfg, field), getattr(own, field)
        if (list(have) != list(expected)) if field in by_name else (have != expected):
            raise ValueError(f"FastEnv needs the task's own {field}; use ManagerBasedRlEnv for others")
    if "floor" in own.rewards and cfg.rewards["floor"].weight != own.rewards["floor"].weight:
        raise ValueError("FastEnv needs the task's own weight of `floor`; use ManagerBasedRlEnv for others")
