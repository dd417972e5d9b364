"""MoCapAct's files: reading them, and errors in them."""

import re
import threading

import h5py
import numpy as np
import pytest

from body_transformer.experiment import load_experiment
from body_transformer.imitation.readers import mocapact, open_episodes

from .mocapact_files import LENGTH, SNIPPETS, write_clip, write_folder

SNIPPET = "CMU_009_12-0-165"
DROPPED = f"{SNIPPET}/2"
STEPS = np.zeros((LENGTH, 56), np.float32)
NEVER_WRITTEN = object()


@pytest.fixture(scope="module")
def layout():
    return load_experiment("mocapact").layout()


@pytest.fixture(scope="module")
def folder(layout, tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("clips"), layout)


@pytest.fixture
def one_clip(layout, tmp_path):
    """A file of one clip, to be damaged."""
    write_clip(tmp_path / "CMU_009_12.hdf5", layout, {SNIPPET: [False] * 4})
    return tmp_path / "CMU_009_12.hdf5"


def expected(folder, name):
    """Yield (clip, obs, actions) of every rollout that did not end early, read with h5py alone."""
    for clip, snippets in SNIPPETS.items():
        with h5py.File(folder / f"{clip}.hdf5") as file:
            for snippet in snippets:
                for k in range(4):
                    if f"{snippet}/{k}" != DROPPED:
                        rollout = file[f"{snippet}/{k}"]
                        yield clip, rollout["observations/proprioceptive"][:-1], rollout[name][()]


@pytest.mark.parametrize(
    ("options", "name"),
    [({}, "actions"), ({"actions": "sampled"}, "actions"), ({"actions": "mean"}, "mean_actions")],
)
def test_every_complete_rollout_is_read_with_its_used_entries(layout, folder, options, name):
    episodes = open_episodes("mocapact", str(folder), layout, **options)
    wanted = list(expected(folder, name))
    assert len(episodes) == len(wanted) == 15
    assert len(episodes.obs_ids) == 1294
    for index, (clip, obs, actions) in enumerate(wanted):
        steps = episodes.read(index)
        assert episodes.infos[index].clip == clip
        assert episodes.infos[index].split == "train"
        assert episodes.infos[index].num_steps == len(actions) == len(steps.actions)
        assert steps.obs.dtype == steps.actions.dtype == np.float32
        np.testing.assert_array_equal(steps.obs, obs[:, episodes.obs_ids])
        np.testing.assert_array_equal(steps.actions, actions)


@pytest.mark.parametrize(
    "storage", [{"chunks": True}, {"compression": "gzip"}, {"dtype": "<f8"}, {"dtype": ">f4"}], ids=str
)
def test_other_storage_layouts_give_the_same_steps(layout, folder, tmp_path, storage):
    plain = open_episodes("mocapact", str(folder), layout)
    other = open_episodes("mocapact", str(write_folder(tmp_path, layout, **storage)), layout)
    for index in (0, 14):
        np.testing.assert_array_equal(plain.read(index).obs, other.read(index).obs)
        np.testing.assert_array_equal(plain.read(index).actions, other.read(index).actions)


def test_a_file_with_a_user_block_gives_the_same_steps(layout, one_clip, tmp_path):
    plain = open_episodes("mocapact", str(one_clip), layout).read(1)
    with h5py.File(one_clip) as old, h5py.File(tmp_path / "moved.hdf5", "w", userblock_size=512) as new:
        for name in old:
            old.copy(name, new)
    moved = open_episodes("mocapact", str(tmp_path / "moved.hdf5"), layout).read(1)
    np.testing.assert_array_equal(plain.obs, moved.obs)
    np.testing.assert_array_equal(plain.actions, moved.actions)


def test_the_number_of_rollouts_comes_from_the_file(layout, tmp_path):
    write_clip(tmp_path / "a.hdf5", layout, {"CMU_001_01-0-50": [False] * 5}, num_start=3, num_random=2)
    assert len(open_episodes("mocapact", str(tmp_path), layout)) == 5


# -- lists of clips ----------------------------------------------------------------------------------------------------


def lists(tmp_path, train, validation):
    (tmp_path / "train.txt").write_text("\n".join(train) + "\n")
    (tmp_path / "val.txt").write_text("\n".join(validation) + "\n")
    return {"train_clips": str(tmp_path / "train.txt"), "validation_clips": str(tmp_path / "val.txt")}


def test_lists_of_clips_make_the_splits(layout, folder, tmp_path):
    episodes = open_episodes("mocapact", str(folder), layout, **lists(tmp_path, ["CMU_009_12"], ["CMU_016_22"]))
    assert {info.clip for info in episodes.split("train").infos} == {"CMU_009_12"}
    assert {info.clip for info in episodes.split("validation").infos} == {"CMU_016_22"}
    assert (len(episodes.split("train")), len(episodes.split("validation"))) == (7, 8)


def test_a_clip_in_neither_list_is_left_out(layout, folder, tmp_path):
    options = lists(tmp_path, ["CMU_016_22"], [])
    episodes = open_episodes("mocapact", str(folder), layout, train_clips=options["train_clips"])
    assert {info.clip for info in episodes.infos} == {"CMU_016_22"}


def test_a_listed_clip_without_a_file_is_named_unless_that_is_allowed(layout, folder, tmp_path):
    options = lists(tmp_path, ["CMU_009_12", "CMU_999_01"], ["CMU_016_22"])
    with pytest.raises(ValueError, match="1 of 3 listed clips have no complete rollout here: 'CMU_999_01'"):
        open_episodes("mocapact", str(folder), layout, **options)
    assert len(open_episodes("mocapact", str(folder), layout, allow_missing=True, **options)) == 15


# -- faulty files ------------------------------------------------------------------------------------------------------


def refused(path, layout, message, data=None):
    with pytest.raises(ValueError, match=re.escape(str(path)) + ".*" + message):
        open_episodes("mocapact", str(data or path.parent), layout)


@pytest.mark.parametrize("keep", [0, 1, 100, 3000, 0.5, 0.999])
def test_a_truncated_file_is_named(layout, one_clip, keep):
    whole = one_clip.read_bytes()
    one_clip.write_bytes(whole[: keep if isinstance(keep, int) else int(keep * len(whole))])
    refused(one_clip, layout, "not a complete HDF5 file")
    one_clip.write_text("<html>404</html>" * 200)
    refused(one_clip, layout, "not a complete HDF5 file")


def test_a_file_with_overwritten_structures_is_named(layout, one_clip):
    whole = bytearray(one_clip.read_bytes())
    for place in [match.start() for match in re.finditer(b"TREE|HEAP|SNOD", whole)]:
        whole[place : place + 4] = b"\xff\xff\xff\xff"
    one_clip.write_bytes(whole)
    refused(one_clip, layout, "")


def test_one_bad_file_among_good_ones_is_named(layout, tmp_path):
    write_folder(tmp_path, layout)
    (tmp_path / "CMU_100_01.hdf5").write_bytes(b"")
    refused(tmp_path / "CMU_100_01.hdf5", layout, "not a complete HDF5 file")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("n_start_rollouts", None, "/n_start_rollouts is missing"),
        ("n_rsi_rollouts", None, "/n_rsi_rollouts is missing"),
        ("n_rsi_rollouts", np.array([2, 2]), r"must be one whole number, 0 or more; got array\(\[2, 2\]"),
        ("observable_indices/walker/joints_pos", None, "observable_indices/walker/joints_pos is missing"),
        (SNIPPET, None, "no snippet"),
        (f"{SNIPPET}/early_termination", None, "early_termination is missing"),
        (f"{SNIPPET}/early_termination", np.zeros(3), r"n_rsi_rollouts = 4 entries; its shape is \[3\]"),
        (f"{SNIPPET}/3", None, "3/actions is missing"),
        (f"{SNIPPET}/1/actions", None, "1/actions is missing"),
        (f"{SNIPPET}/0/actions", STEPS[:, :55], r"0/actions must be \[steps, 56\]; it is \[12, 55\]"),
        (f"{SNIPPET}/0/actions", STEPS[:-1], r"one row more than actions\) must be \[12, 2868\]; it is \[13, 2868\]"),
        (f"{SNIPPET}/0/actions", STEPS.astype("S1"), "0/actions must hold numbers"),
        (f"{SNIPPET}/0/actions", NEVER_WRITTEN, "0/actions was never written"),
        (f"{SNIPPET}/1/observations", None, "proprioceptive is missing"),
        (f"{SNIPPET}/0/{mocapact.OBS}", np.zeros((13, 2867)), r"must be \[13, 2868\]; it is \[13, 2867\]"),
        (f"{SNIPPET}/0/{mocapact.OBS}", np.zeros((12, 2868)), r"must be \[13, 2868\]; it is \[12, 2868\]"),
    ],
)
def test_a_missing_or_wrong_item_is_named(layout, one_clip, name, content, message):
    with h5py.File(one_clip, "a") as file:
        del file[name]
        if content is NEVER_WRITTEN:
            file.create_dataset(name, STEPS.shape, np.float32)
        elif content is not None:
            file[name] = content
    refused(one_clip, layout, message)


def test_an_observable_at_other_indices_is_named(layout, one_clip):
    with h5py.File(one_clip, "a") as file:
        file["observable_indices/walker/joints_vel"][...] += 1
    refused(
        one_clip, layout, "walker/joints_vel differs from the layout: the file has 56 entries from 148 on, the layout"
    )


@pytest.mark.parametrize("data", ["nowhere", "."])
def test_a_folder_without_files_is_an_error(layout, tmp_path, data):
    with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path))):
        open_episodes("mocapact", str(tmp_path / data), layout)


def test_unknown_actions_are_an_error(layout, folder):
    with pytest.raises(ValueError, match="unknown kind of actions 'avg'; have: 'sampled', 'mean'"):
        open_episodes("mocapact", str(folder), layout, actions="avg")


# -- open files, changed files, threads --------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", [{}, {"chunks": True}], ids=str)
def test_few_files_are_open_at_a_time(layout, tmp_path, storage):
    for k in range(20):
        clip = f"CMU_001_{k:02}"
        write_clip(tmp_path / f"{clip}.hdf5", layout, {f"{clip}-0-9": [False] * 4}, length=5, **storage)
    already_open = h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE)  # by dm_control in other tests
    episodes = open_episodes("mocapact", str(tmp_path), layout)
    for index in range(len(episodes)):
        episodes.read(index)
        assert h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE) <= already_open + 16


def test_a_file_that_changed_after_it_was_checked_is_named(layout, one_clip, monkeypatch):
    episodes = open_episodes("mocapact", str(one_clip), layout)
    write_clip(one_clip, layout, {SNIPPET: [False] * 4}, length=LENGTH + 3)
    with pytest.raises(ValueError, match=re.escape(str(one_clip)) + ": the file has changed since it was checked"):
        episodes.read(0)
    one_clip.write_bytes(one_clip.read_bytes()[:9000])
    monkeypatch.setattr(episodes._stamps, "check", lambda path: None)  # the file was truncated just after this check
    with pytest.raises(ValueError, match=re.escape(str(one_clip)) + ": the file is truncated"):
        episodes.read(3)


@pytest.mark.parametrize("storage", [{}, {"chunks": True}], ids=str)
def test_threads_may_read_at_once(layout, tmp_path, storage):
    episodes = open_episodes("mocapact", str(write_folder(tmp_path, layout, **storage)), layout)
    wanted = [episodes.read(index).obs for index in range(15)]
    wrong = []

    def read(seed):
        for index in np.random.default_rng(seed).permutation(15).tolist() * 4:
            if not np.array_equal(episodes.read(index).obs, wanted[index]):
                wrong.append(index)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
