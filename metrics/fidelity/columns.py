"""Single columns in tables that a reader knows: divergence, support, means and deviations."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np
import pandas as pd

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
)
from bench.metrics._shared.bootstrap import Array, Estimate
from bench.metrics.fidelity._groups import GROUPED_INTERVAL, Side, Sides, sides
from bench.metrics.fidelity._pooled import (
    Pooled,
    decoded_train,
    feature_columns,
    interval_of_distance,
    pooled,
)

SMOOTHING = 0.5
"""Rows added to every category or bin of both tables (Krichevsky and Trofimov)."""

BINS = 20
"""Of equal width over the public range of a numeric column."""

DRAWN_BINS = 24
"""Of the histograms that are drawn."""

DRAWN_TAIL = 0.01
"""Beyond the range of a drawn histogram at each end, at most, of each of the two tables."""


@final
class KullbackLeibler(Metric):
    """How surprising training rows are to a reader of the release, mean over columns."""

    name: ClassVar[str] = "kl"
    shown: ClassVar[bool] = False
    family: ClassVar[Family] = Family.FIDELITY
    direction: ClassVar[Direction] = Direction.LOWER
    definition: ClassVar[str] = (
        "Kullback-Leibler divergence of the training rows from the released rows, sum of p ln(p / "
        "q) with p real and q released, in nats (fidelity paper, section 3.4), mean over all "
        "feature columns and the time. Categories are the declared ones; numeric columns, which "
        "the paper leaves to KS, are cut into 20 bins of equal width over the public range (one a "
        "value for integers of fewer values). Smoothing, which the paper does not state: half a "
        "row is added to every category of both tables, the released ones counted by Kish's "
        f"effective number. Weights as for ks. {GROUPED_INTERVAL}"
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        rows, both = pooled(evaluation), sides(evaluation)
        columns = feature_columns(evaluation)
        values = np.stack([_divergence(*binned(rows, column), both) for column in columns])
        mean = values.mean(axis=0)
        low, high = interval_of_distance(Estimate(float(mean[0]), mean[1:]))
        table = _named(columns).assign(statistic=values[:, 0])
        return Scores((self.score(self.name, float(mean[0]), low, high),), {"kl": table})


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
        columns = [c for c in feature_columns(evaluation) if isinstance(c, Categorical)]
        if not columns:
            raise NotComputable("the schema declares no categorical feature column")
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
        "is there to be drawn: equal bins from the first to the last percentile of both tables, "
        "what lies beyond in the outer ones."
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        rows, both = pooled(evaluation), sides(evaluation)
        columns = [*feature_columns(evaluation), evaluation.dataset.schema.label]
        numeric = [column for column in columns if isinstance(column, Numeric)]
        details = {"shares": _shares(rows, both, columns)}
        if not numeric:
            reason = "the schema declares no numeric feature column"
            return Scores(self.all_absent(reason).scores, details)
        if evaluation.dataset.schema.task is not Task.IMAGE:  # nobody reads hundreds of pixels
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
        means = differences.mean(axis=1)
        low, high = interval_of_distance(Estimate(float(means[0]), means[1:]))
        return self.score(output, float(means[0]), low, high)


def binned(rows: Pooled, column: Column) -> tuple[Integers, int]:
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
        own = codes[labels == label]
        if not len(own):
            continue
        drawn = np.count_nonzero(released_labels == label)
        missed *= (1.0 - (own == present[:, None]).mean(axis=1)) ** drawn
    return float((1.0 - missed).mean())


def _divergence(codes: Integers, categories: int, both: Sides) -> Array:
    return divergence(
        both.real.shares(codes, categories),
        both.released.shares(codes, categories),
        both.real.size,
        both.released.size,
    )


def _mean_and_deviation(side: Side, values: Array) -> tuple[Array, Array]:
    mean = side.means(values)
    variance = np.maximum(0.0, side.means(values, 2) - np.square(mean))
    return mean, np.sqrt(variance)


def _shares(rows: Pooled, both: Sides, columns: list[Column]) -> pd.DataFrame:
    tables = [
        pd.DataFrame(
            {
                "column": column.name,
                "category": list(column.categories),
                "real": both.real.shares(rows.codes(column.name), len(column.categories))[0],
                "released": both.released.shares(rows.codes(column.name), len(column.categories))[
                    0
                ],
            }
        )
        for column in columns
        if isinstance(column, Categorical)
    ]
    return pd.concat(tables, ignore_index=True)


def _histograms(rows: Pooled, both: Sides, columns: list[Numeric]) -> pd.DataFrame:
    """Shares of both tables by bins, for the eye: long tails do not squeeze all into one bin."""
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
                    "real": both.real.shares(codes, len(edges) - 1)[0],
                    "released": both.released.shares(codes, len(edges) - 1)[0],
                }
            )
        )
    return pd.concat(tables, ignore_index=True)


def drawn_edges(real: Array, released: Array, integer: bool) -> Array:
    """Edges of equal bins over what both tables have but for their tails; one a value if few."""
    ends = [np.quantile(numbers, [DRAWN_TAIL, 1 - DRAWN_TAIL]) for numbers in (real, released)]
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    if integer:
        low, high = np.floor(low) - 0.5, np.ceil(high) + 0.5
        # A whole number of values a bin: otherwise some bins hold more values than others.
        width = np.ceil((high - low) / DRAWN_BINS)
        edges: Array = low + width * np.arange(int(np.ceil((high - low) / width)) + 1)
        return edges
    if high <= low:
        half = max(0.5, 0.05 * abs(low))
        low, high = low - half, high + half
    return np.linspace(low, high, DRAWN_BINS + 1)


def _named(columns: list[Column] | list[Numeric] | list[Categorical]) -> pd.DataFrame:
    kinds = ["numeric" if isinstance(column, Numeric) else "categorical" for column in columns]
    return pd.DataFrame({"column": [column.name for column in columns], "kind": kinds})
