"""Statistics of an attribute attack as sums over the judged rows: one bootstrap serves all."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import numpy as np
import numpy.typing as npt

from bench.metrics._shared import bootstrap as _bootstrap
from bench.metrics.privacy.disclosure._attribute_attack import Answers

Array = npt.NDArray[np.float64]
Samples = npt.NDArray[np.float64]
"""A statistic of the rows first, then of each of their resamples."""
Statistic = Callable[[], Samples]


@final
class Resampled:
    """Sums over rows, and over a thousand resamples of the rows; the same resamples for all."""

    def __init__(self, rows: int, rng: np.random.Generator) -> None:
        self._rows = rows
        self._rng = rng
        self._columns: list[Array] = []
        self._sums: Array | None = None

    def column(self, values: npt.ArrayLike) -> int:
        """Register one number a row; gives its place among the sums."""
        self._columns.append(np.asarray(values, dtype=np.float64))
        return len(self._columns) - 1

    def sums(self, place: int) -> Samples:
        """Of a registered column."""
        if self._sums is None:
            columns = np.column_stack(self._columns)
            # One product for all statistics: the draws cost more than the sums.
            blocks = _bootstrap.resampled_weights(
                np.zeros(self._rows), self._rng, _bootstrap.RESAMPLES
            )
            resampled = [weights.T @ columns for weights in blocks]
            self._sums = np.concatenate([columns.sum(axis=0)[None], *resampled])
        sums: Samples = self._sums[:, place]
        return sums


def r2(
    rows: Resampled,
    truth: Array,
    answers: Answers,
    kept: npt.NDArray[np.bool_],
    unbiased: bool = False,
) -> Statistic | None:
    """1 - squared errors / squared deviations from the mean, over all outputs of the attribute.

    The mean is that of the rows in all resamples: it moves the variance of a resample by one part
    in the number of rows. `unbiased` takes the variance with n - 1 instead of n: plain R2 is lower
    in smaller tables, and fresh rows would leave a gap between training and control rows.
    """
    count = int(np.count_nonzero(kept))
    if count < 2:
        return None
    deviations = ((truth - truth[kept].mean(axis=0)) ** 2).sum(axis=1)
    if unbiased:
        deviations *= count / (count - 1)
    if not deviations[kept].sum() > 0:
        return None
    errors, spread = rows.column(answers.errors * kept), rows.column(deviations * kept)
    return lambda: 1.0 - rows.sums(errors) / rows.sums(spread)


def accuracy(
    rows: Resampled, truth: Array, answers: Answers, kept: npt.NDArray[np.bool_]
) -> Statistic | None:
    """Share of rows whose category was guessed; not defined for a number."""
    if answers.right is None:
        return None
    right, count = rows.column(answers.right & kept), rows.column(kept)
    return lambda: rows.sums(right) / rows.sums(count)


def auroc(
    rows: Resampled, truth: Array, answers: Answers, kept: npt.NDArray[np.bool_]
) -> Statistic | None:
    """Area plus the sum of each row's part in its variance (DeLong, DeLong and Clarke-Pearson).

    A positive row's part is the share of negatives below it, minus the area, over the positives;
    a negative row's the share of positives above it. Exact for the rows, linear for resamples.
    """
    from scipy.stats import rankdata

    if answers.predictions is None:
        return None
    positive = truth[:, 0] > 0
    positives, negatives = np.count_nonzero(positive), np.count_nonzero(~positive)
    if not positives or not negatives:
        return None
    ranks = rankdata(answers.predictions)
    wins = np.empty(len(ranks))
    wins[positive] = (ranks[positive] - rankdata(answers.predictions[positive])) / negatives
    wins[~positive] = 1 - (ranks[~positive] - rankdata(answers.predictions[~positive])) / positives
    area = float(wins[positive].mean())
    part = rows.column((wins - area) / np.where(positive, positives, negatives))
    return lambda: area + rows.sums(part)
