"""Where the log of a deployment goes."""

import time
from pathlib import Path

import pytest

from body_transformer.deploy.log_folder import claimed


def test_two_deployments_of_the_same_second_have_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda form: "20260102-030405")
    with claimed(None, "a1-walk") as one, claimed(None, "a1-walk") as other:
        assert one == Path("deployments/a1-walk-20260102-030405")
        assert other == Path("deployments/a1-walk-20260102-030405-2")
        (one / "log.json").touch()
    assert [folder.name for folder in Path("deployments").iterdir()] == [one.name]  # the other was left empty


@pytest.mark.parametrize("name", ["log.json", "log.npz"])
def test_a_folder_that_has_a_log_is_refused_and_left_alone(tmp_path, name):
    (tmp_path / name).write_text("precious")
    with pytest.raises(FileExistsError, match="holds the log of an earlier deployment"), claimed(tmp_path, "a1-walk"):
        pass
    assert (tmp_path / name).read_text() == "precious"


def test_a_folder_that_was_there_stays(tmp_path):
    with claimed(tmp_path, "a1-walk") as folder:
        assert folder == tmp_path
    assert tmp_path.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_two_deployments_that_run_do_not_share_a_folder(tmp_path):
    again = pytest.raises(FileExistsError, match="another deployment that still runs")
    with claimed(tmp_path, "a1-walk"), again, claimed(tmp_path, "a1-walk"):
        pass
    with claimed(tmp_path, "a1-walk"):
        pass


@pytest.mark.parametrize("place", ["a file", "below a file", "/proc/x"])
def test_a_place_where_nothing_can_be_written_is_refused(tmp_path, place):
    (tmp_path / "file").touch()
    out = {"a file": tmp_path / "file", "below a file": tmp_path / "file" / "log"}.get(place, Path(place))
    with pytest.raises(OSError, match=f"no log can be written to '{out}': "), claimed(out, "a1-walk"):
        pass
    assert (tmp_path / "file").read_bytes() == b""


def test_a_disk_that_is_full_is_found_out(tmp_path):
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"), claimed(tmp_path / "log", "a1-walk"):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []
