"""The numbers in docs/a1.md are those of the code."""

from pathlib import Path

import pytest

from body_transformer.deploy.limits import A1 as HARDWARE
from body_transformer.deploy.robots.a1 import A1Options, A1Robot
from body_transformer.deploy.runtime_config import RuntimeConfig
from body_transformer.deploy.safety import Reason, SafetyConfig
from body_transformer.experiment import load_experiment

PAGE = (Path(__file__).parents[2] / "docs/a1.md").read_text(encoding="utf-8")
RUN, SAFE, A1 = RuntimeConfig(), SafetyConfig(clock_drift=A1Robot.clock_drift), A1Options()
DEPLOY = load_experiment("a1-walk").deploy
PERIOD_MS = 1000 / A1Robot.loop_hz


@pytest.mark.parametrize(
    "said",
    [
        f"Commands leave at {A1Robot.loop_hz:g} Hz",
        f"| `power_level=N` | {A1.power_level} |",
        f"| `position_limit=` | {str(A1.position_limit).lower()} |",
        f"| `--torque-fraction` | {SAFE.torque_fraction:g} |",
        f"| `--stale-ms` | {SAFE.stale_ms:g} |",
        f"| `--max-tilt-rad` | {SAFE.max_tilt_rad:.1f} |",
        f"| missed deadlines | {SAFE.missed_allowed(A1Robot.loop_hz)} | damping; each is a period of {PERIOD_MS:g} ms",
        f"{SAFE.start_states} good states in a row before anything moves; {RUN.start_s:g} s without",
        f"at most {SAFE.start_margin_rad:g} rad outside their limits",
        f"{RUN.hold_s:g} s in the default pose; if a joint is then {SAFE.reached_rad:g} rad away",
        f"damping after {SAFE.max_bad_states} unusable states in a row",
        f"{SAFE.range_margin_rad:g} rad outside the limits; {SAFE.max_velocity_factor:g} × the velocity, "
        f"{SAFE.max_torque_factor:g} × the torque limit; gyroscope over {SAFE.max_angular_velocity:g} rad/s",
        f"its speed predicts than {SAFE.jump_rad:g} rad plus a quarter of the way",
        f"beyond {SAFE.max_action:g} or not finite",
        f"kd {SAFE.damping_kd:g} Nm s/rad, no position gain, {RUN.damping_s:g} s in the loop and {A1.damping_s:g} s on",
        f"At least {RUN.ramp_s:g} s from where the legs are",
        f"no joint faster than {RUN.ramp_speed:g} rad/s",
        f"faster than {DEPLOY.velocity_limits['*_hip_joint']} (hip) or {DEPLOY.velocity_limits['*_calf_joint']} rad/s",
        f"**kp {DEPLOY.kp:g}, trained with {DEPLOY.training.kp:g}**; kd {DEPLOY.kd:g}",
        f"filter {DEPLOY.filter.cutoff_hz:g} Hz",
    ],
)
def test_a_number_on_the_page_is_that_of_the_code(said):
    assert said in " ".join(PAGE.split())


def test_the_page_has_the_limits_of_the_hardware():
    own = {part: HARDWARE.joints[f"FR_{part}_joint"] for part in ("hip", "thigh", "calf")}
    ranges = (
        f"hip ±{own['hip'].high:g}, thigh {own['thigh'].low:g} to {own['thigh'].high:g}, "
        f"calf {own['calf'].low:g} to {own['calf'].high:g} rad"
    ).replace("-", "−")
    speeds = f"{own['hip'].velocity:g} (hip) and {own['calf'].velocity:g} rad/s; {own['hip'].torque:g} Nm"
    gains = f"kp {HARDWARE.kp:g}, kd {HARDWARE.kd:g} ({HARDWARE.damping_kd:g} in damping)"
    assert f"{ranges}; {speeds}; {gains}." in PAGE


def test_the_binding_is_built_for_the_python_that_runs_it():
    assert "python3-config" not in PAGE
    assert """$(python -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')""" in PAGE


def test_the_page_has_advice_for_every_stop():
    stops = PAGE[PAGE.index("| stop | do |") :]
    for reason in Reason:
        assert reason < Reason.STATE_LOST or reason.text in stops


def test_the_page_shows_options_that_are_off_by_default_as_off():
    assert A1.position_margin_rad is None
    assert "| `position_margin_rad=` | off |" in PAGE
