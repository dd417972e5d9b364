"""Files of arrays: headers are checked against the file and the limit on memory before anything is unpacked."""

import io
import struct
import time
import tracemalloc
import zipfile

import numpy as np
import pytest

from body_transformer.array_files import ArrayArchive, map_array, read_header
from body_transformer.size_limits import VARIABLE

ARRAYS = {
    "floats": np.arange(6, dtype=np.float32).reshape(2, 3),
    "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "none": np.zeros((0, 5)),
    "one": np.array(3),
    "text": np.array(["left", "right"]),
}


def npy(header: str, data: bytes = b"", version: int = 1, size: int | None = None) -> bytes:
    """Return an array in NumPy's format with this header, which may be wrong."""
    text = header.encode() + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", len(text) if size is None else size)
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + data


def of_shape(shape: str, data: bytes = b"", kind: str = "<f4") -> bytes:
    return npy(f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}", data)


def archive(path, members: dict[str, bytes], method=zipfile.ZIP_DEFLATED, sizes: dict[str, int] | None = None):
    """Write a zip file; `sizes` replaces the sizes that its directory states."""
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
        for name, size in (sizes or {}).items():
            file.getinfo(f"{name}.npy").file_size = size
    return path


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_are_those_that_were_saved(tmp_path, save):
    save(tmp_path / "arrays.npz", **ARRAYS)
    with ArrayArchive(tmp_path / "arrays.npz") as arrays:
        assert list(arrays) == arrays.files == list(ARRAYS)
        for name, array in ARRAYS.items():
            header = arrays.header(name)
            assert (header.dtype, header.shape) == (array.dtype, array.shape)
            np.testing.assert_array_equal(arrays[name], array)


def test_a_mapped_array_is_that_which_was_saved(tmp_path):
    for name, array in ARRAYS.items():
        np.save(tmp_path / f"{name}.npy", array)
        np.testing.assert_array_equal(map_array(tmp_path / f"{name}.npy"), array)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_the_format_is_read(version):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, ARRAYS["floats"], version)
    size = stream.tell()
    stream.seek(0)
    assert read_header(stream, size).shape == (2, 3)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (of_shape("(2_000_000_000,)"), r"describes float32 \[2000000000\], 7.45 GiB, and 0 bytes follow it"),
        (of_shape("(4611686018427387904, 4)"), "2305843009213693952|over 2|GiB, and 0 bytes follow it"),
        (of_shape("(4294967296, 4294967296)"), "and 0 bytes follow it"),
        (of_shape("(2, -1)", b"12345678"), "negative size, or one beyond 64 bits"),
        (of_shape("(0, 18446744073709551616)"), "negative size, or one beyond 64 bits"),
        (of_shape("(1,)", b"12345"), r"describes float32 \[1\], 4 bytes, and 5 bytes follow it"),
        (of_shape("(2,)", b"1234"), r"describes float32 \[2\], 8 bytes, and 4 bytes follow it"),
        (of_shape("(1,)", b"12345678", "|O"), "Python objects"),
        (of_shape("(1.5,)"), "shape is not valid"),
        (of_shape("(1,)", kind="nothing"), "descr is not a valid dtype descriptor"),
        (npy("(" * 3000), "cannot be read|Cannot parse header"),
        (npy("{'descr': __import__('os').system('true')}"), "the header cannot be read: malformed node"),
        (npy("", version=2, size=2**32 - 1), "the header has 4,294,967,295 bytes; the limit is 10,000"),
        (npy("{}" + " " * 10_000), "the header has 10,003 bytes; the limit is 10,000"),
        (b"\x93NUMPY\x09\x00", "not an array in NumPy's format"),
        (b"\x80\x04K\x01.", "not an array in NumPy's format"),
        (b"", "not an array in NumPy's format"),
    ],
    ids=range(17),
)
def test_a_wrong_header_is_refused_before_anything_is_unpacked(tmp_path, content, reason):
    archive(tmp_path / "bad.npz", {"a": content})
    with ArrayArchive(tmp_path / "bad.npz") as arrays:
        for read in (arrays.header, arrays.__getitem__):
            with pytest.raises(ValueError, match=reason):
                read("a")
    (tmp_path / "bad.npy").write_bytes(content)
    with pytest.raises(ValueError, match=reason):
        map_array(tmp_path / "bad.npy")


def refused_at_once(path, name, reason):
    """Check that reading is refused, quickly and without memory."""
    start = time.monotonic()
    tracemalloc.start()
    try:
        with ArrayArchive(path) as arrays, pytest.raises(ValueError, match=reason):
            arrays[name]
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()
    assert time.monotonic() - start < 5


def test_an_array_beyond_the_limit_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    array = np.zeros(2**24, np.float32)
    np.savez_compressed(tmp_path / "zeros.npz", zeros=array)
    monkeypatch.setenv(VARIABLE, "0.05")
    limit = r"reading 'zeros', .* would take 64 MiB of memory; the limit is 51.2 MiB.*BOT_MAX_READ_GIB=1$"
    refused_at_once(tmp_path / "zeros.npz", "zeros", limit)
    monkeypatch.setenv(VARIABLE, "1")
    with ArrayArchive(tmp_path / "zeros.npz") as arrays:
        np.testing.assert_array_equal(arrays["zeros"], array)


def test_a_directory_that_states_gigabytes_is_not_believed(tmp_path):
    size = len(of_shape("(2175000000,)")) + 8_700_000_000
    path = archive(tmp_path / "bomb.npz", {"a": of_shape("(2175000000,)", bytes(1000))}, sizes={"a": size})
    refused_at_once(path, "a", "reading 'a', .* would take 8.1 GiB of memory; the limit is 512 MiB")


def test_the_limit_holds_for_all_arrays_of_a_file_together(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "many.npz", **{f"a{k}": np.zeros(2**20, np.float32) for k in range(4)})
    monkeypatch.setenv(VARIABLE, str(10 / 1024))
    with ArrayArchive(tmp_path / "many.npz") as arrays:
        for _ in range(3):
            assert arrays["a0"].nbytes == 2**22  # one array, read again
        assert arrays["a1"].nbytes == 2**22
        with pytest.raises(ValueError, match="reading 'a2', with the arrays before it, would take 12 MiB"):
            arrays["a2"]


def test_small_numbers_count_as_single_precision_which_they_become(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "bytes.npz", a=np.zeros(2**20, np.int8))
    monkeypatch.setenv(VARIABLE, str(2 / 1024))
    refused_at_once(tmp_path / "bytes.npz", "a", "reading 'a', .* would take 4 MiB")


def test_a_large_file_may_unpack_to_four_times_its_size(tmp_path, monkeypatch):
    np.savez(tmp_path / "large.npz", a=np.zeros(2**20, np.float32))
    monkeypatch.setenv(VARIABLE, str(1 / 1024))
    with ArrayArchive(tmp_path / "large.npz") as arrays:
        assert arrays["a"].nbytes == 2**22


def test_other_compressions_and_encryption_are_refused(tmp_path):
    for method in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
        path = archive(tmp_path / "other.npz", {"a": of_shape("(1,)", b"1234")}, method)
        refused_at_once(path, "a", "'a' is encrypted, or compressed in another way than NumPy does")


def test_a_member_that_is_no_array_is_refused_only_when_it_is_read(tmp_path):
    with zipfile.ZipFile(tmp_path / "mixed.npz", "w") as file:
        file.writestr("a.npy", of_shape("(1,)", b"1234"))
        file.writestr("README.txt", "hello")
    with ArrayArchive(tmp_path / "mixed.npz") as arrays:
        assert arrays.files == ["a", "README.txt"]
        assert arrays["a"].shape == (1,)
        with pytest.raises(ValueError, match="not an array"):
            arrays["README.txt"]


def test_other_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing\.npz: no such file"):
        ArrayArchive(tmp_path / "missing.npz")
    (tmp_path / "pickle.npz").write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(ValueError, match="not an npz file"):
        ArrayArchive(tmp_path / "pickle.npz")
