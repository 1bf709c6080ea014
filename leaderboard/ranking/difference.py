"""The difference of two scores, with what is known about its error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from scipy import stats

_NORMAL = float(stats.norm.ppf(0.975))
"""Half the width of a 95% interval, in standard errors."""


@final
@dataclass(frozen=True)
class Component:
    """A part of the variance of a difference, and how well it is known."""

    variance: float
    freedom: float
    """Degrees of freedom; infinite where the variance is taken as known."""


@final
@dataclass(frozen=True)
class Difference:
    """First minus second, with its interval and two-sided p-value."""

    value: float
    low: float
    high: float
    p: float


def from_interval(low: float, high: float) -> Component:
    """Of a 95% interval from the test rows, read as that of a normal."""
    return Component(((high - low) / (2 * _NORMAL)) ** 2, math.inf)


def from_seeds(deviation: float, count: int) -> Component:
    """Of a mean over so many seeds (two or more) with this standard deviation."""
    return Component(deviation**2 / count, count - 1)


def difference(value: float, parts: Sequence[Component], alpha: float) -> Difference | None:
    """Student's test of a difference whose variance is the sum of independent parts.

    The degrees of freedom are those of Welch and Satterthwaite: V^2 / sum_i (V_i^2 / nu_i) for
    V = sum_i V_i. Without any part nothing is known about the error: None. Parts without any
    variance make every difference certain.
    """
    if not parts:
        return None
    variance = sum(part.variance for part in parts)
    if variance == 0:
        return Difference(value, value, value, 1.0 if value == 0 else 0.0)
    shares = sum((part.variance / variance) ** 2 / part.freedom for part in parts)
    freedom = 1 / shares if shares > 0 else math.inf
    error = math.sqrt(variance)
    reach = float(stats.t.ppf(1 - alpha / 2, freedom)) * error
    p = float(2 * stats.t.sf(abs(value) / error, freedom))
    return Difference(value, value - reach, value + reach, p)
