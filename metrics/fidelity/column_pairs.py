"""Are pairs of columns associated in the release as they are among the training rows?

The label is a column here: its association with the features is what the release is for.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import (
    Categorical,
    Column,
    Direction,
    Evaluation,
    Family,
    Floats,
    Integers,
    Metric,
    NotComputable,
    Numeric,
    Output,
    Score,
    Scores,
)
from bench.metrics._shared.bootstrap import Array, Estimate, GroupedRows
from bench.metrics.fidelity._pooled import (
    GROUPED_INTERVAL,
    RESAMPLES,
    GroupedTables,
    PooledRows,
    feature_columns,
    grouped_tables,
    inverse_or_zero,
    pooled,
)

LISTED_COLUMNS = 200
"""Correlations of more columns than this are not listed pair by pair."""

RESAMPLED_COLUMNS = 1024
"""Correlations of more columns than this get no interval: minutes for each release."""

_CONSTANT = "constant among the training rows"


@final
class PairwiseCorrelation(Metric):
    """Differences of Pearson correlations between all pairs of columns that have an order."""

    name: ClassVar[str] = "pcd"
    family: ClassVar[Family] = Family.FIDELITY
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "pcd/l1",
            Direction.LOWER,
            "Equation 3a: mean over pairs of the absolute difference of the correlations, over 2.",
        ),
        Output(
            "pcd/l2",
            Direction.LOWER,
            "Equation 3b: root of the mean over pairs of the squared difference, over 2.",
            shown=True,
        ),
    )
    definition: ClassVar[str] = (
        "Pairwise correlation difference (fidelity paper, section 3.5, equations 3a and 3b), "
        "Pearson. The printed norms grow with the number of columns, yet `the highest value is 1`: "
        "they are taken as means over the pairs of two different columns, halved, so that "
        "correlations of 1 that became -1 give 1. Columns are numeric ones, the time, and "
        "two-category ones (label included) as 0 and 1; more categories have no order and are "
        "left to `association`. Pairs with a column that is constant among the training rows are "
        "left out; a column that is constant in the release only has lost its correlations: they "
        f"count as 0. Weights as for ks. {GROUPED_INTERVAL}"
    )
    cost: ClassVar[str] = "under a second; 784 pixels some seconds; over 1024 columns no interval"

    def compute(self, evaluation: Evaluation) -> Scores:
        rows = pooled(evaluation)
        columns = [c for c in _columns(evaluation) if isinstance(c, Numeric) or _binary(c)]
        kept = _standardised(rows, columns)
        if kept.values.shape[1] < 2:
            raise NotComputable(
                f"{kept.values.shape[1]} numeric or two-category columns vary among the training "
                "rows: no pair to correlate"
            )
        both = _sides(evaluation, kept.values.shape[1])
        absolute, squared, pairs, listed = 0.0, 0.0, 0, []
        for first, second, real, released in both.correlations(kept.values):
            mask = _above_diagonal(first, second)
            difference = (real - released)[:, mask]
            absolute = absolute + np.abs(difference).sum(axis=1)
            squared = squared + np.square(difference).sum(axis=1)
            pairs += int(mask.sum())
            if kept.values.shape[1] <= LISTED_COLUMNS:
                listed.append(_pairs(kept.names, first, second, mask, real[0], released[0]))
        scores = (
            _scored(self, "pcd/l1", np.asarray(absolute) / pairs / 2),
            _scored(self, "pcd/l2", np.sqrt(np.asarray(squared) / pairs) / 2),
        )
        details = {"pcd-columns": kept.table}
        if listed:
            details["correlations"] = pd.concat(listed, ignore_index=True)
        return Scores(scores, details)


@final
class Association(Metric):
    """Differences of the strength of association between all pairs of columns of any kind."""

    name: ClassVar[str] = "association"
    shown: ClassVar[bool] = False
    family: ClassVar[Family] = Family.FIDELITY
    direction: ClassVar[Direction] = Direction.LOWER
    definition: ClassVar[str] = (
        "Mean over all pairs of columns (time and label included) of the absolute difference of "
        "their association in [0, 1]: absolute Pearson correlation of two numeric columns, "
        "correlation ratio of a numeric and a categorical one (corrected for the number of "
        "categories: Kelley's epsilon), Cramer's V of two categorical ones (corrected: Bergsma "
        "2013), which extends the fidelity paper's section 3.5 to mixed types. Effective numbers "
        "of released rows (Kish) in the corrections. Constant columns as for pcd, weights as for "
        f"ks. {GROUPED_INTERVAL}"
    )
    cost: ClassVar[str] = "seconds; a table of 100 categorical columns half a minute"

    def compute(self, evaluation: Evaluation) -> Scores:
        rows = pooled(evaluation)
        columns = _columns(evaluation)
        kept = _standardised(rows, [c for c in columns if isinstance(c, Numeric)])
        coded = [_coded(rows, c) for c in columns if isinstance(c, Categorical)]
        varying = [c for c in coded if len(np.unique(c.codes[: rows.real])) > 1]
        width = kept.values.shape[1] + len(varying)
        if width < 2:
            raise NotComputable(f"{width} columns vary among the training rows: no pair to compare")
        both = _sides(evaluation, width)
        total, pairs, listed = np.zeros(len(both.real.draws)), 0, []
        if kept.values.shape[1]:
            for first, second, real, released in both.correlations(kept.values):
                mask = _above_diagonal(first, second)
                real, released = np.abs(real), np.abs(released)
                total += np.abs(real - released)[:, mask].sum(axis=1)
                pairs += int(mask.sum())
                if width <= LISTED_COLUMNS:
                    listed.append(_pairs(kept.names, first, second, mask, real[0], released[0]))
        for column in varying:
            if not kept.values.shape[1]:
                break
            real, released = (
                correlation_ratios(side, kept.values, column.codes, column.categories)
                for side in (both.real, both.released)
            )
            total += np.abs(real - released).sum(axis=1)
            pairs += real.shape[1]
            listed.append(_listed(kept.names, [column.name] * len(kept.names), real, released))
        for one, other in combinations(varying, 2):
            real, released = (
                cramers_v(side, one.codes, one.categories, other.codes, other.categories)[:, None]
                for side in (both.real, both.released)
            )
            total += np.abs(real - released)[:, 0]
            pairs += 1
            listed.append(_listed([one.name], [other.name], real, released))
        details = {}
        if width <= LISTED_COLUMNS:
            details["associations"] = pd.concat(listed, ignore_index=True)
        return Scores((_scored(self, self.name, total / pairs),), details)


@final
@dataclass(frozen=True)
class _Standardised:
    """Columns in units of the training rows' standard deviation, from their mean."""

    names: list[str]
    values: Floats
    """Values, in single precision above LISTED_COLUMNS: images are large."""
    table: pd.DataFrame
    """Every column, and why it was left out if it was."""


@final
@dataclass(frozen=True)
class _Coded:
    name: str
    codes: Integers
    categories: int


def _columns(evaluation: Evaluation) -> list[Column]:
    return [*feature_columns(evaluation), evaluation.dataset.schema.label]


def _binary(column: Column) -> bool:
    return isinstance(column, Categorical) and column.binary


def _coded(rows: PooledRows, column: Categorical) -> _Coded:
    return _Coded(column.name, rows.codes(column.name), len(column.categories))


def _standardised(rows: PooledRows, columns: list[Column]) -> _Standardised:
    names, values, remarks, constant = [], [], [], []
    kind = np.float64 if len(columns) <= LISTED_COLUMNS else np.float32
    for column in columns:
        numbers = (
            rows.numbers(column.name)
            if isinstance(column, Numeric)
            else rows.codes(column.name).astype(np.float64)
        )
        real, released = numbers[: rows.real], numbers[rows.real :]
        constant.append(bool(np.ptp(released) == 0))
        if np.ptp(real) == 0:
            remarks.append(_CONSTANT)
            continue
        remarks.append("")
        names.append(column.name)
        values.append(((numbers - real.mean()) / real.std()).astype(kind))
    table = pd.DataFrame(
        {
            "column": [column.name for column in columns],
            "left_out": remarks,
            "constant_in_release": constant,
        }
    )
    stacked = np.column_stack(values) if values else np.empty((len(rows.frame), 0))
    return _Standardised(names, stacked, table)


def _sides(evaluation: Evaluation, width: int) -> GroupedTables:
    return grouped_tables(evaluation, RESAMPLES if width <= RESAMPLED_COLUMNS else 0)


def _above_diagonal(first: slice, second: slice) -> npt.NDArray[np.bool_]:
    """Pairs of a block whose first column stands before the second."""
    result: npt.NDArray[np.bool_] = np.arange(first.start, first.stop)[:, None] < np.arange(
        second.start, second.stop
    )
    return result


def _pairs(
    names: list[str],
    first: slice,
    second: slice,
    mask: npt.NDArray[np.bool_],
    real: Array,
    released: Array,
) -> pd.DataFrame:
    left, right = np.nonzero(mask)
    return pd.DataFrame(
        {
            "first": [names[first.start + k] for k in left],
            "second": [names[second.start + k] for k in right],
            "real": real[mask],
            "released": released[mask],
        }
    )


def _listed(first: list[str], second: list[str], real: Array, released: Array) -> pd.DataFrame:
    return pd.DataFrame(
        {"first": first, "second": second, "real": real[0], "released": released[0]}
    )


def _scored(metric: Metric, output: str, samples: Array) -> Score:
    if len(samples) == 1:
        return metric.score(output, float(samples[0]))
    return Estimate.of(samples).distance_score(metric, output)


# Association with categories ---------------------------------------------------------------------
#
# Both measures grow by chance with the number of categories, the more the fewer rows there are: a
# release of 100 rows and 40 countries would seem strongly associated with anything. Both are
# corrected for that, with the effective number of rows.


def correlation_ratios(
    side: GroupedRows, values: Floats, codes: Integers, categories: int
) -> Array:
    """(1 + resamples, columns of values): Kelley's epsilon, the corrected correlation ratio eta.

    eta^2 is the variance of the category means over the variance; epsilon^2 = 1 - (1 - eta^2)
    (n - 1) / (n - k), at least 0, for n rows and k categories that occur. 0 for a constant column,
    and where there are no more rows than categories.
    """
    shares = side.shares(codes, categories)[:, :, None]
    sums = np.stack(
        [side.shares(codes, categories, values[:, k]) for k in range(values.shape[1])], axis=2
    )
    means = sums.sum(axis=1)
    between = np.square(sums)
    np.divide(between, shares, out=between, where=shares > 0)
    scale = np.square(inverse_or_zero(side.means(values, 2) - np.square(means)))
    eta_squared = np.clip((between.sum(axis=1) - np.square(means)) * scale, 0.0, 1.0)
    spare = side.size - np.count_nonzero(shares > 0, axis=1)
    factor = np.zeros_like(spare, dtype=np.float64)
    np.divide(side.size - 1.0, spare, out=factor, where=spare > 0)
    squared = np.where((spare > 0) & (scale > 0), 1.0 - (1.0 - eta_squared) * factor, 0.0)
    result: Array = np.sqrt(np.maximum(0.0, squared))
    return result


def cramers_v(
    side: GroupedRows, first: Integers, first_count: int, second: Integers, second_count: int
) -> Array:
    """(1 + resamples): Cramer's V with Bergsma's correction (2013).

    phi^2 = chi^2 / n, less (k - 1)(r - 1) / (n - 1) and at least 0; V^2 = phi^2 over the smaller of
    k' - 1 and r' - 1, k' = k - (k - 1)^2 / (n - 1), for k and r categories that occur. 0 where
    a column is constant.
    """
    cells = side.shares(first * second_count + second, first_count * second_count)
    table = cells.reshape(len(cells), first_count, second_count)
    rows, columns = table.sum(axis=2), table.sum(axis=1)
    expected = rows[:, :, None] * columns[:, None, :]
    ratio = np.square(table)
    np.divide(ratio, expected, out=ratio, where=expected > 0)
    phi_squared = ratio.sum(axis=(1, 2)) - 1.0
    k = np.count_nonzero(rows > 0, axis=1) - 1.0
    r = np.count_nonzero(columns > 0, axis=1) - 1.0
    free = max(side.size - 1.0, 1e-9)
    corrected = np.maximum(0.0, phi_squared - k * r / free)
    most = np.minimum(k - k * k / free, r - r * r / free)
    squared = np.zeros_like(corrected)
    np.divide(corrected, most, out=squared, where=most > 1e-12)
    result: Array = np.sqrt(np.minimum(1.0, squared))
    return result
