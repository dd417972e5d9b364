"""The process that reads changed inputs: one JSON request per line in, one JSON result per input out.

python -m tests.fuzz.worker SCRATCH
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import shutil
import sys
import tempfile
import time
import types
import warnings
from pathlib import Path
from random import Random
from traceback import extract_tb
from typing import Any, TextIO

from body_transformer.cli import main as cli

from .cases import CASES
from .content import CANARY
from .harness import READY
from .inputs import Files, Reader, mutated, stored, write
from .readers import READERS
from .sandbox import PeakMemory, Watch, limited

MAX_TEXT = 20_000
"""Longest message, in characters."""
VERB = "fuzz"
"""A verb of `bot` that calls a reader, so that its errors end in the command's own way."""


class Worker:
    """Reads inputs of any reader in one folder."""

    def __init__(self, scratch: Path) -> None:
        self.scratch, self.folder = scratch, scratch / "own" / "input"
        outside = (self.folder / CANARY).resolve()
        assert outside == scratch / "own" / "outside"
        _write_canaries(outside)
        self.folder.mkdir(parents=True, exist_ok=True)
        os.environ["TMPDIR"] = tempfile.tempdir = str(self.folder / "tmp")
        self.watch = Watch(self.folder, outside)
        self._originals: dict[str, list[Files]] = {}
        module = types.ModuleType(f"body_transformer.cli.{VERB}")
        module.main = lambda args: self._read(self.folder)  # type: ignore[attr-defined]
        sys.modules[module.__name__] = module
        cli.VERBS[VERB] = "read one input"  # type: ignore[index]

    def originals(self, name: str, reader: Reader) -> list[Files]:
        """Return the valid inputs of a reader; readers with the same ones share them."""
        shared = reader.originals.__name__.strip("_<>")
        key = name if shared == "lambda" else shared
        if key not in self._originals:
            place = self.scratch / "originals" / key
            if not place.is_dir():
                unfinished = place.with_name(f".{key}")
                shutil.rmtree(unfinished, ignore_errors=True)  # a former worker ended while it made them
                unfinished.mkdir(parents=True)
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    reader.originals(unfinished)
                unfinished.rename(place)
            self._originals[key] = stored(place)
        return self._originals[key]

    def result(self, reader: Reader, files: Files) -> dict[str, Any]:
        """Read an input and return its outcome, its time and the message or the fault."""
        os.chdir(self.scratch)
        write(files, self.folder)
        (self.folder / "tmp").mkdir(exist_ok=True)
        os.chdir(self.folder)
        self._read = reader.read or (lambda folder: None)
        args = [VERB] if reader.command is None else reader.command(self.folder)
        out, errors, fault = io.StringIO(), io.StringIO(), ""
        began, status = time.perf_counter(), -1
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            with limited(), self.watch.armed():
                try:
                    status = cli.main(args)
                except SystemExit as end:
                    status = end.code if isinstance(end.code, int) else 1
                except BaseException as error:  # the outcome is what counts
                    fault = _described(error)
        taken_s = time.perf_counter() - began
        os.chdir(self.scratch)
        text = errors.getvalue()
        fault = fault or _wrong(status, text, out.getvalue()) or "; ".join(self.watch.found)
        outcome = "fault" if fault else ("success", "refusal")[status]
        return {"outcome": outcome, "seconds": taken_s, "text": fault or text[-2000:]}


def _wrong(status: int, text: str, out: str) -> str:
    """Return what is wrong with the output of a command; nothing if it succeeded or refused in one sentence."""
    if status not in (0, 1):
        return f"exit status {status}: {text[-500:]}"
    if "Traceback (most recent call last)" in text:
        return f"traceback: {text[-500:]}"
    longest = max((line for line in text.splitlines() if line.startswith("bot ")), key=len, default="")
    if len(longest) > MAX_TEXT:
        return f"a message of {len(longest)} characters: {longest[:200]}"
    raw = [char for char in text + out if not char.isprintable() and char != "\n"]
    if raw:
        return f"prints {raw[0]!r}: {text[-300:]}"
    lines = text.splitlines()
    if status == 1 and (not lines or not lines[-1].startswith("bot ")):
        return f"the refusal is not one sentence: {text[-500:]!r}"
    return ""


def _described(error: BaseException) -> str:
    frames = [frame for frame in extract_tb(error.__traceback__) if "body_transformer" in frame.filename]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return f"{type(error).__name__} in {place}: {' '.join(str(error).split())[:300]}"


def _write_canaries(folder: Path) -> None:
    """Write files that changed inputs refer to; no reader may open them."""
    import h5py
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.xml").write_text('<mujoco><worldbody><body name="outside"/></worldbody></mujoco>')
    (folder / "text.yaml").write_text("title: outside\n")
    (folder / "raw.bin").write_bytes(bytes(4096))
    np.savez(folder / "data.npz", actions=np.zeros((3, 2), np.float32))
    with h5py.File(folder / "data.hdf5", "w") as file:
        file["actions"] = np.zeros((3, 2), np.float32)


def main(scratch: Path) -> None:
    """Answer requests until the input ends."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    faulthandler.enable()
    worker = Worker(scratch)
    print(READY, file=replies, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        name = request["reader"]
        reader = READERS[name]
        originals = worker.originals(name, reader)
        if not request.get("ready"):
            for files in originals:
                worker.result(reader, files)  # what is imported or cached at the first use does not count
                reply = worker.result(reader, files)
                if reply["outcome"] != "success":
                    raise AssertionError(f"a valid input of {name} is no success: {reply['text']}")
        _answer(worker, reader, request, replies)


def _answer(worker: Worker, reader: Reader, request: dict[str, Any], replies: TextIO) -> None:
    """Write a line per input, and one with the memory at the end."""
    name, originals, memory = request["reader"], worker.originals(request["reader"], reader), PeakMemory()
    for index in range(request["start"], request["stop"]):
        if request["case"]:
            files = dict(originals[0])
            CASES[request["case"]].change(files)
        else:
            files = mutated(reader, originals, Random(f"{request['seed']}/{name}/{index}"))
        if request.get("keep"):
            write(files, Path(request["keep"]))
        print(json.dumps({"index": index, **worker.result(reader, files)}), file=replies, flush=True)
    print(json.dumps({"done": True, "peak_bytes": memory.num_bytes}), file=replies, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
