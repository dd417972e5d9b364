"""The demonstrations of a run, and the statistics of their observations."""

import numpy as np
import pytest

from body_transformer import BodyGraph, Layout, Term
from body_transformer.imitation.config import ImitationConfig
from body_transformer.imitation.demonstrations import obs_mean_and_var, share_split_options
from body_transformer.imitation.episodes import EpisodeInfo, InMemory
from body_transformer.imitation.readers import open_episodes
from body_transformer.imitation.readers.npz import write_npz

# -- options that define the split -------------------------------------------------------------------------------------


def config(options: dict[str, str], task_options: dict[str, str], reader: str = "mocapact") -> ImitationConfig:
    return ImitationConfig(reader, "mocap", options=options, task_options=task_options, num_epochs=1)


@pytest.mark.parametrize("given", [({"train_clips": "a.txt"}, {}), ({}, {"train_clips": "a.txt"})])
def test_a_split_given_once_applies_to_reader_and_task(given):
    found = share_split_options(config(*given))
    assert found.options["train_clips"] == found.task_options["train_clips"] == "a.txt"


def test_reader_and_task_cannot_split_the_data_differently():
    with pytest.raises(ValueError, match="must split the data alike: train_clips is 'a' in options and 'b'"):
        share_split_options(config({"train_clips": "a"}, {"train_clips": "b"}))


def test_other_options_are_not_shared():
    found = share_split_options(config({"allow_missing": "true"}, {"clips": "c.hdf5"}))
    assert found.options == {"allow_missing": "true"}
    assert found.task_options == {"clips": "c.hdf5"}


def test_a_reader_without_that_option_does_not_get_it():
    assert share_split_options(config({}, {"train_clips": "a"}, reader="npz")).options == {}


# -- statistics --------------------------------------------------------------------------------------------------------

LAYOUT = Layout(
    BodyGraph.from_edges(["torso", "arm"], [("torso", "arm")]),
    [Term.unused("clock", 1), Term.root("gravity", 2), Term.unused("camera", 2), Term.node("arm_pos", "arm", 1)],
    [Term.node("ctrl", "arm", 1)],
)
USED = [1, 2, 5]


def demonstrations(lengths=(7, 1, 0, 30)):
    rng = np.random.default_rng(0)
    obs = [rng.normal(3, 2, (length, 6)).astype(np.float32) for length in lengths]
    for one in obs:
        one[:, 5] = 0.25  # constant
    actions = [rng.normal(size=(length, 1)).astype(np.float32) for length in lengths]
    return InMemory(LAYOUT, [EpisodeInfo(length, "wave") for length in lengths], obs, actions), obs


def test_statistics_are_those_of_all_steps_together():
    episodes, obs = demonstrations()
    done = []
    mean, var = obs_mean_and_var(episodes, on_done=lambda *counts: done.append(counts))
    whole = np.concatenate(obs)[:, USED].astype(np.float64)
    assert len(whole) == 38
    assert done == [(1, 4), (2, 4), (3, 4), (4, 4)]
    np.testing.assert_allclose(mean[USED], whole.mean(0), rtol=1e-12)
    np.testing.assert_allclose(var[USED], whole.var(0), rtol=1e-10, atol=1e-15)


def test_unused_entries_have_mean_0_and_variance_1():
    mean, var = obs_mean_and_var(demonstrations()[0])
    assert mean.shape == var.shape == (6,)
    assert mean[[0, 3, 4]].tolist() == [0, 0, 0]
    assert var[[0, 3, 4]].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("obs", r"observations that are not finite: 'gravity\.1', 'arm_pos\[arm\]'"),
        ("actions", r"actions that are not finite: 'ctrl\[arm\]'"),
    ],
)
def test_values_that_are_not_finite_are_named(part, message):
    episodes, _ = demonstrations()
    steps = episodes.read(3)
    getattr(steps, part)[4, 1 if part == "obs" else 0] = np.nan
    if part == "obs":
        steps.obs[5, 2] = np.inf
    with pytest.raises(ValueError, match=rf"episode 3 \(clip 'wave'\) has {message}"):
        obs_mean_and_var(episodes)


def test_values_that_are_not_finite_are_named_with_their_file(tmp_path):
    episodes, _ = demonstrations()
    write_npz(tmp_path / "a.npz", episodes)
    episodes.read(3).actions[4] = np.nan
    write_npz(tmp_path / "b.npz", episodes)
    found = open_episodes("npz", str(tmp_path), LAYOUT).split("train")
    with pytest.raises(ValueError, match=r"episode 7 \(clip 'wave', .*b\.npz: rows 8 to 37\) has actions"):
        obs_mean_and_var(found)
