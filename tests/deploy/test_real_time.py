"""The repetition of timed tests distinguishes a pause of the computer from slow code."""

import os
import signal
import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from . import real_time
from .real_time import ATTEMPTS, PAUSE_S, in_real_time, pauses


def test_a_pause_is_noticed():
    with pauses() as longest:
        os.kill(longest.process.pid, signal.SIGSTOP)
        time.sleep(0.1)
        os.kill(longest.process.pid, signal.SIGCONT)
    assert longest.s > 0.09


@pytest.mark.parametrize(("pause_s", "attempts"), [(0.5 * PAUSE_S, 1), (2 * PAUSE_S, ATTEMPTS)])
def test_a_failure_counts_at_once_unless_the_computer_paused(monkeypatch, pause_s, attempts):
    monkeypatch.setattr(real_time, "pauses", lambda: nullcontext(SimpleNamespace(s=pause_s)))
    made = []

    @in_real_time
    def failing(word):
        made.append(word)
        raise AssertionError(word)

    with pytest.raises(AssertionError, match="late"):
        failing(word="late")
    assert made == ["late"] * attempts
