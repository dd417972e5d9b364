"""An environment as a user writes it: a two-joint arm whose tip must reach a target. Its option `fault` breaks it."""

import threading

import gymnasium
import numpy as np
from gymnasium import spaces

GOAL_M = 0.3


class ReachEnv(gymnasium.Env):
    """Actions are joint velocities in rad/s, at most 2; observations are a dictionary."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012

    def __init__(self, render_mode=None, length_m=1.0, fault=""):
        self.render_mode, self.length_m, self.fault = render_mode, length_m, fault
        self.lock = threading.Lock()  # cannot be pickled
        if fault == "make":
            raise RuntimeError("the arm is not connected")
        box = {"joint_pos": 2, "target": 2, "joint_vel": 2}
        self.observation_space = spaces.Dict({name: spaces.Box(-np.inf, np.inf, (n,)) for name, n in box.items()})
        self.action_space = spaces.Discrete(4) if fault == "discrete" else spaces.Box(-2.0, 2.0, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.joint_pos, self.joint_vel = self.np_random.uniform(-1, 1, 2), np.zeros(2)
        self.target, self.steps = self.tip(self.np_random.uniform(-1, 1, 2)), 0
        return self.obs(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.steps += 1
        self.joint_vel = action.astype(np.float64)
        self.joint_pos = self.joint_pos + 0.05 * self.joint_vel
        distance = np.linalg.norm(self.tip(self.joint_pos) - self.target)
        if self.fault == "step" and self.steps == 3:
            raise KeyError("motor")
        info = {"reached": distance < GOAL_M, "distance": distance}
        if self.fault == "late" and self.steps < 20:
            del info["reached"]
        return self.obs(), np.nan if self.fault == "reward" else -distance, False, False, info

    def obs(self):
        broken = self.fault == "nan" and self.steps == 2
        joint_vel = np.full(2, np.nan) if broken else self.joint_vel
        obs = {"joint_pos": self.joint_pos, "joint_vel": joint_vel, "target": self.target}
        if self.fault == "shape":
            obs["target"] = np.zeros(3)
        return {name: value.astype(np.float32) for name, value in obs.items()}

    def tip(self, joint_pos):
        first, second = joint_pos[0], joint_pos.sum()
        return self.length_m * np.array([np.cos(first) + np.cos(second), np.sin(first) + np.sin(second)])

    def render(self):
        if self.fault == "render":
            return None
        picture = np.zeros((64, 64, 3), np.uint8)
        for colour, place in enumerate((self.tip(self.joint_pos), self.target)):
            column, row = (32 + 12 * place).astype(int)
            picture[63 - row, column, colour] = 255
        return picture


gymnasium.register("Reach-v0", ReachEnv, max_episode_steps=20)
gymnasium.register("ReachForever-v0", ReachEnv)


class Blind(ReachEnv):
    """The same without pictures."""

    metadata = {"render_modes": []}  # noqa: RUF012


gymnasium.register("Blind-v0", Blind, max_episode_steps=20)


class Listing(ReachEnv):
    """The same with a list of any length as its observation."""

    def __init__(self, **options):
        super().__init__(**options)
        self.observation_space = spaces.Sequence(spaces.Box(-1, 1, (2,)))


gymnasium.register("Sequence-v0", Listing, max_episode_steps=20)
