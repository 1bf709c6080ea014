"""Do single columns of the release look like those of the training rows?

Kolmogorov-Smirnov distance and test, Wasserstein distance and Kruskal-Wallis test of numeric
columns; total variation and support of categorical ones; Kullback-Leibler divergence, means and
standard deviations. `_pooled` says how rows are weighted.
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
    Output,
    Score,
    Scores,
    Task,
    holm,
)
from bench.metrics._shared.bootstrap import Array, Estimate, GroupedRows
from bench.metrics._shared.rows import positive_rows
from bench.metrics.fidelity._pooled import (
    GROUPED_INTERVAL,
    WEIGHTS_AND_INTERVAL,
    ColumnStatistic,
    GroupedTables,
    PooledRows,
    decoded_train,
    feature_columns,
    grouped_tables,
    mean_over_columns,
    pooled,
)

SMOOTHING = 0.5
"""Rows added to every category or bin of both tables (Krichevsky and Trofimov)."""

BINS = 20
"""Bins of equal width over the public range of a numeric column."""

DRAWN_BINS = 24
"""Bins of the histograms that are drawn."""

DRAWN_TAIL = 0.01
"""Largest share of each table beyond either end of a drawn histogram."""

SIGNIFICANT = 0.05
"""Level of the tests: fidelity paper, section 3.4; GATS paper, section 5.1.1."""


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
        return Scores((estimates[0].distance_score(self),), {"ks": table})


@final
class KolmogorovSmirnovTest(Metric):
    """Numeric columns whose KS test does not distinguish release and training rows."""

    name: ClassVar[str] = "ks-test"
    shown: ClassVar[bool] = False
    family: ClassVar[Family] = Family.FIDELITY
    direction: ClassVar[Direction] = Direction.HIGHER
    definition: ClassVar[str] = (
        "Share of numeric columns (features and time) whose two-sided KS test has p >= 0.05, read "
        "column by column as in the fidelity paper, section 3.4, without correction: one in "
        "twenty columns of a perfect release falls below. Holm's adjusted p-values are also "
        "in the details of ks. The number of released rows is Kish's effective one, 1 / sum "
        "of squared weights, as their weights are those of ks. With few rows no difference is "
        "significant, with many rows every difference is: compare releases of the same size only. "
        "No interval: a count of tests."
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        values = _numeric_distances(evaluation)[1]
        alike = smirnov_p_values(values[:, 0], pooled(evaluation)) >= SIGNIFICANT
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
        return Scores((estimates[1].distance_score(self),), {"wasserstein": table})


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
        columns = _categorical(evaluation)
        rows = pooled(evaluation)
        statistics = [
            total_variation(rows.codes(column.name), len(column.categories)) for column in columns
        ]
        (estimate,), values = mean_over_columns(evaluation, statistics)
        return Scores((estimate.distance_score(self),), {"tvd": _table(columns, values[:, 0])})


@final
class KullbackLeibler(Metric):
    """Kullback-Leibler divergence of the training rows from the release, mean over columns."""

    name: ClassVar[str] = "kl"
    shown: ClassVar[bool] = False
    family: ClassVar[Family] = Family.FIDELITY
    direction: ClassVar[Direction] = Direction.LOWER
    definition: ClassVar[str] = (
        "Kullback-Leibler divergence of the training rows from the released rows, sum of p ln(p / "
        "q) with p real and q released, in nats (fidelity paper, section 3.4), mean over all "
        "feature columns and the time. Categories are the declared ones; numeric columns, which "
        "the paper leaves to KS, are cut into 20 bins of equal width over the public range (one "
        "per value for integers of fewer values). Smoothing, which the paper does not state: half "
        "a row is added to every category of both tables, the released ones counted by Kish's "
        f"effective number. Weights as for ks. {GROUPED_INTERVAL}"
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        rows, both = pooled(evaluation), grouped_tables(evaluation)
        columns = feature_columns(evaluation)
        values = np.stack([_divergence(*binned(rows, column), both) for column in columns])
        mean = values.mean(axis=0)
        score = Estimate.of(mean).distance_score(self, most=np.inf)
        return Scores((score,), {"kl": _table(columns, values[:, 0])})


@final
class SupportCoverage(Metric):
    """Categories of the training rows that occur in the release."""

    name: ClassVar[str] = "support-coverage"
    shown: ClassVar[bool] = False
    family: ClassVar[Family] = Family.FIDELITY
    direction: ClassVar[Direction] = Direction.HIGHER
    definition: ClassVar[str] = (
        "Share of the categories among the training rows that also occur among the released rows, "
        "mean over categorical feature columns (fidelity paper, section 3.4, equation 2). The "
        "printed ratio of the two numbers of categories counts released categories that no "
        "training row has, and so can reach 1 or more without covering anything: only those that "
        "both have are counted. Small releases cannot cover rare categories: the details give the "
        "coverage to be expected of as many training rows, drawn class by class. No interval: an "
        "exact count."
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        columns = _categorical(evaluation)
        rows = pooled(evaluation)
        labels = decoded_train(evaluation)[evaluation.dataset.schema.label.name]
        real_labels = labels.cat.codes.to_numpy().astype(np.int64)
        entries = []
        for column in columns:
            codes = rows.codes(column.name)
            real, released = set(codes[: rows.real]), set(codes[rows.real :])
            entries.append(
                {
                    "real": len(real),
                    "released": len(released),
                    "covered": len(real & released),
                    "statistic": len(real & released) / len(real),
                    "expected": expected_coverage(
                        codes[: rows.real], real_labels, rows.strata[rows.real :] - 1
                    ),
                }
            )
        table = _named(columns).join(pd.DataFrame(entries))
        score = self.score(self.name, float(table["statistic"].mean()))
        return Scores((score,), {"support-coverage": table})


@final
class Moments(Metric):
    """Means and standard deviations, and shares of categories, side by side."""

    name: ClassVar[str] = "moments"
    family: ClassVar[Family] = Family.FIDELITY
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "moments/mean",
            Direction.LOWER,
            "Absolute difference of the means over the standard deviation of the training rows, "
            f"mean over numeric columns. {GROUPED_INTERVAL}",
        ),
        Output(
            "moments/sd",
            Direction.LOWER,
            "Absolute difference of the standard deviations over that of the training rows, mean "
            f"over numeric columns. {GROUPED_INTERVAL}",
        ),
    )
    definition: ClassVar[str] = (
        "Population statistics (fidelity paper, section 3.3, tables 1a and 1b): the details hold "
        "mean and standard deviation of each numeric column and the share of each category, of "
        "training rows and of released rows weighted as for ks; the scores sum up table 1a over "
        "columns that vary among the training rows. A histogram of each numeric column of a table "
        "is stored for plots: equal bins from the first to the last percentile of both tables, "
        "what lies beyond in the outer ones."
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        rows, both = pooled(evaluation), grouped_tables(evaluation)
        columns = [*feature_columns(evaluation), evaluation.dataset.schema.label]
        numeric = [column for column in columns if isinstance(column, Numeric)]
        details = {"shares": _shares(rows, both, columns)}
        if not numeric:
            reason = "the schema declares no numeric feature column"
            return Scores(self.all_absent(reason).scores, details)
        if evaluation.dataset.schema.task is not Task.IMAGE:  # hundreds of pixels are not plotted
            details["histograms"] = _histograms(rows, both, numeric)
        numbers = np.column_stack([rows.numbers(column.name) for column in numeric])
        # In units and from an origin that keep digits.
        origin = numbers[: rows.real].mean(axis=0)
        unit = np.array([column.high - column.low for column in numeric])
        varying = np.ptp(numbers[: rows.real], axis=0) > 0
        scaled = numbers
        scaled -= origin
        scaled /= unit
        (mean, deviation), (other_mean, other_deviation) = (
            _mean_and_deviation(side, scaled) for side in (both.real, both.released)
        )
        details["moments"] = _named(numeric).assign(
            real_mean=origin + unit * mean[0],
            released_mean=origin + unit * other_mean[0],
            real_sd=unit * deviation[0],
            released_sd=unit * other_deviation[0],
        )
        if not varying.any():
            reason = "no numeric column varies among the training rows"
            return Scores(self.all_absent(reason).scores, details)
        # The deviation of the training rows themselves is the unit: a resample may have none.
        units = deviation[0, varying]
        scores = (
            self._summed("moments/mean", np.abs(other_mean - mean)[:, varying] / units),
            self._summed("moments/sd", np.abs(other_deviation - deviation)[:, varying] / units),
        )
        return Scores(scores, details)

    def _summed(self, output: str, differences: Array) -> Score:
        return Estimate.of(differences.mean(axis=1)).distance_score(self, output, most=np.inf)


@final
class KruskalWallis(Metric):
    """Kruskal-Wallis test of the columns of release and training rows.

    Two groups per column: the training rows and the released rows, whole tables. The paper takes a
    difference in every column (p < 0.05) as a sign that its rows are not the patients. With tens
    of thousands of rows the smallest shift is significant: the effect measures how large it is.
    """

    name: ClassVar[str] = "kruskal-wallis"
    family: ClassVar[Family] = Family.FIDELITY
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "kruskal-wallis/differing",
            Direction.NEUTRAL,
            "Share of columns whose Kruskal-Wallis test of training against released rows has p < "
            "0.05, uncorrected (GATS paper, section 5.1.1: all columns). No interval: a count.",
        ),
        Output(
            "kruskal-wallis/effect",
            Direction.LOWER,
            "Mean over columns of epsilon squared, H / (n - 1) with n rows in both groups together "
            "(0 for equal ranks; 1 where one group lies wholly above the other and neither "
            "varies). No interval.",
        ),
    )
    definition: ClassVar[str] = (
        "Kruskal-Wallis H with correction for ties between training rows and released rows, as "
        "they are, in numeric columns, the time, and columns of two categories (GATS paper, "
        "section 5.1.1). Other categories have no order. A release with other class shares than "
        "the training rows differs by that alone."
    )
    tasks: ClassVar[tuple[Task, ...]] = (Task.CLASSIFICATION, Task.SURVIVAL)

    def compute(self, evaluation: Evaluation) -> Scores:
        weights = evaluation.rows.weights
        kept = positive_rows(evaluation)
        if weights is not None and np.ptp(weights[kept]) > 0:
            raise NotComputable("the released rows have weights, which a rank test cannot use")
        real, released = decoded_train(evaluation), evaluation.decoded.iloc[kept]
        entries = []
        for block in evaluation.dataset.encoder.blocks:
            column = block.column
            if isinstance(column, Numeric):
                groups = [table[column.name].to_numpy(np.float64) for table in (real, released)]
            elif isinstance(column, Categorical) and column.binary:
                groups = [
                    table[column.name].cat.codes.to_numpy().astype(np.float64)
                    for table in (real, released)
                ]
            else:
                continue
            statistic, p_value = kruskal_wallis(*groups)
            entries.append(
                {
                    "column": column.name,
                    "statistic": statistic,
                    "p": p_value,
                    "effect": statistic / (len(real) + len(released) - 1),
                    "real_median": float(np.median(groups[0])),
                    "released_median": float(np.median(groups[1])),
                }
            )
        if not entries:
            raise NotComputable("no column is numeric or has two categories")
        table = pd.DataFrame(entries)
        scores = (
            self.score("kruskal-wallis/differing", float((table["p"] < SIGNIFICANT).mean())),
            self.score("kruskal-wallis/effect", float(table["effect"].mean())),
        )
        return Scores(scores, {"kruskal-wallis": table})


# Distances of cumulative distributions and of shares -------------------------------------------


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


def smirnov_p_values(distances: Array, rows: PooledRows) -> Array:
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


def _categorical(evaluation: Evaluation) -> list[Categorical]:
    columns = [column for column in feature_columns(evaluation) if isinstance(column, Categorical)]
    if not columns:
        raise NotComputable("the schema declares no categorical feature column")
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


def kruskal_wallis(first: Array, second: Array) -> tuple[float, float]:
    """H of two groups, corrected for ties, and its p-value by chi-squared with one degree.

    H = 12 / (n (n + 1)) sum_g R_g^2 / n_g - 3 (n + 1), over 1 - sum (t^3 - t) / (n^3 - n) with t
    the sizes of ties. Where all values are equal there is no difference: 0, and a p-value of 1.
    """
    from scipy.stats import chi2, rankdata

    both = np.concatenate([first, second])
    n = float(len(both))
    _, ties = np.unique(both, return_counts=True)
    if len(ties) == 1:
        return 0.0, 1.0
    sizes = ties.astype(np.float64)
    correction = 1.0 - ((sizes**3 - sizes).sum()) / (n**3 - n)
    # Ranks less their mean: no digits are lost to the large terms of the usual form.
    ranks = rankdata(both) - (n + 1.0) / 2.0
    above = ranks[: len(first)].sum()
    between = above**2 / len(first) + above**2 / len(second)
    statistic = 12.0 / (n * (n + 1.0)) * between / correction
    return float(statistic), float(chi2.sf(statistic, 1))


# Categories, bins and moments ---------------------------------------------------------------------


def binned(rows: PooledRows, column: Column) -> tuple[Integers, int]:
    """A column as codes of public categories or bins, and how many there are."""
    if isinstance(column, Categorical):
        return rows.codes(column.name), len(column.categories)
    if not isinstance(column, Numeric):
        raise TypeError(f"column {column.name!r} is neither numeric nor categorical")
    numbers = rows.numbers(column.name)
    distinct = int(column.high - column.low) + 1
    if column.integer and distinct <= BINS:
        return np.rint(numbers - column.low).astype(np.int64).clip(0, distinct - 1), distinct
    places = (numbers - column.low) / (column.high - column.low) * BINS
    return np.floor(places).astype(np.int64).clip(0, BINS - 1), BINS


def divergence(real: Array, released: Array, real_size: float, released_size: float) -> Array:
    """sum p ln(p / q) over the last axis, after SMOOTHING rows were added to every category."""
    categories = real.shape[-1]
    p = (real * real_size + SMOOTHING) / (real_size + SMOOTHING * categories)
    q = (released * released_size + SMOOTHING) / (released_size + SMOOTHING * categories)
    result: Array = np.maximum(0.0, (p * np.log(p / q)).sum(axis=-1))
    return result


def expected_coverage(codes: Integers, labels: Integers, released_labels: Integers) -> float:
    """Coverage of as many training rows of each class, drawn with replacement.

    A category with the share p_c in class c is missed with the chance of prod (1 - p_c)^(m_c).
    """
    present = np.unique(codes)
    missed = np.ones(len(present))
    for label in np.unique(released_labels):
        members = codes[labels == label]
        if not len(members):
            continue
        drawn = np.count_nonzero(released_labels == label)
        missed *= (1.0 - (members == present[:, None]).mean(axis=1)) ** drawn
    return float((1.0 - missed).mean())


def _divergence(codes: Integers, categories: int, both: GroupedTables) -> Array:
    return divergence(
        both.real.shares(codes, categories),
        both.released.shares(codes, categories),
        both.real.size,
        both.released.size,
    )


def _mean_and_deviation(side: GroupedRows, values: Array) -> tuple[Array, Array]:
    mean = side.means(values)
    variance = np.maximum(0.0, side.means(values, 2) - np.square(mean))
    return mean, np.sqrt(variance)


def _shares(rows: PooledRows, both: GroupedTables, columns: list[Column]) -> pd.DataFrame:
    tables = [
        pd.DataFrame(
            {
                "column": column.name,
                "category": list(column.categories),
                **both.shares(rows.codes(column.name), len(column.categories)),
            }
        )
        for column in columns
        if isinstance(column, Categorical)
    ]
    return pd.concat(tables, ignore_index=True)


def _histograms(rows: PooledRows, both: GroupedTables, columns: list[Numeric]) -> pd.DataFrame:
    """Shares of both tables by bin, for plots: long tails do not squeeze all into one bin."""
    tables = []
    for column in columns:
        numbers = rows.numbers(column.name)
        edges = drawn_edges(numbers[: rows.real], numbers[rows.real :], column.integer)
        codes = (np.searchsorted(edges, numbers, side="right") - 1).clip(0, len(edges) - 2)
        tables.append(
            pd.DataFrame(
                {
                    "column": column.name,
                    "low": edges[:-1],
                    "high": edges[1:],
                    **both.shares(codes, len(edges) - 1),
                }
            )
        )
    return pd.concat(tables, ignore_index=True)


def drawn_edges(real: Array, released: Array, integer: bool) -> Array:
    """Edges of equal bins over both tables but for their tails; one per value if few."""
    ends = [np.quantile(numbers, [DRAWN_TAIL, 1 - DRAWN_TAIL]) for numbers in (real, released)]
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    if integer:
        low, high = np.floor(low) - 0.5, np.ceil(high) + 0.5
        # A whole number of values per bin: otherwise some bins hold more values than others.
        width = np.ceil((high - low) / DRAWN_BINS)
        edges: Array = low + width * np.arange(int(np.ceil((high - low) / width)) + 1)
        return edges
    if high <= low:
        half = max(0.5, 0.05 * abs(low))
        low, high = low - half, high + half
    return np.linspace(low, high, DRAWN_BINS + 1)


def _named(columns: Sequence[Column]) -> pd.DataFrame:
    kinds = ["numeric" if isinstance(column, Numeric) else "categorical" for column in columns]
    return pd.DataFrame({"column": [column.name for column in columns], "kind": kinds})


def _table(columns: Sequence[Column], values: Array) -> pd.DataFrame:
    return _named(columns).assign(statistic=values)
