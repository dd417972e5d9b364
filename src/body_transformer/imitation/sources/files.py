"""Files: whatever is wrong with one is said with its name; a few are open at a time."""

from __future__ import annotations

import os
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile, is_zipfile

import numpy as np
from numpy.lib.npyio import NpzFile

DAMAGE = (ValueError, KeyError, OSError, RuntimeError, EOFError, BadZipFile, zlib.error, TokenError, SyntaxError)
"""What h5py, zipfile and NumPy raise over a damaged file, and our own checks over a wrong one."""


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors inside are about this file, and say so."""
    try:
        yield
    except FileNotFoundError:  # whoever opens it has named it
        raise
    except DAMAGE as error:
        said = error.args[0] if error.args and isinstance(error.args[0], str) else str(error)
        raise ValueError(said if said.startswith(str(path)) else f"{path}: {said}") from error


def open_npz(path: str | os.PathLike[str]) -> NpzFile:
    """The archive, whose arrays are read when asked for; one of Python objects is refused, so nothing is executed."""
    if not is_zipfile(path):  # NumPy would suspect a pickle, and say how to run it
        raise ValueError("it is not an npz file (a zip archive), or it is truncated")
    archive: NpzFile = np.load(path, allow_pickle=False)
    return archive


class OpenFiles:
    """Files that were read last stay open, `max_open` of them; one thread at a time may use them."""

    def __init__(self, opener: Callable[[Path], Any], max_open: int = 16) -> None:
        self._opener = opener
        self._max_open = max_open
        self._files: OrderedDict[Path, Any] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._files)

    @contextmanager
    def use(self, path: Path) -> Iterator[Any]:
        """The open file; errors inside name it."""
        with self._lock, naming(path):
            if path not in self._files:
                while len(self._files) >= self._max_open:
                    self._files.popitem(last=False)[1].close()
                self._files[path] = self._opener(path)
            self._files.move_to_end(path)
            yield self._files[path]
