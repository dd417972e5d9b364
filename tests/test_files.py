"""Files are complete or absent."""

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from body_transformer.files import AppendedFile, atomic_write, digest, new_files, new_folder, reserve

SmallDisk = Callable[[int], Path]


def test_a_text_or_the_output_of_a_function_is_written(tmp_path: Path) -> None:
    assert atomic_write(tmp_path / "new" / "a.md", "naïve ✓\n").read_text(encoding="utf-8") == "naïve ✓\n"
    seen = []
    atomic_write(tmp_path / "b.png", lambda path: (seen.append(path), path.write_bytes(b"png")))
    assert (tmp_path / "b.png").read_bytes() == b"png"
    assert seen[0].name.startswith(".")
    assert seen[0].suffix == ".png"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.png", "new"]


def test_a_file_is_on_the_disk_before_it_takes_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power failure after the rename must not leave a file without its content."""
    done = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (done.append((os.fstat(file).st_size, "synced")), fsync(file)))
    monkeypatch.setattr(os, "replace", lambda old, new: (done.append((new.name, "renamed")), replace(old, new)))
    atomic_write(tmp_path / "a.md", "new")
    assert done == [(3, "synced"), ("a.md", "renamed")]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        path.write_text("half")
        raise OSError(28, "No space left on device")

    target = tmp_path / "results.json"
    target.write_text("old")
    with pytest.raises(OSError, match=r"cannot write .*results.json': No space left on device"):
        atomic_write(target, fail)
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]
    assert target.read_text() == "old"


def test_a_new_folder_gets_its_name_when_it_is_complete_and_replaces_an_older_one(tmp_path: Path) -> None:
    out = tmp_path / "a" / "out"
    for text in ("old", "new"):
        with new_folder(out) as unfinished:
            (unfinished / "file").write_text(text)
            (unfinished / text).touch()
            assert not out.exists() or (out / "file").read_text() == "old"
    assert sorted(file.name for file in out.iterdir()) == ["file", "new"]
    assert [entry.name for entry in out.parent.iterdir()] == ["out"]


@pytest.mark.parametrize("make", [new_folder, new_files])
def test_a_folder_that_fails_leaves_the_old_one_and_nothing_else(tmp_path: Path, make) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").write_text("old")

    def stopped(unfinished: Path) -> None:
        (unfinished / "file").write_text("new")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), make(tmp_path / "out") as unfinished:
        stopped(unfinished)
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["out", "out/file"]
    assert (tmp_path / "out" / "file").read_text() == "old"


def test_a_failed_rename_restores_the_old_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").write_text("old")
    replace = os.replace

    def failing(old: Path, new: Path) -> None:
        if old.name != "out" and new.name == "out" and not new.exists() and not old.name.endswith(".old"):
            raise OSError("disk on fire")
        replace(old, new)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(OSError, match="disk on fire"), new_folder(tmp_path / "out") as unfinished:
        (unfinished / "file").write_text("new")
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["out", "out/file"]
    assert (tmp_path / "out" / "file").read_text() == "old"


def test_new_files_replace_those_of_their_name_and_leave_the_others(tmp_path: Path) -> None:
    for name in ("kept", "file"):
        (tmp_path / name).write_text("old")
    with new_files(tmp_path) as unfinished:
        (unfinished / "file").write_text("new")
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"kept": "old", "file": "new"}


def test_a_digest_is_that_of_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    assert digest(tmp_path / "file") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


# -- full disks and deleted files --------------------------------------------------------------------------------------


def test_records_that_are_appended_stay(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"old\n")
    file = AppendedFile(tmp_path / "log")
    for record in (b"one\n", b"two\n"):
        file.append(record)
        assert (tmp_path / "log").read_bytes().endswith(record)
    file.close()
    assert (tmp_path / "log").read_bytes() == b"old\none\ntwo\n"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not delete open files")
def test_a_record_for_a_deleted_file_is_an_error(tmp_path: Path) -> None:
    file = AppendedFile(tmp_path / "log")
    (tmp_path / "log").unlink()
    with pytest.raises(FileNotFoundError, match=r"cannot write .*log': it has been deleted"):
        file.append(b"one\n")


def test_a_record_that_does_not_fit_is_not_left_in_part(small_disk: SmallDisk) -> None:
    path = small_disk(64) / "log"
    file = AppendedFile(path)
    file.append(b"one\n")
    with pytest.raises(OSError, match=r"cannot write .*log': No space left on device"):
        file.append(bytes(100_000))
    assert path.read_bytes() == b"one\n"
    file.append(b"two\n")
    assert path.read_bytes() == b"one\ntwo\n"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_a_record_beyond_the_largest_size_of_a_file_is_not_left_in_part(tmp_path: Path) -> None:
    import resource

    file = AppendedFile(tmp_path / "log")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, hard))
    try:
        with pytest.raises(OSError, match=r"cannot write .*log': File too large"):
            file.append(bytes(2**20 + 1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "log").read_bytes() == b""


@pytest.mark.parametrize("make", [new_folder, new_files])
def test_a_full_disk_is_an_error_with_the_name_of_the_folder(tmp_path: Path, make) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(OSError, match=r"No space left on device: '.*out'$"), make(out):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(FileNotFoundError, match="nowhere"), make(out):
        Path("nowhere").read_text()


def test_room_is_reserved_before_a_library_writes(small_disk: SmallDisk) -> None:
    folder = small_disk(400)
    reserve(folder, 100_000)
    with pytest.raises(OSError, match="No space left"):
        reserve(folder, 200_000)
    assert list(folder.iterdir()) == []
