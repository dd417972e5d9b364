"""Terrain levels are restored from a checkpoint."""

from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("mjlab", reason="needs the extra 'rl'")

from mjlab.terrains import TerrainEntity, TerrainEntityCfg
from mjlab.terrains.config import ROUGH_TERRAINS_CFG

from body_transformer.rl.envs.mjlab import MjlabEnv


def environment(num_envs: int, **options) -> MjlabEnv:
    """Return an environment that has nothing but this terrain."""
    env = MjlabEnv.__new__(MjlabEnv)
    terrain = TerrainEntity(TerrainEntityCfg(num_envs=num_envs, **options), device="cpu")
    env.scene = SimpleNamespace(terrain=terrain)
    return env


@pytest.mark.parametrize("num_envs", [3, 7])
def test_robots_return_to_the_terrain_level_that_they_had_reached(num_envs):
    env = environment(num_envs, terrain_type="generator", terrain_generator=ROUGH_TERRAINS_CFG)
    assert env.restore({"terrain_levels": torch.tensor([5, 0, 9])}), "a reset puts the robots there"
    levels = [5, 0, 9, 5, 0, 9, 5][:num_envs]
    assert env.training_state()["terrain_levels"].tolist() == levels
    terrain = env.scene.terrain
    for k, level in enumerate(levels):
        expected = terrain.terrain_origins[level, terrain.terrain_types[k]]
        torch.testing.assert_close(terrain.env_origins[k], expected)


def test_flat_ground_has_no_levels():
    env = environment(2, terrain_type="plane", env_spacing=1.0)
    assert env.training_state() == {}
    assert not env.restore({"terrain_levels": torch.tensor([1, 2])})
