"""Snippets of motion clips, and lists of clips."""

from itertools import pairwise
from pathlib import Path

import pytest

from body_transformer.imitation.tasks.mocap.snippets import (
    MAX_SNIPPET_STEPS,
    SNIPPET,
    Snippet,
    available,
    cut,
    read_clip_list,
    read_splits,
)

CMU = Path(__file__).parents[4] / "../shared/data/cmu_humanoid"


def parse(text):
    """Read MoCapAct's name of a snippet."""
    found = SNIPPET.fullmatch(text)
    return Snippet(found["clip"], int(found["start"]), int(found["end"]))


def test_a_snippet_is_named_as_mocapact_names_it():
    snippet = Snippet("CMU_009_12", 165, 363)
    assert snippet.name == "CMU_009_12-165-363"
    assert parse(snippet.name) == snippet


@pytest.mark.parametrize("text", ["CMU_009_12", "CMU_009_12-5", "CMU_009_12-a-9"])
def test_names_of_another_form_are_not_snippets(text):
    assert SNIPPET.fullmatch(text) is None


@pytest.mark.parametrize(("start", "end"), [(5, 5), (-1, 50), (0, 15)])
def test_a_snippet_that_cannot_be_tracked_is_refused(start, end):
    with pytest.raises(ValueError, match=r"snippet"):
        Snippet("CMU_009_12", start, end)


def test_a_short_clip_stays_whole():
    assert cut("clip", 210) == [Snippet("clip", 0, 210)]


def test_a_long_clip_is_cut_as_mocapact_cuts_it():
    names = [snippet.name for snippet in cut("CMU_001_01", 760)]
    assert names == [f"CMU_001_01-{part}" for part in ("0-178", "145-323", "290-468", "435-613", "580-760")]


@pytest.mark.parametrize("num_frames", range(30, 2000, 37))
def test_snippets_cover_a_clip_and_none_is_too_long(num_frames):
    snippets = cut("clip", num_frames)
    assert snippets[0].start == 0
    assert snippets[-1].end == num_frames
    assert all(one.end - one.start <= MAX_SNIPPET_STEPS for one in snippets)
    assert all(one.end > two.start for one, two in pairwise(snippets))


def test_nearly_all_of_mocapacts_own_snippets_are_reproduced():
    file = CMU / "mocapact_snippets_covered.txt"
    if not file.is_file():
        pytest.skip("MoCapAct's list of snippets is not available")
    published: dict[str, set[Snippet]] = {}
    for line in file.read_text(encoding="utf-8").split():
        snippet = parse(line)
        published.setdefault(snippet.clip, set()).add(snippet)
    same = [set(cut(clip, max(one.end for one in ones))) == ones for clip, ones in published.items()]
    assert sum(same) >= 0.99 * len(same)  # MoCapAct left a few of up to 257 frames uncut


def test_missing_clips_are_named_unless_they_are_allowed():
    lengths = {"a": 100, "b": 100, "short": 5}
    assert available(["b", "a"], lengths, "FILE") == ("b", "a")
    with pytest.raises(ValueError, match=r"1 of 2 clips are not in FILE: 'c'"):
        available(["a", "c"], lengths, "FILE")
    assert available(["a", "c"], lengths, "FILE", allow_missing=True) == ("a",)
    with pytest.raises(ValueError, match=r"none of the 1 requested clips"):
        available(["c"], lengths, "FILE", allow_missing=True)
    with pytest.raises(ValueError, match=r"fewer than .* 'short'"):
        available(["short"], lengths, "FILE")


# -- lists of clips ----------------------------------------------------------------------------------------------------


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def test_a_list_has_one_name_per_line(write):
    text = "CMU_001_01\n\n# a remark\nCMU_009_12-0-198\nCMU_009_12-165-363 # twice\nCMU_002_01"
    assert read_clip_list(write("train.txt", text)) == ("CMU_001_01", "CMU_009_12", "CMU_002_01")


def test_a_missing_empty_or_binary_list_is_named(write, tmp_path):
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
