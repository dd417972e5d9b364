"""Minari datasets, written by Minari itself."""

import json
import re

import h5py
import minari
import numpy as np
import pytest
from gymnasium import spaces
from minari.data_collector import EpisodeBuffer

from body_transformer.imitation.readers import open_episodes
from body_transformer.imitation.readers.minari import find_folder

from .small import LAYOUT, LENGTHS, by_term, check_same, make_episodes

pytestmark = pytest.mark.filterwarnings("ignore:.* is set to None:UserWarning", "ignore:env_spec is None:UserWarning")
NAME = "arm/reach-v0"
ACTIONS = spaces.Box(-10, 10, (2,), np.float32)
FLAT = spaces.Box(-10, 10, (9,), np.float32)
NAMED = spaces.Dict({term.name: spaces.Box(-10, 10, (term.size,), np.float32) for term in LAYOUT.obs})


@pytest.fixture(autouse=True)
def minari_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "minari"


def create(episodes, obs_space=FLAT, obs_of=lambda obs: obs):
    buffers = [
        EpisodeBuffer(
            observations=obs_of(obs),
            actions=actions,
            rewards=[0.0] * len(actions),
            terminations=[False] * len(actions),
            truncations=[False] * (len(actions) - 1) + [True],
            infos={},
        )
        for obs, actions in episodes
    ]
    return minari.create_dataset_from_buffers(NAME, buffers, observation_space=obs_space, action_space=ACTIONS)


@pytest.fixture
def flat():
    episodes = make_episodes(extra_obs=1)
    create(episodes)
    return episodes


def main_file(folder):
    return folder / NAME / "data" / "main_data.hdf5"


def test_a_dataset_is_found_by_its_name(flat):
    check_same(open_episodes("minari", NAME, LAYOUT), flat)


@pytest.mark.parametrize("inside", ["", "data"])
def test_a_dataset_is_found_by_its_folder(flat, minari_folder, monkeypatch, inside):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(minari_folder / "elsewhere"))
    check_same(open_episodes("minari", str(minari_folder / NAME / inside), LAYOUT), flat)


def test_the_default_folder_is_minaris_own(flat, minari_folder, monkeypatch, tmp_path):
    monkeypatch.delenv("MINARI_DATASETS_PATH")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".minari").mkdir()
    minari_folder.rename(tmp_path / ".minari" / "datasets")
    assert find_folder(NAME) == minari.storage.datasets_root_dir.get_dataset_path(NAME) / "data"
    check_same(open_episodes("minari", NAME, LAYOUT), flat)


def test_the_error_for_a_missing_dataset_names_the_download_command(minari_folder):
    message = f"no Minari dataset 'D4RL/door/expert-v2'.*{minari_folder}.*: minari download D4RL/door/expert-v2"
    with pytest.raises(FileNotFoundError, match=message):
        open_episodes("minari", "D4RL/door/expert-v2", LAYOUT)


def test_observations_may_be_a_dictionary_of_terms():
    episodes = make_episodes(extra_obs=1)
    create(episodes, NAMED, by_term)
    check_same(open_episodes("minari", NAME, LAYOUT), episodes)


def test_clip_and_split_come_from_the_episodes_metadata(flat):
    data = minari.load_dataset(NAME)
    data.storage.update_episode_metadata(
        [{"clip": "wave", "split": "validation"}, {"clip": "nod"}, {}], episode_indices=[0, 1, 2]
    )
    infos = open_episodes("minari", NAME, LAYOUT).infos
    assert [(info.clip, info.split) for info in infos] == [("wave", "validation"), ("nod", "train"), ("", "train")]
    data.storage.update_episode_metadata([{"split": "test"}], episode_indices=[1])
    with pytest.raises(
        ValueError, match="episode_1: the split of an episode must be one of 'train', 'validation'; got 'test'"
    ):
        open_episodes("minari", NAME, LAYOUT)


# -- faulty files ------------------------------------------------------------------------------------------------------


def refused(path, message):
    with pytest.raises(ValueError, match=re.escape(str(path)) + ".*" + message):
        open_episodes("minari", NAME, LAYOUT)


def test_a_missing_file_is_named(flat, minari_folder):
    main_file(minari_folder).unlink()
    with pytest.raises(FileNotFoundError, match=r"main_data\.hdf5: no such file"):
        open_episodes("minari", NAME, LAYOUT)


def test_a_missing_episode_is_named(flat, minari_folder):
    with h5py.File(main_file(minari_folder), "a") as file:
        del file["episode_1"]
    refused(main_file(minari_folder), "episode_1 is missing; metadata.json lists 3 episodes")


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("actions", (LENGTHS[2], 3), r"episode_2: actions must be \[steps, 2\]; it is \[8, 3\]"),
        ("observations", (LENGTHS[2] + 1, 8), r"episode_2: observations .* must be \[9, 9\]; it is \[9, 8\]"),
        ("observations", (LENGTHS[2], 9), r"episode_2: observations .* must be \[9, 9\]; it is \[8, 9\]"),
        ("actions", None, "episode_2: /episode_2/actions is missing"),
        ("observations", None, "episode_2: /episode_2/observations is missing"),
    ],
)
def test_a_wrong_width_or_length_is_named(flat, minari_folder, name, shape, message):
    with h5py.File(main_file(minari_folder), "a") as file:
        del file[f"episode_2/{name}"]
        if shape:
            file[f"episode_2/{name}"] = np.zeros(shape, np.float32)
    refused(main_file(minari_folder), message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not the metadata of a Minari dataset"),
        ("[]", "not the metadata of a Minari dataset"),
        ("{}", "not the metadata of a Minari dataset: KeyError"),
        (json.dumps({"data_format": "arrow", "total_episodes": 3}), "stored as 'arrow'; only 'hdf5' is supported"),
        (json.dumps({"total_episodes": 0}), "total_episodes must be a whole number, 1 or more; got 0"),
    ],
)
def test_wrong_metadata_are_named(flat, minari_folder, text, message):
    path = main_file(minari_folder).with_name("metadata.json")
    path.write_text(text)
    refused(path, message)
