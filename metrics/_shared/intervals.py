"""Numbers with a 95% interval in closed form: shares, differences of shares and means, risks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol, final

import numpy as np
import numpy.typing as npt

from bench import CONFIDENCE, Metric, NotComputable, RefitMetric, Score

Array = npt.NDArray[np.float64]
AnyMetric = Metric | RefitMetric | type[Metric] | type[RefitMetric]

LEVEL = CONFIDENCE
"""Confidence level of every interval, bootstrap intervals included."""

QUANTILE = NormalDist().inv_cdf((1 + LEVEL) / 2)


@final
@dataclass(frozen=True)
class Interval:
    """A number with its 95% interval."""

    value: float
    low: float
    high: float

    def score(self, metric: AnyMetric, output: str) -> Score:
        """Return the score of an output of a metric."""
        return metric.score(output, self.value, self.low, self.high)


class Scorable(Protocol):
    """A number with an interval: `Interval` here, `Estimate` of a bootstrap."""

    def score(self, metric: AnyMetric, output: str) -> Score: ...


def score_or_reason(metric: AnyMetric, output: str, compute: Callable[[], Scorable]) -> Score:
    """Return the score of an output, or the reason why it is not computable."""
    try:
        return compute().score(metric, output)
    except NotComputable as reason:
        return metric.absent(output, str(reason))


def clopper_pearson(successes: int, trials: int) -> tuple[float, float]:
    """Exact 95% interval of a share."""
    return _exact_interval(successes, trials - successes)


def _exact_interval(successes: float, failures: float) -> tuple[float, float]:
    from scipy.stats import beta

    tail = (1 - LEVEL) / 2
    low = beta.ppf(tail, successes, failures + 1) if successes else 0.0
    high = beta.ppf(1 - tail, successes + 1, failures) if failures else 1.0
    return float(low), float(high)


def share(hits: npt.ArrayLike) -> Interval:
    """Share of rows, with a Clopper-Pearson interval."""
    yes = np.asarray(hits, dtype=np.bool_)
    count = int(np.count_nonzero(yes))
    return Interval(count / len(yes), *clopper_pearson(count, len(yes)))


def weighted_share(hits: npt.ArrayLike, weights: npt.ArrayLike) -> Interval:
    """Weighted share of rows, or of clusters of rows, with the interval of Korn and Graubard.

    It is Clopper-Pearson's with the effective number of trials, (sum of weights)^2 / sum of squared
    weights.
    """
    yes, weight = np.asarray(hits, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    value = min(1.0, float(yes @ weight / weight.sum()))
    trials = float(weight.sum() ** 2 / (weight @ weight))
    return Interval(value, *_exact_interval(value * trials, (1.0 - value) * trials))


def difference_of_shares(first: Interval, second: Interval) -> Interval:
    """First minus second of two independent shares, with the interval of Newcombe (1998).

    His method 10 squares and adds the two sides of both intervals; here they are Clopper-Pearson's,
    which are wider than the score intervals that he took.
    """
    value = first.value - second.value
    below = np.hypot(first.value - first.low, second.high - second.value)
    above = np.hypot(first.high - first.value, second.value - second.low)
    return Interval(value, float(value - below), float(value + above))


def difference_of_means(first: Array, second: Array) -> Interval:
    """First minus second mean of independent rows, with Welch's interval."""
    from scipy.stats import t

    value = float(first.mean() - second.mean())
    squared = [float(rows.var(ddof=1)) / len(rows) for rows in (first, second)]
    total = sum(squared)
    if not total:
        return Interval(value, value, value)
    freedom = total**2 / sum(
        part**2 / (len(rows) - 1) for part, rows in zip(squared, (first, second), strict=True)
    )
    reach = float(t.ppf((1 + LEVEL) / 2, freedom)) * total**0.5
    return Interval(value, value - reach, value + reach)


# Risks against control rows ----------------------------------------------------------------------
#
# Definitions of Giomi et al., "A unified framework for quantifying privacy risk in synthetic data",
# PoPETs 2023 (the `anonymeter` paper). One deviation: `anonymeter` clips a negative risk to 0. Here
# it stays negative, since means over seeds and splits of clipped values lie above 0 without any
# leak. Below 0 is chance, not privacy.


def success_rate(successes: float, attacks: float) -> Interval:
    """Wilson's estimate, (s + z^2/2) / (n + z^2), and interval, the same on both sides.

    The estimate leans towards one half. Rates that are to be compared need equal numbers of
    attacks, or the leaning alone makes a difference.
    """
    if attacks <= 0:
        raise ValueError("a success rate needs attacks")
    squared = QUANTILE**2
    spread = successes * (attacks - successes) / attacks
    value = (successes + squared / 2) / (attacks + squared)
    error = QUANTILE / (attacks + squared) * math.sqrt(max(0.0, spread) + squared / 4)
    return Interval(value, max(0.0, value - error), min(1.0, value + error))


def residual_risk(main: Interval, control: Interval) -> Interval:
    """(r_main - r_control) / (1 - r_control), the gain over what control rows would give anyway.

    Each end is sqrt((dR/dmain e_main)^2 + (dR/dcontrol e_control)^2) away from it, where e is how
    far the ends of the two rates are; for the lower end those that make the risk lower. (In the
    paper both sides are alike, as they are for Wilson's own intervals.) Ends above 1 are cut: no
    risk is above 1.
    """
    margin = 1.0 - control.value
    value = (main.value - control.value) / margin
    by_main, by_control = 1.0 / margin, (1.0 - main.value) / margin**2
    below = math.hypot(
        by_main * (main.value - main.low), by_control * (control.high - control.value)
    )
    above = math.hypot(
        by_main * (main.high - main.value), by_control * (control.value - control.low)
    )
    return Interval(value, value - below, min(1.0, value + above))
