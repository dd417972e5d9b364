"""Parallel episodes: equal results in any number of processes, episodes of different lengths, errors."""

import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="needs the extra 'imitation'")

import gymnasium

from body_transformer.imitation.vector_env import EnvSpec, VectorEnv, allowed_processes

SPEC = EnvSpec(partial(gymnasium.make, "InvertedPendulum-v5", disable_env_checker=True), 1, ())
STARTS = [{"seed": seed} for seed in range(7)]
NOISE = np.broadcast_to((np.arange(7) % 3 / 2)[:, None, None], (7, 1000, 1))
"""Different per episode, so that their lengths differ."""


def act(obs):
    """Push the pole over."""
    return 0.5 * np.sign(obs[:, 1:2])


def play(num_lanes, num_processes=1, spec=SPEC):
    """Return the steps of each episode, and the episodes of each batch."""
    with closing(VectorEnv(spec, num_lanes, num_processes)) as envs:
        steps = list(envs.play(STARTS, act, NOISE))
        assert len(envs.processes) == (num_processes if num_processes > 1 or spec.own_process else 0)
    found = [[] for _ in STARTS]
    for step in steps:
        for row, episode in enumerate(step.episodes):
            found[episode].append(
                (step.obs[row].tolist(), step.rewards[row], step.terminated[row], step.truncated[row])
            )
    return found, [step.episodes.tolist() for step in steps]


def test_episodes_are_those_of_the_environment_itself():
    found, _ = play(num_lanes=3)
    env = SPEC.make()
    for episode, steps in enumerate(found):
        obs, _ = env.reset(seed=episode)
        for recorded, reward, terminated, truncated in steps:
            assert recorded == obs.tolist()
            action = np.clip(act(obs[None].astype(np.float32))[0] + NOISE[episode, 0], -1, 1)
            obs, *after, _ = env.step(action.astype(np.float32))
            assert after == [reward, terminated, truncated]
        assert terminated
    assert len({len(steps) for steps in found}) > 2


def test_the_number_of_processes_changes_neither_episodes_nor_batches():
    alone = play(3)
    assert play(3, 1, replace(SPEC, own_process=True)) == alone
    assert play(3, 2) == alone  # one process has two lanes
    assert play(2, 2) == play(2)


def test_the_number_of_processes_is_limited_by_cores_and_omp_num_threads(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cores = allowed_processes(None, 1000)
    for threads, expected in (("1", 1), ("100000", cores), ("0", 1), ("4,2", cores), ("", cores)):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        assert allowed_processes(None, 1000) == expected
    assert (allowed_processes(None, 1), allowed_processes(7, 5)) == (1, 5)


def test_a_lane_that_is_free_takes_the_next_episode():
    found, batches = play(num_lanes=3)
    assert batches[0] == [0, 1, 2]
    first_over = min(range(3), key=lambda episode: len(found[episode]))
    after = batches[len(found[first_over])]
    assert 3 in after
    assert len(after) == 3
    assert set(chain.from_iterable(batches)) == set(range(7))


def test_environments_are_reused():
    envs = VectorEnv(SPEC, 2, 1)
    first = [step.obs.tolist() for step in envs.play(STARTS, act, NOISE)]
    assert [step.obs.tolist() for step in envs.play(STARTS, act, NOISE)] == first
    assert list(envs.play([], act)) == []
    envs.close()


def test_an_error_in_a_process_is_raised_in_the_caller_without_warnings(recwarn):
    envs = VectorEnv(EnvSpec(partial(gymnasium.make, "NoSuchTask-v0"), 1, ()), 2, 2)
    with pytest.raises(gymnasium.error.NameNotFound, match="NoSuchTask"):
        next(envs.play(STARTS, act, NOISE))
    assert not recwarn


def test_a_process_that_dies_is_reported_and_replaced():
    with closing(VectorEnv(SPEC, 2, 2)) as envs:
        steps = envs.play(STARTS, act, NOISE)
        first = next(steps)
        processes = envs.processes
        processes[1].kill()
        processes[1].join()
        with pytest.raises(ChildProcessError, match="a simulator process has died"):
            next(steps)
        assert not any(process.is_alive() for process in processes)
        assert envs.processes == ()
        assert np.array_equal(next(envs.play(STARTS, act, NOISE)).next_obs, first.next_obs)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.zeros((2, 3)), r"must return actions \[2, 1\]; got \[2, 3\]"),
        (np.full((2, 1), np.nan), "actions that are not finite"),
    ],
)
def test_invalid_actions_are_refused(actions, message):
    with pytest.raises(ValueError, match=message):
        next(VectorEnv(SPEC, 2, 1).play(STARTS, lambda obs: actions))


def test_a_simulator_process_imports_no_torch():
    """Importing torch would take most of its start-up time."""
    code = "import sys; import body_transformer.imitation.tasks.adroit; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
