"""The line that `bot deploy` shows while it runs."""

import math
import os
import struct
import sys
from dataclasses import replace

import pytest

from body_transformer.cli.live_line import cut, status_line, width
from body_transformer.deploy.plan import Phase
from body_transformer.deploy.runtime import Status
from body_transformer.deploy.safety import Reason, Stop

from .virtual_robot import virtual_run


def test_the_live_line_says_rate_latency_state_and_interventions():
    now = Status(Phase.POLICY, 12.34, 99.96, 0.512, 1.26, 20.04, 7, 2, None)
    assert status_line(now) == (
        "policy     12.3 s  100.0 Hz  step  0.51 ms  link  20.0 ms  state   1.3 ms old  missed 2  interventions 7"
    )
    gone = replace(now, round_trip_ms=math.nan, stop=Stop(Reason.STATE_LOST, "110 ms"))
    assert "link     –  state" in status_line(gone)
    assert status_line(gone).startswith("policy     12.3 s  state lost: 110 ms   100.0 Hz")  # it is cut off last


@pytest.mark.parametrize("columns", [1, 2, 10, 80, 104, 105, 200])
def test_the_live_line_leaves_the_last_column_free(columns):
    line = "x" * 104
    assert len(cut(line, columns)) <= max(columns - 1, 1)
    assert cut(line, 105) == line
    assert cut(line, 104) == "x" * 102 + "…"


@pytest.mark.parametrize(("columns", "expected"), [(60, 60), (0, 80)])
def test_the_width_is_that_of_the_terminal_on_standard_error(monkeypatch, columns, expected):
    import fcntl
    import termios

    near, far = os.openpty()
    fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with os.fdopen(far, "w") as screen, os.fdopen(near, "rb"):
        monkeypatch.setattr(sys, "stderr", screen)
        assert width() == expected


@pytest.mark.parametrize(("trip_s", "shown_ms"), [(-0.0011, 0.0), (0.002, 2.0), (math.nan, math.nan)])
def test_a_latency_is_never_below_0(trip_s, shown_ms):
    """A simulated robot that was late catches up: its clock tells more time than went by."""
    runtime, robot = virtual_run()
    robot.round_trip_s = trip_s
    assert runtime.status().round_trip_ms == pytest.approx(shown_ms, nan_ok=True)
