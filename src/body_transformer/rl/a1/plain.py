"""a1-walk in plain MuJoCo, on the CPU: the same rules in another simulator, on the height field itself.

mjlab compiles the scene and no more; no environment of its own and no Warp is at work here.
"""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import mujoco
import numpy as np
import torch
from mjlab.envs import ManagerBasedRlEnvCfg
from numpy.typing import NDArray
from torch import Tensor

from ..ground import add_field
from ..humanoid.still import scene_model
from .model import CONTROL_DT, DECIMATION
from .parameters import use
from .state import World
from .task import MAX_STEPS, A1s, task_of


class PlainEnv:
    """B robots, each in an episode of its own; who is at its end stays there.

    The cores share the robots: MuJoCo holds no lock of Python's while it steps. Each of them has one MjModel and one
    MjData, which become those of a robot for a physics step.
    """

    max_steps, control_dt = MAX_STEPS, CONTROL_DT

    def __init__(self, cfg: ManagerBasedRlEnvCfg, num_threads: int | None = None):
        task = task_of(cfg)
        solid = replace(cfg.scene, spec_fn=partial(add_field, ground=task.terrain))
        model = scene_model(replace(cfg, scene=solid))
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET  # else a broken state would begin anew, unseen
        num_envs, num_threads = cfg.scene.num_envs, num_threads or torch.get_num_threads()
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
        )
        self.robots = A1s(task, self.world, seed=cfg.seed or 0)
        self._kits = self.robots.parameters.kits(model)
        self._weights = {name: term.weight for name, term in cfg.rewards.items()}
        self._models = [model, *(copy.copy(model) for _ in range(num_threads - 1))]
        self._datas = [mujoco.MjData(each) for each in self._models]
        self._threads = ThreadPoolExecutor(num_threads)

    def reset(self, seed: int) -> Tensor:
        """All robots begin; the starts are those of mjlab's environment with this seed. Observations [B, 48]."""
        self.robots.starts.seed(seed)
        self.robots.restart(torch.ones_like(self.going))
        self.steps.zero_()
        self.going.fill_(True)
        return self.robots.actor_observation().float()

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """action [B, 12] -> observations [B, 48], rewards [B], died [B], timed out [B].

        Rewards and ends mean nothing where the episode was over before.
        """
        self.robots.memory.act(action.to(self.world.ctrl))
        for step in range(DECIMATION):
            self.robots.drive(step)
            self._physics()
        self.robots.judge()
        self.steps += self.going
        died = self.robots.died()
        late = self.robots.timed_out(died)
        reward = self.robots.reward(self._weights)
        self.robots.push()
        self.going &= ~(died | late)
        return self.robots.actor_observation().float(), reward, died, late

    def x(self) -> Tensor:
        return self.robots.state.base_pos[:, 0]

    def commanded_speed(self) -> Tensor:
        return self.robots.state.command[:, 0]

    def no_action(self) -> Tensor:
        return torch.zeros_like(self.robots.state.action)

    def close(self) -> None:
        self._threads.shutdown()

    def _physics(self) -> None:
        parts = np.array_split(np.flatnonzero(self.going.numpy()), len(self._datas))
        for _ in self._threads.map(self._advance, self._models, self._datas, parts):
            pass
        broken = (~self.world.qpos.isfinite().all(1)).nonzero().flatten().tolist()
        if broken:
            raise ValueError(f"physics gave values that are not finite in the episodes {broken}")

    def _advance(self, model: mujoco.MjModel, data: mujoco.MjData, robots: NDArray[np.int64]) -> None:
        """One thread's share of a physics step."""
        world = self.world
        qpos, qvel, warmstart = world.qpos.numpy(), world.qvel.numpy(), world.warmstart.numpy()
        ctrl, sensordata = world.ctrl.numpy(), world.sensordata.numpy()
        for k in robots:
            use(self._kits[k], model)
            data.qpos, data.qvel, data.qacc_warmstart, data.ctrl = qpos[k], qvel[k], warmstart[k], ctrl[k]
            mujoco.mj_step(model, data)
            qpos[k], qvel[k], warmstart[k], sensordata[k] = data.qpos, data.qvel, data.qacc_warmstart, data.sensordata
