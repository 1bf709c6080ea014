"""One metric over the seeds of a row, computed for all rows at once, since there are millions."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pandas as pd

Numbers = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]


@final
@dataclass(frozen=True, slots=True)
class Span:
    """Smallest and largest value over seeds."""

    low: float
    high: float


@final
@dataclass(frozen=True, slots=True)
class Measure:
    """One metric over the seeds of a row."""

    metric: str
    direction: str
    family: str
    value: float | None
    """Mean over seeds."""
    low: float | None
    """Mean over seeds of the lower end of the test-set interval; None unless all have one."""
    high: float | None
    seeds: Span | None
    """Smallest and largest over seeds; None for fewer than two."""
    deviation: float | None
    """Standard deviation over seeds (n - 1); None for fewer than two."""
    count: int
    reasons: tuple[str, ...]
    """Why some seeds have no value."""
    limit: float | None = None
    """The paper's acceptance threshold, where it has one."""
    remark: str = ""
    shown: bool = True


@final
class _Runs:
    """Scores sorted so that those of one row and metric form a run; sums over runs."""

    def __init__(self, order: Positions, run: Positions) -> None:
        self.order = order
        """Indices of the scores in the order of their runs."""
        self.starts = np.flatnonzero(np.append(True, run[1:] != run[:-1]))
        self.lengths = np.diff(np.append(self.starts, len(run)))

    def numbers(self, column: pd.Series[float]) -> Numbers:
        """Return a column of the scores, run by run."""
        return np.asarray(column, dtype=np.float64)[self.order]

    def first(self, column: pd.Series[str]) -> list[str]:
        """Return the first text of each run."""
        return list(column.to_numpy()[self.order[self.starts]])

    def sum(self, values: Numbers | npt.NDArray[np.bool_]) -> Numbers:
        """Return the sum over each run."""
        total: Numbers = np.add.reduceat(values, self.starts, dtype=np.float64)
        return total

    def texts(self, column: pd.Series[str], wanted: npt.NDArray[np.bool_]) -> list[tuple[str, ...]]:
        """Return the distinct texts of each run among the wanted scores; most runs have none."""
        by_run: list[tuple[str, ...]] = [()] * len(self.starts)
        codes, known = pd.factorize(column)
        told = np.flatnonzero(wanted & (known != "")[codes][self.order])
        places = np.searchsorted(self.starts, told, side="right") - 1
        for place, code in zip(places.tolist(), codes[self.order[told]].tolist(), strict=True):
            if known[code] not in by_run[place]:
                by_run[place] = (*by_run[place], known[code])
        return by_run


def measures_by_row(
    scores: pd.DataFrame, keys: Sequence[str], rows: Sequence[int]
) -> list[dict[str, Measure]]:
    """Return the measures of each row by metric, in the order of their names.

    `keys` are the keys of the cells in the order in which texts are listed, `rows` the numbers of
    the rows that the cells belong to.
    """
    by_row: list[dict[str, Measure]] = [{} for _ in range(max(rows, default=-1) + 1)]
    cell = pd.Index(keys).get_indexer(pd.Index(scores["key"]))
    known = np.flatnonzero(cell >= 0)
    if not len(known):
        return by_row
    metric, names = pd.factorize(scores["metric"], sort=True)
    run = np.asarray(rows, dtype=np.int64)[cell] * len(names) + metric
    order = known[np.argsort((run * len(keys) + cell)[known], kind="stable")]
    runs = _Runs(order, run[order])
    texts = names.tolist()
    with _no_collection():
        starts = run[order][runs.starts].tolist()
        for place, *values in zip(starts, *_columns(scores, runs), strict=True):
            name = texts[place % len(texts)]
            by_row[place // len(texts)][name] = Measure(name, *values)
    return by_row


def _columns(scores: pd.DataFrame, runs: _Runs) -> list[Sequence[Any]]:
    """Return the fields of `Measure` after its name, as one sequence each."""
    value, low, high = (runs.numbers(scores[name]) for name in ("value", "low", "high"))
    present = ~np.isnan(value)
    count = runs.sum(present)
    # Seeds without a value do not count for whether all have an interval.
    bounded = runs.sum(present & (np.isnan(low) | np.isnan(high))) == 0
    least = np.minimum.reduceat(np.where(present, value, np.inf), runs.starts)
    largest = np.maximum.reduceat(np.where(present, value, -np.inf), runs.starts)
    # Infinite values have neither a deviation nor a mean.
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        mean = runs.sum(np.where(present, value, 0.0)) / count
        ends = [
            np.where(bounded, runs.sum(np.where(present, end, 0.0)) / count, np.nan)
            for end in (low, high)
        ]
        squares = np.where(present, (value - np.repeat(mean, runs.lengths)) ** 2, 0.0)
        deviation = np.sqrt(runs.sum(squares) / (count - 1))
    # The mean of equal values can differ from them by a rounding error.
    deviation = np.where(least == largest, 0.0, deviation)
    regular = (count > 1) & np.isfinite(least) & np.isfinite(largest)
    last = runs.order[runs.starts + runs.lengths - 1]
    shown = scores["shown"].to_numpy(dtype=bool)[runs.order]
    return [
        runs.first(scores["direction"]),
        runs.first(scores["family"]),
        _optional(mean),
        *map(_optional, ends),
        [
            Span(lowest, highest) if values > 1 else None
            for lowest, highest, values in zip(least.tolist(), largest.tolist(), count, strict=True)
        ],
        _optional(np.where(regular, deviation, np.nan)),
        count.astype(np.int64).tolist(),
        runs.texts(scores["reason"], ~present),
        _optional(scores["limit"].to_numpy(dtype=np.float64)[last]),
        ["; ".join(remarks) for remarks in runs.texts(scores["remark"], np.ones(len(value), bool))],
        np.logical_or.reduceat(shown, runs.starts).tolist(),
    ]


def _optional(values: Numbers) -> list[float | None]:
    """Return the values with None instead of NaN."""
    optional = values.astype(object)
    optional[np.isnan(values)] = None
    return list(optional)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Disable garbage collection, which would scan a million live records repeatedly."""
    active = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if active:
            gc.enable()
