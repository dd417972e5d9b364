"""Record demonstrations of a scripted expert for the arm: python examples/record_demos.py demos.npz 200"""

import sys

import mujoco
import numpy as np
from arm_task import HOME, Reach

NUM_STEPS = 100
LARGEST_STEP = 0.3  # rad, from the joints to their targets


def angles_at(env: Reach, goal: np.ndarray) -> np.ndarray:
    """Return joint angles with the hand at the goal, by damped least squares from the home pose."""
    data, jacobian, site = mujoco.MjData(env.model), np.zeros((3, env.model.nv)), env.model.site("grasp").id
    data.qpos = HOME
    data.qpos[0] = np.arctan2(goal[1], goal[0]).clip(env.low[0], env.high[0])
    for _ in range(100):
        mujoco.mj_kinematics(env.model, data)
        mujoco.mj_comPos(env.model, data)
        mujoco.mj_jacSite(env.model, data, jacobian, None, site)
        step = jacobian.T @ np.linalg.solve(jacobian @ jacobian.T + 0.01 * np.eye(3), goal - data.site_xpos[site])
        data.qpos = (data.qpos + step).clip(env.low, env.high)
    return data.qpos


def main(file: str, num_episodes: int) -> None:
    """Write one array per term, the actions, and the end of each episode."""
    env, steps, num_reached = Reach(), [], 0
    for seed in range(num_episodes):
        obs, _ = env.reset(seed=seed)
        wanted = angles_at(env, obs["goal"])
        for _ in range(NUM_STEPS):
            action = obs["joint_pos"] + (wanted - obs["joint_pos"]).clip(-LARGEST_STEP, LARGEST_STEP)
            steps.append({**obs, "actions": action})
            obs, _, _, _, info = env.step(action)
        num_reached += int(info["reached"])
    arrays = {name: np.array([step[name] for step in steps]) for name in steps[0]}
    np.savez(file, **arrays, episode_ends=NUM_STEPS * np.arange(1, num_episodes + 1))
    print(f"wrote {file}: {num_episodes} episodes, {num_reached} of which reach the goal")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
