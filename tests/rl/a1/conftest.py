"""Environments of a1-walk on a small ground, on the CPU, made once for all tests."""

from functools import cache

import pytest


@pytest.fixture(scope="session")
def new_env():
    """Makes an environment of 8 robots that is not shared; options are fields of WalkOptions."""
    pytest.importorskip("mjlab")
    from mjlab.envs import ManagerBasedRlEnv

    from body_transformer.rl.a1 import walk
    from body_transformer.rl.a1.terrain import Terrain
    from body_transformer.rl.envs.fast import FastEnv
    from body_transformer.rl.registry import quiet

    def make(num_envs=8, seed=0, fast=True, flat=False, **options):
        even = {"scale": (0.0, 0.0), "border_scale": 0.0} if flat else {}
        ground = Terrain(seed, num_tracks=(6, 4), **even)
        with quiet():
            cfg = walk.cfg(num_envs, seed, **{"terrain": ground, **options})
            return (FastEnv if fast else ManagerBasedRlEnv)(cfg, "cpu")

    return make


@pytest.fixture(scope="session")
def _shared(new_env):
    return cache(new_env)


@pytest.fixture
def env(_shared):
    """The 8 robots, at the start of their first episode."""

    def fresh(fast=True, **options):
        from body_transformer.rl.envs.mjlab import terms_of
        from body_transformer.rl.registry import quiet

        made = _shared(fast=fast, **options)
        with quiet():
            made.reset(seed=0)
            terms_of(made).robots.starts.seed(0)
            made.reset(seed=0)
        return made

    return fresh
