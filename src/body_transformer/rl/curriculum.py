"""How hard the ground is for each robot: the one thing of mjlab's curricula that does not follow from the step."""

from __future__ import annotations

import torch
from mjlab.envs import ManagerBasedRlEnv
from torch import Tensor


def terrain_levels(env: ManagerBasedRlEnv) -> Tensor | None:
    """[B]; none where the ground has no levels."""
    terrain = env.scene.terrain
    if terrain is None or terrain.terrain_origins is None:
        return None
    levels: Tensor = terrain.terrain_levels
    return levels


def use_terrain_levels(env: ManagerBasedRlEnv, saved: Tensor) -> None:
    """Robots are put on ground of these levels by their next reset; with other numbers of robots they are dealt out."""
    terrain, levels = env.scene.terrain, terrain_levels(env)
    if terrain is None or levels is None:
        return
    own = saved.to(levels)[torch.arange(len(levels), device=levels.device) % len(saved)]
    levels.copy_(own.clamp(max=terrain.max_terrain_level - 1))
    terrain.env_origins.copy_(terrain.terrain_origins[levels, terrain.terrain_types])
