"""Files are complete or absent."""

import os
from pathlib import Path

import pytest

from body_transformer.files import atomic_write, digest, new_files, new_folder


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
