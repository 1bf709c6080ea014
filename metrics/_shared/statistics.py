"""Statistics as functions of weights on the rows, one column of weights a resample.

Whatever depends on the rows alone (sorting, ties, comparable pairs) is done when the statistic is
made; each call then is a few passes over the weights. `_bootstrap` draws them and hands these
names on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench import NotComputable

Array = npt.NDArray[np.float64]
Statistic = Callable[[Array], Array]
"""(rows, resamples) weights in, one value a resample out; NaN where it is not defined."""


def auroc(labels: npt.ArrayLike, scores: npt.ArrayLike) -> Statistic:
    """Area under the ROC curve: the Mann-Whitney form, a tied pair counts one half."""
    positive = np.asarray(labels) == 1
    scores = np.asarray(scores, dtype=np.float64)
    positives, negatives = np.flatnonzero(positive), np.flatnonzero(~positive)
    if not len(positives) or not len(negatives):
        raise NotComputable("the rows hold one class only: no pair to rank")
    # Both in order of score, so that the cumulated sums are read one after the other.
    positives, negatives = (
        rows[np.argsort(scores[rows], kind="stable")] for rows in (positives, negatives)
    )
    below = np.searchsorted(scores[negatives], scores[positives], side="left")
    at_most = np.searchsorted(scores[negatives], scores[positives], side="right")

    def statistic(weights: Array) -> Array:
        up_to = _cumulated(weights, negatives)
        positive_weights = weights[positives]
        won = _weighted(positive_weights, up_to, below, at_most)
        pairs = positive_weights.sum(axis=0) * up_to[-1]
        return _ratio(won, pairs)

    return statistic


def auprc(labels: npt.ArrayLike, scores: npt.ArrayLike) -> Statistic:
    """Average precision as scikit-learn defines it: sum of (R_k - R_(k-1)) P_k over thresholds.

    No interpolation. A threshold's rise in recall is shared by the positives that score it, so the
    sum is the mean over positives of the precision among all rows that score at least as much.
    """
    positive = np.asarray(labels) == 1
    scores = np.asarray(scores, dtype=np.float64)
    positives, negatives = np.flatnonzero(positive), np.flatnonzero(~positive)
    if not len(positives):
        raise NotComputable("the rows hold no positive: no recall")
    positives, negatives = (
        rows[np.argsort(-scores[rows], kind="stable")] for rows in (positives, negatives)
    )
    own, others = (
        np.searchsorted(-scores[rows], -scores[positives], side="right")
        for rows in (positives, negatives)
    )

    def statistic(weights: Array) -> Array:
        found = _cumulated(weights, positives)
        total = found[-1].copy()
        above = found[own]
        below = _cumulated(weights, negatives)[others]
        below += above
        # Nothing scores as much only where the positive itself was not drawn: 0 / tiny, times 0.
        above /= np.maximum(below, np.finfo(np.float64).tiny, out=below)
        return _ratio(np.einsum("ij,ij->j", weights[positives], above), total)

    return statistic


def one_against_rest(
    single: Callable[[npt.ArrayLike, npt.ArrayLike], Statistic],
    labels: npt.ArrayLike,
    scores: npt.ArrayLike,
) -> Statistic:
    """Mean over classes of a statistic of one class against all others (macro average).

    `scores` has one column a class. Every class counts the same, however rare. Hand and Till's
    average over pairs of classes is the alternative; it does not change with the class shares.
    """
    codes, columns = np.asarray(labels), np.asarray(scores, dtype=np.float64)
    missing = sorted(set(range(columns.shape[1])) - set(codes.tolist()))
    if missing:
        raise NotComputable(f"no row of the classes {missing}: nothing to tell them from the rest")
    return average([single(codes == code, column) for code, column in enumerate(columns.T)])


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


def share(part: npt.ArrayLike, whole: npt.ArrayLike) -> Statistic:
    """Sum of one number a row over the sum of another: sensitivity, PPV and F1 have this form."""
    above, below = np.asarray(part, dtype=np.float64), np.asarray(whole, dtype=np.float64)
    return lambda weights: _ratio(above @ weights, below @ weights)


def average(statistics: Sequence[Statistic]) -> Statistic:
    """The mean of several statistics."""
    return lambda weights: np.mean([each(weights) for each in statistics], axis=0)


def difference(first: Statistic, second: Statistic) -> Statistic:
    """First minus second, on the same weights."""
    return lambda weights: first(weights) - second(weights)


def quotient(above: Statistic, below: Statistic) -> Statistic:
    """One statistic over another, on the same weights; not defined where the lower one is 0."""
    return lambda weights: _ratio(above(weights), below(weights))


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
