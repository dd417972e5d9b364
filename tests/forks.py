"""Commands in forks of a process that has imported everything, which takes most of the time of a short command."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

FORKS = """
import json, os, runpy, sys
from importlib import import_module
from body_transformer.cli.main import main

for name in sys.argv[1:]:
    import_module(name)
for line in sys.stdin:
    arguments, output = json.loads(line)
    if not (pid := os.fork()):
        for number, name in ((1, output), (2, output + ".err")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        if arguments[0] != "python":
            sys.exit(main(arguments))
        sys.argv = arguments[1:]
        run = runpy.run_path if sys.argv[0].endswith(".py") else runpy.run_module
        run(sys.argv[0], run_name="__main__")
        sys.exit()
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Bot:
    """Runs one command at a time: the words after `bot`, or `python` and a module or a file with its arguments."""

    def __init__(self, output: Path, modules: Sequence[str], cwd: Path | None = None, **variables: str) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}  # two threads would sum in another order
        command = [sys.executable, "-c", FORKS, "torch.utils.tensorboard"]
        command += [f"body_transformer.{name}" for name in modules]
        self.parent = subprocess.Popen(
            command, cwd=cwd, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.output = output

    def start(self, arguments: list[str]) -> int:
        """Start a command and return the number of its process."""
        print(json.dumps([arguments, str(self.output)]), file=self.parent.stdin)
        return int(self.parent.stdout.readline())

    def wait(self) -> tuple[int, str]:
        """Return the exit status and the output, followed by that on standard error."""
        status = int(self.parent.stdout.readline())
        return status, self.output.read_text() + Path(f"{self.output}.err").read_text()


@contextmanager
def forking(output: Path, modules: Sequence[str], cwd: Path | None = None, **variables: str) -> Iterator[Bot]:
    """Return a process that has imported these modules of the package; it writes the commands' output to a file.

    Args:
        variables: additions to the environment.
    """
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    bot = Bot(output, modules, cwd, **variables)
    yield bot
    bot.parent.communicate(timeout=60)


def is_at_work(run: Path, pid: int) -> bool:
    """Return whether this process has locked the run."""
    lock = run / ".at_work"
    return lock.exists() and lock.read_text().strip() == str(pid)
