"""CpuEnv: our tasks in plain MuJoCo on the CPU, a second simulator with the same terms.

mjlab only compiles the scene; its environments and MuJoCo Warp are not used here.
"""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import mujoco
import numpy as np
import torch
from mjlab.envs import ManagerBasedRlEnvCfg
from mjlab.envs.types import VecEnvObs, VecEnvStepReturn
from mjlab.scene import Scene
from numpy.typing import NDArray
from torch import Tensor

from .interface import RlEnv
from .mjlab import task_of
from .terms import RlTask, TaskTerms, reward_weights
from .world import World


def scene_model(cfg: ManagerBasedRlEnvCfg) -> mujoco.MjModel:
    """Return the compiled scene with the task's physics: `env.sim.mj_model` without an environment."""
    model = Scene(cfg.scene, device="cpu").compile()
    cfg.sim.mujoco.apply(model)
    return model


class CpuEnv(RlEnv):
    """B robots in one episode each; a robot is not simulated further when its episode is over.

    Threads share the robots, because MuJoCo releases Python's lock while it steps. Each thread has one MjModel and one
    MjData. A robot's parameters and state are written there before a physics step, and read after it.
    """

    terms: TaskTerms[Any]
    device = torch.device("cpu")

    def __init__(self, cfg: ManagerBasedRlEnvCfg, num_threads: int | None = None) -> None:
        model = scene_model(cfg)
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET  # a broken state must stay visible
        self._cfg, self._num_threads = cfg, num_threads or torch.get_num_threads()
        self.task: RlTask[Any] = task_of(cfg)
        num_envs = cfg.scene.num_envs
        self.steps = torch.zeros(num_envs, dtype=torch.long)
        """[B]"""
        self.going = torch.zeros(num_envs, dtype=torch.bool)
        """[B]: whether the episode is not over yet."""
        zeros = partial(torch.zeros, num_envs, dtype=torch.float64)
        self.world = World(
            model,
            qpos=zeros(model.nq),
            qvel=zeros(model.nv),
            warmstart=zeros(model.nv),
            ctrl=zeros(model.nu),
            sensordata=zeros(model.nsensordata),
            geom_xpos=zeros(model.ngeom, 3),
            geom_xmat=zeros(model.ngeom, 3, 3),
            act=zeros(model.na),
            body_pos=zeros(model.nbody, 3),
            body_quat=zeros(model.nbody, 4),
            subtree_center=zeros(model.nbody, 3),
            locate_bodies=self._locate_bodies,
            steps=lambda: self.steps,
        )
        self.terms = TaskTerms(self.task, self.world, cfg.seed or 0, reward_weights(cfg))
        self.robots = self.terms.robots
        self._threads = ThreadPoolExecutor(self._num_threads)
        self._models = [model, *(copy.copy(model) for _ in range(self._num_threads - 1))]
        self._datas = [mujoco.MjData(each) for each in self._models]
        self.robots.prepare_model(model)

    @property
    def num_envs(self) -> int:
        return self.world.num_envs

    @property
    def max_episode_length(self) -> int:
        return self.task.max_steps

    def reset(self, *, seed: int | None = None) -> tuple[VecEnvObs, dict[str, Any]]:
        """Begin an episode of every robot; with a seed, in the start that mjlab's environment has with this seed."""
        if seed is not None:
            torch.manual_seed(seed)  # for the noise
            self.robots.seed(seed)
        self.robots.restart(torch.ones_like(self.going))
        self.robots.locate()
        self.steps.zero_()
        self.going.fill_(True)
        return self._observations(), {}

    def step(self, action: Tensor) -> VecEnvStepReturn:
        """Take a step: action [B, A] -> observations, rewards [B], died [B], timed out [B], {}.

        Actions, rewards and ends have no meaning for episodes that were already over.
        """
        self.robots.act(action.to(self.world.ctrl))
        for step in range(self.task.decimation):
            self.robots.before_physics(step)
            self._physics()
        self.robots.locate()
        self.robots.read_sensors()
        self.steps += self.going
        died = self.terms.died()
        late = self.terms.timed_out(died)
        reward = self.terms.reward(died)
        self.forward_speed = self.terms.forward_speed()
        self.robots.push()
        self.going &= ~(died | late)
        return self._observations(), reward, died, late, {}

    def _observations(self) -> VecEnvObs:
        return {group: obs.float() for group, obs in self.terms.observations().items()}

    def scenery(self, poses: NDArray[np.float64]) -> mujoco.MjModel:
        """Return the model that renders the states qpos [T, nq] of a robot."""
        add_scenery = self.task.scenery(poses)
        if add_scenery is None:
            return self.world.model
        return scene_model(replace(self._cfg, scene=replace(self._cfg.scene, spec_fn=add_scenery)))

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()

    def _locate_bodies(self) -> None:
        """Compute the poses of the bodies of every robot."""
        world, model, data = self.world, self._models[0], self._datas[0]
        places = (world.body_pos.numpy(), world.body_quat.numpy(), world.subtree_center.numpy())
        for k, qpos in enumerate(world.qpos.numpy()):
            data.qpos = qpos
            mujoco.mj_kinematics(model, data)
            mujoco.mj_comPos(model, data)
            for column, found in zip(places, (data.xpos, data.xquat, data.subtree_com), strict=True):
                column[k] = found

    def _physics(self) -> None:
        """Simulate one physics step of every robot with a running episode."""
        parts = np.array_split(np.flatnonzero(self.going.numpy()), self._num_threads)
        for _ in self._threads.map(self._advance, range(self._num_threads), parts):
            pass
        broken = (~self.world.qpos.isfinite().all(1)).nonzero().flatten().tolist()
        if broken:
            raise ValueError(f"physics gave values that are not finite in the episodes {broken}")

    def _advance(self, thread: int, robots: NDArray[np.int64]) -> None:
        """Simulate one thread's share of the robots."""
        model, data = self._models[thread], self._datas[thread]
        for k in robots:
            self.robots.fit_model(k, model)
            self._step_robot(k, model, data)

    def _step_robot(self, k: int, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        world = self.world
        state = (world.qpos.numpy(), world.qvel.numpy(), world.act.numpy(), world.warmstart.numpy())
        data.qpos, data.qvel, data.act, data.qacc_warmstart = (column[k] for column in state)
        data.ctrl = world.ctrl.numpy()[k]
        mujoco.mj_step(model, data)
        for column, new in zip(state, (data.qpos, data.qvel, data.act, data.qacc_warmstart), strict=True):
            column[k] = new
        world.sensordata.numpy()[k], world.geom_xpos.numpy()[k] = data.sensordata, data.geom_xpos
