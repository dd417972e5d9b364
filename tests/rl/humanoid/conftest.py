"""Environments of the humanoid tasks, on the CPU, made once for all tests."""

from functools import cache

import pytest


@pytest.fixture(scope="session")
def new_env():
    """Makes an environment of 8 robots that is not shared; `options` are those that are true."""
    pytest.importorskip("mjlab")
    from body_transformer.rl.registry import make_env

    def make(name, num_envs=8, seed=0, fast=True, options=()):
        return make_env(name, num_envs, seed, "cpu", fast, options=dict.fromkeys(options, "true"))

    return make


@pytest.fixture(scope="session")
def _shared(new_env):
    return cache(new_env)


@pytest.fixture
def env(_shared):
    """The 8 robots of a task, at the start of their first episode."""

    def fresh(name, fast=True, options=()):
        made = _shared(name, fast=fast, options=options)
        made.reset()
        from body_transformer.rl.envs.mjlab import terms_of

        terms_of(made).robots.starts.seed(0)
        made.reset()
        return made

    return fresh
