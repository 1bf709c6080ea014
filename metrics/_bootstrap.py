"""Bootstrap intervals without resampled copies: a resample is a weight on every row.

Drawing n of n rows with replacement is the same as counting how often each row was drawn. A
statistic is therefore a function of a matrix of weights, one column a resample: whatever depends
on the rows alone (sorting, ties, comparable pairs) is done once, and a thousand resamples are a
few passes over one matrix. Weights are counts in float64, so that sums of products are exact and
equal those of the duplicated rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench.core.errors import NotComputable
from bench.core.metric import Metric, Score

Array = npt.NDArray[np.float64]
Statistic = Callable[[Array], Array]
"""(rows, resamples) weights in, one value a resample out; NaN where it is not defined."""

RESAMPLES = 1000
LEVEL = 0.95

_BLOCK_CELLS = 2**19
"""Weights held at a time (4 MB): what a statistic makes of them then stays in the cache."""


@final
@dataclass(frozen=True)
class Estimate:
    """A statistic of the rows, and of their resamples."""

    value: float
    samples: Array

    @property
    def interval(self) -> tuple[float, float]:
        """Percentile interval."""
        low, high = np.quantile(self.samples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return float(low), float(high)

    @property
    def distance_interval(self) -> tuple[float, float]:
        """Interval of a distance in [0, 1] between two empirical distributions.

        Such a distance is larger than that of the populations, and larger still after resampling
        both: percentiles of a small distance lie above the distance itself. The upper end is the
        value plus the spread of the resamples above their mean; the lower end is that of the basic
        bootstrap, 2 value - upper percentile, which takes the bias back.
        """
        upper = self.interval[1]
        spread = max(0.0, upper - float(self.samples.mean()))
        low = min(self.value, 2 * self.value - upper)
        return max(0.0, low), min(1.0, self.value + spread)

    def score(self, metric: type[Metric] | Metric, output: str = "") -> Score:
        """As that output of a metric (of its own name where none is given), with the interval."""
        low, high = self.interval
        return metric.score(output or metric.name, self.value, low, high)


def bootstrap(
    statistic: Statistic,
    strata: npt.ArrayLike,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Estimate:
    """Value and resamples of a statistic; rows are drawn within their stratum.

    The draws depend on the strata and the generator alone: two releases scored on the same test
    rows with the same seed see the same resamples.
    """
    strata = np.asarray(strata)
    value = float(statistic(np.ones((len(strata), 1)))[0])
    if np.isnan(value):
        raise NotComputable("the statistic is not defined on these rows")
    samples = np.concatenate([statistic(w) for w in _resampled_weights(strata, rng, resamples)])
    defined = samples[~np.isnan(samples)]
    if 2 * len(defined) < resamples:
        raise NotComputable(
            f"only {len(defined)} of {resamples} bootstrap resamples define the statistic: too "
            "few rows for an interval"
        )
    return Estimate(value, defined)


def _resampled_weights(
    strata: npt.NDArray[np.generic], rng: np.random.Generator, resamples: int
) -> Iterator[Array]:
    """Multinomial counts of each row, in blocks of resamples."""
    rows = len(strata)
    members = [np.flatnonzero(strata == stratum) for stratum in np.unique(strata)]
    width = max(1, min(resamples, _BLOCK_CELLS // rows))
    for start in range(0, resamples, width):
        block = min(width, resamples - start)
        weights = np.empty((rows, block))
        for index in members:
            size = len(index)
            drawn = rng.integers(0, size, (block, size))
            drawn += size * np.arange(block)[:, None]
            counts = np.bincount(drawn.ravel(), minlength=block * size)
            weights[index] = counts.reshape(block, size).T
        yield weights


def auroc(labels: npt.ArrayLike, scores: npt.ArrayLike) -> Statistic:
    """Area under the ROC curve: the Mann-Whitney form, a tied pair counts one half."""
    positive = np.asarray(labels) == 1
    scores = np.asarray(scores, dtype=np.float64)
    positives, negatives = np.flatnonzero(positive), np.flatnonzero(~positive)
    if not len(positives) or not len(negatives):
        raise NotComputable("the rows hold one class only: no pair to rank")
    negatives = negatives[np.argsort(scores[negatives], kind="stable")]
    below = np.searchsorted(scores[negatives], scores[positives], side="left")
    at_most = np.searchsorted(scores[negatives], scores[positives], side="right")

    def statistic(weights: Array) -> Array:
        up_to = _cumulated(weights, negatives)
        positive_weights = weights[positives]
        won = _weighted(positive_weights, up_to, below, at_most)
        pairs = positive_weights.sum(axis=0) * up_to[-1]
        return _ratio(won, pairs)

    return statistic


def concordance(times: npt.ArrayLike, events: npt.ArrayLike, risks: npt.ArrayLike) -> Statistic:
    """Harrell's C-index: the share of comparable pairs whose risks are in the right order.

    With ties as in lifelines: a pair (i, j) is comparable when i had the event and j was followed
    for longer, or for equally long and censored; it is concordant when risk_i > risk_j and counts
    one half when the risks are equal. As a quadratic form in the weights it is w'Aw / w'Bw.

    Comparable pairs are those with key_i < key_j and event_i, where the key ranks rows by time,
    events before censored rows of the same time. Every such pair differs first at one binary digit
    of the keys, so that for each digit the rows split into nodes with a left and a right half and
    one cumulative sum over the right halves, ordered by risk, serves all left rows: w'Aw in
    O(n log n) for each resample, without the n x n matrices.
    """
    had_event = np.asarray(events) == 1
    ranked_times = np.unique(np.asarray(times, dtype=np.float64), return_inverse=True)[1]
    keys = np.unique(2 * ranked_times + ~had_event, return_inverse=True)[1]
    risk_values, risk_ranks = np.unique(np.asarray(risks, dtype=np.float64), return_inverse=True)
    halves = [
        _halves(keys, digit, had_event, risk_ranks, len(risk_values))
        for digit in range(int(keys.max(initial=0)).bit_length())
    ]
    by_key = np.argsort(keys, kind="stable")
    event_rows = np.flatnonzero(had_event)
    not_later = np.searchsorted(keys[by_key], keys[event_rows], side="right")
    if not (not_later < len(keys)).any():
        raise NotComputable("no two rows can be compared: no event before another row's time")

    def statistic(weights: Array) -> Array:
        up_to = _cumulated(weights, by_key)
        event_weights = weights[event_rows]
        pairs = event_weights.sum(axis=0) * up_to[-1]
        pairs -= np.einsum("ij,ij->j", event_weights, up_to[not_later])
        won = np.zeros(weights.shape[1])
        for half in halves:
            up_to = _cumulated(weights, half.right)
            left_weights = weights[half.left]
            won += _weighted(left_weights, up_to, half.below, half.at_most)
            won -= np.einsum("ij,ij->j", left_weights, up_to[half.start])
        return _ratio(won, pairs)

    return statistic


def mean(values: npt.ArrayLike) -> Statistic:
    """The mean of one number a row, such as accuracy from right or wrong."""
    numbers = np.asarray(values, dtype=np.float64)

    def statistic(weights: Array) -> Array:
        result: Array = numbers @ weights / weights.sum(axis=0)
        return result

    return statistic


def bootstrap_median(
    values: npt.ArrayLike, rng: np.random.Generator, resamples: int = RESAMPLES
) -> Estimate:
    """Bootstrap of a median in constant time a resample, exact in distribution.

    Drawing n of n rows is floor(n U) for n uniforms, which keeps their order; the k-th smallest
    uniform is Beta(k, n + 1 - k), and the next one lies above it by a Beta(1, n - k) share of what
    is left. The median of a resample is read off the sorted values at these places.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    count = len(ordered)
    if not count:
        raise NotComputable("no rows to take a median of")
    middle = (count + 1) // 2
    place = rng.beta(middle, count + 1 - middle, resamples)
    samples = ordered[_floor(place, count)]
    if count % 2 == 0:
        place += (1.0 - place) * rng.beta(1, count - middle, resamples)
        samples = (samples + ordered[_floor(place, count)]) / 2
    return Estimate(float(np.median(ordered)), samples)


@final
@dataclass(frozen=True)
class _Halves:
    """The pairs of rows whose keys differ first at one binary digit."""

    left: npt.NDArray[np.intp]
    """Rows with the event whose digit is 0."""
    right: npt.NDArray[np.intp]
    """Rows whose digit is 1, by node and then by risk."""
    start: npt.NDArray[np.intp]
    """For each left row: where its node starts among the right rows,"""
    below: npt.NDArray[np.intp]
    """where the lower risks of its node end,"""
    at_most: npt.NDArray[np.intp]
    """and where the equal ones do."""


def _halves(
    keys: npt.NDArray[np.intp],
    digit: int,
    had_event: npt.NDArray[np.bool_],
    risk_ranks: npt.NDArray[np.intp],
    risks: int,
) -> _Halves:
    ones = (keys >> digit) & 1 == 1
    node = (keys >> (digit + 1)) * risks
    place = node + risk_ranks
    left, right = np.flatnonzero(~ones & had_event), np.flatnonzero(ones)
    right = right[np.argsort(place[right], kind="stable")]
    # In the order of the right rows, so that the cumulated sums are read one after the other.
    left = left[np.argsort(place[left], kind="stable")]
    places = place[right]
    return _Halves(
        left,
        right,
        start=np.searchsorted(places, node[left], side="left"),
        below=np.searchsorted(places, place[left], side="left"),
        at_most=np.searchsorted(places, place[left], side="right"),
    )


def _cumulated(weights: Array, order: npt.NDArray[np.intp]) -> Array:
    """Sums of the weights of the first k rows in the given order, for k from 0."""
    sums = np.empty((len(order) + 1, weights.shape[1]))
    sums[0] = 0.0
    np.cumsum(weights[order], axis=0, out=sums[1:])
    return sums


def _weighted(
    weights: Array,
    up_to: Array,
    below: npt.NDArray[np.intp],
    at_most: npt.NDArray[np.intp],
) -> Array:
    """Weighted wins: what lies below counts one, what is tied one half."""
    won: Array = np.einsum("ij,ij->j", weights, up_to[below])
    if np.array_equal(below, at_most):
        return won
    tied: Array = np.einsum("ij,ij->j", weights, up_to[at_most])
    return (won + tied) / 2


def _ratio(above: Array, below: Array) -> Array:
    ratio = np.full(len(below), np.nan)
    np.divide(above, below, out=ratio, where=below > 0)
    return ratio


def _floor(place: Array, count: int) -> npt.NDArray[np.intp]:
    return np.minimum((place * count).astype(np.intp), count - 1)
