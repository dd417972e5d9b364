"""CpuEnv: our tasks in plain MuJoCo on the CPU, a second simulator with the same terms.

mjlab only compiles the scene; its environments and MuJoCo Warp are not used here.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
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
from .terms import RlTask, TaskTerms
from .world import DATA, POSES, STATE, World


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
        self._cfg, num_threads = cfg, num_threads or torch.get_num_threads()
        self._models = [model, *(copy.copy(model) for _ in range(num_threads - 1))]
        self._datas = [mujoco.MjData(each) for each in self._models]
        self.task: RlTask[Any] = task_of(cfg)
        num_envs = cfg.scene.num_envs
        self.steps = torch.zeros(num_envs, dtype=torch.long)
        """[B]"""
        self.going = torch.zeros(num_envs, dtype=torch.bool)
        """[B]: whether the episode is not over yet."""
        self._memory = {name: np.zeros((num_envs, *getattr(self._datas[0], name).shape)) for name in DATA}
        """Field of MjData -> its value for each robot."""
        tensors = {name: torch.from_numpy(array) for name, array in self._memory.items()}
        self.world = World(model, self._locate_bodies, lambda: self.steps, **tensors)
        self.terms = TaskTerms(self.task, self.world, cfg)
        self.robots = self.terms.robots
        self.robots.prepare_model(model)
        self._threads = ThreadPoolExecutor(num_threads)

    @property
    def num_envs(self) -> int:
        return self.world.num_envs

    @property
    def step_dt(self) -> float:
        return self.task.control_dt

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
        model, data = self._models[0], self._datas[0]
        for k, qpos in enumerate(self._memory["qpos"]):
            data.qpos = qpos
            mujoco.mj_kinematics(model, data)
            mujoco.mj_comPos(model, data)
            self._read(k, data, POSES)

    def _physics(self) -> None:
        """Simulate one physics step of every robot with a running episode."""
        parts = np.array_split(np.flatnonzero(self.going.numpy()), len(self._models))
        for _ in self._threads.map(self._advance, self._models, self._datas, parts):
            pass
        broken = (~self.world.qpos.isfinite().all(1)).nonzero().flatten().tolist()
        if broken:
            raise ValueError(f"physics gave values that are not finite in the episodes {broken}")

    def _advance(self, model: mujoco.MjModel, data: mujoco.MjData, robots: NDArray[np.int64]) -> None:
        """Simulate one thread's share of the robots."""
        for k in robots:
            self.robots.fit_model(k, model)
            for name in (*STATE, "ctrl"):
                setattr(data, name, self._memory[name][k])
            mujoco.mj_step(model, data)
            self._read(k, data, (*STATE, "sensordata", "geom_xpos"))

    def _read(self, k: int, data: mujoco.MjData, names: Sequence[str]) -> None:
        """Read fields of robot k."""
        for name in names:
            self._memory[name][k] = getattr(data, name)
