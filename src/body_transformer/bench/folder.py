"""Where results go."""

import tempfile
from pathlib import Path


def output_folder(given: str | None) -> Path | None:
    """The folder for results, made if need be; what cannot be written is noticed before the work, not after it."""
    if given is None:
        return None
    if not given:
        raise ValueError("--out is empty; it takes the folder for the results, '.' is this one")
    folder = Path(given)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except FileExistsError:
        raise OSError(f"cannot write results to {given!r}: it is a file, not a folder") from None
    except OSError as error:
        raise OSError(f"cannot write results to {given!r}: {error.strerror}") from None
