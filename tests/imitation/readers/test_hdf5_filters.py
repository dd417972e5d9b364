"""Chunks and texts of an HDF5 file take no more memory than their numbers do, however they are stored."""

import struct
import zlib

import h5py
import numpy as np
import pytest

from body_transformer import BodyGraph, Layout, Term
from body_transformer.imitation.readers import hdf5_filters, robomimic
from body_transformer.imitation.readers.hdf5_items import attribute, dataset, open_hdf5
from body_transformer.size_limits import VARIABLE

CHUNK = 256
"""Numbers of a chunk, in single precision."""
GRAPH = BodyGraph.from_edges(["base", "arm"], [("base", "arm")], joints={"elbow": "arm"})
LAYOUT = Layout(GRAPH, [Term.root("gravity", 2)], Term.joints("torque", ["elbow"]))


@pytest.fixture(autouse=True)
def small_limit(monkeypatch):
    """Limit files to a MiB, so that the tests need little."""
    monkeypatch.setenv(VARIABLE, str(2**-10))


def chunked(path, set_filters, chunk: bytes):
    """Write a dataset with one chunk of these bytes."""
    with h5py.File(path, "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((CHUNK,))
        set_filters(properties)
        space = h5py.h5s.create_simple((CHUNK,))
        found = h5py.h5d.create(file.id, b"actions", h5py.h5t.IEEE_F32LE, space, properties)
        found.write_direct_chunk((0,), chunk)
    return path


def refusal(path):
    with open_hdf5(path) as file, pytest.raises(ValueError, match="/actions") as refused:
        dataset(file, "actions")
    return str(refused.value)


def test_a_chunk_that_unpacks_to_more_than_its_numbers_is_refused(tmp_path):
    bomb = zlib.compress(bytes(64 * 2**20), 9)
    assert len(bomb) < 2**17
    path = chunked(tmp_path / "bomb.hdf5", lambda properties: properties.set_deflate(9), bomb)
    assert "unpacks to more than its numbers, 1,028 bytes" in refusal(path)


def test_a_chunk_that_is_compressed_twice_is_refused(tmp_path):
    def twice(properties):
        properties.set_deflate(9)
        properties.set_deflate(9)

    bomb = zlib.compress(zlib.compress(bytes(2**20), 9), 9)
    assert "compressed twice" in refusal(chunked(tmp_path / "bomb.hdf5", twice, bomb))


def test_a_compression_behind_another_filter_cannot_be_checked_and_is_refused(tmp_path):
    def behind(properties):
        properties.set_deflate(9)
        properties.set_shuffle()

    assert "not compressed last" in refusal(chunked(tmp_path / "bomb.hdf5", behind, b"x" * 100))


def test_other_filters_are_named(tmp_path):
    path = chunked(tmp_path / "other.hdf5", lambda properties: properties.set_scaleoffset(2, 0), b"x" * 100)
    assert "HDF5 filter 6; the filters that are read are 'gzip', 'shuffle', 'fletcher32', 'lzf'" in refusal(path)


@pytest.mark.parametrize(
    "options", [{"compression": "gzip"}, {"compression": "gzip", "fletcher32": True}, {"fletcher32": True}]
)
def test_large_compressed_data_are_read(tmp_path, options):
    values = np.random.default_rng(0).random((300, 100), np.float32)
    with h5py.File(tmp_path / "good.hdf5", "w") as file:
        file.create_dataset("actions", data=values, chunks=(100, 100), shuffle=True, **options)
    with open_hdf5(tmp_path / "good.hdf5") as file:
        assert (dataset(file, "actions")[()] == values).all()


def test_chunks_are_unpacked_once_per_dataset(tmp_path, monkeypatch):
    values = np.random.default_rng(0).random((300, 100), np.float32)
    with h5py.File(tmp_path / "good.hdf5", "w") as file:
        file.create_dataset("actions", data=values, chunks=(100, 100), compression="gzip")
    with open_hdf5(tmp_path / "good.hdf5") as file:
        dataset(file, "actions")
        monkeypatch.setattr(hdf5_filters, "_check_gzip", pytest.fail)
        dataset(file, "actions")


# -- texts -------------------------------------------------------------------------------------------------------------


def test_many_names_that_are_the_same_bytes_of_the_file_are_not_all_read(tmp_path):
    path, length, count = tmp_path / "names.hdf5", 100_003, 1000
    with h5py.File(path, "w", libver="earliest") as file:
        file["data/demo_0/actions"] = np.zeros((3, 1), np.float32)
        file["data/demo_0/obs/gravity"] = np.zeros((3, 2), np.float32)
        names = np.array(["A" * length, *(f"z{k}" for k in range(count - 1))], object)
        file.create_dataset("mask/train", data=names, dtype=h5py.string_dtype())
    content, entry = bytearray(path.read_bytes()), struct.pack("<I", length)
    start = content.find(entry)
    while struct.unpack_from("<I", content, start + 16)[0] != len("z0"):  # the heap has the length, too
        start = content.find(entry, start + 1)
    content[start : start + 16 * count] = content[start : start + 16] * count  # 100 MB in all
    path.write_bytes(content)
    with pytest.raises(ValueError, match="mask/train has 1,000 names; there are 1 demonstrations"):
        robomimic.open_episodes(str(path), LAYOUT)


@pytest.mark.parametrize("value", [["train", "train"], h5py.Empty("f")], ids=["a list", "nothing"])
def test_an_attribute_is_one_value(tmp_path, value):
    with h5py.File(tmp_path / "it.hdf5", "w") as file:
        file.attrs["split"], file.attrs["clip"] = value, "walk"
        assert (attribute(file, "clip"), attribute(file, "seed", 3)) == ("walk", 3)
        with pytest.raises(ValueError, match="attribute 'split' of / must be one value"):
            attribute(file, "split")
