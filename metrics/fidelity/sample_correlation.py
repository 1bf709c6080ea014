"""How the GATS paper argues that its rows are nobody's: correlations of rows, medians of columns.

Two rows are correlated across their columns (Pearson), each column standardised over the training
rows, as the paper standardises its data before anything else. Time is a column, the label is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import (
    Categorical,
    Direction,
    Evaluation,
    Family,
    Metric,
    NotComputable,
    Numeric,
    Output,
    Score,
    Scores,
    Task,
)
from bench.metrics._shared import bootstrap as _bootstrap
from bench.metrics._shared.intervals import clopper_pearson
from bench.metrics.fidelity._pooled import decoded_train

Array = npt.NDArray[np.float64]
Single = npt.NDArray[np.float32]

HALF = 0.5
"""The dotted lines of figure 3."""
FILTER = 0.75
"""Section 3: rows that correlate above this with a real row are to be thrown away."""
SIGNIFICANT = 0.05
"""Section 5.1.1."""
BINS = 80
"""From -1 to 1, of width 0.025."""
PAIRS_AT_MOST = 250_000_000
"""Beyond, rows to be compared with the training rows are drawn at random."""
COLUMNS_AT_LEAST = 3
"""Across two columns every correlation is 1 or -1."""

_INTERVAL = "Interval: 1000 bootstrap resamples of the released rows."
_CLASSES = (Task.CLASSIFICATION, Task.SURVIVAL)


@final
class SampleCorrelation(Metric):
    """Correlations of released rows with training rows (figure 3 of the GATS paper).

    Nearly all pairs of people are alike in little, whether one of them was released or not: the
    share of weak correlations is about the same for the training rows themselves. The control rows
    stand beside it for that reason. What can reveal a copy is each row's largest correlation.
    """

    name: ClassVar[str] = "sample-correlation"
    family: ClassVar[Family] = Family.PRIVACY
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "sample-correlation/below-half",
            Direction.NEUTRAL,
            "Share of pairs of a released and a training row with |r| < 0.5 (GATS paper, section "
            "5.1.1 and figure 3: the vast majority). No evidence of privacy by itself: a release "
            f"of the training rows has about the same share. {_INTERVAL}",
        ),
        Output(
            "sample-correlation/below-half-control",
            Direction.NEUTRAL,
            "The same share for control rows, which no method saw, in place of the released rows. "
            "Interval: 1000 bootstrap resamples of the control rows.",
        ),
        Output(
            "sample-correlation/closest",
            Direction.LOWER,
            "Median over released rows of the largest correlation with any training row. "
            f"{_INTERVAL}",
        ),
        Output(
            "sample-correlation/above-filter",
            Direction.LOWER,
            "Share of released rows that correlate above 0.75 with a training row, with the sign: "
            "what the filter of the GATS paper (section 3) is to remove. Interval: "
            "Clopper-Pearson over released rows.",
        ),
        Output(
            "sample-correlation/above-filter-control",
            Direction.NEUTRAL,
            "The same share for control rows: what people who are not in the training rows show. "
            "Interval: Clopper-Pearson over control rows.",
        ),
    )
    definition: ClassVar[str] = (
        "Pearson correlation of a released with a training row across all encoded columns, "
        "standardised over the training rows (GATS paper, sections 3 and 5.1.1). All pairs; beyond "
        "250 million, as many released rows drawn at random. The details hold the histogram."
    )
    tasks: ClassVar[tuple[Task, ...]] = _CLASSES
    cost: ClassVar[str] = "4 seconds at 100 encoded columns and 20,000 training rows"

    def compute(self, evaluation: Evaluation) -> Scores:
        rows, control = evaluation.rows, evaluation.dataset.control.rows
        real = evaluation.reference("sample-correlation/real", lambda rng: _Real.of(evaluation))
        rng = evaluation.generator("sample-correlation")
        kept = _positive(evaluation)
        released = real.compare(rows.values[kept], np.asarray(rows.labels)[kept], rng)
        half = self._half("sample-correlation/below-half", released, rng)
        closest = _bootstrap.bootstrap_median(released.largest, rng)
        scores = [
            half,
            closest.score(self, "sample-correlation/closest"),
            self._above("sample-correlation/above-filter", released),
        ]
        tables = [released.table("released")]
        names = ("sample-correlation/below-half-control", "sample-correlation/above-filter-control")
        if len(control):
            fresh = evaluation.reference(
                "sample-correlation/control",
                lambda own: real.compare(control.values, control.labels, own),
            )
            scores += [self._half(names[0], fresh, rng), self._above(names[1], fresh)]
            tables.append(fresh.table("control"))
        else:
            scores += [self.absent(name, "the dataset has no control rows") for name in names]
        histogram = pd.concat(tables, ignore_index=True)
        return Scores(tuple(scores), {"sample-correlation": histogram})

    def _half(self, output: str, found: _Found, rng: np.random.Generator) -> Score:
        strata = np.zeros(len(found.below))
        return _bootstrap.bootstrap(_bootstrap.mean(found.below), strata, rng).score(self, output)

    def _above(self, output: str, found: _Found) -> Score:
        count = int(np.count_nonzero(found.largest > FILTER))
        low, high = clopper_pearson(count, len(found.largest))
        return self.score(output, count / len(found.largest), low, high)


@final
@dataclass(frozen=True)
class _Found:
    """Of some rows, their correlations with the training rows."""

    below: Array
    """Of each row: share of training rows with |r| < 0.5."""
    largest: Single
    histogram: npt.NDArray[np.integer]
    """(2, bins): pairs of different classes, pairs of the same."""

    def table(self, kind: str) -> pd.DataFrame:
        """Figure 3: shares of pairs by correlation, for pairs of one class and of two."""
        edges = np.linspace(-1.0, 1.0, BINS + 1)
        shares = self.histogram / self.histogram.sum()
        return pd.DataFrame(
            {
                "rows": kind,
                "low": edges[:-1],
                "high": edges[1:],
                "different_class": shares[0],
                "same_class": shares[1],
            }
        )


@final
@dataclass(frozen=True)
class _Real:
    """The training rows as unit vectors: a correlation of two rows is their inner product."""

    units: Single
    """(columns, rows)"""
    labels: npt.NDArray[np.int64]
    varying: npt.NDArray[np.bool_]
    mean: Array
    spread: Array

    @classmethod
    def of(cls, evaluation: Evaluation) -> _Real:
        train = evaluation.dataset.train.rows
        if not len(train):
            raise NotComputable("the dataset has no training rows")
        mean = train.values.mean(axis=0, dtype=np.float64)
        spread = train.values.std(axis=0, dtype=np.float64)
        varying = spread > 1e-9
        if np.count_nonzero(varying) < COLUMNS_AT_LEAST:
            raise NotComputable(
                f"fewer than {COLUMNS_AT_LEAST} columns vary among the training rows: correlations "
                "across columns say nothing"
            )
        mean, spread = mean[varying], spread[varying]
        units = _unit((train.values[:, varying] - mean) / spread)
        labels = np.asarray(train.labels, dtype=np.int64)
        return cls(np.ascontiguousarray(units.T), labels, varying, mean, spread)

    def compare(
        self,
        values: npt.NDArray[np.floating],
        labels: npt.NDArray[np.integer],
        rng: np.random.Generator,
    ) -> _Found:
        """Correlate rows, or as many of them as are allowed, with all training rows."""
        from bench.metrics.fidelity._correlation_kernels import correlate

        total = self.units.shape[1]
        most = max(1, PAIRS_AT_MOST // total)
        if len(values) > most:
            drawn = np.sort(rng.choice(len(values), most, replace=False))
            values, labels = values[drawn], labels[drawn]
        units = _unit((np.asarray(values)[:, self.varying] - self.mean) / self.spread)
        codes = np.asarray(labels, dtype=np.int64)
        counts, largest, histogram = correlate(units, self.units, codes, self.labels, HALF, BINS)
        # Single precision may leave the length of a unit vector a digit above 1.
        return _Found(counts / total, np.minimum(largest, np.float32(1.0)), histogram)


def _unit(values: Array) -> Single:
    """Rows centred and of length one; a row without variation becomes zero, correlated to none."""
    centred = values - values.mean(axis=1, keepdims=True)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    units: Single = (centred / np.where(length > 1e-9, length, np.inf)).astype(np.float32)
    return units


def _positive(evaluation: Evaluation) -> npt.NDArray[np.intp]:
    """Released rows that count at all."""
    rows = evaluation.rows
    kept = np.arange(len(rows)) if rows.weights is None else np.flatnonzero(rows.weights > 0)
    if not kept.size:
        raise NotComputable("every released row has weight 0")
    return kept


@final
class KruskalWallis(Metric):
    """Do the columns of release and training rows have the same ranks?

    Two groups a column: the training rows and the released rows, whole tables. The paper takes a
    difference in every column (p < 0.05) as a sign that its rows are not the patients. With tens
    of thousands of rows the smallest shift is significant: the effect tells how large it is.
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
    tasks: ClassVar[tuple[Task, ...]] = _CLASSES

    def compute(self, evaluation: Evaluation) -> Scores:
        weights = evaluation.rows.weights
        kept = _positive(evaluation)
        if weights is not None and np.ptp(weights[kept]) > 0:
            raise NotComputable("the released rows have weights, which a rank test does not know")
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
