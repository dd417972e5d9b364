"""Open an exported network in ONNX Runtime, and try it in a process of its own first."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np

from ..policy_folder import MODEL
from ..text import printable
from .onnx_check import check_onnx

INPUT, OUTPUT = "obs", "actions"
TRIAL_S = 30.0
"""Longest time in which a network must be loaded and give its first action, on a slow computer too."""
TRIAL_BYTES = 2**31
"""Most memory for that, beyond what Python and ONNX Runtime take."""
ACTION_S = 1.0
"""Longest time of an action after the first; a robot's period is 20 ms."""
_tried: set[bytes] = set()
"""Digests of the networks that were tried in this program."""


def open_session(model: bytes, folder: str, batch: int | None = None) -> Any:
    """Return an ONNX Runtime session on one thread, for this batch size or for any; `folder` is for errors."""
    try:
        onnxruntime: Any = import_module("onnxruntime")
    except ImportError:
        raise ValueError("running an exported policy needs ONNX Runtime: pip install onnxruntime") from None
    check_onnx(model, folder)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # a robot's other cores have other work
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3  # errors
    options.enable_mem_reuse = False  # costs some kilobytes, 3 % faster
    # without this, bytes that are ONNX and ONNX Runtime's own format at once would be read as the latter, unchecked
    options.add_session_config_entry("session.load_model_format", "ONNX")
    if batch is not None:
        options.add_free_dimension_override_by_name("batch", batch)
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime has a dozen kinds of errors, none public
        raise ValueError(f"ONNX Runtime cannot load {MODEL} in {folder!r}: {printable(error)}") from None


def try_session(model: bytes, folder: str, obs_dim: int) -> None:
    """Load the network and compute two actions in another process; refuse one beyond TRIAL_S, TRIAL_BYTES or ACTION_S.

    Shapes depend on constants alone (`check_onnx`), so other observations need the same memory.
    """
    sha256 = hashlib.sha256(model).digest()
    if sha256 in _tried:
        return
    command = [sys.executable, "-P", "-m", __name__, str(obs_dim), str(ACTION_S), folder]
    search = os.pathsep.join(filter(None, sys.path))  # the package may have been found in any way
    where = f"{MODEL} in {folder!r} is refused: loading it and computing an action"
    try:
        trial = subprocess.run(
            command,
            input=model,
            capture_output=True,
            timeout=TRIAL_S,
            env={**os.environ, "PYTHONPATH": search, "OMP_NUM_THREADS": "1"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"{where} takes more than {TRIAL_S:g} s") from None
    if trial.returncode:
        *_, last_line = trial.stderr.decode(errors="replace").strip().rsplit("\n", 1)
        if trial.returncode == _REFUSED:
            raise ValueError(last_line)
        why = last_line if trial.returncode > 0 else f"the process ended by signal {-trial.returncode}"
        raise ValueError(f"{where} fails within {TRIAL_S:g} s and {TRIAL_BYTES / 2**30:g} GiB: {printable(why)}")
    _tried.add(sha256)


# -- in the other process ----------------------------------------------------------------------------------------------

_REFUSED = 3
"""Exit status of a trial whose last line is the reason for a refusal."""


def main() -> int:
    """Run a trial of the network on standard input; the arguments are its observations, ACTION_S and its folder."""
    obs_dim, action_s, folder = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    model = sys.stdin.buffer.read()
    with suppress(ImportError):  # `open_session` reports it
        import_module("onnxruntime")
    _limit()
    try:
        session = open_session(model, folder, batch=1)
    except ValueError as error:
        return _end(_REFUSED, error)
    try:
        feed = {port.name: np.zeros((1, obs_dim), np.float32) for port in session.get_inputs()}
        session.run(None, feed)
        begun = time.perf_counter()
        session.run(None, feed)
        took_s = time.perf_counter() - begun
    except Exception as error:  # as above
        return _end(1, error)
    if took_s > action_s:
        reason = f"{MODEL} in {folder!r} is refused: an action takes {took_s:.1f} s, allowed is {action_s:g}"
        return _end(_REFUSED, reason)
    return 0


def _end(status: int, reason: object) -> int:
    """Print the reason in one line, and return the exit status."""
    print(" ".join(str(reason).split()), file=sys.stderr)
    return status


def _limit() -> None:
    """Limit the memory and the processor time of this process, where the operating system can."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (int(TRIAL_S), int(TRIAL_S)))
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + TRIAL_BYTES, used + TRIAL_BYTES))


if __name__ == "__main__":
    sys.exit(main())
