"""Simulator -> policy: reinforcement learning with mjlab and rsl_rl. Only modules in here import them."""
