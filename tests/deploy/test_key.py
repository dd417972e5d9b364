"""Keys of the link: their files, the environment variable, and digests."""

import os
from hashlib import blake2b

import pytest

from body_transformer.deploy.key import KEY_BYTES, VARIABLE, Digest, find_key, new_key, write_new_key

from .datagrams import KEY


@pytest.fixture
def file(tmp_path):
    made = tmp_path / "key"
    write_new_key(made)
    return made


def test_a_new_key_can_be_read_by_its_owner_alone(file):
    assert file.stat().st_mode & 0o777 == 0o600
    assert find_key(file).hex() == file.read_text().strip()
    assert [entry.name for entry in file.parent.iterdir()] == ["key"]


def test_keys_differ(tmp_path, file):
    write_new_key(tmp_path / "other")
    assert len({find_key(file), find_key(tmp_path / "other"), new_key()}) == 3


def test_a_new_key_replaces_nothing(file):
    before = file.read_text()
    with pytest.raises(FileExistsError, match="exists: name a new file for the key"):
        write_new_key(file)
    assert file.read_text() == before
    assert len(list(file.parent.iterdir())) == 1


def test_a_key_for_a_folder_that_is_missing_is_one_sentence(tmp_path):
    with pytest.raises(OSError, match=r"^cannot write the key to .*No such file or directory$"):
        write_new_key(tmp_path / "no" / "key")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o644, 0o666])
def test_a_key_file_that_others_can_open_is_refused(file, mode):
    file.chmod(mode)
    with pytest.raises(ValueError, match=rf"others can read or change the key in .*, mode {mode:04o}: chmod 600"):
        find_key(file)


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_key_file_of_its_owner_is_read(file, mode):
    file.chmod(mode)
    assert len(find_key(file)) == KEY_BYTES


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_key_file_of_another_user_is_refused(file):
    os.chown(file, 12345, -1)
    with pytest.raises(ValueError, match="belongs to another user"):
        find_key(file)


@pytest.mark.parametrize("content", ["", "zz", KEY.hex()[:-2], KEY.hex() + "00", "x" * 64, "\x1b[2J", "a" * 10_000])
def test_another_content_is_no_key_and_is_not_shown(file, content):
    file.write_text(content)
    with pytest.raises(ValueError, match="must hold a key, 64 hexadecimal digits") as refused:
        find_key(file)
    assert not content or content not in str(refused.value)


def test_a_named_pipe_or_a_folder_is_no_key(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "folder").mkdir(0o700)
    for name in ("pipe", "folder"):
        with pytest.raises((ValueError, OSError), match=r"must hold a key|cannot read the key"):
            find_key(tmp_path / name)


def test_without_a_file_the_environment_has_the_key(monkeypatch, file):
    monkeypatch.setenv(VARIABLE, KEY.hex())
    assert find_key() == KEY
    assert find_key(file) != KEY
    monkeypatch.setenv(VARIABLE, "secret")
    with pytest.raises(ValueError, match=rf"^{VARIABLE} must hold a key") as refused:
        find_key()
    assert "secret" not in str(refused.value)


def test_without_a_key_the_error_says_how_to_make_one(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(ValueError, match=f"give --key-file FILE or set {VARIABLE}; `bot deploy --new-key FILE` makes"):
        find_key()


def test_a_digest_depends_on_key_purpose_and_nonces():
    made = [
        Digest(KEY, "robot talks", b"a" * 16, b"b" * 16),
        Digest(bytes(32), "robot talks", b"a" * 16, b"b" * 16),
        Digest(KEY, "host talks", b"a" * 16, b"b" * 16),
        Digest(KEY, "robot talks", b"a" * 16, b"c" * 16),
        Digest(KEY, "robot talks", b"b" * 16, b"a" * 16),
        Digest(KEY, "robot talks"),
    ]
    assert len({one(b"data") for one in made}) == len(made)
    assert made[0](b"data") == made[0](b"data") != made[0](b"date")
    assert made[0].fits(b"data", made[0](b"data"))
    assert not made[0].fits(b"data", made[0](b"data")[:-1])


def test_the_digest_is_blake2b_with_a_derived_key():
    derived = blake2b(b"n" * 32, key=KEY, person=b"robot talks", digest_size=32).digest()
    assert Digest(KEY, "robot talks", b"n" * 32)(b"data") == blake2b(b"data", key=derived, digest_size=16).digest()
