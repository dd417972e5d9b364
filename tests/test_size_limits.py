"""The limit on memory: its value, its environment variable, and its wording."""

import pytest

from body_transformer.size_limits import VARIABLE, check_memory, max_read_bytes, read_at_most, size_text


def test_a_small_file_may_take_half_a_gib_and_a_large_one_four_times_its_size(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert max_read_bytes(1000) == 2**29
    assert max_read_bytes(2**30) == 4 * 2**30


def test_the_environment_variable_raises_the_limit(monkeypatch):
    refusal = r"'obs' would take 8.1 GiB of memory; the limit is 512 MiB\..* raise it .* BOT_MAX_READ_GIB=9$"
    with pytest.raises(ValueError, match=refusal):
        check_memory("'obs'", 8_700_000_000, 38_000_000)
    monkeypatch.setenv(VARIABLE, "9")
    check_memory("'obs'", 8_700_000_000, 38_000_000)


@pytest.mark.parametrize("value", ["much", "0", "-1", "nan", "inf"])
def test_a_wrong_value_of_the_variable_is_an_error(monkeypatch, value):
    monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(ValueError, match=f"BOT_MAX_READ_GIB must be a number of GiB above 0; got '{value}'"):
        max_read_bytes()


@pytest.mark.parametrize("num_bytes", [2**63, 2**64 + 1, 10**30, 10**5000], ids=["a", "b", "c", "d"])
def test_sizes_beyond_every_integer_type_are_refused_exactly(num_bytes):
    with pytest.raises(ValueError, match="the limit is 512 MiB"):
        check_memory("it", num_bytes)


def test_sizes_are_readable():
    assert [size_text(n) for n in (17, 5 * 2**20, 3 * 2**30, 5000 * 2**30)] == [
        "17 bytes",
        "5 MiB",
        "3 GiB",
        "5,000 GiB",
    ]


def test_a_file_of_exactly_the_limit_is_read(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert read_at_most(file, 5, "it") == b"12345"
    with pytest.raises(ValueError, match=r"file' has 5 bytes; a note may have at most 4"):
        read_at_most(file, 4, "a note")
