"""Read robot files in a separate process.

Some malformed files crash MuJoCo's parser (in 3.11.0, a model that attaches itself is a segmentation fault), hang it or
exhaust the memory. Then only the reading process ends, and the caller gets a ValueError. One process serves many
requests. It exits after a time without requests, and the next request starts a new one.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import IO, Any

START_TIMEOUT_S = 120.0
"""Time limit for a reader to start; importing MuJoCo from a busy network drive is slow."""
TIMEOUT_S = 20.0
"""Time limit per file; real robots take well under a second."""
READY = b"ready\n"
IDLE_S = 10.0
"""Time without requests after which a reader exits."""
MAX_MEMORY_BYTES = 8 * 2**30
"""Memory limit of a reader, where the system allows one; far more than any robot needs."""


def read_graph(source: Mapping[str, str], *options: Any) -> dict[str, Any]:
    """Read a robot in the reading process and return the fields of its graph."""
    request = {"source": source, "options": options, "folder": _working_folder()}
    reply = _reply(request) if os.name == "posix" else answer(request)
    if "missing" in reply:
        raise FileNotFoundError(reply["missing"])
    if "wrong" in reply:
        raise ValueError(reply["wrong"])
    if "failed" in reply:
        raise RuntimeError(f"reading {describe(source)} failed: {reply['failed']}")
    graph: dict[str, Any] = reply["graph"]
    return graph


def _reply(request: dict[str, Any]) -> dict[str, Any]:
    """Return the reader's reply, or an error that says how the reader ended."""
    with _lock:
        reply, status = _ask(request)
        if reply is None and status == 0:  # the reader had exited after its idle time, so ask a new one
            reply, status = _ask(request)
    if reply is not None:
        return reply
    name = describe(request["source"])
    if status is None:
        return {"wrong": f"{name} keeps MuJoCo's parser busy for over {TIMEOUT_S:.0f} s: it is malformed or huge"}
    reason = signal.Signals(-status).name if status < 0 else f"exit status {status}"
    return {"wrong": f"{name} crashes MuJoCo's parser ({reason}): it is malformed"}


def _ask(request: dict[str, Any]) -> tuple[dict[str, Any] | None, int | None]:
    """Return the reader's reply and None. Without a reply, return None and the result of `_Reader.stop`."""
    reader = _Reader.current()
    try:
        reply = reader.ask(request)
    except BaseException:
        reader.stop()  # otherwise the next request would get this request's reply
        raise
    return (reply, None) if reply is not None else (None, reader.stop())


def _working_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # the folder was deleted; absolute paths still work
        return os.sep


def describe(source: Mapping[str, str]) -> str:
    """Return the name of a file or a text in error messages."""
    return repr(source["path"]) if "path" in source else "the given text"


class _Reader:
    """The caller's side of the reading process."""

    _current: _Reader | None = None

    @classmethod
    def current(cls) -> _Reader:
        """Return the running reader, or start one."""
        reader = cls._current
        if reader is None or reader.owner != os.getpid() or reader.process.poll() is not None:
            reader = cls._current = cls()
        return reader

    def __init__(self) -> None:
        self.owner = os.getpid()  # a forked child must not talk to its parent's reader
        program = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_working_folder(),
            start_new_session=True,  # the caller handles Ctrl-C
        )
        if self._line(START_TIMEOUT_S) != READY:
            status = self.stop()
            how = f"did not start within {START_TIMEOUT_S:.0f} s" if status is None else f"ended with status {status}"
            raise RuntimeError(f"the process that reads robot files {how}")

    def ask(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Return the reply, or None if the reader died or took too long."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request, default=str).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        line = self._line(TIMEOUT_S)
        if not line.endswith(b"\n"):
            return None
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _line(self, timeout_s: float) -> bytes:
        """Return the next line, or nothing if the reader exits or takes too long."""
        assert self.process.stdout is not None
        return self.process.stdout.readline() if _is_readable(self.process.stdout, timeout_s) else b""

    def stop(self) -> int | None:
        """End the process and return its exit status, or None if it had to be killed."""
        type(self)._current = None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        is_done = _is_readable(self.process.stdout, 0)
        if not is_done:  # no reply and no end of file: it is still busy
            self.process.kill()
        status = self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        return status if is_done else None


def _is_readable(file: IO[Any], timeout_s: float) -> bool:
    """Return whether there is something to read, which includes the end of the file."""
    poll = select.poll()  # select.select takes no descriptor from 1024 up
    poll.register(file, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


_lock = threading.Lock()


@atexit.register
def _stop_at_exit() -> None:
    reader = _Reader._current
    if reader is not None and reader.owner == os.getpid():
        reader.process.kill()
        reader.stop()


def serve() -> None:
    """Run the reading process: one JSON request per line in, one JSON reply per line out."""
    import mujoco

    from . import description  # noqa: F401, so that its import does not count against the first file

    mujoco.set_mju_user_warning(lambda message: None)  # the default writes them to a log file in the working folder
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of MuJoCo must not look like a reply
    _limit_memory()
    replies.write(READY.decode())
    replies.flush()
    while _is_readable(sys.stdin, IDLE_S):
        line = sys.stdin.readline()
        if not line:
            return
        signal.alarm(int(TIMEOUT_S) + 5)  # the caller, which enforces the time limit, may have died
        reply = answer(json.loads(line))
        signal.alarm(0)
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
        if reply.get("leave"):
            return


def _limit_memory() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = MAX_MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(hard, MAX_MEMORY_BYTES)
    with contextlib.suppress(ValueError, OSError):  # macOS does not support it
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the graph, or the error."""
    from .description import BrokenParserError, parse, read_spec
    from .urdf import read_urdf

    name = describe(request["source"])
    try:
        os.chdir(request["folder"])  # paths may be relative to it
        source = {key: os.path.abspath(value) if key == "path" else value for key, value in request["source"].items()}
        spec, urdf = parse(source, name), read_urdf(source, name)
        return {"graph": read_spec(spec, name, urdf, *request["options"])}
    except FileNotFoundError as error:
        return {"missing": str(error)}
    except BrokenParserError as error:
        return {"wrong": str(error), "leave": True}
    except ValueError as error:
        return {"wrong": str(error)}
    except MemoryError:
        return {"wrong": f"{name} needs too much memory: it is malformed or huge", "leave": True}
    except Exception as error:  # a mistake in this package or in MuJoCo's binding, not in the file
        return {"failed": f"{type(error).__name__}: {error}", "leave": True}
