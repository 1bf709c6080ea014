"""From counts of a two-world attack to a lower bound on epsilon.

An (epsilon, delta)-DP method obeys, for every attack with true and false positive rates t and a,

    t <= e^epsilon a + delta    and    1 - a <= e^epsilon (1 - t) + delta

(Kairouz, Oh and Viswanath 2015, Theorem 2.1). Trials are independent, so both counts are binomial,
and a one-sided Clopper-Pearson end for each of t and a, at half the error, holds for both at once.
The two inequalities use the same two ends: no further correction is needed for taking the better.

`epsilon_bound` and `gaussian_bound` are these rectangles of two ends. The p-values come from an
exact test of both counts together (`exact_test`), and `sharp_bound` is its inversion: the same
guarantee, never below `epsilon_bound`, and above it most where epsilon is small.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench.errors import InputError
from bench.stats.exact_test import (
    Frontier,
    clopper_pearson_high,
    clopper_pearson_low,
    exact_p_value,
    rejects,
)
from bench.stats.tally import Tally as Tally

Floats = npt.NDArray[np.float64]

_EPSILON_AT_MOST = 100.0
"""Beyond every ceiling: showing epsilon 100 would take e^100 trials."""


def epsilon_bound(tally: Tally, delta: float, confidence: float = 0.95) -> float:
    """Epsilon is at least this, at the given delta, with probability `confidence`.

    The larger of log((t_low - delta) / a_high) and log((1 - a_high - delta) / (1 - t_low)), never
    below 0, with ends that each fail with probability (1 - confidence) / 2.
    """
    _check(delta, confidence)
    low, high = _ends(tally, confidence)
    return max(0.0, float(_log_ratio(low, high, delta)))


def ceiling(positives: int, negatives: int, delta: float, confidence: float = 0.95) -> float:
    """The largest `epsilon_bound` that so many trials can show: that of an attack without error."""
    return epsilon_bound(Tally(positives, positives, 0, negatives), delta, confidence)


def gaussian_bound(tally: Tally, delta: float, confidence: float = 0.95) -> float:
    """Epsilon is at least this *if* the method is a Gaussian mechanism of unknown noise.

    A composition of full-batch Gaussians has the trade-off curve of N(0, 1) against N(mu, 1)
    (Dong, Roth and Su 2022, Corollary 3.3), so mu >= Phi^-1(t_low) - Phi^-1(a_high), and mu gives
    epsilon at delta exactly. For other methods the number means nothing: it reads a small epsilon
    at large delta as a large epsilon at small delta.
    """
    _check(delta, confidence)
    low, high = _ends(tally, confidence)
    return gaussian_epsilon(max(0.0, float(_gaps(low, high))), delta)


def p_value(tally: Tally, epsilon: float, delta: float) -> float:
    """p-value of "the method is (epsilon, delta)-DP"; 1 where nothing speaks against it.

    Exact, and never above the smallest 1 - confidence at which `epsilon_bound` exceeds epsilon.
    """
    _check(delta, 0.5)
    if math.isinf(epsilon):
        return 1.0
    return exact_p_value(tally, private_frontier(epsilon, delta))


def gaussian_p_value(tally: Tally, epsilon: float, delta: float) -> float:
    """p-value of "a Gaussian mechanism with this exact epsilon at delta": see `gaussian_bound`."""
    if math.isinf(epsilon):
        return 1.0
    return exact_p_value(tally, gaussian_frontier(gaussian_mu(epsilon, delta)))


def sharp_bound(tally: Tally, delta: float, confidence: float = 0.95) -> float:
    """The epsilon that `p_value` just rejects at 1 - confidence: at least `epsilon_bound`."""
    start = epsilon_bound(tally, delta, confidence)
    return _inverted(
        lambda epsilon: rejects(tally, private_frontier(epsilon, delta), 1 - confidence), start
    )


def sharp_gaussian_bound(tally: Tally, delta: float, confidence: float = 0.95) -> float:
    """The same through the Gaussian curve: at least `gaussian_bound`, valid where that is."""
    _check(delta, confidence)

    def rejected(mu: float) -> bool:
        return rejects(tally, gaussian_frontier(mu), 1 - confidence)

    low, high = _ends(tally, confidence)
    start = max(0.0, float(_gaps(low, high)))
    return gaussian_epsilon(_inverted(rejected, start), delta)


def sharp_ceiling(positives: int, negatives: int, delta: float, confidence: float = 0.95) -> float:
    """The largest `sharp_bound` that so many trials can show."""
    return sharp_bound(Tally(positives, positives, 0, negatives), delta, confidence)


def private_frontier(epsilon: float, delta: float) -> Frontier:
    """Largest true positive rate at each false positive rate under (epsilon, delta)-DP."""

    def frontier(false: Floats) -> Floats:
        called_in = math.exp(epsilon) * false + delta
        called_out = 1.0 - math.exp(-epsilon) * (1.0 - delta - false)
        return np.clip(np.minimum(called_in, called_out), 0.0, 1.0)

    return frontier


def gaussian_frontier(mu: float) -> Frontier:
    """The same for N(0, 1) against N(mu, 1)."""
    from scipy.special import ndtr, ndtri

    def frontier(false: Floats) -> Floats:
        return np.asarray(ndtr(ndtri(false) + mu), dtype=np.float64)

    return frontier


def gaussian_delta(mu: float, epsilon: float) -> float:
    """delta(epsilon) of N(0, 1) against N(mu, 1): Balle and Wang 2018, Theorem 8, with mu = 1/s."""
    from scipy.special import log_ndtr

    if mu <= 0.0:
        return 0.0
    first = float(log_ndtr(mu / 2 - epsilon / mu))
    second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return math.exp(first) * -math.expm1(min(second - first, 0.0))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The exact epsilon at delta of a Gaussian mechanism with sensitivity / noise = mu."""
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    if delta <= 0.0:
        return math.inf
    # delta(epsilon) falls; mu^2 / 2 + mu z is beyond the tail Phi(-z) that is left.
    high = mu * mu / 2 + mu * (1.0 + math.sqrt(-2.0 * math.log(delta)))
    return bisected(lambda epsilon: gaussian_delta(mu, epsilon) > delta, 0.0, high)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The inverse of `gaussian_epsilon`: the largest mu that is (epsilon, delta)-DP."""
    if not 0.0 < delta < 1.0:
        raise InputError(f"delta {delta}: a Gaussian mechanism needs one between 0 and 1")
    high = 1.0
    while gaussian_delta(high, epsilon) <= delta:
        high *= 2.0
    return bisected(lambda mu: gaussian_delta(mu, epsilon) <= delta, 0.0, high)


def bisected(holds: Callable[[float], bool], low: float, high: float, steps: int = 100) -> float:
    """The last point where `holds`, which must hold at `low` side first and then no more."""
    for _ in range(steps):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


def _ends(tally: Tally, confidence: float) -> tuple[float, float]:
    error = (1.0 - confidence) / 2
    low = clopper_pearson_low(tally.hits, tally.positives, error)
    high = clopper_pearson_high(tally.false_alarms, tally.negatives, error)
    return float(low), float(high)


def _gaps(low: npt.ArrayLike, high: npt.ArrayLike) -> Floats:
    """Phi^-1(low) - Phi^-1(high), a bound on mu; not above 0 where an end says nothing."""
    from scipy.special import ndtri

    low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    telling = (low > 0.0) & (high < 1.0)
    return np.where(
        telling, ndtri(np.where(telling, low, 0.5)) - ndtri(np.where(telling, high, 0.5)), -np.inf
    )


def _inverted(rejected: Callable[[float], bool], start: float) -> float:
    """The last rejected value, from a `start` that is known to be rejected or 0."""
    if start == 0.0 and not rejected(0.0):
        return 0.0
    step = 0.25
    while start + step < _EPSILON_AT_MOST and rejected(start + step):
        start += step
        step *= 2.0
    found = bisected(rejected, start, start + step, steps=10)
    # Counts are whole, so the p-value can dip by a hair; a bound must not lie beyond such a dip.
    for share in (0.5, 0.75, 0.875, 0.94, 0.97):
        earlier = start + share * (found - start)
        if not rejected(earlier):
            return bisected(rejected, start, earlier, steps=10)
    return found


def _log_ratio(low: npt.ArrayLike, high: npt.ArrayLike, delta: float) -> Floats:
    """The better of both inequalities, also below 0; -inf where delta explains everything."""
    low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        called_in = np.where(low > delta, np.log((low - delta) / high), -np.inf)
        called_out = np.where(1 - high > delta, np.log((1 - high - delta) / (1 - low)), -np.inf)
    return np.maximum(called_in, called_out)


def _check(delta: float, confidence: float) -> None:
    if not 0.0 <= delta < 1.0:
        raise InputError(f"delta {delta} is not in [0, 1)")
    if not 0.0 < confidence < 1.0:
        raise InputError(f"confidence {confidence} is not between 0 and 1; 0.95 is usual")


@final
@dataclass(frozen=True)
class Threshold:
    """A rule that calls `in` on one side of a score, and how good it looked where it was chosen."""

    value: float
    above: bool
    """True: `in` means score >= value. False: `in` means score < value."""
    bound: float
    """To compare scorers: above 0 the epsilon (mu) bound on the trials that chose, else minus the
    p-value of no difference at all. Too good to be reported: it was picked as the largest."""

    def calls(self, scores: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """True for trials called `in`."""
        reached = _scores(scores) >= self.value
        return reached if self.above else ~reached

    def tally(self, inside: npt.ArrayLike, outside: npt.ArrayLike) -> Tally:
        """Counts on scores of trials with and without the canary, other than those that chose."""
        hits, alarms = self.calls(inside), self.calls(outside)
        return Tally(int(hits.sum()), len(hits), int(alarms.sum()), len(alarms))


def best_threshold(
    inside: npt.ArrayLike,
    outside: npt.ArrayLike,
    delta: float,
    confidence: float = 0.95,
    gaussian: bool = False,
) -> Threshold:
    """The cut and side with the largest epsilon bound on these scores, which it uses up.

    Every cut between neighbouring different scores is tried, at their middle, on both sides, in
    O(n log n). Ends are at a tenth of the reported error: the largest of many bounds is a lucky
    one, the more so in the tails (over Gaussian, Laplace, sampled and copying mechanisms this chose
    better than the reported error or a larger one). Where no cut shows a positive epsilon (few
    trials, small epsilon) the one that most surely tells the worlds apart is taken: the largest
    two-sample z. With `gaussian` it is the largest mu, for tests against the curve of a Gaussian or
    of many small steps: such cuts lie in the middle, where counts are large. Ends are at a 500th of
    the error then: at a tenth, one of thirty audits of halved noise took a lucky cut far out.
    """
    _check(delta, confidence)
    inside, outside = np.sort(_scores(inside)), np.sort(_scores(outside))
    values = np.unique(np.concatenate([inside, outside]))
    if len(values) < 2:
        return Threshold(float(values[0]), True, -1.0)
    with np.errstate(invalid="ignore"):
        middles = values[:-1] / 2 + values[1:] / 2
    # Next to an infinite score, or where the middle rounds down: cut at the upper score itself.
    usable = np.isfinite(middles) & (middles > values[:-1])
    cuts = np.where(usable, middles, values[1:])
    above = np.array([True, False])[:, None]
    hits = len(inside) - np.searchsorted(inside, cuts, side="left")
    alarms = len(outside) - np.searchsorted(outside, cuts, side="left")
    hits = np.where(above, hits, len(inside) - hits)
    alarms = np.where(above, alarms, len(outside) - alarms)
    error = (1.0 - confidence) / (500 if gaussian else 10)
    low = clopper_pearson_low(hits, len(inside), error)
    high = clopper_pearson_high(alarms, len(outside), error)
    bounds = _gaps(low, high) if gaussian else _log_ratio(low, high, delta)
    same = _same(hits, len(inside), alarms, len(outside))
    quality = np.where(bounds > 0.0, bounds, -same)
    side, cut = np.unravel_index(int(np.argmax(quality)), quality.shape)
    return Threshold(float(cuts[cut]), bool(side == 0), float(quality[side, cut]))


def _same(
    hits: npt.NDArray[np.int64], positives: int, alarms: npt.NDArray[np.int64], negatives: int
) -> Floats:
    """About the p-value of "both worlds call `in` alike" (two-sample z); it only ranks cuts."""
    from scipy.special import ndtr

    pooled = (hits + alarms) / (positives + negatives)
    spread = np.sqrt(pooled * (1 - pooled) * (1 / positives + 1 / negatives))
    return np.asarray(ndtr((alarms / negatives - hits / positives) / spread), dtype=np.float64)


def _scores(scores: npt.ArrayLike) -> Floats:
    array = np.asarray(scores, dtype=np.float64)
    if array.ndim != 1 or not len(array) or np.isnan(array).any():
        raise InputError(
            f"scores of shape {array.shape}, {int(np.isnan(array).sum())} of them not a number: "
            "expected one number a trial, at least one trial; infinite scores are allowed"
        )
    return array
