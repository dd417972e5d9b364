"""Limits of a process that reads hostile files, and a record of everything it does beyond reading them."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import site
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import body_transformer

TIMEOUT_S = 20.0
"""Longest time of the processor for one input."""
WAITING_S = 60.0
"""Longest time in all; on a busy machine it is several times that of the processor."""
MAX_BYTES = 2**30
"""Memory that one input may take, beside that of the program itself."""
FORBIDDEN = frozenset({
    "os.exec", "os.fork", "os.kill", "os.posix_spawn", "os.spawn", "os.system", "os.startfile", "os.link",
    "os.symlink", "pickle.find_class", "pty.spawn", "socket.connect", "socket.bind", "socket.sendto",
    "socket.getaddrinfo", "urllib.Request", "webbrowser.open", "shutil.rmtree", "ftplib.connect",
})  # fmt: skip
"""Audit events that no reader raises."""
OWN = {"shutil.rmtree": 0, "os.symlink": 1}
"""Event that is allowed inside the input's folder -> place of the path among its arguments."""
OWN_PROCESSES = ("from body_transformer.body.isolate import serve", "body_transformer.deploy.session")
"""Parts of the commands of the package's own processes, in which it parses robot files and tries networks."""
OUTSIDE = "opens a file outside the input's folder"
_IN_OPEN = 0x20


class Watch:
    """Record forbidden acts: of Python by its audit events, and of libraries by the opening of files in a folder."""

    def __init__(self, own: Path, outside: Path) -> None:
        """Allow files in `own`; opening one in `outside` is recorded whichever library or process does it."""
        self.found: list[str] = []
        self._armed = False
        interpreter = {
            sys.prefix,
            sys.base_prefix,
            sys.exec_prefix,
            *sysconfig.get_paths().values(),
            *site.getsitepackages(),
        }
        package = Path(body_transformer.__file__).resolve().parent
        self._readable = tuple(
            {os.path.realpath(path) for path in interpreter} | {str(package), "/dev/null", "/proc", "/sys"}
        )
        self._own = os.path.realpath(own)
        libc = ctypes.CDLL(None, use_errno=True)
        self._events = libc.inotify_init1(os.O_NONBLOCK)
        libc.inotify_add_watch(self._events, os.fsencode(outside), _IN_OPEN)
        sys.addaudithook(self._on_event)

    @contextmanager
    def armed(self) -> Iterator[None]:
        """Record what is done inside the context."""
        self.found.clear()
        self._drain()
        self._armed = True
        try:
            yield
        finally:
            self._armed = False
            if self._drain():
                self.found.append(OUTSIDE)

    def _drain(self) -> bytes:
        try:
            return os.read(self._events, 65536)
        except BlockingIOError:
            return b""

    def _on_event(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._armed:
            return
        self._armed = False  # the checks raise events themselves
        try:
            if wrong := self._fault(event, args):
                self.found.append(wrong)
        finally:
            self._armed = True

    def _fault(self, event: str, args: tuple[Any, ...]) -> str:
        if event in FORBIDDEN:
            inside = event in OWN and self._is_own(args[OWN[event]])
            return "" if inside else f"{event} {args!r:.200}"
        if event == "open":
            path, _, flags = args
            return "" if self._may_open(path, flags or 0) else f"opens {path!r:.200}"
        if event == "subprocess.Popen":
            words = [str(word) for word in args[1]]
            is_own = words[0] == sys.executable and any(one in word for one in OWN_PROCESSES for word in words)
            return "" if is_own else f"starts {words!r:.200}"
        if event == "exec":
            file = getattr(args[0], "co_filename", "")
            caller = sys._getframe(3).f_code.co_filename  # `dataclasses` and `namedtuple` compile their methods
            trusted = self._is_readable(file) or file.startswith("<frozen") or self._is_readable(caller)
            return "" if trusted else f"executes {file!r} from {caller!r}"
        return ""

    def _is_own(self, path: Any) -> bool:
        place = os.path.realpath(os.fsdecode(path))
        return place == self._own or place.startswith(self._own + os.sep)

    def _is_readable(self, path: Any) -> bool:
        place = os.path.realpath(os.fsdecode(path))
        return any(place == allowed or place.startswith(allowed + os.sep) for allowed in self._readable)

    def _may_open(self, path: Any, flags: int) -> bool:
        if isinstance(path, int) or self._is_own(path):
            return True
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        return self._is_readable(path) and (not writes or os.fsdecode(path) == os.devnull)


@contextmanager
def limited() -> Iterator[None]:
    """Limit time and memory inside the context; beyond the time, the process ends by SIGPROF or SIGALRM."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + MAX_BYTES, hard))
    signal.setitimer(signal.ITIMER_REAL, WAITING_S)
    signal.setitimer(signal.ITIMER_PROF, TIMEOUT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


class PeakMemory:
    """Largest resident memory since the start, beyond that at the start."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
        self._before = _status("VmRSS")

    @property
    def num_bytes(self) -> int:
        """The growth of this process, or the whole memory of its largest child process."""
        children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        return max(_status("VmHWM") - self._before, children)


def _status(name: str) -> int:
    """Return a size of this process in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"/proc/self/status has no {name}")
