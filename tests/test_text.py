"""Text from files and peers reaches a terminal without characters that drive it."""

import pytest

from body_transformer.text import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("left knee", "left knee"),
        ("Knie 膝 حمل …", "Knie 膝 حمل …"),
        ("back\\slash 'and' quote", "back\\slash 'and' quote"),
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("a\r\nb\tc\x00d\x7f", "a\\r\\nb\\tc\\x00d\\x7f"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202egnp.exe\u2066", "\\u202egnp.exe\\u2066"),
        ("line\u2028separator\u200b", "line\\u2028separator\\u200b"),
        ("\ud800", "\\ud800"),
        ("\U000e0001", "\\U000e0001"),
    ],
)
def test_characters_that_drive_a_terminal_are_escaped(text, shown):
    assert printable(text) == shown


def test_kept_characters_stay():
    assert printable("one\ntwo\x1b", keep="\n") == "one\ntwo\\x1b"


def test_every_result_is_printable_and_can_be_encoded():
    everything = "".join(map(chr, range(0x110000)))
    shown = printable(everything)
    assert shown.isprintable()
    assert shown.encode()


def test_an_error_is_shown_as_its_message():
    assert printable(ValueError("no\x1b[8m")) == "no\\x1b[8m"
