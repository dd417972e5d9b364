"""Reads robot files in a process of its own.

Some malformed files crash MuJoCo's parser (3.11.0: a model that attaches itself, say, is a segmentation fault) and some
keep it busy for ever or eat all memory. The reader may die of them; the caller gets a ValueError. It serves one request
after the other, leaves when there is none for a while, and the next request starts another.
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
"""How long a reader may take to start; on a busy network drive, importing MuJoCo takes a while."""
TIMEOUT_S = 20.0
"""How long one file may take; real robots take well under a second."""
READY = b"ready\n"
IDLE_S = 10.0
"""How long a reader waits for the next request before it leaves."""
MAX_MEMORY_BYTES = 8 * 2**30
"""What a reader may take, if the system lets it be set: far more than any robot needs."""


def read_graph(source: Mapping[str, str], *options: Any) -> dict[str, Any]:
    """`description.read` in the reading process; its graph, as a dict."""
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
    with _lock:
        for _ in range(2):
            reader = _Reader.current()
            try:
                reply = reader.ask(request)
            except BaseException:
                reader.stop()  # or its reply would be taken for the next one's
                raise
            if reply is not None:
                return reply
            status = reader.stop()
            if status != 0:  # 0: it was just leaving for want of work, so once more
                break
    name = describe(request["source"])
    if status is None:
        return {"wrong": f"{name} keeps MuJoCo's parser busy for over {TIMEOUT_S:.0f} s: it is malformed or huge"}
    reason = signal.Signals(-status).name if status < 0 else f"exit status {status}"
    return {"wrong": f"{name} crashes MuJoCo's parser ({reason}): it is malformed"}


def _working_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was deleted; absolute paths still work
        return os.sep


def describe(source: Mapping[str, str]) -> str:
    """What error messages call a file or a text."""
    return repr(source["path"]) if "path" in source else "the given text"


class _Reader:
    """The reading process, from the caller's side."""

    _current: _Reader | None = None

    @classmethod
    def current(cls) -> _Reader:
        """The one at work, or a new one."""
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
            start_new_session=True,  # Ctrl-C is the caller's to handle
        )
        if self._line(START_TIMEOUT_S) != READY:
            status = self.stop()
            how = f"did not start within {START_TIMEOUT_S:.0f} s" if status is None else f"ended with status {status}"
            raise RuntimeError(f"the process that reads robot files {how}")

    def ask(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """None if the reader died or took too long."""
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
        """The next line; nothing if the reader ends or takes too long."""
        assert self.process.stdout is not None
        return self.process.stdout.readline() if _is_readable(self.process.stdout, timeout_s) else b""

    def stop(self) -> int | None:
        """Ends the process; its own exit status, or None if it had to be killed."""
        type(self)._current = None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        is_done = _is_readable(self.process.stdout, 0)
        if not is_done:  # no reply and no end of file: still at work
            self.process.kill()
        status = self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        return status if is_done else None


def _is_readable(file: IO[Any], timeout_s: float) -> bool:
    """Whether there is something to read, the end of the file included."""
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
    """The reading process itself: a JSON request a line in, a JSON reply a line out."""
    import mujoco

    from . import description  # noqa: F401, here so that the time it takes is not the first file's

    mujoco.set_mju_user_warning(lambda message: None)  # about physics; else they go to a log file in the user's folder
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what MuJoCo prints must not be taken for a reply
    _limit_memory()
    replies.write(READY.decode())
    replies.flush()
    while _is_readable(sys.stdin, IDLE_S):
        line = sys.stdin.readline()
        if not line:
            return
        signal.alarm(int(TIMEOUT_S) + 5)  # the caller, who would stop this, may be gone
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
    with contextlib.suppress(ValueError, OSError):  # macOS does not let it be set
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """The graph, or what is wrong."""
    from .description import BrokenParserError, read

    try:
        os.chdir(request["folder"])  # where relative paths start
        return {"graph": read(request["source"], describe(request["source"]), *request["options"]).to_dict()}
    except FileNotFoundError as error:
        return {"missing": str(error)}
    except BrokenParserError as error:
        return {"wrong": str(error), "leave": True}
    except ValueError as error:
        return {"wrong": str(error)}
    except MemoryError:
        return {"wrong": f"{describe(request['source'])} needs too much memory: it is malformed or huge", "leave": True}
    except Exception as error:  # a mistake of ours, or of MuJoCo's binding: not the file's
        return {"failed": f"{type(error).__name__}: {error}", "leave": True}
