"""Area under the ROC curve and average precision, as functions of weights on the rows.

Whatever depends on the rows alone (sorting, ties) is computed when the statistic is made; each call
is then a few passes over the weights. `bootstrap` draws the weights.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from bench import NotComputable
from bench.metrics._shared.bootstrap import (
    Array,
    Statistic,
    average,
    cumulated,
    ratio,
    weighted_wins,
)


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
        up_to = cumulated(weights, negatives)
        positive_weights = weights[positives]
        won = weighted_wins(positive_weights, up_to, below, at_most)
        pairs = positive_weights.sum(axis=0) * up_to[-1]
        return ratio(won, pairs)

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
    positives_above, negatives_above = (
        np.searchsorted(-scores[rows], -scores[positives], side="right")
        for rows in (positives, negatives)
    )

    def statistic(weights: Array) -> Array:
        up_to = cumulated(weights, positives)
        total = up_to[-1].copy()
        above = up_to[positives_above]
        below = cumulated(weights, negatives)[negatives_above]
        below += above
        # Nothing scores as much only where the positive itself was not drawn: 0 / tiny, times 0.
        above /= np.maximum(below, np.finfo(np.float64).tiny, out=below)
        return ratio(np.einsum("ij,ij->j", weights[positives], above), total)

    return statistic


def one_against_rest(
    single: Callable[[npt.ArrayLike, npt.ArrayLike], Statistic],
    labels: npt.ArrayLike,
    scores: npt.ArrayLike,
) -> Statistic:
    """Mean over classes of a statistic of one class against all others (macro average).

    `scores` has one column per class. Every class counts the same, however rare. Hand and Till's
    average over pairs of classes is the alternative; it does not change with the class shares.
    """
    codes, columns = np.asarray(labels), np.asarray(scores, dtype=np.float64)
    missing = sorted(set(range(columns.shape[1])) - set(codes.tolist()))
    if missing:
        raise NotComputable(f"no row of the classes {missing}: nothing to compare with the rest")
    return average([single(codes == code, column) for code, column in enumerate(columns.T)])
