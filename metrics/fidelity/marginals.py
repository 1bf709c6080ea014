"""Marginals of one, two and three columns, random queries, and NIST's k-marginal score.

These are the numbers in which papers on differentially private synthetic tables report their error.
All columns take part, the label and the time too, over public categories or bins. One pass over the
sampled sets of three columns gives the marginal error, the queries and the score.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import pandas as pd

from bench import Direction, Evaluation, Family, Integers, Metric, Output, Scores, Task
from bench.metrics._shared.bootstrap import Array, Estimate
from bench.metrics.fidelity._pooled import feature_columns, grouped_tables, pooled
from bench.metrics.fidelity.columns import binned

SETS = 64
"""Sets of columns of one size, at most; all of them where there are no more."""

QUERIES = 16
"""Random queries on each set of three columns."""

RESAMPLES = 50
"""Each resample recounts thousands of cells: 50 give the spread of a mean over many sets."""

MOST = 1000.0
"""Best k-marginal score."""

_SETS_AND_INTERVAL = (
    "Columns are the features, the time and the label; numeric ones are cut into 20 bins of equal "
    "width over the public range (one per value for integers of fewer values). Weights as for ks: "
    "released rows stand for the real class shares. Interval: 50 bootstrap resamples of both "
    "tables, of rows in up to 100 random groups (released rows within class), corrected for the "
    "inflation of distances between resamples."
)


@final
class Marginals(Metric):
    """Error of marginals of one, two and three columns, and of random queries of three."""

    name: ClassVar[str] = "marginal-error"
    family: ClassVar[Family] = Family.FIDELITY
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "marginal-error/1-way",
            Direction.LOWER,
            "Total variation distance of single columns between training rows and released rows, "
            f"mean over all columns. {_SETS_AND_INTERVAL}",
        ),
        Output(
            "marginal-error/2-way",
            Direction.LOWER,
            "Total variation distance of the joint distribution of two columns, mean over all "
            f"pairs, or a sample of 64 that is the same for every release of a dataset. "
            f"{_SETS_AND_INTERVAL}",
        ),
        Output(
            "marginal-error/3-way",
            Direction.LOWER,
            "Total variation distance of the joint distribution of three columns, mean over all "
            f"sets of three, or a sample of 64 that is the same for every release of a dataset. "
            f"{_SETS_AND_INTERVAL}",
            shown=True,
        ),
        Output(
            "query-error/3-way",
            Direction.LOWER,
            "Absolute error of the share of rows that a random query counts, mean over 16 queries "
            "on each of the same sets of three columns: in each column a range between two random "
            "bins if it is numeric, or else every category with probability one half, and at least "
            "one (after the range queries of Zhang et al., PrivSyn, USENIX Security 2021, section "
            f"6). {_SETS_AND_INTERVAL}",
            shown=True,
        ),
        Output(
            "k-marginal",
            Direction.HIGHER,
            "NIST's k-marginal score for k = 3: 1000 (1 - mean total variation distance) over the "
            "same sets of three columns; 1000 is a perfect match, 0 shares no cell. NIST's own "
            "tool, SDNist, computes 500 (2 - mean sum of absolute differences), which is the same "
            "number, but bins by its own dictionaries and draws other sets: scores compare within "
            f"this benchmark only. {_SETS_AND_INTERVAL}",
            shown=True,
        ),
    )
    definition: ClassVar[str] = (
        "Marginals and random queries of released rows beside those of the training rows. Small "
        "releases cannot be close: 100 rows fill at most 100 of the thousands of cells of three "
        "columns. Compare releases of the same size, and with `subset` of that size."
    )
    tasks: ClassVar[tuple[Task, ...]] = (Task.CLASSIFICATION, Task.SURVIVAL)

    def compute(self, evaluation: Evaluation) -> Scores:
        table = _coded(evaluation)
        errors: dict[int, tuple[Array, Array]] = {}
        details = []
        for size in (1, 2, 3):
            if len(table.names) < size:
                continue
            sets = column_sets(evaluation, len(table.names), size)
            values = np.stack([_errors(evaluation, table, columns) for columns in sets])
            errors[size] = values[..., 0].mean(axis=0), values[..., 1].mean(axis=0)
            details += [
                {
                    "columns": ", ".join(table.names[column] for column in columns),
                    "size": size,
                    "tvd": float(value[0, 0]),
                }
                for columns, value in zip(sets, values, strict=True)
            ]
        scores = []
        for output in self.declared():
            size = int(output.name[-5]) if output.name.endswith("-way") else 3
            if size not in errors:
                scores.append(self.absent(output.name, f"the table has fewer than {size} columns"))
                continue
            of_marginals, of_queries = (Estimate.of(samples) for samples in errors[size])
            if output.name == "k-marginal":
                low, high = of_marginals.distance_interval()
                score, lower, upper = (
                    MOST * (1.0 - end) for end in (of_marginals.value, high, low)
                )
                scores.append(self.score(output.name, score, lower, upper))
            else:
                estimate = of_queries if output.name.startswith("query") else of_marginals
                scores.append(estimate.distance_score(self, output.name))
        return Scores(tuple(scores), {"marginals": pd.DataFrame(details)})


@final
@dataclass(frozen=True)
class _Coded:
    """All rows of both tables as codes of public categories or bins."""

    names: tuple[str, ...]
    codes: tuple[Integers, ...]
    counts: tuple[int, ...]
    ordered: tuple[bool, ...]


def _coded(evaluation: Evaluation) -> _Coded:
    def build() -> _Coded:
        rows, schema = pooled(evaluation), evaluation.dataset.schema
        columns = [*feature_columns(evaluation), schema.label]
        pairs = [binned(rows, column) for column in columns]
        return _Coded(
            tuple(column.name for column in columns),
            tuple(codes for codes, _ in pairs),
            tuple(count for _, count in pairs),
            tuple(not hasattr(column, "categories") for column in columns),
        )

    return evaluation.shared("fidelity/codes", build)


def column_sets(evaluation: Evaluation, columns: int, size: int) -> list[tuple[int, ...]]:
    """Sets of columns: all of them, or a sample that is the same for all releases of a dataset."""
    if size == 1:
        return [(column,) for column in range(columns)]

    def draw(rng: np.random.Generator) -> list[list[int]]:
        if math.comb(columns, size) <= SETS:
            return [list(chosen) for chosen in itertools.combinations(range(columns), size)]
        drawn: set[tuple[int, ...]] = set()
        while len(drawn) < SETS:
            chosen = rng.choice(columns, size, replace=False)
            drawn.add(tuple(sorted(int(column) for column in chosen)))
        return [list(chosen) for chosen in sorted(drawn)]

    purpose = f"fidelity/column sets/{columns}/{size}/{SETS}"
    return [tuple(chosen) for chosen in evaluation.reference(purpose, draw)]


def _errors(evaluation: Evaluation, table: _Coded, columns: Sequence[int]) -> Array:
    """(1 + resamples, 2): distance of one marginal, and mean error of random queries on it."""
    both = grouped_tables(evaluation, RESAMPLES)
    shape = [table.counts[column] for column in columns]
    cells = np.ravel_multi_index([table.codes[column] for column in columns], shape)
    # Most cells of three columns are empty in both tables: they add nothing.
    occupied = np.bincount(cells, minlength=math.prod(shape)) > 0
    codes = (np.cumsum(occupied) - 1)[cells]
    count = int(occupied.sum())
    gap = both.released.shares(codes, count)
    gap -= both.real.shares(codes, count)
    result = np.zeros((len(gap), 2))
    result[:, 0] = 0.5 * np.abs(gap).sum(axis=1)
    if len(columns) == 3:
        chosen = queries(evaluation, table.ordered, table.counts, columns)
        places = np.unravel_index(np.flatnonzero(occupied), shape)
        counted = np.ones((QUERIES, count), dtype=bool)
        for part, place in zip(chosen, places, strict=True):
            counted &= part[:, place]
        result[:, 1] = np.abs(gap @ counted.T.astype(np.float64)).mean(axis=1)
    return result


def queries(
    evaluation: Evaluation, ordered: Sequence[bool], counts: Sequence[int], columns: Sequence[int]
) -> list[np.ndarray]:
    """(queries, bins) for each column: which bins or categories a query counts."""

    def draw(rng: np.random.Generator) -> list[np.ndarray]:
        parts = []
        for column in columns:
            bins = np.arange(counts[column])
            if ordered[column]:
                ends = np.sort(rng.integers(counts[column], size=(QUERIES, 2)), axis=1)
                parts.append((bins >= ends[:, :1]) & (bins <= ends[:, 1:]))
            else:
                part = rng.random((QUERIES, len(bins))) < 0.5
                part[np.arange(QUERIES), rng.integers(len(bins), size=QUERIES)] = True
                parts.append(part)
        return parts

    return evaluation.reference(f"fidelity/queries/{QUERIES}/{tuple(columns)}", draw)
