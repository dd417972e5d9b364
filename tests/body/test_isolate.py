"""Crashes of the process that reads robot files do not affect its caller."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from body_transformer import BodyGraph
from body_transformer.body import isolate
from body_transformer.body.isolate import _Reader

ROBOT = '<mujoco><worldbody><body name="arm"><joint name="lift"/><body name="hand"/></body></worldbody></mujoco>'

pytestmark = pytest.mark.skipif(
    os.name != "posix", reason="without POSIX pipes, files are read in the caller's process"
)


@pytest.fixture(autouse=True)
def _fresh_reader() -> Iterator[None]:
    yield
    if _Reader._current is not None:
        _Reader._current.stop()


def read() -> tuple[str, ...]:
    return BodyGraph.from_xml(ROBOT).nodes


def stand_in(program: str) -> _Reader:
    """Replace the current reader by a process that runs `program`."""
    fake = _Reader()
    fake.process.kill()
    fake.process.communicate()
    fake.process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    _Reader._current = fake
    return fake


def test_one_reader_serves_many_requests() -> None:
    read()
    first = _Reader.current().process.pid
    assert read() == ("arm", "hand")
    assert _Reader.current().process.pid == first


def test_a_crash_is_a_value_error_and_the_next_file_is_read() -> None:
    stand_in("import os, sys; sys.stdin.readline(); os.kill(os.getpid(), 11)")
    with pytest.raises(ValueError, match=r"^the given text crashes MuJoCo's parser \(SIGSEGV\): it is malformed$"):
        read()
    assert read() == ("arm", "hand")


def test_a_file_that_takes_too_long_is_a_value_error_and_the_next_one_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolate, "TIMEOUT_S", 1e-6)
    with pytest.raises(ValueError, match="keeps MuJoCo's parser busy for over 0 s"):
        read()
    monkeypatch.undo()
    assert read() == ("arm", "hand")


def test_a_reader_killed_between_requests_is_replaced() -> None:
    read()
    process = _Reader.current().process
    process.kill()
    process.wait()
    assert read() == ("arm", "hand")


def test_a_reader_that_exits_at_a_request_is_replaced() -> None:
    stand_in("import sys; sys.stdin.readline()")
    assert read() == ("arm", "hand")


def test_an_idle_reader_exits() -> None:
    program = "from body_transformer.body import isolate; isolate.IDLE_S = 0.1; isolate.serve()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as process:
        assert process.wait(timeout=20) == 0


def test_a_reader_ends_with_its_caller() -> None:
    program = (
        "from body_transformer import BodyGraph; from body_transformer.body.isolate import _Reader\n"
        f"BodyGraph.from_xml({ROBOT!r}); print(_Reader.current().process.pid)"
    )
    result = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True)
    assert result.stderr == ""
    with pytest.raises(ProcessLookupError):
        os.kill(int(result.stdout), 0)


def test_a_reader_ends_when_its_caller_is_killed() -> None:
    program = (
        "import os; from body_transformer import BodyGraph; from body_transformer.body.isolate import _Reader\n"
        f"BodyGraph.from_xml({ROBOT!r}); print(_Reader.current().process.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    pid = int(subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True).stdout)
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
        assert time.monotonic() < deadline, "the reader outlives its caller"
        time.sleep(0.05)


def test_a_forked_child_starts_its_own_reader() -> None:
    program = (
        "import os, sys; from body_transformer import BodyGraph; from body_transformer.body.isolate import _Reader\n"
        f"BodyGraph.from_xml({ROBOT!r}); mine = _Reader.current().process.pid\n"
        "child = os.fork()\n"
        f"nodes = BodyGraph.from_xml({ROBOT!r}).nodes\n"
        "if child == 0: os._exit(int(nodes != ('arm', 'hand') or _Reader.current().process.pid == mine))\n"
        "sys.exit(os.waitpid(child, 0)[1] or int(_Reader.current().process.pid != mine))"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


def test_an_interrupted_request_leaves_no_reply_behind() -> None:
    busy = stand_in("import time; time.sleep(60)")
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        read()
    assert busy.process.returncode == -signal.SIGKILL
    assert read() == ("arm", "hand")


def test_control_c_does_not_reach_the_reader() -> None:
    read()
    assert os.getsid(_Reader.current().process.pid) != os.getsid(0)


def test_relative_paths_start_at_the_callers_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read()
    (tmp_path / "hand.xml").write_text('<mujoco><body name="hand"/></mujoco>')
    (tmp_path / "robot.xml").write_text(ROBOT.replace('<body name="hand"/>', '<include file="hand.xml"/>'))
    monkeypatch.chdir(tmp_path)
    assert BodyGraph.from_file("robot.xml").nodes == ("arm", "hand")


def test_a_model_that_attaches_itself_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "ouroboros.xml"
    file.write_text(f'<mujoco><asset><model name="m" file="{file}"/></asset>{ROBOT[len("<mujoco>") :]}')
    with pytest.raises(ValueError, match="ouroboros"):
        BodyGraph.from_file(file)
    assert read() == ("arm", "hand")


@pytest.mark.parametrize("limit_kib", [2_000_000, 6_000_000])
def test_a_lower_memory_limit_of_the_caller_is_kept(limit_kib: int) -> None:
    program = (
        f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({limit_kib} * 1024,) * 2)\n"
        "from body_transformer import BodyGraph\n"
        f"assert BodyGraph.from_xml({ROBOT!r}).nodes == ('arm', 'hand')"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_an_error_in_the_package_is_not_reported_as_a_malformed_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(*args: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr("body_transformer.body.description.parse", mistaken)
    reply = isolate.answer({"source": {"text": ROBOT}, "options": [], "folder": "."})
    assert reply == {"failed": "reading the given text failed: KeyError: 'oops'", "leave": True}


def test_a_reader_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(RuntimeError, match="the process that reads robot files ended with status 1"):
        read()


def test_a_deleted_working_folder_does_not_matter_for_an_absolute_path(tmp_path: Path) -> None:
    (tmp_path / "robot.xml").write_text(ROBOT)
    gone = tmp_path / "gone"
    gone.mkdir()
    program = (
        f"import os; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r}); from body_transformer import BodyGraph\n"
        f"assert BodyGraph.from_file({str(tmp_path / 'robot.xml')!r}).nodes == ('arm', 'hand')"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("name", ["robot.mjcf", "ROBOT.XML", "robot", "robot.txt"])
def test_a_file_may_have_any_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "hand.xml").write_text('<mujoco><body name="hand"/></mujoco>')
    (tmp_path / name).write_text(ROBOT.replace('<body name="hand"/>', '<include file="hand.xml"/>'))
    assert BodyGraph.from_file(tmp_path / name).nodes == ("arm", "hand")


def test_a_root_that_is_not_a_string_is_named_in_the_error() -> None:
    with pytest.raises(ValueError, match="unknown root body 'leg'; have: 'arm', 'hand'"):
        BodyGraph.from_xml(ROBOT, root=Path("leg"))  # type: ignore[arg-type]
