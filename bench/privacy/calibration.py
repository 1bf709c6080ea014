"""The smallest noise that keeps a ledger within its target."""

from __future__ import annotations

import math
from collections.abc import Callable

from bench.errors import CalibrationError

_TOLERANCE = 1e-3
"""Stop when the epsilon is within this share below the target."""
_NOISE_AT_MOST = 1e6


def smallest_noise(
    epsilon: Callable[[float], float], target: float, quick: Callable[[float], float] | None = None
) -> float:
    """Smallest noise multiplier with `epsilon(noise) <= target`, to 0.1% of the target.

    `epsilon` must not increase with noise; `quick`, if given, is a cheaper upper bound of it
    that brackets the answer first. What is returned always satisfies the target.
    """
    noise = 1.0
    if quick is not None:
        noise = _search(quick, target, noise, rough=True)
    return _search(epsilon, target, noise, rough=False)


def _search(
    epsilon: Callable[[float], float], target: float, start: float, *, rough: bool
) -> float:
    low, high = _bracket(epsilon, target, start)
    if low == 0.0:
        return high[0]
    tolerance = 0.02 if rough else _TOLERANCE
    left = (math.log(low), _log_ratio(epsilon(low), target))
    right = (math.log(high[0]), _log_ratio(high[1], target))
    for step in range(60):
        if right[1] >= math.log1p(-tolerance) or right[0] - left[0] < 1e-9:
            break
        # Regula falsi on log noise against log epsilon (nearly a straight line), with a bisection
        # every third step so that neither end can stick; aim a little inside the target.
        aim = math.log1p(-tolerance / 2)
        span = left[1] - right[1]
        share = 0.5 if step % 3 == 2 else (left[1] - aim) / span
        point = left[0] + min(max(share, 0.02), 0.98) * (right[0] - left[0])
        value = epsilon(math.exp(point))
        at = (point, _log_ratio(value, target))
        if value <= target:
            right = at
        else:
            left = at
    return math.exp(right[0])


def _log_ratio(epsilon: float, target: float) -> float:
    """Finite also where epsilon is 0 (all of it within delta) or infinite."""
    return min(max(math.log(max(epsilon, 1e-300) / target), -50.0), 50.0)


def _bracket(
    epsilon: Callable[[float], float], target: float, start: float
) -> tuple[float, tuple[float, float]]:
    """(too little noise, (enough noise, its epsilon)); the first is 0 if any noise is enough."""
    noise, value = start, epsilon(start)
    if value <= target:
        while value <= target:
            enough = (noise, value)
            noise /= 1.25 if value > 0.8 * target else 2.0
            if noise < 1e-3:
                return 0.0, enough
            value = epsilon(noise)
        return noise, enough
    while value > target:
        low = noise
        noise *= 1.25 if value < 1.2 * target else 2.0
        if noise > _NOISE_AT_MOST:
            raise CalibrationError(
                f"even a noise multiplier of {_NOISE_AT_MOST:g} spends more than epsilon {target:g}"
                "; what was charged before leaves nothing to spend"
            )
        value = epsilon(noise)
    return low, (noise, value)
