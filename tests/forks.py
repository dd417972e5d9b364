"""`bot` commands in forks of a process that has imported everything, to be stopped and killed."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

FORKS = """
import json, os, sys
from importlib import import_module
from body_transformer.cli.main import main

for name in sys.argv[1:]:
    import_module(name)
for line in sys.stdin:
    arguments, output = json.loads(line)
    if not (pid := os.fork()):
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1), os.dup2(file, 2)
        sys.exit(main(arguments))
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Bot:
    """Runs one `bot` command at a time."""

    def __init__(self, output: Path, modules: Sequence[str]) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # two threads would sum in another order
        command = [sys.executable, "-c", FORKS, "torch.utils.tensorboard"]
        command += [f"body_transformer.{name}" for name in modules]
        self.parent = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.output = output

    def start(self, arguments: list[str]) -> int:
        """Start a command and return the number of its process."""
        print(json.dumps([arguments, str(self.output)]), file=self.parent.stdin)
        return int(self.parent.stdout.readline())

    def wait(self) -> tuple[int, str]:
        """Return the exit status and the output."""
        status = int(self.parent.stdout.readline())
        return status, self.output.read_text()


@contextmanager
def forking(output: Path, modules: Sequence[str]) -> Iterator[Bot]:
    """Return a process that has imported these modules of the package; it writes the commands' output to a file."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    bot = Bot(output, modules)
    yield bot
    bot.parent.communicate(timeout=60)


def is_at_work(run: Path, pid: int) -> bool:
    """Return whether this process has locked the run."""
    lock = run / ".at_work"
    return lock.exists() and lock.read_text().strip() == str(pid)
