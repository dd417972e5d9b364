"""Stop signals and worker processes."""

import subprocess
import sys

import pytest

PROGRAM = """
import multiprocessing, signal
from body_transformer.training.stopping import signals_held

def held(line):
    line.send([number.name for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())])

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    for _ in range(2):
        ours, theirs = context.Pipe()
        with signals_held():
            process = context.Process(target=held, args=(theirs,))
            process.start()
        print(*sorted(ours.recv()))
        process.join()
    print(*signal.pthread_sigmask(signal.SIG_BLOCK, ()))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signal masks")
def test_every_worker_process_blocks_stop_signals_the_first_one_included(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    run = subprocess.run([sys.executable, str(tmp_path / "program.py")], capture_output=True, text=True, check=True)
    assert run.stdout == "SIGINT SIGTERM\nSIGINT SIGTERM\n\n"
