"""Intervals in closed form."""

from __future__ import annotations

from bench.metrics._shared import bootstrap as _bootstrap


def clopper_pearson(successes: int, trials: int) -> tuple[float, float]:
    """Exact 95% interval of a share."""
    from scipy.stats import beta

    tail = (1 - _bootstrap.LEVEL) / 2
    failures = trials - successes
    low = beta.ppf(tail, successes, failures + 1) if successes else 0.0
    high = beta.ppf(1 - tail, successes + 1, failures) if failures else 1.0
    return float(low), float(high)
