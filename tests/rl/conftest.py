"""Environments of our tasks on the CPU, made once for all tests."""

from functools import cache
from importlib.util import find_spec

import pytest

if find_spec("mujoco_warp"):
    from mujoco_warp._src import collision_convex, collision_primitive

    # each step looks 78 pairs of shapes up through Warp's search for overloads, a quarter of a step on a CPU
    collision_convex.upper_trid_index = cache(collision_convex.upper_trid_index)
    collision_primitive.upper_trid_index = collision_convex.upper_trid_index


@pytest.fixture(scope="session")
def new_env():
    """Return a function that makes a new environment; the arguments are those of `task_cfg`."""
    pytest.importorskip("mjlab")
    from mjlab.envs import ManagerBasedRlEnv

    from body_transformer.rl.envs.fast import FastEnv
    from body_transformer.rl.registry import quiet

    from .environments import task_cfg

    def make(name, num_envs=8, seed=0, fast=True, **options):
        with quiet():
            return (FastEnv if fast else ManagerBasedRlEnv)(task_cfg(name, num_envs, seed, **options), "cpu")

    return make


@pytest.fixture(scope="session")
def _shared(new_env):
    return cache(new_env)


@pytest.fixture
def env(_shared):
    """Return a function that resets the shared environment of a task, with 8 robots, to their first episode."""

    def fresh(name, fast=True, **options):
        from body_transformer.rl.envs.mjlab import terms_of
        from body_transformer.rl.registry import quiet

        made = _shared(name, fast=fast, **options)
        terms_of(made).robots.starts.seed(0)
        with quiet():
            made.reset(seed=0)
        return made

    return fresh
