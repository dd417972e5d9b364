"""What is refused before a robot is touched."""

from dataclasses import replace

import pytest

from body_transformer.deploy.log import num_bytes
from body_transformer.deploy.runtime import Runtime
from body_transformer.deploy.runtime_config import RuntimeConfig
from body_transformer.deploy.safety import Reason, SafetyConfig

from .virtual_robot import SinePolicy, a1_contract, virtual_run


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e9, -5.01])
def test_a_command_that_no_policy_knows_is_refused(value):
    with pytest.raises(ValueError, match="a command's entries must be from -5 to 5; got"):
        RuntimeConfig(command=(0.5, value, 0.0))
    assert RuntimeConfig(command=(5.0, -5.0, 0.0)).command == (5.0, -5.0, 0.0)
    control = replace(a1_contract().control, command=(0.5, value, 0.0))
    with pytest.raises(ValueError, match="a command's entries must be from -5 to 5; got"):
        RuntimeConfig().policy_command(control)


def test_a_rate_beyond_all_robots_is_refused():
    with pytest.raises(ValueError, match=r"loop_hz must be at most 1000; got 1e\+06"):
        RuntimeConfig(loop_hz=1e6)


@pytest.mark.parametrize(
    ("hz", "allowed"), [(5.0, 1), (25.0, 3), (50.0, 5), (70.0, 7), (100.0, 10), (200.0, 20), (1000.0, 100)]
)
def test_missed_deadlines_are_allowed_for_100_ms_at_every_rate(hz, allowed):
    assert SafetyConfig().missed_allowed(hz) == allowed
    assert SafetyConfig(max_missed=3).missed_allowed(hz) == 3


@pytest.mark.parametrize("loop_hz", [50.0, 100.0, 400.0])
def test_a_loop_that_stands_still_for_100_ms_ends_the_run_at_every_rate(loop_hz):
    def late_by(seconds):
        class Slow(SinePolicy):
            def __call__(self, obs):
                if self.calls == 40:
                    self.time.now_s += seconds
                return super().__call__(obs)

        stop = virtual_run(policy=Slow(), loop_hz=loop_hz, safety=SafetyConfig(stale_ms=1000.0))[0].run().stop
        return None if stop is None else stop.reason

    assert late_by(0.1 + 0.5 / loop_hz) is Reason.LATE_LOOP
    assert late_by(0.1 - 1.5 / loop_hz) is None


def test_a_rate_that_the_robot_does_not_take_is_refused():
    _, robot = virtual_run()
    robot.rates_hz = (100.0, 1000.0)
    with pytest.raises(ValueError, match=r"this robot takes 100 to 1000 commands per second .*; got 50"):
        Runtime(a1_contract(), SinePolicy(), robot)
    assert robot.sent == []


def test_a_log_that_does_not_fit_into_memory_is_refused(monkeypatch):
    monkeypatch.setattr("body_transformer.deploy.runtime.memory", lambda: 1e9)
    with pytest.raises(ValueError, match=r"the log would take 2\.\d GB, more than half of this computer's"):
        virtual_run(loop_hz=1000.0, seconds=1195.0)


def test_the_memory_of_a_log_is_known_beforehand():
    runtime, _ = virtual_run()
    arrays = runtime.log.arrays.values()
    assert sum(array.nbytes for array in arrays) == num_bytes(runtime.log.capacity, 12, 48)
