"""Stop signals: what they do to commands, to loops that save first, and to worker processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from body_transformer.training.stopping import Saver, Stopped, StopRequest

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


SIGNALS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@SIGNALS
def test_a_loop_saves_after_the_step_in_which_a_signal_comes(number):
    saved, saver = [], Saver(lambda: saved.append("state"), every_s=1e9, run=Path("runs/a"))

    def loop() -> None:
        with StopRequest() as stop:
            saver.after(0, stop, "cpu")
            send(number)
            saver.after(1, stop, "cpu")

    with pytest.raises(Stopped, match=r"stopped by .* at step 1; continue with --resume runs/a") as stopped:
        loop()
    assert saved == ["state"]
    assert stopped.value.number == number


@SIGNALS
def test_a_second_signal_ends_a_loop_at_once(number):
    def loop() -> None:
        with StopRequest():
            send(signal.SIGTERM)
            send(number)
            pytest.fail("the loop goes on")

    with pytest.raises(Stopped):
        loop()


def test_a_signal_that_no_step_follows_still_stops_the_command():
    with pytest.raises(Stopped, match="stopped by SIGTERM"), StopRequest():
        send(signal.SIGTERM)


@pytest.mark.parametrize("is_late", [False, True])
def test_when_nothing_is_left_to_save_a_signal_raises_at_once(is_late):
    def loop() -> None:
        with StopRequest() as stop:
            if not is_late:
                send(signal.SIGINT)
            stop.end("; continue")
            send(signal.SIGINT)
            pytest.fail("the command goes on")

    with pytest.raises(Stopped, match="stopped by Ctrl-C; continue"):
        loop()


TWICE = """
import sys, time
from body_transformer.training.stopping import stopped_by_signals

with stopped_by_signals():
    try:
        print("runs", flush=True)
        time.sleep(60)
    finally:
        print("saves", flush=True)
        time.sleep(60)
"""


@SIGNALS
def test_a_second_signal_ends_a_process_at_once_even_while_it_saves(number):
    process = subprocess.Popen([sys.executable, "-c", TWICE], stdout=subprocess.PIPE, text=True)
    for line in ("runs", "saves"):
        assert process.stdout.readline() == f"{line}\n"
        process.send_signal(number)
    begun = time.monotonic()
    assert process.wait(30) == 128 + number
    assert time.monotonic() - begun < 20
    process.stdout.close()
