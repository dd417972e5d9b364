"""Code that imitation and reinforcement learning share."""
