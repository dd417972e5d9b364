"""Our tasks in plain MuJoCo, on the CPU: the same rules in another simulator, where a policy must work too.

mjlab compiles the scene and no more; no environment of its own and no Warp is at work here.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ClassVar

import mujoco
import numpy as np
import torch
from mjlab.envs import ManagerBasedRlEnvCfg
from mjlab.scene import Scene
from numpy.typing import NDArray
from torch import Tensor

from ..training.evaluation import Estimate
from ..video import View
from .evaluate import EpisodeMetrics, means, results
from .world import Robots, World

Act = Callable[[Tensor], Tensor]
"""Observations [B, O] -> actions [B, A]; a Policy is one."""


def scene_model(cfg: ManagerBasedRlEnvCfg) -> mujoco.MjModel:
    """The compiled scene with the task's physics: what `env.sim.mj_model` is, without an environment."""
    model = Scene(cfg.scene, device="cpu").compile()
    cfg.sim.mujoco.apply(model)
    return model


class PlainRobots(ABC):
    """B robots, each in an episode of its own; who is at its end stays there.

    The cores share the robots: MuJoCo holds no lock of Python's while it steps. Each of them has one MjModel and one
    MjData, into which what is a robot's own is put for a step, and from which its state is taken again.
    """

    max_steps: ClassVar[int]
    control_dt: ClassVar[float]
    view: ClassVar[View]
    """Of films."""
    robots: Robots

    def __init__(
        self, cfg: ManagerBasedRlEnvCfg, model: mujoco.MjModel, num_threads: int | None, planes: bool = False
    ) -> None:
        """`planes`: the ground is laid under the robots (see ground.py), in the world's memory of where geoms are."""
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET  # else a broken state would begin anew, unseen
        num_envs, self._num_threads = cfg.scene.num_envs, num_threads or torch.get_num_threads()
        self.steps = torch.zeros(num_envs, dtype=torch.long)
        """[B]"""
        self.going = torch.zeros(num_envs, dtype=torch.bool)
        """[B]: whose episode is not over."""
        zeros = partial(torch.zeros, num_envs, dtype=torch.float64)
        self.world = World(
            model,
            qpos=zeros(model.nq),
            qvel=zeros(model.nv),
            warmstart=zeros(model.nv),
            ctrl=zeros(model.nu),
            sensordata=zeros(model.nsensordata),
            steps=lambda: self.steps,
            geom_xpos=zeros(model.ngeom, 3) if planes else None,
            geom_xmat=zeros(model.ngeom, 3, 3) if planes else None,
        )
        self._weights = {name: term.weight for name, term in cfg.rewards.items()}
        self._threads = ThreadPoolExecutor(self._num_threads)
        self._models = [model, *(copy.copy(model) for _ in range(self._num_threads - 1))]
        self._datas = [mujoco.MjData(each) for each in self._models]

    @abstractmethod
    def _move(self, action: Tensor) -> None:
        """All physics steps of a step."""

    @abstractmethod
    def _fit(self, k: int, model: mujoco.MjModel) -> None:
        """The model becomes that of robot k: what is the robot's own, and the ground under it."""

    def reset(self, seed: int) -> Tensor:
        """All robots begin; the starts are those of mjlab's environment with this seed. Observations [B, O]."""
        self.robots.starts.seed(seed)
        self.robots.restart(torch.ones_like(self.going))
        self.steps.zero_()
        self.going.fill_(True)
        return self.robots.observation().float()

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """action [B, A] -> observations [B, O], rewards [B], died [B], timed out [B].

        Rewards and ends mean nothing where the episode was over before.
        """
        self._move(action.to(self.world.ctrl))
        self.robots.feel()
        self.steps += self.going
        died = self.robots.died()
        late = self.robots.timed_out(died)
        reward = self.robots.reward(died, self._weights)
        self.robots.disturb()
        self.going &= ~(died | late)
        return self.robots.observation().float(), reward, died, late

    def scenery(self, poses: NDArray[np.float64]) -> mujoco.MjModel:
        """To draw qpos [T, nq] of a robot in."""
        return self.world.model

    def close(self) -> None:
        self._threads.shutdown()

    def _physics(self) -> None:
        """A physics step of all that are going."""
        parts = np.array_split(np.flatnonzero(self.going.numpy()), self._num_threads)
        for _ in self._threads.map(self._advance, range(self._num_threads), parts):
            pass
        broken = (~self.world.qpos.isfinite().all(1)).nonzero().flatten().tolist()
        if broken:
            raise ValueError(f"physics gave values that are not finite in the episodes {broken}")

    def _advance(self, thread: int, robots: NDArray[np.int64]) -> None:
        """One thread's share of it."""
        model, data = self._models[thread], self._datas[thread]
        for k in robots:
            self._fit(k, model)
            self._step_robot(k, model, data)

    def _step_robot(self, k: int, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        world = self.world
        qpos, qvel, warmstart = world.qpos.numpy(), world.qvel.numpy(), world.warmstart.numpy()
        data.qpos, data.qvel, data.qacc_warmstart, data.ctrl = qpos[k], qvel[k], warmstart[k], world.ctrl.numpy()[k]
        mujoco.mj_step(model, data)
        qpos[k], qvel[k], warmstart[k] = data.qpos, data.qvel, data.qacc_warmstart
        world.sensordata.numpy()[k] = data.sensordata
        if world.geom_xpos is not None:
            world.geom_xpos.numpy()[k] = data.geom_xpos


def rollouts(act: Act, env: PlainRobots, seed: int, watch: Callable[[], object] = lambda: None) -> list[EpisodeMetrics]:
    """One episode of every robot; `watch` is called at the start and after each step."""
    with torch.inference_mode(), torch.random.fork_rng([]):
        torch.manual_seed(seed)  # of noise
        obs = env.reset(seed)
        actions, fallen = torch.zeros_like(env.world.ctrl), torch.zeros_like(env.going)
        returns, speeds = (torch.zeros(len(actions), dtype=actions.dtype) for _ in range(2))
        watch()
        for _ in range(env.max_steps):
            going = env.going.clone()
            actions[going] = act(obs[going]).to(actions)
            obs, rewards, died, _ = env.step(actions)
            returns += rewards * going
            speeds += env.robots.forward_speed() * going
            fallen |= died & going
            watch()
            if not env.going.any():
                break
        return results(env.steps, returns, fallen, speeds / env.steps, env.robots.commanded_speed())


def evaluate(act: Act, env: PlainRobots, seed: int, watch: Callable[[], object] = lambda: None) -> dict[str, Estimate]:
    """Metric -> its mean over the robots."""
    return means(rollouts(act, env, seed, watch))
