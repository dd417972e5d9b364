"""Simulator -> policy: PPO on mjlab's environments, and on tasks of our own."""
