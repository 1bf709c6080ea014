"""Do single columns of the release look like those of the training rows?

Distances between distributions: Kolmogorov-Smirnov with its p-value, and Wasserstein's, of numeric
columns; total variation of categorical ones. How rows are weighted: `_pooled`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, final

import numpy as np
import pandas as pd
from scipy import sparse

from bench import (
    Categorical,
    Column,
    Direction,
    Evaluation,
    Family,
    Integers,
    Metric,
    NotComputable,
    Numeric,
    Score,
    Scores,
    holm,
)
from bench.metrics._shared.bootstrap import Array, Estimate
from bench.metrics.fidelity._pooled import (
    WEIGHTS_AND_INTERVAL,
    ColumnStatistic,
    Pooled,
    feature_columns,
    mean_over_columns,
    pooled,
)

LEVEL = 0.05
"""Above it, the paper's section 3.4 does not reject that two columns are distributed alike."""


@final
class KolmogorovSmirnov(Metric):
    """Largest gap between two cumulative distributions, mean over numeric columns."""

    name: ClassVar[str] = "ks"
    family: ClassVar[Family] = Family.FIDELITY
    direction: ClassVar[Direction] = Direction.LOWER
    definition: ClassVar[str] = (
        "Two-sample Kolmogorov-Smirnov distance between training rows and released rows (fidelity "
        f"paper, section 3.4), mean over numeric feature columns and the time. "
        f"{WEIGHTS_AND_INTERVAL}"
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        estimates, values = _numeric_distances(evaluation)
        p_values = smirnov_p_values(values[:, 0], pooled(evaluation))
        table = _table(_numeric(evaluation), values[:, 0])
        table = table.assign(p=p_values, holm=holm(p_values))
        return Scores((_scored(self, estimates[0]),), {"ks": table})


@final
class KolmogorovSmirnovTest(Metric):
    """Numeric columns whose KS test does not tell the release from the training rows."""

    name: ClassVar[str] = "ks-test"
    shown: ClassVar[bool] = False
    family: ClassVar[Family] = Family.FIDELITY
    direction: ClassVar[Direction] = Direction.HIGHER
    definition: ClassVar[str] = (
        "Share of numeric columns (features and time) whose two-sided KS test has p >= 0.05, read "
        "column by column as in the fidelity paper, section 3.4, without correction: one in twenty "
        "columns of a perfect release falls below. Holm's adjusted p-values stand beside them in "
        "the details of ks. The number of released rows is Kish's effective one, 1 / sum of "
        "squared weights, as their weights are those of ks. Few rows cannot be told from "
        "anything and many rows from nothing: compare releases of the same size only. No "
        "interval: a count of tests."
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        values = _numeric_distances(evaluation)[1]
        alike = smirnov_p_values(values[:, 0], pooled(evaluation)) >= LEVEL
        return Scores((self.score(self.name, float(alike.mean())),))


@final
class Wasserstein(Metric):
    """Area between two cumulative distributions over the public range, mean over columns."""

    name: ClassVar[str] = "wasserstein"
    shown: ClassVar[bool] = False
    family: ClassVar[Family] = Family.FIDELITY
    direction: ClassVar[Direction] = Direction.LOWER
    definition: ClassVar[str] = (
        "Wasserstein-1 distance between training rows and released rows (fidelity paper, section "
        "3.4), divided by the public range of the column, so that 1 is the worst; mean over "
        "numeric feature columns and the time. The paper does not name its unit: the distances of "
        f"its table 5 exceed the KS distances, which a share of the range cannot. "
        f"{WEIGHTS_AND_INTERVAL}"
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        estimates, values = _numeric_distances(evaluation)
        table = _table(_numeric(evaluation), values[:, 1])
        return Scores((_scored(self, estimates[1]),), {"wasserstein": table})


@final
class TotalVariation(Metric):
    """Half the absolute difference of category shares, mean over categorical columns."""

    name: ClassVar[str] = "tvd"
    family: ClassVar[Family] = Family.FIDELITY
    direction: ClassVar[Direction] = Direction.LOWER
    definition: ClassVar[str] = (
        "Total variation distance, half the sum of absolute differences of category shares, "
        "between training rows and released rows, mean over categorical feature columns (the "
        "histograms of the fidelity paper's section 3.4; unlike its KL divergence finite for "
        "absent categories). Weights and interval as for ks."
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        columns = [c for c in feature_columns(evaluation) if isinstance(c, Categorical)]
        if not columns:
            raise NotComputable("the schema declares no categorical feature column")
        rows = pooled(evaluation)
        statistics = [
            total_variation(rows.codes(column.name), len(column.categories)) for column in columns
        ]
        (estimate,), values = mean_over_columns(evaluation, statistics)
        return Scores((_scored(self, estimate),), {"tvd": _table(columns, values[:, 0])})


def distribution_distances(values: Array, unit: float) -> ColumnStatistic:
    """Kolmogorov-Smirnov and Wasserstein-1 distance of two weighted samples, in this order.

    The largest difference of the cumulative distributions, and the area between them in `unit`.
    """
    levels, gaps_of = cumulative_gaps(values)
    widths = np.diff(levels) / unit

    def statistic(signed: Array) -> Array:
        gaps = np.abs(gaps_of(signed))
        distances: Array = np.stack([gaps.max(axis=0, initial=0.0), widths @ gaps])
        return distances

    return statistic


def cumulative_gaps(values: Array) -> tuple[Array, Callable[[Array], Array]]:
    """The distinct values, and the difference of the two distributions after each but the last.

    The signed weights sum to zero, so that the difference after a value is the sum of the weights
    up to it, or minus the sum of those above it.
    """
    levels, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    if len(levels) > len(values) // 4:
        return levels, _gaps_of_many(codes, counts)
    # Few distinct values (integers, pixels): sum by value. Rows of the commonest value, often most
    # of them, need not be touched at all: come from below to it, and from above.
    common = int(np.argmax(counts))
    rows = np.flatnonzero(codes != common)
    sums_of = sparse.csr_array(
        (np.ones(len(rows)), (codes[rows], rows)), shape=(len(levels), len(values))
    )

    def gaps(signed: Array) -> Array:
        sums = sums_of @ signed
        below = np.cumsum(sums[:common], axis=0)
        above = -np.cumsum(sums[:common:-1], axis=0)
        result: Array = np.concatenate([below, above[::-1]])
        return result

    return levels, gaps


def _gaps_of_many(codes: Integers, counts: Integers) -> Callable[[Array], Array]:
    """The same for values that hardly repeat: one cumulative sum over the ordered rows."""
    order = np.argsort(codes, kind="stable")
    # Distributions are compared after all rows of a value, not between tied rows.
    last = np.cumsum(counts)[:-1] - 1

    def gaps(signed: Array) -> Array:
        sums: Array = np.cumsum(signed[order], axis=0)
        return sums[:-1] if len(last) == len(sums) - 1 else sums[last]

    return gaps


def total_variation(codes: Integers, categories: int) -> ColumnStatistic:
    """Half the sum of absolute differences of weighted category shares."""
    indicator = (np.arange(categories)[:, None] == codes).astype(np.float64)

    def statistic(signed: Array) -> Array:
        total: Array = np.abs(indicator @ signed).sum(axis=0, keepdims=True) / 2
        return total

    return statistic


def smirnov_p_values(distances: Array, rows: Pooled) -> Array:
    """Two-sided p-values of KS distances.

    The finite-sample distribution of the one-sample distance at n m / (n + m) rows, as in scipy's
    `asymp` mode, with Kish's effective number for m. Ties, and released rows drawn class by class,
    make the distance smaller than the test expects: its p-values are on the safe, large side.
    """
    from scipy.stats import kstwo

    rows_together = rows.real * rows.effective / (rows.real + rows.effective)
    p: Array = np.clip(kstwo.sf(distances, max(1.0, np.round(rows_together))), 0.0, 1.0)
    return p


def _numeric(evaluation: Evaluation) -> list[Numeric]:
    columns = [column for column in feature_columns(evaluation) if isinstance(column, Numeric)]
    if not columns:
        raise NotComputable("the schema declares no numeric feature column")
    return columns


def _numeric_distances(evaluation: Evaluation) -> tuple[list[Estimate], Array]:
    """KS and Wasserstein distances, from one pass over the resamples."""
    columns = _numeric(evaluation)
    rows = pooled(evaluation)

    def build() -> tuple[list[Estimate], Array]:
        statistics = [
            distribution_distances(rows.numbers(column.name), column.high - column.low)
            for column in columns
        ]
        return mean_over_columns(evaluation, statistics)

    return evaluation.shared("fidelity/numeric", build)


def _scored(metric: Metric, estimate: Estimate) -> Score:
    low, high = estimate.distance_interval
    return metric.score(metric.name, estimate.value, low, high)


def _table(columns: Sequence[Column], values: Array) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "column": [column.name for column in columns],
            "kind": "numeric" if isinstance(columns[0], Numeric) else "categorical",
            "statistic": values,
        }
    )
