"""The record distance of the fidelity paper, and exact nearest records by it.

Section 3.1, equation 1, all weights 1: the mean over the columns of a term in [0, 1].

* Categorical: 0 for equal, 1 for different categories; a missing value is one more category.
* Numeric: the printed term, (1 + min) / (1 + max) for min >= 0 and 1 / (1 + max + |min|) below, is
  a similarity (it is 1 for equal values), so that the distance is one minus it. Units are those of
  the table, as printed: a difference of 1 counts more between small values than large ones.
* Numeric and missing: 1 when one of the two is missing, 0 when both are.

The alternative that the paper reports its results by is the same with numbers put into percentile
bins and compared like categories: see `binned`.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import Categorical, Encoder, Evaluation, Numeric

Array = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

PERCENTILE_BINS = 10
"""Bins of `binned` by default: deciles."""

_QUERIES, _REFERENCES = 64, 1024
"""Rows at a time: long enough for the vector units, few enough for the cache."""

_KEYED, _LONG = 1024, 1024
"""Rows that are spelled out at a time; bytes of a row that is not kept as it is."""

_FEW_COLUMNS = 100
"""Columns up to which rows are numbered column after column; images are hashed."""

_UNIT = 2.0**-24
"""Rounding of float32, relative."""

_HUGE = 1e30
"""Values from which single precision may overflow: every pair is then compared exactly."""


@final
@dataclass(frozen=True)
class Records:
    """A table in the form that the distance needs."""

    numbers: Array
    """(rows, numeric columns); NaN is missing."""
    codes: npt.NDArray[np.int32]
    """(rows, categorical columns); -1 is missing."""

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def width(self) -> int:
        """Number of columns."""
        return int(self.numbers.shape[1] + self.codes.shape[1])

    @functools.cached_property
    def distinct(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """First row of each record, and the number of rows that equal it."""
        names = identities(self)[0]
        return np.unique(names, return_index=True, return_counts=True)[1:]

    @classmethod
    def of(
        cls, encoder: Encoder, decoded: pd.DataFrame, only: Collection[str] | None = None
    ) -> Records:
        """A decoded table: every feature, the time, and the label; or those named in `only`."""
        columns = [block.column for block in encoder.blocks] + [encoder.schema.label]
        columns = [column for column in columns if only is None or column.name in only]
        numbers = [
            decoded[column.name].to_numpy(dtype=np.float64)
            for column in columns
            if isinstance(column, Numeric)
        ]
        codes = [
            pd.Categorical(decoded[column.name], categories=list(column.categories)).codes
            for column in columns
            if isinstance(column, Categorical)
        ]
        rows = len(decoded)
        return cls(
            np.column_stack([np.empty((rows, 0)), *numbers]),
            np.column_stack([np.empty((rows, 0), dtype=np.int32), *codes]).astype(np.int32),
        )

    def take(self, index: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Records:
        """The rows at `index`."""
        return Records(self.numbers[index], self.codes[index])


def stacked(*tables: Records) -> Records:
    """The rows of several tables, one table after the other."""
    return Records(
        np.concatenate([table.numbers for table in tables]),
        np.concatenate([table.codes for table in tables]),
    )


def distances(left: Records, right: Records) -> Array:
    """Distance of each row on the left to the row beside it on the right."""
    total = np.zeros(len(left))
    # Column by column: the sum then has the same rounding as that of the compiled loop.
    for first, second in zip(left.numbers.T, right.numbers.T, strict=True):
        apart = np.abs(first - second)
        # One minus either printed term: apart is above both values where one of them is negative.
        terms = apart / (1.0 + np.maximum(apart, np.maximum(first, second)))
        unknown = np.isnan(first).astype(np.int8) + np.isnan(second)
        total += np.where(unknown == 0, terms, unknown == 1)
    total += np.count_nonzero(left.codes != right.codes, axis=1)
    return total / left.width


def identities(*tables: Records) -> list[npt.NDArray[np.intp]]:
    """Return a number for each row of each table; equal rows, and only those, get equal numbers."""
    if all(table.width <= _FEW_COLUMNS for table in tables):
        numbers = _numbered(stacked(*tables))
        return np.split(numbers, np.cumsum([len(table) for table in tables])[:-1])
    known: dict[bytes, int] = {}
    return [
        np.fromiter((known.setdefault(key, len(known)) for key in _keys(table)), np.intp)
        for table in tables
    ]


def _numbered(table: Records) -> npt.NDArray[np.intp]:
    """Numbers of the rows by what they hold, in order of appearance: column after column.

    Rows that are equal so far share a number; the next column splits them.
    """
    numbers, count = np.zeros(len(table), dtype=np.int64), 1
    for column in (*table.numbers.T, *table.codes.T):
        # Missing values are -1, all of them equal.
        codes, values = pd.factorize(np.ascontiguousarray(column))
        numbers = numbers * (len(values) + 1) + codes + 1
        count *= len(values) + 1
        if count > 2**31:
            numbers, kept = pd.factorize(numbers)
            count = len(kept)
    return pd.factorize(numbers)[0].astype(np.intp)


def _keys(table: Records) -> Iterator[bytes]:
    """The content of each row; of a long row (an image) a hash that stands for it."""
    for start in range(0, len(table), _KEYED):
        rows = slice(start, start + _KEYED)
        numbers = table.numbers[rows] + 0.0  # -0.0 equals 0.0
        numbers[np.isnan(numbers)] = np.nan  # one spelling of missing
        joined = np.column_stack([numbers, table.codes[rows]])
        size, content = joined.itemsize * joined.shape[1], joined.tobytes()
        for place in range(0, len(content), size):
            key = content[place : place + size]
            yield key if size <= _LONG else hashlib.blake2b(key).digest()


def nearest(queries: Records, references: Records, threads: int = 1) -> Array:
    """Distance of each query to its closest reference: exact, in blocks, for any table size."""
    return k_nearest(queries, references, 1, threads)[:, 0]


def k_nearest(queries: Records, references: Records, k: int, threads: int = 1) -> Array:
    """Distances of each query to its k closest reference rows, in order: (queries, k).

    Equal reference rows count one by one. The k + 1 closest rows of a table in itself, without the
    first column, are therefore the k closest of each row among the others.
    """
    if k > len(references):
        raise ValueError(f"no reference rows to compare with: {len(references)} of {k}")
    first, counts = references.distinct
    closest = neighbours(queries, references.take(first), min(k, len(first)), threads)
    up_to = np.cumsum(counts[closest.index], axis=1)
    places = (up_to[:, :, None] <= np.arange(k)).sum(axis=1)
    return np.take_along_axis(closest.distances, places, axis=1)


@final
@dataclass(frozen=True)
class Neighbours:
    """The closest references of each query, closest first."""

    distances: Array
    index: npt.NDArray[np.int64]


@final
@dataclass(frozen=True)
class ReferenceRange:
    """Consecutive references among which the k closest are looked for."""

    start: int
    stop: int
    k: int = 1


def neighbours(
    queries: Records,
    references: Records,
    k: int = 1,
    threads: int = 1,
    rng: np.random.Generator | None = None,
) -> Neighbours:
    """The k closest references of each query: `neighbours_within` the whole table."""
    part = ReferenceRange(0, len(references), k)
    return neighbours_within(queries, references, [part], threads, rng)[0]


def neighbours_within(
    queries: Records,
    references: Records,
    parts: Sequence[ReferenceRange],
    threads: int = 1,
    rng: np.random.Generator | None = None,
) -> list[Neighbours]:
    """The closest references of each query within each part, all found in one pass.

    All pairs are compared in single precision, in blocks. Only references that may be among the
    closest, given the largest possible rounding error, are compared again in double precision. Of
    equally close references the first ones are taken; with a generator, others for each query.
    """
    return _found(queries, references, parts, threads, rng, back=False)[0]


def both_ways(
    queries: Records,
    references: Records,
    parts: Sequence[ReferenceRange],
    threads: int = 1,
    rng: np.random.Generator | None = None,
) -> tuple[list[Neighbours], Array]:
    """Return `neighbours_within`, and the distance of each reference to its closest query.

    The latter are `nearest(references, queries)`, from the same comparisons of all pairs.
    """
    if not len(queries):
        raise ValueError("no rows to compare with")
    return _found(queries, references, parts, threads, rng, back=True)


def _found(
    queries: Records,
    references: Records,
    parts: Sequence[ReferenceRange],
    threads: int,
    rng: np.random.Generator | None,
    back: bool,
) -> tuple[list[Neighbours], Array]:
    for part in parts:
        if part.k > part.stop - part.start:
            count = part.stop - part.start
            raise ValueError(f"no reference rows to compare with: {count} of {part.k}")
    turns = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    if rng is not None:
        # References beyond the last part are never chosen, and need no place on the circle.
        count = max((part.stop for part in parts), default=0)
        evenly = 2**32 // max(1, count)
        turns = rng.integers(2**32, size=len(queries)), rng.permutation(count) * evenly
    search = _Search(queries, references, parts, turns, back)
    starts = range(0, len(queries), _QUERIES)
    groups = max(1, min(threads, len(starts)))

    def block_of(group: int) -> tuple[list[list[Neighbours]], Array]:
        """Every so many blocks: each group keeps the closest queries that it has seen."""
        closest = np.full(len(references) if back else 0, np.inf)
        return [search.block(start, closest) for start in starts[group::groups]], closest

    # Blocks do not depend on each other, and the loops let go of the interpreter lock.
    with ThreadPoolExecutor(max_workers=groups) as pool:
        done = list(pool.map(block_of, range(groups)))
    blocks = [done[number % groups][0][number // groups] for number in range(len(starts))]
    found = [
        Neighbours(
            np.concatenate([np.empty((0, part.k)), *(block[n].distances for block in blocks)]),
            np.concatenate([np.empty((0, part.k), int), *(block[n].index for block in blocks)]),
        )
        for n, part in enumerate(parts)
    ]
    return found, np.minimum.reduce([closest for _, closest in done])


@final
class _Search:
    """Closest references of blocks of queries."""

    def __init__(
        self,
        queries: Records,
        references: Records,
        parts: Sequence[ReferenceRange],
        turns: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
        back: bool,
    ) -> None:
        self._rows, self._references, self._back = len(queries), len(references), back
        # A query that equals another one is nowhere closer; its rows would all be compared again.
        self._used = np.zeros(len(queries) if back else 0, dtype=np.bool_)
        if back:
            self._used[queries.distinct[0]] = True
        self._parts, self._turns = parts, turns
        self._exact = tuple(
            (np.ascontiguousarray(table.numbers), np.ascontiguousarray(table.codes))
            for table in (queries, references)
        )
        # A column without negative or missing values needs neither division nor case distinction.
        plain = np.array(
            [
                bool((first >= 0).all() and (second >= 0).all())
                for first, second in zip(queries.numbers.T, references.numbers.T, strict=True)
            ],
            dtype=np.bool_,
        )
        self._ratios = tuple(_ratios(table.numbers, plain) for table in (queries, references))
        self._terms = tuple(_terms(table.numbers, ~plain) for table in (queries, references))
        most = max(queries.codes.max(initial=0), references.codes.max(initial=0))
        kind: type[np.signedinteger[Any]] = np.int8 if most <= np.iinfo(np.int8).max else np.int32
        self._codes = tuple(
            np.ascontiguousarray(table.codes.T, dtype=kind) for table in (queries, references)
        )
        self._margin = _margin(queries, references, len(turns[0]) > 0)
        self._margin_back = _margin(queries, references, ties=False)

    def block(self, start: int, closest: Array) -> list[Neighbours]:
        """The closest references of the queries from `start` on.

        `closest` has the distance of each reference to the closest query so far, where wanted.
        """
        from bench.metrics._shared import kernels

        rows = slice(start, min(start + _QUERIES, self._rows))
        count = rows.stop - rows.start
        nearest_of_parts = [
            Neighbours(np.full((count, part.k), np.inf), np.zeros((count, part.k), np.int64))
            for part in self._parts
        ]
        numbers, codes = self._exact[0]
        query = numbers[rows], codes[rows]
        turns = self._turns[0][rows], self._turns[1]
        for first in range(0, self._references, _REFERENCES):
            last = min(first + _REFERENCES, self._references)
            sums = np.zeros((count, last - first), dtype=np.float32)
            # A kernel is compiled when it is called first: those not needed never are.
            if self._codes[1].size:
                kernels.add_differences(sums, self._codes[0], start, self._codes[1], first)
            if self._ratios[1].size:
                kernels.add_ratios(sums, self._ratios[0], start, self._ratios[1], first)
            if self._terms[1].size:
                kernels.add_terms(sums, self._terms[0], start, self._terms[1], first)
            for part, of_part in zip(self._parts, nearest_of_parts, strict=True):
                kernels.select(
                    sums,
                    first,
                    (part.start, part.stop),
                    self._margin,
                    query,
                    self._exact[1],
                    turns,
                    of_part.distances,
                    of_part.index,
                )
            if self._back:
                kernels.select_back(
                    sums,
                    first,
                    self._margin_back,
                    self._used[rows],
                    query,
                    self._exact[1],
                    closest,
                )
        return nearest_of_parts


def _ratios(numbers: Array, chosen: npt.NDArray[np.bool_]) -> Singles:
    """(columns, 2, rows): one plus each value, and its inverse."""
    table = np.empty((np.count_nonzero(chosen), 2, len(numbers)), dtype=np.float32)
    for of_column, column in zip(table, numbers.T[chosen], strict=True):
        one_more = 1.0 + np.minimum(column, _HUGE)
        of_column[0], of_column[1] = one_more, 1.0 / one_more
    return table


def _terms(numbers: Array, chosen: npt.NDArray[np.bool_]) -> Singles:
    """(columns, 2, rows): each value, 0 for a missing one, and whether it is known."""
    table = np.empty((np.count_nonzero(chosen), 2, len(numbers)), dtype=np.float32)
    for of_column, column in zip(table, numbers.T[chosen], strict=True):
        known = ~np.isnan(column)
        of_column[0] = np.where(known, np.clip(column, -_HUGE, _HUGE), 0.0)
        of_column[1] = known
    return table


def _margin(queries: Records, references: Records, ties: bool) -> float:
    """Twice the largest error of a rough sum of terms above the exact one of the same pair.

    Every term is a few roundings off, and every addition rounds a number up to the width. Between
    two negative values the difference itself loses digits, in proportion to the values.
    """
    width = queries.width
    if not queries.numbers.shape[1]:
        # Counts are exact in single precision; equal ones matter where ties are broken.
        return 0.5 if ties else -0.5
    tables = queries.numbers, references.numbers
    lowest = np.min([np.fmin.reduce(numbers, initial=0.0) for numbers in tables], axis=0)
    highest = np.max([np.fmax.reduce(numbers, initial=0.0) for numbers in tables], axis=0)
    if max(-lowest.min(), highest.max()) >= _HUGE:
        return math.inf
    return 2.0 * _UNIT * (8.0 * width - 4.0 * float(lowest.sum()) + width * width)


# Tables of an evaluation -------------------------------------------------------------------------


def released_records(evaluation: Evaluation) -> Records:
    """The released rows, for the record distance."""
    return evaluation.shared(
        "records/released",
        lambda: Records.of(evaluation.dataset.encoder, evaluation.decoded),
    )


def real_records(evaluation: Evaluation, name: Literal["train", "control"]) -> Records:
    """The rows of a split as they would look if they had been released."""
    dataset = evaluation.dataset
    encoder, split = dataset.encoder, dataset.train if name == "train" else dataset.control
    return evaluation.reference(
        f"records/{name}",
        lambda _: Records.of(
            encoder, encoder.decode(split.rows.values, split.rows.labels, complete=True)
        ),
    )


def distinct_records(evaluation: Evaluation) -> Records:
    """Every released record once: repeating a record must not hide it from an attack."""
    records = released_records(evaluation)
    return records.take(records.distinct[0])


def percentile_edges(real: Records, bins: int = PERCENTILE_BINS) -> tuple[Array, ...]:
    """Distinct values that cut the known values of each numeric column into equal parts.

    The paper names neither the number of bins nor the rows that they are taken from.
    """
    levels = np.arange(1, bins) / bins
    edges = []
    for column in real.numbers.T:
        known = column[~np.isnan(column)]
        cuts = np.quantile(known, levels, method="inverted_cdf") if len(known) else known
        edges.append(np.unique(cuts))
    return tuple(edges)


def binned(records: Records, edges: tuple[Array, ...]) -> Records:
    """Numbers as the codes of their bins, (lower edge, upper edge]: Hamming distance only."""
    codes = [
        np.where(np.isnan(column), -1, np.searchsorted(cuts, column, side="left"))
        for column, cuts in zip(records.numbers.T, edges, strict=True)
    ]
    return Records(
        np.empty((len(records), 0)),
        np.column_stack([records.codes, *codes]).astype(np.int32),
    )


@final
@dataclass(frozen=True)
class RecordTables:
    """Released, training and control rows, for the same distance."""

    released: Records
    train: Records
    control: Records

    @classmethod
    def of(cls, evaluation: Evaluation) -> RecordTables:
        """The three tables of an evaluation, for the distance of equation 1."""
        return cls(
            released_records(evaluation),
            real_records(evaluation, "train"),
            real_records(evaluation, "control"),
        )

    def binned(self) -> RecordTables:
        """The same with numbers in percentile bins of the training rows."""
        edges = percentile_edges(self.train)
        return RecordTables(
            *(binned(rows, edges) for rows in (self.released, self.train, self.control))
        )


def occurring_once(
    train: Records, control: Records
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Rows whose record occurs once in both tables together.

    A control row that also occurs in train is no fresh row. To drop only those would leave the
    rare records among the control rows and the common ones, which are closer to any release,
    among the training rows: a gap without any copying. A record that occurs once is a training
    or a control row by the split's chance alone, wherever it lies.
    """
    of_train, of_control = identities(train, control)
    counts = np.bincount(np.concatenate([of_train, of_control]))
    return counts[of_train] == 1, counts[of_control] == 1


def rows_occurring_once(
    evaluation: Evaluation,
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """`occurring_once` of the training and control rows of an evaluation."""
    return evaluation.reference(
        "records/once",
        lambda _: occurring_once(
            real_records(evaluation, "train"), real_records(evaluation, "control")
        ),
    )


@final
@dataclass(frozen=True)
class ComparedRows:
    """Training and control rows that differ by the chance of the split alone, by their number.

    In a random order: the first few of either kind are a sample of it.
    """

    train: npt.NDArray[np.intp]
    """Training rows whose record occurs once in train and control together."""
    control: npt.NDArray[np.intp]
    """The same of control rows."""

    @property
    def matched(self) -> int:
        """Number of rows of the smaller kind."""
        return min(len(self.train), len(self.control))


def compared_rows(evaluation: Evaluation) -> ComparedRows:
    """The rows that distances to train and to control are compared on."""

    def build(rng: np.random.Generator) -> ComparedRows:
        once, control_once = map(np.flatnonzero, rows_occurring_once(evaluation))
        return ComparedRows(rng.permutation(once), rng.permutation(control_once))

    return evaluation.reference("records/sides", build)


@final
@dataclass(frozen=True)
class Copies:
    """Which rows hold the same record, in every column that the distance compares."""

    of_train: npt.NDArray[np.intp]
    of_released: npt.NDArray[np.intp]
    of_control: npt.NDArray[np.intp]

    @property
    def released(self) -> npt.NDArray[np.bool_]:
        """Whether each released row equals a training row."""
        return np.isin(self.of_released, self.of_train)

    @property
    def control(self) -> npt.NDArray[np.bool_]:
        """The same of control rows: what fresh rows of the same population show by chance."""
        return np.isin(self.of_control, self.of_train)

    @property
    def common(self) -> npt.NDArray[np.bool_]:
        """Whether each released row equals a record that occurs more than once in the real rows."""
        real = np.concatenate([self.of_train, self.of_control])
        counts = np.bincount(real, minlength=int(self.of_released.max(initial=0)) + 1)
        return counts[self.of_released] > 1


def copies(evaluation: Evaluation) -> Copies:
    """Equal rows of the three tables."""

    def build() -> Copies:
        tables = RecordTables.of(evaluation)
        return Copies(*identities(tables.train, tables.released, tables.control))

    return evaluation.shared("records/copies", build)
