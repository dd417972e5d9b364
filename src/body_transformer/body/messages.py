"""How errors name things: what was given, and what exists."""

from collections.abc import Iterable
from difflib import get_close_matches

_MAX_LISTED = 60


def listing(names: Iterable[str]) -> str:
    """`'a', 'b', 'c'`, cut after some sixty names."""
    quoted = [repr(name) for name in names]
    if len(quoted) > _MAX_LISTED:
        quoted = [*quoted[:_MAX_LISTED], f"… ({len(quoted) - _MAX_LISTED} more)"]
    return ", ".join(quoted) or "none"


def unknown(kind: str, given: str, have: Iterable[str]) -> str:
    """`unknown joint 'kne'; did you mean 'knee'? have: 'hip', 'knee'`"""
    have = list(have)
    close = get_close_matches(str(given), have, n=1)
    hint = f" did you mean {close[0]!r}?" if close else ""
    return f"unknown {kind} {given!r};{hint} have: {listing(have)}"
