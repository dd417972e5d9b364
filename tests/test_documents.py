"""JSON and YAML of other people: size, depth and aliases are limited, and every limit is named."""

import json
import re
import time

import pytest

from body_transformer.documents import read_json, read_yaml, yaml_mapping
from body_transformer.schema import plain
from body_transformer.size_limits import MAX_JSON_BYTES, MAX_YAML_BYTES

LAUGHS = b"a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + b"".join(
    f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]\n".encode() for k in range(1, 12)
)


def refusal(text):
    start = time.monotonic()
    with pytest.raises(ValueError, match=r"^mine") as error:
        yaml_mapping(text, "mine")
    assert time.monotonic() - start < 10
    assert "\n" not in str(error.value)
    return str(error.value)


def test_aliases_stand_for_their_values():
    text = b"base: &base {a: 1, b: [1, 2]}\nmore: {<<: *base, c: *base}\n"
    assert yaml_mapping(text, "mine") == {
        "base": {"a": 1, "b": [1, 2]},
        "more": {"a": 1, "b": [1, 2], "c": {"a": 1, "b": [1, 2]}},
    }


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        (LAUGHS, "mine has over 200,000 values, with aliases written out; that is the limit"),
        (b"a: &a {k: v}\nb: {<<: [" + b"*a, " * 100_000 + b"]}", "has over 200,000 values"),
        (b"a: [" + b"x, " * 200_001 + b"]", "has over 200,000 values"),
        (b"a: " + b"[" * 5000, "mine has over 100 mappings and lists inside each other; that is the limit"),
        (b"a: " + b"{a: " * 101, "has over 100 mappings and lists"),
        (b"- " * 50_000 + b"a", "has over 100 mappings and lists"),
        (b"a: &a [*a]", r"the alias \*a is inside of what it stands for"),
        (b"a: &a {b: {c: *a}}", r"the alias \*a is inside of what it stands for"),
        (b"a: 1" + b":1" * 300_000, "has a number with 600,001 digits; the limit is 4,300"),
        (b"a: " + b"9" * 5000, "has a number with 5,000 digits; the limit is 4,300"),
        (b"a: *b", "is not YAML: found undefined alias"),
        (b"a: !!timestamp x", "has a value that does not fit its tag"),
        (b"a: !!bool x", "has a value that does not fit its tag"),
        (b"a: 2024-99-99", "mine has a value that does not fit its tag: .*month must be in"),
        (b"a: !!python/object/apply:os.system [true]", "could not determine a constructor"),
    ],
    ids=lambda value: str(value[:20]),
)
def test_yaml_that_would_exhaust_the_machine_is_refused_in_a_sentence(text, limit):
    assert re.search(limit, refusal(text))


def test_data_within_the_limits_can_be_written_out():
    text = b"a: &a [" + b"x, " * 90 + b"]\nb: [" + b"*a, " * 2000 + b"]"
    assert len(json.dumps(plain(yaml_mapping(text, "mine")))) > 800_000
    assert yaml_mapping(b"a: " + b"[" * 99 + b"]" * 99, "mine")


def test_a_large_yaml_file_is_refused_before_it_is_parsed(tmp_path):
    file = tmp_path / "large.yaml"
    file.write_bytes(b"a: " + b"x" * MAX_YAML_BYTES)
    with pytest.raises(ValueError, match=r"large.yaml' has 1,048,579 bytes; a YAML file may have at most 1,048,576"):
        read_yaml(file)
    file.write_bytes(b"a: " + b"x" * (MAX_YAML_BYTES - 3))
    assert len(read_yaml(file)["a"]) == MAX_YAML_BYTES - 3


@pytest.mark.parametrize("depth", [101, 900, 100_000])
@pytest.mark.parametrize("strict", [True, False])
def test_deep_json_is_refused(tmp_path, depth, strict):
    file = tmp_path / "deep.json"
    for opening, closing in ((b"[", b"]"), (b'{"a": ', b"}")):
        file.write_bytes(opening * depth + b"1" + closing * depth)
        with pytest.raises(ValueError, match=r"deep.json' has over 100 mappings and lists inside each other"):
            read_json(file, strict)
        file.write_bytes(opening * 100 + b"1" + closing * 100)
        assert read_json(file, strict)


def test_large_json_is_refused(tmp_path):
    file = tmp_path / "large.json"
    file.write_bytes(b" " * MAX_JSON_BYTES + b"1")
    with pytest.raises(ValueError, match=r"large.json' has 16,777,217 bytes; a JSON file may have at most 16,777,216"):
        read_json(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"a": 1, "a": 2}', "keys given more than once: 'a'"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": -Infinity}', "-Infinity is not a JSON number"),
        (b'{"a": \xff}', "is not valid JSON"),
        (b"9" * 5000, "Exceeds the limit"),
    ],
)
def test_strict_json_refuses_what_json_does_not_have(tmp_path, text, message):
    file = tmp_path / "wrong.json"
    file.write_bytes(text)
    with pytest.raises(ValueError, match=message):
        read_json(file)


def test_other_json_may_have_nan_and_repeated_keys(tmp_path):
    file = tmp_path / "loose.json"
    file.write_bytes(b'{"a": NaN, "a": 2}')
    assert read_json(file, strict=False) == {"a": 2}
