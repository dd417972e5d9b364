"""Files of clips: their content as tensors, their splits, and what is refused."""

import shutil

import numpy as np
import pytest
import torch

from body_transformer.imitation.tasks.mocap.clips import MotionSource, convert
from body_transformer.rl.mocap.motions import FEATURES, ClipFile, Motions
from body_transformer.rl.mocap.servo import Servo

from .conftest import LENGTHS, moving

h5py = pytest.importorskip("h5py")


@pytest.fixture
def changed(clips_file, tmp_path):
    """Return a function that changes a clip in a copy of the file and returns the path of the copy."""

    def change(edit, clip="CMU_900_02"):
        path = shutil.copy(clips_file, tmp_path / "changed.hdf5")
        with h5py.File(path, "r+") as file:
            edit(file[clip])
        return path

    return change


def test_frames_are_those_of_the_file(clips_file):
    clips = ClipFile.open(clips_file)
    servo = Servo.of_walker("cpu", torch.float32)
    motions = Motions.read(clips, servo.file_order, "cpu", torch.float32)
    assert motions.names == tuple(LENGTHS)
    assert motions.num_frames == sum(LENGTHS.values())
    with h5py.File(clips_file) as file:
        walker = file["CMU_900_03/walkers/walker_0"]
        frame = int(motions.start[2]) + 7
        columns = {name: torch.from_numpy(walker[feature][:, 7]) for name, (feature, _) in FEATURES.items()}
    for name in ("joint_pos", "joint_vel"):
        columns[name] = columns[name][list(servo.file_order)]
    for name, expected in columns.items():
        assert torch.equal(getattr(motions, name)[frame].flatten(), expected)
    assert servo.joints == tuple(sorted(servo.joints)), "actuators are in alphabetical order"


def test_splits_never_mix(options):
    clips = ClipFile.open(options["clips"], options["train_clips"], options["validation_clips"])
    assert {snippet.clip for snippet in clips.snippets("validation")} == {"CMU_900_03"}
    assert {snippet.clip for snippet in clips.snippets("train")} == set(LENGTHS) - {"CMU_900_03"}
    with pytest.raises(ValueError, match="clips are in both"):
        ClipFile.open(options["clips"], options["train_clips"], options["train_clips"])
    some = ClipFile.open(options["clips"], options["train_clips"], options["validation_clips"], ["CMU_900_01"])
    assert dict(some.splits) == {"CMU_900_01": "train", "CMU_900_03": "validation"}
    with pytest.raises(ValueError, match="`only` may name training clips alone; these are not: 'CMU_900_03'"):
        ClipFile.open(options["clips"], options["train_clips"], options["validation_clips"], ["CMU_900_03"])


def test_an_evaluation_spreads_its_snippets_over_the_clips(clips_file):
    clips = ClipFile.open(clips_file)
    assert [snippet.name for snippet in clips.evaluation_snippets(2)] == ["CMU_900_01-0-40", "CMU_900_03-0-60"]
    assert len(clips.evaluation_snippets(1000)) == 5, "each snippet once"


def test_a_missing_file_and_a_file_without_clips_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none.hdf5: no such clip file"):
        ClipFile.open(tmp_path / "none.hdf5")
    (tmp_path / "text.hdf5").write_text("clips")
    with pytest.raises(ValueError, match="not an HDF5 file of motion clips"):
        ClipFile.open(tmp_path / "text.hdf5")
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        file["data"] = np.zeros(3)
    with pytest.raises(ValueError, match=r"clip 'data' is not in the format of dm_control's HDF5TrajectoryLoader"):
        ClipFile.open(tmp_path / "other.hdf5")


def test_clips_of_another_walker_rate_or_size_are_refused(changed):
    def model(group):
        group["walkers/walker_0"].attrs["model"] = 3

    def rate(group):
        group.attrs["dt"] = 0.01

    def joints(group):
        del group["walkers/walker_0/joints"]
        group["walkers/walker_0/joints"] = np.zeros((50, 90), np.float32)

    for edit, message in (
        (model, "clip 'CMU_900_02' is for dm_control's walker number 3; it must be number 4, CMU_2020"),
        (rate, r"clip 'CMU_900_02' has frames every 0.01 s; they must be 0.03 s apart"),
        (joints, r"arrays of wrong shapes, which must be \[entries, 90\]: {'joints': \(50, 90\)}"),
    ):
        with pytest.raises(ValueError, match=message):
            ClipFile.open(changed(edit))


def test_a_clip_shorter_than_a_snippet_is_refused(tmp_path, clips_file):
    def shorter(group):
        group.attrs["num_steps"] = 12
        for name, _ in FEATURES.values():
            values = group[f"walkers/walker_0/{name}"][()][:, :12]
            del group[f"walkers/walker_0/{name}"]
            group[f"walkers/walker_0/{name}"] = values

    path = shutil.copy(clips_file, tmp_path / "short.hdf5")
    with h5py.File(path, "r+") as file:
        shorter(file["CMU_900_01"])
    with pytest.raises(ValueError, match=r"these clips of '.*short.hdf5' have fewer than 16 frames: 'CMU_900_01'"):
        ClipFile.open(path)
    (tmp_path / "others.txt").write_text("CMU_900_02")
    assert list(ClipFile.open(path, tmp_path / "others.txt").splits) == ["CMU_900_02"], "it is not used"


def test_the_converter_leaves_out_short_clips_and_its_file_is_read(tmp_path):
    np.savez(tmp_path / "motions.npz", CMU_920_01=moving(30, 0), CMU_920_02=moving(10, 1))
    report = convert(MotionSource.open(tmp_path / "motions.npz"), tmp_path / "clips.hdf5", scale=1.0)
    assert report.short == {"CMU_920_02": 10}
    assert dict(ClipFile.open(tmp_path / "clips.hdf5").lengths) == {"CMU_920_01": 30}
