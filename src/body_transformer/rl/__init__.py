"""Reinforcement learning: simulator -> policy, with mjlab's environments and rsl_rl's PPO."""
