"""Collected datasets: their content, the choice of episodes, and existing files."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import minari
import numpy as np
import pytest

import body_transformer
from body_transformer.experiment import load_experiment
from body_transformer.imitation.collect import CollectedDataset, collect
from body_transformer.imitation.tasks.adroit import AdroitTask
from body_transformer.imitation.tasks.base import Act, Trajectory
from body_transformer.imitation.tasks.gym import episode_seed


class Counting:
    """A task without physics: the observation counts steps, and every third episode succeeds."""

    env_id = "Counting-v0"
    action_dim = 2
    requirements = ("numpy",)
    has_success = True
    num_steps = 4

    def record(self, act: Act, episodes: range, seed: int, std: Any = None) -> Iterator[Trajectory]:
        for episode in episodes:
            obs = np.arange(self.num_steps + 1.0)[:, None] + 100 * episode
            clean = act(obs[:-1].astype(np.float32))
            noise = 0 if std is None else std * np.ones((self.num_steps, 2))
            success = np.zeros(self.num_steps, bool)
            success[0] = True
            success[-1] = episode % 3 == 0
            executed = (clean + noise).astype(np.float32)
            yield Trajectory(1000 * seed + episode, "", obs, clean, executed, np.ones(self.num_steps), success, False)

    def describe(self) -> dict[str, Any]:
        return {
            "observation_space": gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64),
            "action_space": gymnasium.spaces.Box(-9, 9, (2,), np.float32),
            "env_spec": None,
        }


def half(obs: Any) -> Any:
    return np.full((len(obs), 2), 0.5, np.float32)


def read(folder: Path) -> tuple[Any, list[Any], list[dict[str, Any]]]:
    """Return the dataset, its episodes and their metadata."""
    dataset = minari.MinariDataset(folder)
    return (
        dataset,
        list(dataset.iterate_episodes()),
        list(dataset.storage.get_episode_metadata(dataset.episode_indices)),
    )


# -- a real simulator --------------------------------------------------------------------------------------------------


def check_replay(folder: Path) -> None:
    """Check that the recorded actions from the recorded seeds lead to the recorded observations."""
    dataset, episodes, notes = read(folder)
    env = dataset.recover_environment()
    for episode, note in zip(episodes, notes, strict=True):
        obs, _ = env.reset(seed=note["seed"])
        assert np.array_equal(obs, episode.observations[0])
        for step, action in enumerate(episode.actions):
            obs, reward, terminated, truncated, info = env.step(action)
            assert np.array_equal(obs, episode.observations[step + 1])
            assert (reward, terminated, truncated) == (
                episode.rewards[step],
                episode.terminations[step],
                episode.truncations[step],
            )
            assert info["success"] == episode.infos["success"][step + 1]
        assert truncated
        assert note["success"] == info["success"]


def test_a_dataset_can_be_replayed(tmp_path: Path) -> None:
    def act(obs: Any) -> Any:
        return np.sin(3 * obs[:, :28])

    with closing(AdroitTask(load_experiment("adroit-door").layout(), "door", 2)) as task:
        found = collect(task, act, 2, tmp_path / "set", seed=5, noise=0.3, name="adroit-door", policy_name="a sine")
    dataset, episodes, notes = read(tmp_path / "set")
    assert (found.num_episodes, found.num_steps, found.num_played) == (2, 400, 2)
    assert (dataset.total_episodes, dataset.total_steps) == (2, 400)
    assert dataset.env_spec.id == "AdroitHandDoor-v1"
    assert dataset.observation_space == gymnasium.spaces.Box(-np.inf, np.inf, (39,), np.float64)
    assert dataset.action_space == gymnasium.spaces.Box(-1, 1, (28,), np.float32)
    assert [note["seed"] for note in notes] == [episode_seed(5, k, "train") for k in range(2)]
    for episode in episodes:
        assert episode.observations.shape == (201, 39)
        assert episode.actions.shape == (200, 28)
        assert episode.actions.dtype == np.float32
        assert episode.truncations.tolist() == [False] * 199 + [True]
        assert not episode.terminations.any()
    made = dataset.storage.metadata["body_transformer"]
    assert made["version"] == body_transformer.__version__
    assert (made["seed"], made["noise"], made["labels"], made["policy"]) == (5, 0.3, "executed", "a sine")
    check_replay(tmp_path / "set")


# -- recorded data -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("labels", "recorded"), [("executed", 1.0), ("clean", 0.5)])
def test_labels_are_the_executed_or_the_clean_actions(tmp_path: Path, labels: Any, recorded: float) -> None:
    own = np.array([0.3, 0.3])
    collect(Counting(), half, 2, tmp_path / "set", noise=0.4, own_std=own, labels=labels)  # together 0.5
    for episode in read(tmp_path / "set")[1]:
        np.testing.assert_allclose(episode.actions, recorded, rtol=1e-6)


def test_all_episodes_are_kept_unless_only_successes_are_requested(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "set"
    found = collect(Counting(), half, 4, folder)
    _, episodes, notes = read(folder)
    assert [episode.observations[0, 0] for episode in episodes] == [0, 100, 200, 300]
    assert [bool(note["success"]) for note in notes] == [True, False, False, True]
    assert all(note["success_any"] for note in notes)
    assert found == CollectedDataset(str(folder), 4, 16, 4, 2, 4, 16.0)
    assert list(found.summary().values()) == [4, 16, 4, 0.5, 1.0, 4.0]
    content = json.loads((folder / "metadata.json").read_text())
    assert content["total_episodes"] == 4
    assert content["requirements"] == [f"numpy=={np.__version__}"]
    assert "env_spec" not in content


def test_with_only_successes_episodes_are_played_until_there_are_enough(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []

    def record(found: CollectedDataset) -> None:
        calls.append((found.num_episodes, found.num_played))

    found = collect(Counting(), half, 3, tmp_path / "set", only_successes=True, on_episode=record)
    _, episodes, notes = read(tmp_path / "set")
    assert [episode.observations[0, 0] for episode in episodes] == [0, 300, 600]
    assert all(note["success"] for note in notes)
    assert (found.num_episodes, found.num_played) == (3, 7)
    assert found.summary()["success_rate"] == pytest.approx(3 / 7)
    assert calls == [(1, 1), (1, 2), (1, 3), (2, 4), (2, 5), (2, 6), (3, 7)]


def test_collecting_gives_up_on_a_policy_that_never_succeeds(tmp_path: Path) -> None:
    class Hopeless(Counting):
        def record(self, act: Act, episodes: range, seed: int, std: Any = None) -> Iterator[Trajectory]:
            for one in super().record(act, episodes, seed, std):
                one.success[:] = False
                yield one

    with pytest.raises(ValueError, match="succeeded in 0 of 70 episodes: too rarely to collect 2 successful ones"):
        collect(Hopeless(), half, 2, tmp_path / "set", only_successes=True)
    assert list(tmp_path.iterdir()) == []


# -- the output folder -------------------------------------------------------------------------------------------------


def test_only_a_dataset_is_overwritten_and_only_on_request(tmp_path: Path) -> None:
    out = tmp_path / "set"
    collect(Counting(), half, 1, out)
    with pytest.raises(ValueError, match=r"set' already exists: add --overwrite to replace the dataset"):
        collect(Counting(), half, 2, out)
    collect(Counting(), half, 2, out, overwrite=True)
    assert len(read(out)[1]) == 2
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "text").write_text("something else")
    with pytest.raises(ValueError, match="not a Minari dataset"):
        collect(Counting(), half, 1, tmp_path / "notes", overwrite=True)
    with pytest.raises(ValueError, match="it is a file"):
        collect(Counting(), half, 1, tmp_path / "notes" / "text", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes", "set"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interruption_leaves_no_partial_dataset_and_keeps_the_old_one(
    tmp_path: Path, error: type[BaseException]
) -> None:
    collect(Counting(), half, 1, tmp_path / "old")

    def stop(found: CollectedDataset) -> None:
        if found.num_played == 2:
            raise error

    for name in ("old", "new"):
        with pytest.raises(error):
            collect(Counting(), half, 3, tmp_path / name, overwrite=True, on_episode=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert len(read(tmp_path / "old")[1]) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_episodes": 0}, "number of episodes must be 1 or more; got 0"),
        ({"seed": -1}, "the seed must be a whole number, 0 or more; got -1"),
        ({"noise": -0.1}, "0 or more; got -0.1"),
        ({"noise": float("nan")}, "0 or more; got nan"),
    ],
)
def test_invalid_settings_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        collect(Counting(), half, **{"num_episodes": 1, "out": tmp_path / "set"} | options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kilobytes", [20, 300, 600])
def test_a_full_disk_is_an_error_and_leaves_no_dataset(small_disk: Callable[[int], Path], kilobytes: int) -> None:
    """HDF5 would end the process with a segmentation fault."""
    disk = small_disk(kilobytes)
    with pytest.raises(OSError, match=r"No space left on device: '.*/set'"):
        collect(Counting(), half, 10_000, disk / "set")
    assert list(disk.iterdir()) == []
