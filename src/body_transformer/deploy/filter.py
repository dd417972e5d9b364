"""Smooth joint targets: a low-pass filter at the policy's rate, and the way between two policy steps."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

Vector = NDArray[np.float64]


def butterworth(cutoff_hz: float, rate_hz: float) -> tuple[float, float, float, float, float]:
    """b0, b1, b2, a1, a2 of the second-order low-pass y = b0 x + b1 x₋₁ + b2 x₋₂ - a1 y₋₁ - a2 y₋₂.

    The analog 1 / (s² + √2 s + 1), by the bilinear transform; the tangent puts -3 dB exactly at the cutoff.
    """
    if not (math.isfinite(cutoff_hz) and math.isfinite(rate_hz) and 0 < cutoff_hz < rate_hz / 2):
        raise ValueError(
            f"a low-pass filter at {rate_hz:g} Hz needs a cutoff between 0 and {rate_hz / 2:g} Hz, not {cutoff_hz:g}"
        )
    k = math.tan(math.pi * cutoff_hz / rate_hz)
    scale = 1 / (1 + math.sqrt(2) * k + k * k)
    b0 = k * k * scale
    return b0, 2 * b0, b0, 2 * (k * k - 1) * scale, (1 - math.sqrt(2) * k + k * k) * scale


class LowPass:
    """Second-order Butterworth for a vector [J], in place (transposed direct form II)."""

    def __init__(self, cutoff_hz: float, rate_hz: float, size: int) -> None:
        self.b0, self.b1, self.b2, self.a1, self.a2 = butterworth(cutoff_hz, rate_hz)
        self._first, self._second = np.zeros(size), np.zeros(size)
        self._output, self._product = np.zeros(size), np.zeros(size)

    def reset(self, value: ArrayLike) -> None:
        """As if `value` had come in for ever: the next output does not jump."""
        given = np.asarray(value, np.float64)
        self._first[:] = given * (1 - self.b0)
        self._second[:] = given * (self.b2 - self.a2)

    def __call__(self, value: Vector) -> Vector:
        """The filtered value [J]; the array is the filter's own and changes with the next call."""
        output, product = self._output, self._product
        np.multiply(value, self.b0, out=output)
        output += self._first
        np.multiply(value, self.b1, out=self._first)
        np.multiply(output, self.a1, out=product)
        self._first -= product
        self._first += self._second
        np.multiply(value, self.b2, out=self._second)
        np.multiply(output, self.a2, out=product)
        self._second -= product
        return output


class Interpolation:
    """The straight line from one policy step's target to the next, walked in `steps` ticks; it arrives on the last."""

    def __init__(self, steps: int, size: int) -> None:
        if steps < 1:
            raise ValueError(f"a policy step has at least one tick, not {steps}")
        self.steps = steps
        self._start, self._end, self._now = np.zeros(size), np.zeros(size), np.zeros(size)

    def reset(self, value: ArrayLike) -> None:
        self._start[:] = self._end[:] = self._now[:] = np.asarray(value, np.float64)

    def aim(self, target: Vector) -> None:
        """A new end; the line starts where it is now."""
        self._start[:] = self._now
        self._end[:] = target

    def at(self, tick: int) -> Vector:
        """Where it is in tick 0 … steps - 1 after `aim`; the array is its own and changes with the next call."""
        if tick + 1 >= self.steps:
            self._now[:] = self._end  # exactly, whatever the rounding
            return self._now
        np.subtract(self._end, self._start, out=self._now)
        self._now *= (tick + 1) / self.steps
        self._now += self._start
        return self._now
