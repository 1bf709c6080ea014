"""Correlations of released rows with training rows, by which the GATS paper argues for privacy.

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
    Direction,
    Evaluation,
    Family,
    Metric,
    NotComputable,
    Output,
    Score,
    Scores,
    Task,
)
from bench.metrics._shared import bootstrap
from bench.metrics._shared.intervals import share
from bench.metrics._shared.rows import positive_rows, real_training_rows

Array = npt.NDArray[np.float64]
Single = npt.NDArray[np.float32]

HALF = 0.5
"""Dotted lines of figure 3."""
FILTER = 0.75
"""Section 3: rows that correlate above this with a real row are to be thrown away."""
BINS = 80
"""Bins of the histogram from -1 to 1, of width 0.025."""
PAIRS_AT_MOST = 250_000_000
"""Largest number of pairs; beyond, rows to be compared are drawn at random."""
COLUMNS_AT_LEAST = 3
"""Across two columns every correlation is 1 or -1."""

_INTERVAL = "Interval: 1000 bootstrap resamples of the released rows."


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
    tasks: ClassVar[tuple[Task, ...]] = (Task.CLASSIFICATION, Task.SURVIVAL)
    cost: ClassVar[str] = "4 seconds at 100 encoded columns and 20,000 training rows"

    def compute(self, evaluation: Evaluation) -> Scores:
        rows, control = evaluation.rows, evaluation.dataset.control.rows
        real = evaluation.reference(
            "sample-correlation/real", lambda rng: _StandardisedRows.of(evaluation)
        )
        rng = evaluation.generator("sample-correlation")
        kept = positive_rows(evaluation)
        released = real.compare(rows.values[kept], np.asarray(rows.labels)[kept], rng)
        half = self._half("sample-correlation/below-half", released, rng)
        closest = bootstrap.bootstrap_median(released.largest, rng)
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
                lambda rng: real.compare(control.values, control.labels, rng),
            )
            scores += [self._half(names[0], fresh, rng), self._above(names[1], fresh)]
            tables.append(fresh.table("control"))
        else:
            scores += [self.absent(name, "the dataset has no control rows") for name in names]
        histogram = pd.concat(tables, ignore_index=True)
        return Scores(tuple(scores), {"sample-correlation": histogram})

    def _half(self, output: str, rows: _Correlations, rng: np.random.Generator) -> Score:
        strata = np.zeros(len(rows.below))
        return bootstrap.bootstrap(bootstrap.mean(rows.below), strata, rng).score(self, output)

    def _above(self, output: str, rows: _Correlations) -> Score:
        return share(rows.largest > FILTER).score(self, output)


@final
@dataclass(frozen=True)
class _Correlations:
    """Correlations of some rows with the training rows."""

    below: Array
    """Share of training rows with |r| < 0.5, for each row."""
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
class _StandardisedRows:
    """The training rows in standardised columns.

    A correlation of two rows is the inner product of their centred vectors of length one. If one of
    them is centred, the other need not be: r(q, z) = q'z / |z - mean(z)| for a centred q of length
    one. Most columns of z hold two values only (those of categories), so that q'z is that of a row
    with the usual value in each of them, plus a change for each column in which z has the other
    one: some ten additions for a pair instead of a hundred.
    """

    usual: Array
    change: Array
    """Other minus usual value of each two-valued column."""
    two_valued: npt.NDArray[np.intp]
    numeric: npt.NDArray[np.intp]
    starts: npt.NDArray[np.int64]
    """Place in `flags` of the first flag of each row, and the number of all."""
    flags: npt.NDArray[np.int64]
    """Two-valued columns with the other value, row by row."""
    numbers: Single
    """(rows, numeric columns)"""
    inverse_lengths: Single
    """Zero for a row without variation: correlated to none."""
    labels: npt.NDArray[np.int64]
    varying: npt.NDArray[np.bool_]
    mean: Array
    spread: Array

    @classmethod
    def of(cls, evaluation: Evaluation) -> _StandardisedRows:
        train = real_training_rows(evaluation)
        mean = train.values.mean(axis=0, dtype=np.float64)
        spread = train.values.std(axis=0, dtype=np.float64)
        varying = spread > 1e-9
        if np.count_nonzero(varying) < COLUMNS_AT_LEAST:
            raise NotComputable(
                f"fewer than {COLUMNS_AT_LEAST} columns vary among the training rows: correlations "
                "across columns are not informative"
            )
        mean, spread = mean[varying], spread[varying]
        values = (train.values[:, varying] - mean) / spread
        low, high = values.min(axis=0), values.max(axis=0)
        at_high = values == high
        two = (at_high | (values == low)).all(axis=0)
        mostly_high = 2 * np.count_nonzero(at_high, axis=0) > len(values)
        usual, other = np.where(mostly_high, high, low), np.where(mostly_high, low, high)
        flagged = values[:, two] != usual[two]
        lengths = np.linalg.norm(values - values.mean(axis=1, keepdims=True), axis=1)
        return cls(
            usual[two],
            (other - usual)[two],
            np.flatnonzero(two),
            np.flatnonzero(~two),
            np.append(0, np.cumsum(np.count_nonzero(flagged, axis=1))).astype(np.int64),
            np.nonzero(flagged)[1].astype(np.int64),
            np.ascontiguousarray(values[:, ~two], dtype=np.float32),
            (1.0 / np.where(lengths > 1e-9, lengths, np.inf)).astype(np.float32),
            np.asarray(train.labels, dtype=np.int64),
            varying,
            mean,
            spread,
        )

    def compare(
        self,
        values: npt.NDArray[np.floating],
        labels: npt.NDArray[np.integer],
        rng: np.random.Generator,
    ) -> _Correlations:
        """Correlate rows, or as many of them as are allowed, with all training rows."""
        from bench.metrics.privacy.disclosure._row_correlations import correlate

        total = len(self.labels)
        most = max(1, PAIRS_AT_MOST // total)
        if len(values) > most:
            drawn = np.sort(rng.choice(len(values), most, replace=False))
            values, labels = values[drawn], labels[drawn]
        units = _unit((np.asarray(values)[:, self.varying] - self.mean) / self.spread)
        in_two = units[:, self.two_valued]
        counts, largest, histogram = correlate(
            (in_two @ self.usual).astype(np.float32),
            np.ascontiguousarray((in_two * self.change).T, dtype=np.float32),
            np.ascontiguousarray(units[:, self.numeric].T, dtype=np.float32),
            self.starts,
            self.flags,
            self.numbers,
            self.inverse_lengths,
            np.asarray(labels, dtype=np.int64),
            self.labels,
            HALF,
            BINS,
        )
        # Single precision may leave a correlation a digit above 1.
        return _Correlations(counts / total, np.minimum(largest, np.float32(1.0)), histogram)


def _unit(values: Array) -> Array:
    """Rows centred and of length one; a row without variation becomes zero, correlated to none."""
    centred = values - values.mean(axis=1, keepdims=True)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    units: Array = centred / np.where(length > 1e-9, length, np.inf)
    return units
