"""Wording of errors: the given name, the known names, and how to install a missing package."""

import json
from collections import Counter
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from traceback import extract_tb
from typing import Any
from urllib.parse import unquote, urlsplit

PACKAGE = "body-transformer"
_MAX_LISTED = 60


def install(extra: str = "") -> str:
    """Return the command that installs the package's dependencies and an extra, in the way the package is installed."""
    brackets = f"[{extra}]" if extra else ""
    clone = _clone()
    if clone is None:
        return f"pip install '{PACKAGE}{brackets}'" if extra else f"pip install {PACKAGE}"
    what = f"'.{brackets}'" if extra else "."
    return f"pip install -c constraints.txt -e {what} in {clone}"


def _clone() -> str | None:
    """Return the clone that the package runs from; None if it was installed from a wheel or an archive."""
    try:
        origin = json.loads(distribution(PACKAGE).read_text("direct_url.json") or "{}")
    except PackageNotFoundError:  # the source tree is on PYTHONPATH
        return "a clone"
    if not origin.get("dir_info", {}).get("editable"):
        return None
    return unquote(urlsplit(origin["url"]).path)


def import_extra(module: str, extra: str) -> Any:
    """Import a module that an extra brings; raise ValueError with the command that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ValueError(f"{error}; {install(extra)}") from None


def listing(names: Iterable[str]) -> str:
    """Return `'a', 'b', 'c'`, with at most sixty names."""
    quoted = [repr(name) for name in names]
    if len(quoted) > _MAX_LISTED:
        quoted = [*quoted[:_MAX_LISTED], f"… ({len(quoted) - _MAX_LISTED} more)"]
    return ", ".join(quoted) or "none"


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once."""
    return [name for name, count in Counter(names).items() if count > 1]


def unknown(kind: str, given: str, have: Iterable[str]) -> str:
    """Return `unknown joint 'kne'; did you mean 'knee'? have: 'hip', 'knee'`."""
    have = list(have)
    close = get_close_matches(str(given), have, n=1)
    hint = f" did you mean {close[0]!r}?" if close else ""
    return f"unknown {kind} {given!r};{hint} have: {listing(have)}"


def broken(what: str, error: BaseException) -> str:
    """Describe an error in other people's code and where it was raised: `WHAT: KeyError: 'x' (env.py, line 3)`."""
    frames = extract_tb((error.__cause__ or error).__traceback__)
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{what}: {type(error).__name__}: {' '.join(str(error).split())}{place}"
