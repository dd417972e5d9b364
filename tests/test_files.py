"""Files are whole or not there."""

from pathlib import Path

import pytest

from body_transformer.files import atomic_write


def test_a_text_or_whatever_writes_itself_is_written(tmp_path: Path) -> None:
    assert atomic_write(tmp_path / "new" / "a.md", "naïve ✓\n").read_text(encoding="utf-8") == "naïve ✓\n"
    seen = []
    atomic_write(tmp_path / "b.png", lambda path: (seen.append(path), path.write_bytes(b"png")))
    assert (tmp_path / "b.png").read_bytes() == b"png"
    assert seen[0].name.startswith(".")
    assert seen[0].suffix == ".png"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.png", "new"]


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
