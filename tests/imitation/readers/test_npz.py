"""NumPy files: reading and writing."""

import re

import numpy as np
import pytest

from body_transformer.imitation.episodes import EpisodeInfo, InMemory
from body_transformer.imitation.readers import open_episodes
from body_transformer.imitation.readers.npz import write_npz

from .small import LAYOUT, LENGTHS, USED, by_term, check_same, make_episodes

ENDS = np.cumsum(LENGTHS)


def arrays(episodes, **more):
    obs, actions = (np.concatenate(part) for part in zip(*episodes, strict=True))
    return {"obs": obs, "actions": actions, "episode_ends": ENDS} | more


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_flat_file_is_read(tmp_path, save):
    episodes = make_episodes()
    save(tmp_path / "a.npz", **arrays(episodes, clip=["wave", "nod", "wave"], split=["train", "validation", "train"]))
    found = open_episodes("npz", str(tmp_path / "a.npz"), LAYOUT)
    check_same(found, episodes)
    assert [info.clip for info in found.infos] == ["wave", "nod", "wave"]
    check_same(found.split("validation"), episodes[1:2])


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_file_may_have_one_array_per_term(tmp_path, save):
    episodes = make_episodes()
    whole = arrays(episodes)
    named = by_term(whole.pop("obs"))
    del named["clock"]
    named["bend"] = named.pop("arm_pos")[:, 0]
    save(tmp_path / "a.npz", **whole, **named)
    check_same(open_episodes("npz", str(tmp_path / "a.npz"), LAYOUT, obs_keys={"arm_pos": "bend"}), episodes)


def test_other_number_types_and_memory_orders_are_read(tmp_path):
    episodes = make_episodes()
    whole = arrays(episodes)
    whole["obs"], whole["actions"] = np.asfortranarray(whole["obs"]), whole["actions"].astype(">f8")
    np.savez(tmp_path / "a.npz", **whole)
    check_same(open_episodes("npz", str(tmp_path / "a.npz"), LAYOUT), episodes)


def test_a_folder_contributes_all_its_files(tmp_path):
    first, second = make_episodes(seed=1), make_episodes(seed=2)
    np.savez(tmp_path / "b.npz", **arrays(second))
    np.savez(tmp_path / "a.npz", **arrays(first))
    check_same(open_episodes("npz", str(tmp_path), LAYOUT), first + second)


def save_npy(folder, whole):
    """Write one .npy file per array."""
    folder.mkdir(exist_ok=True)
    for name, array in whole.items():
        np.save(folder / f"{name}.npy", array)


@pytest.mark.parametrize("by_name", [False, True])
def test_a_folder_of_npy_files_is_mapped_not_loaded(tmp_path, by_name):
    whole = arrays(make_episodes(), clip=["wave", "nod", "wave"])
    if by_name:
        whole |= by_term(whole.pop("obs"))
    save_npy(tmp_path / "set", whole)
    found = open_episodes("npz", str(tmp_path / "set"), LAYOUT)
    check_same(found, make_episodes())
    assert [info.clip for info in found.infos] == ["wave", "nod", "wave"]
    assert all(isinstance(array, np.memmap) for part, _ in found._places for array in part.arrays.values())
    assert found.origin(2) == f"{tmp_path / 'set'}: rows 6 to 13"


@pytest.mark.parametrize("part", [slice(None), slice(0, 0)])
def test_written_episodes_are_read_back(tmp_path, part):
    episodes = make_episodes()[1:] + make_episodes()[part]
    infos = [
        EpisodeInfo(len(actions), f"клип{k}", "validation" if k else "train") for k, (_, actions) in enumerate(episodes)
    ]
    there = InMemory(LAYOUT, infos, *zip(*episodes, strict=True))
    write_npz(tmp_path / "new" / "a.npz", there)
    found = open_episodes("npz", str(tmp_path / "new" / "a.npz"), LAYOUT)
    check_same(found, episodes)
    assert found.infos == there.infos
    with np.load(tmp_path / "new" / "a.npz", allow_pickle=False) as whole:
        assert whole["obs"].shape == (sum(info.num_steps for info in infos), 9)
        assert not whole["obs"][:, 3].any()
        np.testing.assert_array_equal(whole["obs"][: len(episodes[0][1]), USED], episodes[0][0][:, USED])
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["a.npz"]


def test_a_failed_write_leaves_the_old_file(tmp_path):
    there = InMemory(LAYOUT, [EpisodeInfo(5)], *([part] for part in make_episodes()[0]))
    write_npz(tmp_path / "a.npz", there)
    old = (tmp_path / "a.npz").read_bytes()
    there.read = lambda index: (_ for _ in ()).throw(OSError("disk full"))
    with pytest.raises(OSError, match="disk full"):
        write_npz(tmp_path / "a.npz", there)
    assert (tmp_path / "a.npz").read_bytes() == old
    assert len(list(tmp_path.iterdir())) == 1


# -- faulty files ------------------------------------------------------------------------------------------------------


def refused(path, message):
    with pytest.raises(ValueError, match=re.escape(str(path)) + ".*" + message):
        open_episodes("npz", str(path), LAYOUT)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_a_truncated_file_is_named(tmp_path, save, keep):
    path = tmp_path / "a.npz"
    save(path, **arrays(make_episodes()))
    path.write_bytes(path.read_bytes()[: int(keep * path.stat().st_size)])
    refused(path, "")


@pytest.mark.parametrize("keep", [0, 100, 200])
def test_a_truncated_npy_file_is_named(tmp_path, keep):
    save_npy(tmp_path / "set", arrays(make_episodes()))
    path = tmp_path / "set" / "actions.npy"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=re.escape(str(path))):
        open_episodes("npz", str(tmp_path / "set"), LAYOUT)


def test_a_mapped_file_that_changes_after_it_was_checked_is_named(tmp_path):
    save_npy(tmp_path / "set", arrays(make_episodes()))
    found = open_episodes("npz", str(tmp_path / "set"), LAYOUT)
    path = tmp_path / "set" / "obs.npy"
    path.write_bytes(path.read_bytes()[:400])
    with pytest.raises(ValueError, match=re.escape(str(path)) + ": the file has changed since it was checked"):
        found.read(2)


def test_an_npy_file_of_python_objects_is_not_loaded(tmp_path):
    save_npy(tmp_path / "set", arrays(make_episodes(), clip=np.full(3, None)))
    with pytest.raises(ValueError, match=r"clip\.npy: .*Python objects"):
        open_episodes("npz", str(tmp_path / "set"), LAYOUT)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"obs": None}, "the arrays 'gravity', 'touch', 'arm_pos' are missing; have: 'actions', 'episode_ends'"),
        ({"actions": None}, "the arrays 'actions' are missing"),
        ({"episode_ends": None}, "the arrays 'episode_ends' are missing"),
        ({"actions": np.zeros((14, 3))}, r"'actions' must be \[steps, 2\]; it is \[14, 3\]"),
        ({"actions": np.full((14, 2), "x")}, "'actions' must hold numbers; it holds <U1"),
        ({"actions": np.full((14, 2), None)}, "actions: Object arrays cannot be loaded when allow_pickle=False"),
        ({"obs": np.zeros((14, 8))}, r"'obs' must be \[14, 9\]; it is \[14, 8\]"),
        ({"obs": np.zeros((15, 9))}, r"'obs' must be \[14, 9\]; it is \[15, 9\]"),
        ({"episode_ends": np.array([5, 6, 13])}, "must rise to the number of actions, 14; the last is 13"),
        ({"episode_ends": np.array([5, 4, 14])}, "must rise to the number of actions, 14"),
        ({"episode_ends": np.array([5.0, 14.0])}, r"must be whole numbers \[E\]; it is float64"),
        ({"clip": np.array(["wave"])}, r"'clip' must be text \[3\], one per episode; it is <U4 \[1\]"),
        ({"split": np.array(["train", "train", "test"])}, "must be one of 'train', 'validation'; got 'test'"),
    ],
)
def test_a_wrong_array_is_named(tmp_path, change, message):
    whole = arrays(make_episodes()) | change
    np.savez(tmp_path / "a.npz", **{name: array for name, array in whole.items() if array is not None})
    refused(tmp_path / "a.npz", message)


def test_a_folder_without_files_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no \.npz file and no actions\.npy in this folder"):
        open_episodes("npz", str(tmp_path), LAYOUT)


def test_more_episodes_than_the_limit_are_refused(tmp_path):
    arrays = {"obs": np.zeros((1, LAYOUT.obs_dim)), "actions": np.zeros((1, LAYOUT.action_dim))}
    np.savez_compressed(tmp_path / "many.npz", **arrays, episode_ends=np.ones(1_000_001, np.int8))
    with pytest.raises(ValueError, match=r"'episode_ends' has 1,000,001 entries; the limit is 1,000,000 episodes"):
        open_episodes("npz", str(tmp_path / "many.npz"), LAYOUT)
