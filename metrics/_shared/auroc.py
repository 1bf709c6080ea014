"""Area under the ROC curve and average precision, as functions of weights on the rows.

Whatever depends on the rows alone (sorting, ties) is computed when the statistic is made; each call
is then one pass over the weights of all resamples. `bootstrap` draws the weights. `delong` is the
interval of the area in closed form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import numpy.typing as npt

from bench import NotComputable
from bench.metrics._shared.bootstrap import (
    Array,
    Counted,
    Counts,
    Index,
    average,
    contiguous,
    ratio,
)
from bench.metrics._shared.intervals import QUANTILE, Interval


@final
@dataclass(frozen=True, eq=False)
class RankedPairs(Counted):
    """Share of pairs of a positive and a negative row that a score ranks correctly."""

    order: Index
    """Rows by ascending score, of equal ones the negatives first."""
    kinds: npt.NDArray[np.uint8]
    """What `resample_kernels.wins` must know about each of them."""
    factors: Array
    """Factor on the weight of each of them that is positive."""

    @classmethod
    def of(
        cls,
        positives: Index,
        negatives: Index,
        scores: Array,
        factors: Array | None = None,
    ) -> RankedPairs:
        """Compare these rows by their scores; `scores` and `factors` are of all rows."""
        from bench.metrics._shared.resample_kernels import FIRST, POSITIVE, TIED

        rows = np.concatenate([negatives, positives])
        positive = np.arange(len(rows)) >= len(negatives)
        by_score = np.argsort(scores[rows], kind="stable")
        order, positive = rows[by_score], positive[by_score]
        starts, group = _groups(scores[order])
        sizes = np.diff(np.append(starts, len(order)))
        hits = np.add.reduceat(positive.astype(np.intp), starts)
        mixed = ((hits > 0) & (hits < sizes))[group]
        kinds = np.where(positive, POSITIVE, 0) | np.where(mixed, TIED, 0)
        kinds[starts] |= np.where(mixed[starts], FIRST, 0)
        factor = np.ones(len(order)) if factors is None else np.asarray(factors[order], float)
        return cls(order, kinds.astype(np.uint8), factor)

    def __call__(self, weights: Array | Counts) -> Array:
        from bench.metrics._shared import resample_kernels

        won, pairs = resample_kernels.wins(
            contiguous(weights, self.order), self.order, self.kinds, self.factors
        )
        return ratio(won / 2, pairs)

    def at(self, rows: Index) -> RankedPairs:
        return replace(self, order=np.asarray(rows)[self.order])


@final
@dataclass(frozen=True, eq=False)
class Precisions(Counted):
    """Mean over positive rows of the precision among all rows that score at least as much."""

    order: Index
    """Rows by descending score."""
    kinds: npt.NDArray[np.uint8]
    """What `resample_kernels.precisions` must know about each of them."""

    def __call__(self, weights: Array | Counts) -> Array:
        from bench.metrics._shared import resample_kernels

        return ratio(
            *resample_kernels.precisions(contiguous(weights, self.order), self.order, self.kinds)
        )

    def at(self, rows: Index) -> Precisions:
        return replace(self, order=np.asarray(rows)[self.order])


def _groups(ordered: Array) -> tuple[Index, Index]:
    """Where each group of equal numbers starts, and the group of each number."""
    first = np.ones(len(ordered), dtype=bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return np.flatnonzero(first), np.cumsum(first) - 1


def auroc(labels: npt.ArrayLike, scores: npt.ArrayLike) -> RankedPairs:
    """Area under the ROC curve: the Mann-Whitney form, a tied pair counts one half."""
    positive = np.asarray(labels) == 1
    positives, negatives = np.flatnonzero(positive), np.flatnonzero(~positive)
    if not len(positives) or not len(negatives):
        raise NotComputable("the rows hold one class only: no pair to rank")
    return RankedPairs.of(positives, negatives, np.asarray(scores, dtype=np.float64))


def auprc(labels: npt.ArrayLike, scores: npt.ArrayLike) -> Precisions:
    """Average precision as scikit-learn defines it: sum of (R_k - R_(k-1)) P_k over thresholds.

    No interpolation. A threshold's rise in recall is shared by the positives that score it, so the
    sum is the mean over positives of the precision among all rows that score at least as much.
    """
    from bench.metrics._shared.resample_kernels import POSITIVE, TIED

    positive = np.asarray(labels) == 1
    if not positive.any():
        raise NotComputable("the rows hold no positive: no recall")
    numbers = np.asarray(scores, dtype=np.float64)
    order = np.argsort(-numbers, kind="stable")
    followed = np.append(numbers[order][1:] == numbers[order][:-1], False)
    kinds = np.where(positive[order], POSITIVE, 0) | np.where(followed, TIED, 0)
    return Precisions(order, kinds.astype(np.uint8))


def delong(labels: npt.ArrayLike, scores: npt.ArrayLike) -> Interval:
    """Area under the ROC curve with the 95% interval of DeLong et al. (1988), clipped to [0, 1].

    The variance is that of the mean over positives of the share of negatives that each one beats,
    plus that of the mean over negatives of the share of positives that beat each one (equations 4
    to 6), from midranks: O(n log n). It agrees with the bootstrap where the area is not close to 1
    and both classes have some tens of rows; at an area of 1 its width is 0.
    """
    from scipy.stats import rankdata

    positive = np.asarray(labels) == 1
    numbers = np.asarray(scores, dtype=np.float64)
    hits, misses = int(positive.sum()), int((~positive).sum())
    if hits < 2 or misses < 2:
        raise NotComputable("the variance needs two rows of each class")
    ranks = rankdata(numbers)
    beaten = (ranks[positive] - rankdata(numbers[positive])) / misses
    beating = 1.0 - (ranks[~positive] - rankdata(numbers[~positive])) / hits
    value = float(beaten.mean())
    reach = QUANTILE * float(np.sqrt(beaten.var(ddof=1) / hits + beating.var(ddof=1) / misses))
    return Interval(value, max(0.0, value - reach), min(1.0, value + reach))


def one_against_rest(
    single: Callable[[npt.ArrayLike, npt.ArrayLike], Counted],
    labels: npt.ArrayLike,
    scores: npt.ArrayLike,
) -> Counted:
    """Mean over classes of a statistic of one class against all others (macro average).

    `scores` has one column per class. Every class counts the same, however rare. Hand and Till's
    average over pairs of classes is the alternative; it does not change with the class shares.
    """
    codes, columns = np.asarray(labels), np.asarray(scores, dtype=np.float64)
    missing = sorted(set(range(columns.shape[1])) - set(codes.tolist()))
    if missing:
        raise NotComputable(f"no row of the classes {missing}: nothing to compare with the rest")
    return average([single(codes == code, column) for code, column in enumerate(columns.T)])
