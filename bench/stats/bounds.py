"""From counts of a two-world attack to a lower bound on epsilon.

An (epsilon, delta)-DP method obeys, for every attack with true and false positive rates t and a,

    t <= e^epsilon a + delta    and    1 - a <= e^epsilon (1 - t) + delta

(Kairouz, Oh and Viswanath 2015, Theorem 2.1). Trials are independent, so both counts are binomial,
and a one-sided Clopper-Pearson end for each of t and a, at half the error, holds for both at once.
The two inequalities use the same two ends: no further correction is needed for taking the better.

`epsilon_bound` and `gaussian_bound` are these rectangles of two ends. The p-values come from an
exact test of both counts together (`exact_test`), which never gives more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench.errors import InputError
from bench.stats.exact_test import Frontier, Tally, exact_p_value
from bench.stats.inference import (
    CONFIDENCE,
    Floats,
    clopper_pearson_high,
    clopper_pearson_low,
)

_MIDDLE_CUTS = np.linspace(0.025, 0.975, 39)
"""Quantiles of the scores that `middle_threshold` tries."""


def epsilon_bound(tally: Tally, delta: float, confidence: float = CONFIDENCE) -> float:
    """Lower bound of epsilon at delta that holds with probability `confidence`.

    It is the larger of log((t_low - delta) / a_high) and log((1 - a_high - delta) / (1 - t_low)),
    never below 0, with ends that each fail with probability (1 - confidence) / 2.
    """
    _check(delta, confidence)
    low, high = rectangle(tally, confidence)
    return max(0.0, float(_log_ratio(low, high, delta)))


def max_detectable(
    positives: int, negatives: int, delta: float, confidence: float = CONFIDENCE
) -> float:
    """Maximum detectable epsilon: the `epsilon_bound` of an attack without error."""
    return epsilon_bound(Tally(positives, positives, 0, negatives), delta, confidence)


def gaussian_bound(tally: Tally, delta: float, confidence: float = CONFIDENCE) -> float:
    """Lower bound of epsilon *if* the method is a Gaussian mechanism of unknown noise.

    A composition of full-batch Gaussians has the trade-off curve of N(0, 1) against N(mu, 1)
    (Dong, Roth and Su 2022, Corollary 3.3), so mu >= Phi^-1(t_low) - Phi^-1(a_high), and mu gives
    epsilon at delta exactly. For other methods the number means nothing: it reads a small epsilon
    at large delta as a large epsilon at small delta.
    """
    from scipy.special import ndtri

    _check(delta, confidence)
    low, high = rectangle(tally, confidence)
    mu = float(ndtri(low) - ndtri(high))  # minus infinity where an end is 0 or 1
    return gaussian_epsilon(max(0.0, mu), delta)


def gaussian_test_bound(tally: Tally, delta: float, confidence: float = CONFIDENCE) -> float:
    """Return the bound of `gaussian_bound`, by inverting the exact test of both counts together.

    It is the epsilon of the largest mu that the test refutes, to 0.1%: never below that of the
    rectangle by more, and mostly well above it.
    """
    from scipy.special import ndtri

    _check(delta, confidence)
    low, high = rectangle(tally, confidence)
    lowest = max(0.0, float(ndtri(low) - ndtri(high)))
    if not 0 < tally.hits < tally.positives or not 0 < tally.false_alarms < tally.negatives:
        return gaussian_epsilon(lowest, delta)
    highest = float(ndtri(tally.true_positives) - ndtri(tally.false_positives))
    if highest <= 0.0:
        return 0.0
    error = 1.0 - confidence

    def refuted(mu: float) -> bool:
        return exact_p_value(tally, gaussian_frontier(mu)) < error

    start = lowest if refuted(lowest) else 0.0
    mu = bisected(refuted, start, highest, steps=10) if refuted(start) else 0.0
    return gaussian_epsilon(mu, delta)


def middle_cut(inside: npt.ArrayLike, outside: npt.ArrayLike) -> Threshold:
    """Return the cut at the median of all scores, which nothing is chosen for.

    For likelihood ratios of Gaussians it is the best cut for `gaussian_bound`.
    """
    scores = np.concatenate([_scores(inside), _scores(outside)])
    return Threshold(float(np.median(scores)), True, 0.0)


def p_value(tally: Tally, epsilon: float, delta: float) -> float:
    """Return the p-value of "the method is (epsilon, delta)-DP"; 1 without evidence against it.

    It is exact, and never above the smallest 1 - confidence at which `epsilon_bound` exceeds
    epsilon.
    """
    _check(delta, 0.5)
    if math.isinf(epsilon):
        return 1.0
    return exact_p_value(tally, private_frontier(epsilon, delta))


def private_frontier(epsilon: float, delta: float) -> Frontier:
    """Return the largest true positive rates allowed by (epsilon, delta)-DP."""

    def frontier(false: Floats) -> Floats:
        called_in = math.exp(epsilon) * false + delta
        called_out = 1.0 - math.exp(-epsilon) * (1.0 - delta - false)
        return np.clip(np.minimum(called_in, called_out), 0.0, 1.0)

    return frontier


def gaussian_frontier(mu: float) -> Frontier:
    """Return the largest true positive rates of N(0, 1) against N(mu, 1)."""
    from scipy.special import ndtr, ndtri

    def frontier(false: Floats) -> Floats:
        return np.asarray(ndtr(ndtri(false) + mu), dtype=np.float64)

    return frontier


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Delta at epsilon of N(0, 1) against N(mu, 1) (Balle and Wang 2018, Theorem 8, mu = 1/s)."""
    from scipy.special import log_ndtr

    if mu <= 0.0:
        return 0.0
    first = float(log_ndtr(mu / 2 - epsilon / mu))
    second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return math.exp(first) * -math.expm1(min(second - first, 0.0))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Exact epsilon at delta of a Gaussian mechanism with sensitivity / noise = mu."""
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    if delta <= 0.0:
        return math.inf
    # delta(epsilon) falls; mu^2 / 2 + mu z is beyond the tail Phi(-z) that is left.
    high = mu * mu / 2 + mu * (1.0 + math.sqrt(-2.0 * math.log(delta)))
    return bisected(lambda epsilon: gaussian_delta(mu, epsilon) > delta, 0.0, high)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Largest mu that is (epsilon, delta)-DP: the inverse of `gaussian_epsilon`."""
    if not 0.0 < delta < 1.0:
        raise InputError(f"delta {delta}: a Gaussian mechanism needs one between 0 and 1")
    high = 1.0
    while gaussian_delta(high, epsilon) <= delta:
        high *= 2.0
    return bisected(lambda mu: gaussian_delta(mu, epsilon) <= delta, 0.0, high)


def bisected(holds: Callable[[float], bool], low: float, high: float, steps: int = 100) -> float:
    """Return the last point where `holds`, which must hold from `low` on up to some point."""
    for _ in range(steps):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


def rectangle(tally: Tally, confidence: float) -> tuple[float, float]:
    """Return the lower end of t and the upper end of a, both valid at once."""
    error = (1.0 - confidence) / 2
    low = clopper_pearson_low(tally.hits, tally.positives, error)
    high = clopper_pearson_high(tally.false_alarms, tally.negatives, error)
    return float(low), float(high)


def _log_ratio(low: npt.ArrayLike, high: npt.ArrayLike, delta: float) -> Floats:
    """Return the larger of both bounds, also below 0; -inf where delta explains everything."""
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
    """A rule that calls `in` on one side of a score, and its quality where it was chosen."""

    value: float
    above: bool
    """True: `in` means score >= value. False: `in` means score < value."""
    bound: float
    """For comparing scorers: above 0 the epsilon (mu) bound on the trials used for choosing, else
    minus the p-value of no difference. Biased upwards, since the largest was picked."""

    def calls(self, scores: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Return True for trials called `in`."""
        reached = _scores(scores) >= self.value
        return reached if self.above else ~reached

    def tally(self, inside: npt.ArrayLike, outside: npt.ArrayLike) -> Tally:
        """Count calls on scores of trials that were not used to choose the threshold."""
        hits, alarms = self.calls(inside), self.calls(outside)
        return Tally(int(hits.sum()), len(hits), int(alarms.sum()), len(alarms))


def best_threshold(
    inside: npt.ArrayLike, outside: npt.ArrayLike, delta: float, confidence: float = CONFIDENCE
) -> Threshold:
    """Return the cut and side with the largest epsilon bound on these scores, which are used up.

    Every cut between neighbouring different scores is tried, at their middle, on both sides, in
    O(n log n). Ends are at a tenth of the reported error: the largest of many bounds is a lucky
    one, the more so in the tails (over Gaussian, Laplace, sampled and copying mechanisms this chose
    better than the reported error or a larger one). Where no cut shows a positive epsilon (few
    trials, small epsilon) the cut with the largest two-sample z is taken.
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
    error = (1.0 - confidence) / 10
    low = clopper_pearson_low(hits, len(inside), error)
    high = clopper_pearson_high(alarms, len(outside), error)
    bounds = _log_ratio(low, high, delta)
    same = _same(hits, len(inside), alarms, len(outside))
    quality = np.where(bounds > 0.0, bounds, -same)
    side, cut = np.unravel_index(int(np.argmax(quality)), quality.shape)
    return Threshold(float(cuts[cut]), bool(side == 0), float(quality[side, cut]))


def middle_threshold(
    inside: npt.ArrayLike,
    outside: npt.ArrayLike,
    confidence: float = CONFIDENCE,
    quantiles: Floats = _MIDDLE_CUTS,
) -> Threshold:
    """Return the cut with the largest lower bound of Phi^-1(t) - Phi^-1(a), mostly in the middle.

    That is the distance of two unit Gaussians with such rates, and the best cut for a test against
    a trade-off curve near that of a Gaussian.
    """
    from scipy.special import ndtri

    inside, outside = _scores(inside), _scores(outside)
    cuts = np.unique(np.quantile(np.concatenate([inside, outside]), quantiles))
    hits = (inside[None, :] >= cuts[:, None]).sum(axis=1)
    alarms = (outside[None, :] >= cuts[:, None]).sum(axis=1)
    error = (1.0 - confidence) / 2
    best = Threshold(float(cuts[0]), True, -math.inf)
    for above in (True, False):
        if not above:
            hits, alarms = len(inside) - hits, len(outside) - alarms
        low = clopper_pearson_low(hits, len(inside), error)
        high = clopper_pearson_high(alarms, len(outside), error)
        gaps = ndtri(np.clip(low, 1e-12, 1.0)) - ndtri(np.clip(high, 0.0, 1.0 - 1e-12))
        at = int(np.argmax(gaps))
        if gaps[at] > best.bound:
            best = Threshold(float(cuts[at]), above, float(gaps[at]))
    return best


def _same(
    hits: npt.NDArray[np.int64], positives: int, alarms: npt.NDArray[np.int64], negatives: int
) -> Floats:
    """Approximate p-value of equal rates in both worlds (two-sample z); it only ranks cuts."""
    from scipy.special import ndtr

    pooled = (hits + alarms) / (positives + negatives)
    spread = np.sqrt(pooled * (1 - pooled) * (1 / positives + 1 / negatives))
    return np.asarray(ndtr((alarms / negatives - hits / positives) / spread), dtype=np.float64)


def _scores(scores: npt.ArrayLike) -> Floats:
    array = np.asarray(scores, dtype=np.float64)
    if array.ndim != 1 or not len(array) or np.isnan(array).any():
        raise InputError(
            f"scores of shape {array.shape}, {int(np.isnan(array).sum())} of them not a number: "
            "expected one number per trial, at least one trial; infinite scores are allowed"
        )
    return array
