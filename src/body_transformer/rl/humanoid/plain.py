"""The humanoid tasks in plain MuJoCo, on the CPU: the same rules in another simulator, where a policy must work too.

mjlab compiles the scene and no more; no environment of its own and no Warp is at work here.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import mujoco
import numpy as np
import torch
from mjlab.envs import ManagerBasedRlEnvCfg
from numpy.typing import NDArray
from torch import Tensor

from .model import CONTROL_DT, DECIMATION
from .state import World
from .still import scene_model
from .task import MAX_STEPS, Humanoids, task_of


class PlainEnv:
    """B robots, each in an episode of its own; who is at its end stays there.

    The cores share the robots: MuJoCo holds no lock of Python's while it steps. Each of them has one MjData, into which
    a robot's state is put for a step and from which it is taken again.
    """

    max_steps, control_dt = MAX_STEPS, CONTROL_DT

    def __init__(self, cfg: ManagerBasedRlEnvCfg, num_threads: int | None = None):
        model = scene_model(on_solid_ground(cfg))
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
        self.robots = Humanoids(task_of(cfg), self.world, seed=cfg.seed or 0)
        self._weights = {name: term.weight for name, term in cfg.rewards.items()}
        self._datas = [mujoco.MjData(model) for _ in range(num_threads)]
        self._threads = ThreadPoolExecutor(num_threads)

    def reset(self, seed: int) -> Tensor:
        """All robots begin; the starts are those of mjlab's environment with this seed. Observations [B, 100]."""
        self.robots.starts.seed(seed)
        self.robots.restart(torch.ones_like(self.going))
        self.steps.zero_()
        self.going.fill_(True)
        return self.robots.observation().float()

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """action [B, 21] -> observations [B, 100], rewards [B], died [B], timed out [B].

        Rewards and ends mean nothing where the episode was over before.
        """
        self.robots.act(action.to(self.world.ctrl))
        self._physics()
        self.robots.feel()
        self.steps += self.going
        died = self.robots.died()
        late = self.robots.timed_out(died)
        reward = self.robots.reward(died, self._weights)
        self.going &= ~(died | late)
        return self.robots.observation().float(), reward, died, late

    def x(self) -> Tensor:
        return self.robots.state.torso_pos[:, 0]

    def commanded_speed(self) -> None:
        return None

    def no_action(self) -> Tensor:
        return torch.zeros_like(self.robots.state.action)

    def close(self) -> None:
        self._threads.shutdown()

    def _physics(self) -> None:
        parts = np.array_split(np.flatnonzero(self.going.numpy()), len(self._datas))
        for _ in self._threads.map(self._advance, self._datas, parts):
            pass
        broken = (~self.world.qpos.isfinite().all(1)).nonzero().flatten().tolist()
        if broken:
            raise ValueError(f"physics gave values that are not finite in the episodes {broken}")

    def _advance(self, data: mujoco.MjData, robots: NDArray[np.int64]) -> None:
        """One thread's share of a control step."""
        world = self.world
        qpos, qvel, warmstart = world.qpos.numpy(), world.qvel.numpy(), world.warmstart.numpy()
        ctrl, sensordata = world.ctrl.numpy(), world.sensordata.numpy()
        for k in robots:
            data.qpos, data.qvel, data.qacc_warmstart, data.ctrl = qpos[k], qvel[k], warmstart[k], ctrl[k]
            mujoco.mj_step(world.model, data, nstep=DECIMATION)
            qpos[k], qvel[k], warmstart[k], sensordata[k] = data.qpos, data.qvel, data.qacc_warmstart, data.sensordata


def on_solid_ground(cfg: ManagerBasedRlEnvCfg) -> ManagerBasedRlEnvCfg:
    """With the height field itself where mjlab's environment has planes for it: contacts of another origin."""
    ground = task_of(cfg).ground
    return cfg if ground is None else replace(cfg, scene=replace(cfg.scene, spec_fn=ground.add_field))
