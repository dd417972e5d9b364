"""Episodes side by side: equal results in any number of processes, episodes of different lengths, errors."""

from functools import partial
from itertools import chain

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="needs the extra 'imitation'")

import gymnasium

from body_transformer.imitation.vector_env import EnvSpec, VectorEnv

SPEC = EnvSpec(partial(gymnasium.make, "InvertedPendulum-v5", disable_env_checker=True), 4, 1, np.float64, ())
STARTS = [{"seed": seed} for seed in range(7)]


def act(obs, episodes):
    """Push the pole over, in some episodes sooner than in others."""
    return np.sign(obs[:, 1:2]) * (episodes[:, None] % 3) / 2


def play(num_lanes, num_processes, starts=STARTS):
    """Return the steps of each episode, and the episodes of each batch."""
    envs = VectorEnv(SPEC, num_lanes, num_processes)
    try:
        steps = list(envs.play(starts, act))
    finally:
        envs.close()
    found = [[] for _ in starts]
    for step in steps:
        for row, episode in enumerate(step.episodes):
            found[episode].append(
                (step.obs[row].tolist(), step.rewards[row], step.terminated[row], step.truncated[row])
            )
    return found, [step.episodes.tolist() for step in steps]


def test_episodes_are_those_of_the_environment_itself():
    found, _ = play(num_lanes=3, num_processes=0)
    env = SPEC.make()
    for episode, steps in enumerate(found):
        obs, _ = env.reset(seed=episode)
        for recorded, reward, terminated, truncated in steps:
            assert recorded == obs.tolist()
            obs, *after, _ = env.step(act(obs[None].astype(np.float32), np.array([episode]))[0].astype(np.float32))
            assert after == [reward, terminated, truncated]
        assert terminated
    assert len({len(steps) for steps in found}) > 2


@pytest.mark.parametrize("num_processes", [1, 2, 3])
def test_the_number_of_processes_changes_neither_episodes_nor_batches(num_processes):
    assert play(3, num_processes) == play(3, 0)


def test_a_lane_that_is_free_takes_the_next_episode():
    found, batches = play(num_lanes=3, num_processes=0)
    assert batches[0] == [0, 1, 2]
    first_over = min(range(3), key=lambda episode: len(found[episode]))
    after = batches[len(found[first_over])]
    assert 3 in after
    assert len(after) == 3
    assert set(chain.from_iterable(batches)) == set(range(7))


def test_environments_are_used_again():
    envs = VectorEnv(SPEC, 2, 0)
    first = [step.obs.tolist() for step in envs.play(STARTS, act)]
    assert [step.obs.tolist() for step in envs.play(STARTS, act)] == first
    assert list(envs.play([], act)) == []
    envs.close()


def test_an_error_of_an_environment_is_raised_here_and_nothing_else_is_said(recwarn):
    envs = VectorEnv(EnvSpec(partial(gymnasium.make, "NoSuchTask-v0"), 4, 1, np.float64, ()), 2, 2)
    with pytest.raises(gymnasium.error.NameNotFound, match="NoSuchTask"):
        next(envs.play(STARTS, act))
    envs.close()
    assert not recwarn


def test_a_process_that_dies_is_reported():
    envs = VectorEnv(SPEC, 2, 2)
    steps = envs.play(STARTS, act)
    next(steps)
    envs.processes[1].kill()
    envs.processes[1].join()
    with pytest.raises(ChildProcessError, match="a simulator process has died"):
        next(steps)
    envs.close()
    assert not any(process.is_alive() for process in envs.processes)


def test_actions_of_the_wrong_shape_are_refused():
    envs = VectorEnv(SPEC, 2, 0)
    with pytest.raises(ValueError, match=r"must return actions \[2, 1\]; got \[2, 3\]"):
        next(envs.play(STARTS, lambda obs, episodes: np.zeros((len(obs), 3))))
    envs.close()
