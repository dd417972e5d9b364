"""The shared secret of a link, its key files, and the keyed digests of datagrams."""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from hashlib import blake2b
from hmac import compare_digest
from pathlib import Path

from ..files import sync

VARIABLE = "BOT_LINK_KEY"
"""Environment variable with a key in hexadecimal; a key file takes precedence."""
KEY_BYTES = 32
DIGEST_BYTES = 16
_HELP = f"give --key-file FILE or set {VARIABLE}; `bot deploy --new-key FILE` makes a key"


class Digest:
    """Keyed BLAKE2b digests for one purpose; its key depends on the secret, the purpose and the nonces."""

    def __init__(self, secret: bytes, purpose: str, *nonces: bytes) -> None:
        key = blake2b(b"".join(nonces), key=secret, person=purpose.encode(), digest_size=KEY_BYTES).digest()
        self._keyed = blake2b(key=key, digest_size=DIGEST_BYTES)

    def __call__(self, data: bytes) -> bytes:
        """Return the digest of the data."""
        one = self._keyed.copy()  # half the time of hashing the key again
        one.update(data)
        return one.digest()

    def fits(self, data: bytes, digest: bytes) -> bool:
        """Return whether this is the digest of the data, in a time that does not depend on the answer."""
        return compare_digest(self(data), digest)


def new_key() -> bytes:
    """Return a random key."""
    return secrets.token_bytes(KEY_BYTES)


def write_new_key(file: Path) -> None:
    """Write a new key to a file that only its owner can read; refuse an existing one."""
    try:
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=".key.")  # its mode is 0600
        try:
            with open(descriptor, "w", encoding="ascii") as stream:
                stream.write(f"{new_key().hex()}\n")
            sync(Path(name))
            os.link(name, file)  # unlike a rename, it never replaces a file
        finally:
            os.unlink(name)
    except FileExistsError:
        raise FileExistsError(f"{str(file)!r} exists: name a new file for the key") from None
    except OSError as error:
        raise OSError(f"cannot write the key to {str(file)!r}: {error.strerror}") from None


def find_key(file: Path | None = None) -> bytes:
    """Return the key of a file, or of the environment variable; refuse to go without one."""
    if file is not None:
        return _read(file)
    if VARIABLE not in os.environ:
        raise ValueError(f"the link to a robot needs its key: {_HELP}")
    return parse_key(os.environ[VARIABLE], VARIABLE)


def parse_key(text: str, where: str) -> bytes:
    """Return the key that is written as hexadecimal digits; the error does not show them."""
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ValueError(f"{where} must hold a key, {2 * KEY_BYTES} hexadecimal digits: {_HELP}")
    return key


def _read(file: Path) -> bytes:
    """Read a key file; refuse one that others can read or write."""
    try:
        with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:  # a named pipe does not block
            found = os.fstat(stream.fileno())
            content = stream.read(4 * KEY_BYTES) if stat.S_ISREG(found.st_mode) else b""
    except OSError as error:
        raise OSError(f"cannot read the key in {str(file)!r}: {error.strerror}") from None
    if found.st_mode & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        raise ValueError(f"others can read or change the key in {str(file)!r}, mode {mode:04o}: chmod 600 {file}")
    if found.st_uid not in (os.geteuid(), 0):
        raise ValueError(f"the key in {str(file)!r} belongs to another user")
    return parse_key(content.decode("ascii", errors="replace"), repr(str(file)))
