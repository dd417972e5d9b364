"""robomimic's files."""

import re

import h5py
import numpy as np
import pytest

from body_transformer.imitation.readers import open_episodes

from .small import LAYOUT, LENGTHS, by_term, check_same, make_episodes


def write(path, episodes, masks=None, rename=None):
    with h5py.File(path, "w") as file:
        file.create_group("data").attrs["total"] = sum(LENGTHS)
        for k, (obs, actions) in enumerate(episodes):
            demo = file.create_group(f"data/demo_{k}")
            demo.attrs["num_samples"] = len(actions)
            demo["actions"] = actions.astype(np.float64)
            demo["states"] = np.zeros((len(actions), 4))
            for name, array in by_term(obs).items():
                demo[f"obs/{(rename or {}).get(name, name)}"] = array
                demo[f"next_obs/{(rename or {}).get(name, name)}"] = array
        for name, demos in (masks or {}).items():
            file[f"mask/{name}"] = np.array(demos, dtype="S8")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "low_dim.hdf5"


def test_demonstrations_are_read_in_the_order_of_their_numbers(path):
    episodes = make_episodes() * 5  # demo_10 comes after demo_9, not after demo_1
    write(path, episodes)
    found = open_episodes("robomimic", str(path), LAYOUT)
    check_same(found, episodes)
    assert {info.split for info in found.infos} == {"train"}


def test_filter_keys_make_the_splits_and_leave_out_the_others(path):
    episodes = make_episodes()
    write(path, episodes, {"train": ["demo_2"], "valid": ["demo_0"], "50_percent": ["demo_1"]})
    found = open_episodes("robomimic", str(path), LAYOUT)
    check_same(found.split("train"), episodes[2:])
    check_same(found.split("validation"), episodes[:1])
    assert found.split("train").origin(0) == f"{path}: data/demo_2"
    assert len(found) == 2


def test_keys_may_have_other_names(path):
    episodes = make_episodes()
    write(path, episodes, rename={"touch": "robot0_touch"})
    check_same(open_episodes("robomimic", str(path), LAYOUT, obs_keys={"touch": "robot0_touch"}), episodes)
    with pytest.raises(
        ValueError, match=r"data/demo_0: the layout's terms 'touch' are not among the obs; have: .*'robot0_touch'"
    ):
        open_episodes("robomimic", str(path), LAYOUT)


def test_arrays_with_more_axes_are_flattened(path):
    episodes = make_episodes()
    write(path, episodes)
    with h5py.File(path, "a") as file:
        for k, length in enumerate(LENGTHS):
            touch = file[f"data/demo_{k}/obs/touch"][()]
            del file[f"data/demo_{k}/obs/touch"], file[f"data/demo_{k}/obs/clock"]
            file[f"data/demo_{k}/obs/touch"] = touch.reshape(length, 2, 2)
            arm = file[f"data/demo_{k}/obs/arm_pos"][:, 0]
            del file[f"data/demo_{k}/obs/arm_pos"]
            file[f"data/demo_{k}/obs/arm_pos"] = arm
    check_same(open_episodes("robomimic", str(path), LAYOUT), episodes)


def refused(path, message):
    with pytest.raises(ValueError, match=re.escape(str(path)) + ".*" + message):
        open_episodes("robomimic", str(path), LAYOUT)


def test_wrong_filter_keys_are_named(path):
    write(path, make_episodes(), {"train": ["demo_1", "demo_7"]})
    refused(path, "mask/train names 'demo_7', which is not in 'data'")
    write(path, make_episodes(), {"train": ["demo_1"], "valid": ["demo_1"]})
    refused(path, "'demo_1' is in both mask/train and mask/valid")

    with h5py.File(path, "a") as file:
        del file["mask/train"]
        file["mask/train"] = np.array([1])
    refused(path, "string")


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("actions", (LENGTHS[2], 3), r"demo_2: actions must be \[steps, 2\]; it is \[8, 3\]"),
        ("actions", (LENGTHS[2] + 1, 2), r"demo_2: observation 'gravity' must be \[9, 3\]; it is \[8, 3\]"),
        ("actions", None, "demo_2/actions is missing"),
        ("obs/touch", (LENGTHS[2], 3), r"demo_2: observation 'touch' must be \[8, 4\]; it is \[8, 3\]"),
        ("obs/touch", (LENGTHS[2] - 1, 4), r"demo_2: observation 'touch' must be \[8, 4\]; it is \[7, 4\]"),
        ("obs", None, "demo_2: /data/demo_2/obs is missing"),
        ("", (3,), "demo_2: /data/demo_2 must be a group; it is a dataset"),
    ],
)
def test_a_wrong_width_or_length_is_named(path, name, shape, message):
    write(path, make_episodes())
    with h5py.File(path, "a") as file:
        name = f"data/demo_2/{name}".rstrip("/")
        del file[name]
        if shape:
            file[name] = np.zeros(shape)
    refused(path, message)


def test_a_wrong_number_of_samples_is_named(path):
    write(path, make_episodes())
    with h5py.File(path, "a") as file:
        file["data/demo_2"].attrs["num_samples"] = 9
    refused(path, "data/demo_2: num_samples is 9, but there are 8 actions")


def test_a_file_without_demonstrations_is_named(path):
    with h5py.File(path, "w") as file:
        file["actions"] = np.zeros(3)
    refused(path, "the group 'data' is missing; have: 'actions'")
    with h5py.File(path, "w") as file:
        file.create_group("data")
    refused(path, "the file has no demonstrations")
