import os
import signal
from contextlib import closing

import numpy as np
import pytest

from body_transformer.experiment import load_experiment
from body_transformer.imitation.tasks.mocap.task import MocapTask

from .conftest import whole


@pytest.fixture(scope="module")
def layout():
    return load_experiment("mocapact").layout()


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A list of both clips."""
    file = tmp_path_factory.mktemp("lists") / "both.txt"
    file.write_text("CMU_900_01\nCMU_900_02\n")
    return str(file)


@pytest.fixture(scope="module")
def task(layout, clips_file, both):
    with closing(MocapTask(layout, str(clips_file), both, num_processes=2)) as task:
        yield task


@pytest.fixture(scope="module")
def act(layout, env):
    """Return a policy that aims at the next pose: the joint angles plus the observed difference to the reference."""
    walker, places = env.task.walker, layout.obs_slices
    low, high = np.array(env.env.physics.bind(walker.observable_joints).range).T
    joints, ahead = places["joints_pos"], places["reference_rel_joints"]

    def act(obs):
        target = obs[:, joints] + obs[:, ahead][:, :56]
        return (2 * target - (low + high)) / (high - low)

    return act


def test_rollouts_are_normalised_by_the_clip_that_was_tracked(task, act):
    done = []
    results = task.rollouts(act, 3, 0, "train", done.append)
    assert done == [1, 2, 3]
    assert [result.clip for result in results] == [snippet.clip for snippet in task.draw(3, 0, "train")]
    for result in results:
        longest = {"CMU_900_01": 40 - 6, "CMU_900_02": 60 - 6}[result.clip]
        assert 5 < result.length <= longest
        assert result.normalized_length == result.length / longest
        assert result.normalized_return == result.total_reward / longest
        assert 0 < result.normalized_return < 1


def test_the_same_seed_gives_the_same_rollouts_in_any_number_of_processes(task, act, layout, clips_file, both):
    with closing(MocapTask(layout, str(clips_file), both, num_processes=1)) as alone:
        assert alone.rollouts(act, 3, 5, "train") == task.rollouts(act, 3, 5, "train")


def test_rollouts_are_those_of_the_environment_itself(task, act, env):
    result = task.rollouts(act, 1, 0, "train")[0]
    (obs, _), rewards, done = env.reset(options={"snippet": whole(env, result.clip)}), [], False
    while not done:
        obs, reward, terminated, truncated, _ = env.step(act(obs[None]).astype(np.float32)[0])
        done = terminated or truncated
        rewards.append(reward)
    assert (result.length, result.total_reward) == (len(rewards), pytest.approx(sum(rewards)))


def test_other_seeds_draw_other_clips(task):
    draws = {tuple(snippet.clip for snippet in task.draw(8, seed, "train")) for seed in range(6)}
    assert len(draws) > 3


def test_an_error_in_a_simulator_process_is_raised_in_the_caller(clips_file, both):
    task = MocapTask(load_experiment("adroit-door").layout(), str(clips_file), both, num_processes=1)
    with pytest.raises(ValueError, match=r"the mocap task has 2868 .* the layout has 39 and 28"):
        task.rollouts(lambda obs: np.zeros((len(obs), 28)), 1, 0, "train")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_simulator_processes_ignore_stop_signals(task, act, number):
    first = task.rollouts(act, 2, 0, "train")
    for process in task._envs.processes:
        os.kill(process.pid, number)
    assert task.rollouts(act, 2, 0, "train") == first


def test_lists_of_clips_make_the_splits(layout, clips_file, both, tmp_path):
    (tmp_path / "train.txt").write_text("CMU_900_01\nCMU_900_09\n")
    (tmp_path / "val.txt").write_text("CMU_900_02\n")
    lists = (str(tmp_path / "train.txt"), str(tmp_path / "val.txt"))
    task = MocapTask(layout, str(clips_file), *lists, allow_missing=True)
    assert task.splits == ("train", "validation")
    assert {snippet.clip for snippet in task.draw(30, 0, "train")} == {"CMU_900_01"}
    assert {snippet.clip for snippet in task.draw(30, 0, "validation")} == {"CMU_900_02"}
    with pytest.raises(ValueError, match=r"1 of 2 clips are not in"):
        MocapTask(layout, str(clips_file), *lists)
    with pytest.raises(ValueError, match="got neither"):
        MocapTask(layout, str(clips_file))
    with pytest.raises(FileNotFoundError, match="no such clip file"):
        MocapTask(layout, str(tmp_path / "none.hdf5"), both)


def still(obs):
    return np.zeros((len(obs), 56))


def test_a_film_shows_the_rollout(task, monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    try:
        frames = np.stack(task.film(still, 0, "train"))
    except ValueError as error:
        pytest.skip(str(error))
    assert frames.shape == (task.rollouts(still, 1, 0, "train")[0].length + 1, 480, 640, 3)
    assert frames[0].std() > 1
    assert (frames[0] != frames[-1]).any()
    assert "MUJOCO_GL" not in os.environ


def test_a_film_without_opengl_is_refused_with_the_reason(task, env, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disabled")
    with pytest.raises(ValueError, match="no film: MuJoCo cannot render here; MUJOCO_GL=disabled turns it off"):
        task.film(still, 0, "train")

    def broken(*args, **options):
        raise RuntimeError("the driver is broken")

    monkeypatch.setattr("dm_control.mjcf.Physics.render", broken)
    with pytest.raises(ValueError, match="no film: MuJoCo cannot render here; dm_control: the driver is broken"):
        env.render()
