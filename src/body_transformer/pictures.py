"""Write Matplotlib figures to files, in Matplotlib's own style instead of the user's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from .errors import listing
from .files import atomic_write

# Suffix -> metadata; without a date, the same picture is the same file.
FORMATS: Mapping[str, dict[str, Any]] = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}


SETTINGS: Mapping[str, Any] = {
    "pdf.fonttype": 42,  # publishers refuse the default, Type 3
    "svg.hashsalt": "body",  # or ids differ from run to run
}


@contextmanager
def own_style(settings: Mapping[str, Any]) -> Iterator[None]:
    """Use Matplotlib's defaults with these settings; under a user's dark style, names would be white on white."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(settings)  # type: ignore[arg-type]  # keys of a mapping are not literals
        yield


def save(draw: Callable[[], Figure], path: Path, dpi: int = 150, **options: Any) -> Path:
    """Draw a figure and write it in the format of the path's suffix; `options` are those of `Figure.savefig`."""
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise ValueError(f"unknown picture format {path.suffix!r} in {str(path)!r}; have: {listing(FORMATS)}")
    with own_style(SETTINGS):
        figure = draw()
        options = {"format": suffix[1:], "dpi": dpi, "metadata": FORMATS[suffix], **options}
        return atomic_write(path, lambda file: figure.savefig(file, **options))
