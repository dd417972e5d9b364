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
from typing import Any

START_TIMEOUT_S = 120
"""Time limit for a reader to start; importing MuJoCo from a busy network drive is slow."""
TIMEOUT_S = 10.0
"""Time limit per file; real robots take well under a second."""
READY = "ready"
IDLE_S = 10.0
"""Time without requests after which a reader exits."""
MAX_MEMORY_BYTES = 8 * 2**30
"""Memory limit of a reader, where the system allows one; far more than any robot needs."""
ERRORS = {"missing": FileNotFoundError, "wrong": ValueError, "failed": RuntimeError}
"""Key of a reply -> the error that its message is for."""

_lock = threading.Lock()


def read_graph(source: Mapping[str, str], *options: Any, allow_outside: bool = False) -> dict[str, Any]:
    """Read a robot in the reading process and return the fields of its graph; `options` are those of `read_spec`."""
    request = {
        "source": source,
        "options": options,
        "allow_outside": allow_outside,
        "folder": _working_folder(),
        "timeout_s": TIMEOUT_S,
    }
    reply = _reply(request) if os.name == "posix" else answer(request)
    for key, error in ERRORS.items():
        if key in reply:
            raise error(reply[key])
    graph: dict[str, Any] = reply["graph"]
    return graph


def describe(source: Mapping[str, str]) -> str:
    """Return the name of a file or a text in error messages."""
    return repr(source["path"]) if "path" in source else "the given text"


def _working_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # the folder was deleted; absolute paths still work
        return os.sep


# -- the caller's side -------------------------------------------------------------------------------------------------


def _reply(request: dict[str, Any]) -> dict[str, Any]:
    """Return the reader's reply, or an error that says how the reader ended."""
    line = json.dumps(request, default=str) + "\n"
    with _lock:
        reply, status = _Reader.current().ask(line)
        if not reply and status == 0:  # the reader had exited after its idle time, so ask a new one
            reply, status = _Reader.current().ask(line)
    if reply:
        found: dict[str, Any] = json.loads(reply)
        return found
    name = describe(request["source"])
    if status == -signal.SIGALRM:
        return {"wrong": f"{name} keeps MuJoCo's parser busy for over {TIMEOUT_S:.0f} s: it is malformed or huge"}
    reason = signal.Signals(-status).name if status < 0 else f"exit status {status}"
    return {"wrong": f"{name} crashes MuJoCo's parser ({reason}): it is malformed"}


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
        limit = f"import signal, sys; signal.alarm({START_TIMEOUT_S})"
        program = f"{limit}; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_working_folder(),
            start_new_session=True,  # the caller handles Ctrl-C
        )
        ready, status = self.ask("")
        if ready.rstrip() != READY:
            late = status == -signal.SIGALRM
            how = f"did not start within {START_TIMEOUT_S} s" if late else f"ended with status {status}"
            raise RuntimeError(f"the process that reads robot files {how}")

    def ask(self, request: str) -> tuple[str, int]:
        """Send a line and return the next one and 0; if the process ends without it, "" and the exit status."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.write(request)
                self.process.stdin.flush()
            reply = self.process.stdout.readline()
        except BaseException:
            self.process.kill()  # otherwise the next request would get this request's reply
            self.stop()
            raise
        return (reply, 0) if reply.endswith("\n") else ("", self.stop())

    def stop(self) -> int:
        """Close the pipes, at which the process ends, and return its exit status."""
        _Reader._current = None
        self.process.communicate()
        return self.process.returncode


@atexit.register
def _stop_at_exit() -> None:
    reader = _Reader._current
    if reader is not None and reader.owner == os.getpid():
        reader.process.kill()
        reader.stop()


# -- the reading process -----------------------------------------------------------------------------------------------


def serve() -> None:
    """Run the reading process: one JSON request per line in, one JSON reply per line out.

    SIGALRM ends the process at a time limit, even inside MuJoCo.
    """
    import mujoco

    from . import description  # noqa: F401, so that its import does not count against the first file

    mujoco.set_mju_user_warning(lambda message: None)  # the default writes them to a log file in the working folder
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of MuJoCo must not look like a reply
    signal.alarm(0)  # the process has started in time
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the caller may have ignored or blocked it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    _limit_memory()
    print(READY, file=replies, flush=True)
    while select.select([sys.stdin], [], [], IDLE_S)[0] and (line := sys.stdin.readline()):
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, request["timeout_s"])
        reply = answer(request)
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps(reply), file=replies, flush=True)
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
    """Return the graph, or the message of an error; `leave` if the process must not read another file."""
    from .description import BrokenParserError, parse, read_spec, read_urdf

    name = describe(request["source"])
    try:
        os.chdir(request["folder"])  # paths may be relative to it
        source = {key: os.path.abspath(value) if key == "path" else value for key, value in request["source"].items()}
        spec, urdf = parse(source, name, request.get("allow_outside", False)), read_urdf(source, name)
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
        return {"failed": f"reading {name} failed: {type(error).__name__}: {error}", "leave": True}
