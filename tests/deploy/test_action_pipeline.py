"""The low-pass filter and the interpolation between an action and a command."""

import cmath
import math

import numpy as np
import pytest

from body_transformer.deploy.action_pipeline import Interpolation, LowPass
from body_transformer.deploy.control import butterworth


def analytic(frequency_hz: float, cutoff_hz: float, rate_hz: float) -> complex:
    """Return 1 / (s² + √2 s + 1) at the frequency that the bilinear transform maps to this one."""
    s = 1j * math.tan(math.pi * frequency_hz / rate_hz) / math.tan(math.pi * cutoff_hz / rate_hz)
    return 1 / (s * s + math.sqrt(2) * s + 1)


@pytest.mark.parametrize(("cutoff", "rate"), [(13, 50), (13, 200), (4, 50), (24, 50), (0.5, 500)])
def test_the_coefficients_have_the_analytic_response(cutoff, rate):
    b0, b1, b2, a1, a2 = butterworth(cutoff, rate)
    for frequency in np.linspace(0.001, 0.49, 40) * rate:
        z = cmath.exp(-2j * math.pi * frequency / rate)
        response = (b0 + b1 * z + b2 * z * z) / (1 + a1 * z + a2 * z * z)
        assert response == pytest.approx(analytic(frequency, cutoff, rate), abs=1e-9)


def test_the_coefficients_are_those_of_scipy():
    signal = pytest.importorskip("scipy.signal")
    for cutoff, rate in [(13, 50), (13, 200), (1, 500)]:
        b, a = signal.butter(2, cutoff, fs=rate)
        np.testing.assert_allclose(butterworth(cutoff, rate), [*b, *a[1:]], atol=1e-12)


@pytest.mark.parametrize("frequency", [0.5, 2, 5, 13, 20, 24])
def test_a_sine_comes_out_with_the_analytic_gain_and_delay(frequency):
    low_pass = LowPass(13, 50, 2)
    low_pass.reset([0, 0])
    time = np.arange(2000) / 50
    wave = np.sin(2 * np.pi * frequency * time)
    out = np.array([low_pass(np.array([x, -3 * x])).copy() for x in wave])[1000:]
    expected = analytic(frequency, 13, 50)
    settled = abs(expected) * np.sin(2 * np.pi * frequency * time[1000:] + cmath.phase(expected))
    np.testing.assert_allclose(out[:, 0], settled, atol=1e-9)
    np.testing.assert_allclose(out[:, 1], -3 * settled, atol=1e-9)


def test_after_a_reset_the_first_output_does_not_jump():
    pose = np.array([0.1, -2.6, 1.2])
    low_pass = LowPass(13, 50, 3)
    low_pass(np.array([5.0, 5.0, 5.0]))
    low_pass.reset(pose)
    for _ in range(5):
        np.testing.assert_allclose(low_pass(pose), pose, atol=1e-14)


@pytest.mark.parametrize("cutoff", [0, -1, 25, 30, math.nan, math.inf])
def test_an_impossible_cutoff_is_refused(cutoff):
    with pytest.raises(ValueError, match="needs a cutoff between 0 and 25 Hz"):
        butterworth(cutoff, 50)


def test_interpolation_goes_straight_to_the_target_and_arrives_on_the_last_tick():
    line = Interpolation(4, 1)
    line.reset([1.0])
    line.aim(np.array([3.0]))
    assert [float(line.at(k)[0]) for k in range(4)] == [1.5, 2.0, 2.5, 3.0]
    line.aim(np.array([2.0]))
    assert [float(line.at(k)[0]) for k in range(4)] == [2.75, 2.5, 2.25, 2.0]


def test_a_new_target_before_the_last_tick_does_not_make_interpolation_jump():
    line = Interpolation(4, 1)
    line.reset([0.0])
    line.aim(np.array([4.0]))
    assert line.at(1)[0] == 2.0  # then two ticks are missed
    line.aim(np.array([0.0]))
    assert line.at(0)[0] == 1.5


def test_with_one_tick_per_step_interpolation_is_the_target():
    line = Interpolation(1, 1)
    line.reset([0.0])
    line.aim(np.array([0.3]))
    assert line.at(0)[0] == 0.3
    with pytest.raises(ValueError, match="needs 1 tick or more"):
        Interpolation(0, 1)
