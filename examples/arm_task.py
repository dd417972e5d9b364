"""A task of your own: the arm of arm.xml moves its hand to a goal. Its name is `arm_task:Reach-v0`."""

from pathlib import Path
from typing import ClassVar

import gymnasium
import mujoco
import numpy as np

HOME = (0.0, 0.3, 1.2, 0.3)  # rad
CLOSE_M = 0.03
STEPS_PER_ACTION = 10  # the policy acts at 50 Hz, the physics runs at 500 Hz


class Reach(gymnasium.Env):
    """The action holds the target angles of the joints."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 50}

    def __init__(self, render_mode: str | None = None) -> None:
        self.model = mujoco.MjModel.from_xml_path(str(Path(__file__).with_name("arm.xml")))
        self.data = mujoco.MjData(self.model)
        self.low, self.high = self.model.jnt_range.T
        sizes = {"joint_pos": self.model.nq, "joint_vel": self.model.nv, "goal": 3}
        boxes = {name: gymnasium.spaces.Box(-np.inf, np.inf, (size,)) for name, size in sizes.items()}
        self.observation_space = gymnasium.spaces.Dict(boxes)
        self.action_space = gymnasium.spaces.Box(self.low.astype(np.float32), self.high.astype(np.float32))
        self.render_mode, self._renderer = render_mode, None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos = HOME + self.np_random.uniform(-0.2, 0.2, len(HOME))
        self.goal = self._reachable_point()
        self.model.site("goal").pos = self.goal
        mujoco.mj_forward(self.model, self.data)
        return self._obs(), {}

    def step(self, action):
        self.data.ctrl = action
        mujoco.mj_step(self.model, self.data, STEPS_PER_ACTION)
        distance = float(np.linalg.norm(self.goal - self.data.site("grasp").xpos))
        return self._obs(), -distance, False, False, {"reached": float(distance < CLOSE_M)}

    def render(self):
        self._renderer = self._renderer or mujoco.Renderer(self.model, 240, 320)
        self._renderer.update_scene(self.data)
        return self._renderer.render()

    def _reachable_point(self):
        """Return the place of the hand at random angles."""
        other = mujoco.MjData(self.model)
        while True:
            other.qpos = self.np_random.uniform(self.low, self.high)
            mujoco.mj_kinematics(self.model, other)
            point = other.site("grasp").xpos.copy()
            if point[2] > 0.4 and point[0] > 0.15:
                return point

    def _obs(self):
        return {"joint_pos": self.data.qpos.copy(), "joint_vel": self.data.qvel.copy(), "goal": self.goal.copy()}


gymnasium.register("Reach-v0", Reach, max_episode_steps=100)
