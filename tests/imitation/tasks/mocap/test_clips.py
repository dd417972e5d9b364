import json
import os
import subprocess
import sys

import h5py
import numpy as np
import pytest
from dm_control.locomotion.mocap import loader
from dm_control.locomotion.tasks.reference_pose import utils

from body_transformer.imitation.tasks.mocap import clips
from body_transformer.imitation.tasks.mocap.clips import DT_S, SCALE, MotionSource, clip_lengths, convert
from body_transformer.imitation.tasks.mocap.kinematics import Kinematics

from .conftest import standing


@pytest.fixture(scope="module")
def kinematics():
    return Kinematics()


def trajectory(clips_file, name):
    loaded = loader.HDF5TrajectoryLoader(str(clips_file)).get_trajectory(name)
    return {key.removeprefix("walker/"): value for key, value in loaded.as_dict().items()}


def test_dm_control_loads_every_clip(clips_file, motions, kinematics):
    for name, motion in motions.items():
        loaded = trajectory(clips_file, name)
        angles, inside = motion[:, 7:], np.clip(motion[:, 7:], *kinematics.joint_range)
        assert (angles != inside).any()
        np.testing.assert_allclose(loaded["position"], SCALE * motion[:, :3], atol=1e-6)
        np.testing.assert_allclose(loaded["joints"], inside, atol=1e-6)
        turns = np.abs(np.einsum("ti,ti->t", loaded["quaternion"], motion[:, 3:7]))
        np.testing.assert_allclose(turns, 1, atol=1e-5)


def test_a_quaternion_whose_sign_flips_is_made_continuous(clips_file):
    quats = trajectory(clips_file, "CMU_900_01")["quaternion"]
    assert np.einsum("ti,ti->t", quats[1:], quats[:-1]).min() > 0.99


def test_features_are_those_that_dm_control_computes_on_the_walker(clips_file, kinematics):
    loaded = trajectory(clips_file, "CMU_900_02")
    for frame in (0, 17, 59):
        now = {name: values[frame] for name, values in loaded.items()}
        with kinematics.physics.reset_context():
            utils.set_walker_from_features(kinematics.physics, kinematics.walker, now)
        seen = utils.get_features(kinematics.physics, kinematics.walker)
        assert set(seen) == set(now)
        for name, values in seen.items():
            np.testing.assert_allclose(values, now[name], atol=1e-5, err_msg=name)


def test_velocities_are_central_differences(clips_file):
    loaded = trajectory(clips_file, "CMU_900_02")
    for of, velocity in (("position", "velocity"), ("joints", "joints_velocity")):
        wanted = (loaded[of][2:] - loaded[of][:-2]) / (2 * DT_S)
        np.testing.assert_allclose(loaded[velocity][1:-1], wanted, atol=1e-4)


def test_angular_velocities_are_in_the_roots_frame(kinematics):
    rate = np.array([0.3, -0.5, 0.8])
    motion = standing(20, 0.0).astype(np.float64)
    for frame in range(1, 20):  # a steady turn about an axis fixed to the body
        angle = np.linalg.norm(rate) * DT_S
        step = np.concatenate([[np.cos(angle / 2)], np.sin(angle / 2) * rate / np.linalg.norm(rate)])
        a, b = motion[frame - 1, 3:7], step
        motion[frame, 3] = a[0] * b[0] - a[1:] @ b[1:]
        motion[frame, 4:7] = a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:])
    features = kinematics.features(kinematics.clipped(motion)[0], DT_S)
    np.testing.assert_allclose(features["angular_velocity"], np.tile(rate, (20, 1)), atol=1e-6)


def test_glitches_and_short_clips_are_left_out_and_reported(npz, tmp_path):
    report = convert(MotionSource.open(npz), tmp_path / "clips.hdf5")
    assert list(report.written) == ["CMU_900_01", "CMU_900_02"]
    assert list(report.glitches) == ["CMU_900_03"]
    assert report.short == {"CMU_900_04": 10}
    assert clip_lengths(tmp_path / "clips.hdf5") == {"CMU_900_01": 40, "CMU_900_02": 60}
    everything = convert(MotionSource.open(npz), tmp_path / "clips.hdf5", max_speed=1000.0)
    assert "CMU_900_03" in everything.written


def test_angles_may_have_any_named_order(npz, tmp_path, kinematics, motions):
    names = sorted(kinematics.joint_names)
    order = [kinematics.joint_names.index(name) for name in names]
    shuffled = motions["CMU_900_01"].copy()
    shuffled[:, 7:] = shuffled[:, 7:][:, order]
    np.savez(tmp_path / "a.npz", CMU_900_01=shuffled)
    (tmp_path / "meta.json").write_text(json.dumps({"joint_names": names, "dt": DT_S}))
    convert(MotionSource.open(tmp_path / "a.npz", tmp_path / "meta.json"), tmp_path / "out.hdf5")
    plain = convert(MotionSource.open(npz), tmp_path / "plain.hdf5", ["CMU_900_01"])
    assert list(plain.written) == ["CMU_900_01"]
    with h5py.File(tmp_path / "out.hdf5") as one, h5py.File(tmp_path / "plain.hdf5") as two:
        path = "CMU_900_01/walkers/walker_0/body_positions"
        np.testing.assert_array_equal(one[path], two[path])


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((40, 62), np.float32), r"must be floats \[T, 63\]; got float32 \[40, 62\]"),
        (np.zeros((40, 63), np.int64), r"must be floats \[T, 63\]; got int64"),
        (np.zeros((40, 63), np.float32), "not a pose"),
        (np.array([{"a": 1}]), "Object arrays cannot be loaded"),
    ],
)
def test_an_array_that_is_not_a_motion_is_refused_and_leaves_no_file(tmp_path, array, message):
    np.savez(tmp_path / "bad.npz", CMU_900_01=array)
    with pytest.raises(ValueError, match=rf"bad\.npz: clip 'CMU_900_01': .*{message}"):
        convert(MotionSource.open(tmp_path / "bad.npz"), tmp_path / "out.hdf5")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.npz"]


def test_missing_and_invalid_files_are_named(tmp_path, npz):
    with pytest.raises(FileNotFoundError, match=r"none\.npz"):
        MotionSource.open(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_bytes(npz.read_bytes()[:5000])
    with pytest.raises(ValueError, match=r"not an npz file \(a zip archive\), or truncated"):
        MotionSource.open(tmp_path / "text.npz")
    (tmp_path / "meta.json").write_text('{"dt": 0.03}')
    with pytest.raises(ValueError, match="joint_names"):
        MotionSource.open(npz, tmp_path / "meta.json")
    with pytest.raises(FileNotFoundError, match="no such clip file"):
        clip_lengths(tmp_path / "none.hdf5")
    (tmp_path / "broken.hdf5").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="not a file of motion clips"):
        clip_lengths(tmp_path / "broken.hdf5")
    with pytest.raises(ValueError, match=r"unknown clip 'CMU_900_00'"):
        convert(MotionSource.open(npz), tmp_path / "out.hdf5", ["CMU_900_00"])


def test_the_program_lists_omitted_clips_and_needs_no_screen(npz, tmp_path):
    screen = ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY")
    environment = {name: value for name, value in os.environ.items() if name not in screen}
    command = [sys.executable, "-m", clips.__name__, str(npz), str(tmp_path / "out.hdf5"), "--max-speed", "30"]
    program = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (program.returncode, program.stderr) == (0, "")
    for text in ("2 clips in", "CMU_900_03", "CMU_900_04 (10)"):
        assert text in program.stdout


def test_a_damaged_clip_is_named(motions, tmp_path):
    np.savez_compressed(tmp_path / "bad.npz", **motions)
    data = bytearray((tmp_path / "bad.npz").read_bytes())
    data[200:300] = bytes(100)
    (tmp_path / "bad.npz").write_bytes(data)
    with pytest.raises(ValueError, match=r"bad\.npz: clip 'CMU_900_01': "):
        convert(MotionSource.open(tmp_path / "bad.npz"), tmp_path / "out.hdf5")
