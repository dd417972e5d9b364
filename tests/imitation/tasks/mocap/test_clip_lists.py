"""Lists of motion clips."""

import pytest

from body_transformer.imitation.tasks.mocap.snippets import read_clip_list, read_splits


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def test_a_list_has_one_name_a_line(write):
    text = "CMU_001_01\n\n# a remark\nCMU_009_12-0-198\nCMU_009_12-165-363 # twice\nCMU_002_01"
    assert read_clip_list(write("train.txt", text)) == ("CMU_001_01", "CMU_009_12", "CMU_002_01")


def test_a_list_that_is_missing_or_empty_or_no_text_is_named(write, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.txt: no such list of clips"):
        read_clip_list(tmp_path / "none.txt")
    with pytest.raises(ValueError, match=r"empty\.txt: this list of clips is empty"):
        read_clip_list(write("empty.txt", "# nothing\n"))
    (tmp_path / "data.hdf5").write_bytes(b"\x89HDF\xff")
    with pytest.raises(ValueError, match=r"data\.hdf5: not a list of clips"):
        read_clip_list(tmp_path / "data.hdf5")


def test_two_lists_make_two_splits(write):
    train, validation = write("train.txt", "a-0-20 # a part\nb\n"), write("val.txt", "c\n")
    assert read_splits(train, validation) == {"a": "train", "b": "train", "c": "validation"}
    assert read_splits(None, str(validation)) == {"c": "validation"}
    assert read_splits(None, None) is None


def test_a_clip_whose_parts_are_in_both_lists_is_an_error(write):
    train, validation = write("train.txt", "a-0-20\n"), write("val.txt", "b\na-20-40\n")
    with pytest.raises(ValueError, match=r"in both .*train\.txt .* and .*val\.txt .*: 'a'"):
        read_splits(train, validation)
