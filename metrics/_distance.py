"""The record distance of the fidelity paper, and exact nearest records by it.

Section 3.1, equation 1, all weights 1: the mean over the columns of a term in [0, 1].

* Categorical: 0 for equal, 1 for different categories; a missing value is one more category.
* Numeric: the printed term, (1 + min) / (1 + max) for min >= 0 and 1 / (1 + max + |min|) below, is
  a similarity (it is 1 for equal values), so that the distance is one minus it. Units are those of
  the table, as printed: a difference of 1 counts more between small values than large ones.
* Numeric and missing: 1 when one of the two is missing, 0 when both are.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.core.encode import Encoder
from bench.core.schema import Categorical, Numeric

Array = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

_QUERIES, _REFERENCES = 8, 8192
"""Pairs at a time: long rows for the vector units, small enough for the cache."""

_PAIRS = 2**18
"""Candidate pairs evaluated at a time in double precision."""

_UNIT = 2.0**-24
"""Rounding of float32, relative."""


@final
@dataclass(frozen=True)
class Records:
    """A table as the distance sees it."""

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

    @classmethod
    def of(cls, encoder: Encoder, decoded: pd.DataFrame) -> Records:
        """A decoded table: every feature, the time, and the label."""
        columns = [block.column for block in encoder.blocks] + [encoder.schema.label]
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


def distances(left: Records, right: Records) -> Array:
    """Distance of each row on the left to the row beside it on the right."""
    mismatches = np.count_nonzero(left.codes != right.codes, axis=1)
    low = np.minimum(left.numbers, right.numbers)
    high = np.maximum(left.numbers, right.numbers)
    # (max - min) / (1 + max - min(min, 0)) is one minus either printed term.
    terms = (high - low) / (1.0 + high - np.minimum(low, 0.0))
    unknown = np.isnan(left.numbers).astype(np.int8) + np.isnan(right.numbers)
    terms = np.where(unknown == 0, terms, np.where(unknown == 1, 1.0, 0.0))
    total: Array = (mismatches + terms.sum(axis=1)) / left.width
    return total


def identities(*tables: Records) -> list[npt.NDArray[np.intp]]:
    """A number for each row of each table; equal rows, and only those, get equal numbers."""
    numbers = np.concatenate([table.numbers for table in tables]) + 0.0  # -0.0 equals 0.0
    codes = np.concatenate([table.codes for table in tables])
    joined = np.ascontiguousarray(np.column_stack([numbers, codes]))
    as_bytes = joined.view(np.dtype((np.void, joined.dtype.itemsize * joined.shape[1]))).ravel()
    names = np.unique(as_bytes, return_inverse=True)[1]
    return list(np.split(names, np.cumsum([len(table) for table in tables])[:-1]))


def nearest(queries: Records, references: Records, threads: int = 1) -> Array:
    """Distance of each query to its closest reference: exact, in blocks, for any table size.

    All pairs are compared in single precision. Only references that may be the closest, given the
    largest possible rounding error, are compared again in double precision.
    """
    if not len(references):
        raise ValueError("no reference rows to compare with")
    distinct = np.unique(identities(references)[0], return_index=True)[1]
    search = _Search(queries, references.take(distinct))
    starts = range(0, len(queries), _QUERIES)
    # Blocks do not depend on each other, and numpy lets go of the interpreter lock.
    with ThreadPoolExecutor(max_workers=max(1, threads)) as pool:
        return np.concatenate([np.empty(0), *pool.map(search.block, starts)])


@final
class _Search:
    """Closest references of blocks of queries."""

    def __init__(self, queries: Records, references: Records) -> None:
        self._queries = queries
        self._references = references
        both = np.concatenate([queries.numbers, references.numbers])
        known = np.where(np.isnan(both), 0.0, both)
        # A column without negative or missing values needs no case distinction.
        plain = ~np.isnan(both).any(axis=0) & (known >= 0).all(axis=0)
        self._plain = [
            _ratio_column(queries.numbers[:, k], references.numbers[:, k])
            for k in np.flatnonzero(plain)
        ]
        self._other = [
            (
                queries.numbers[:, k].astype(np.float32)[:, None],
                references.numbers[:, k].astype(np.float32),
            )
            for k in np.flatnonzero(~plain)
        ]
        kind = (
            np.int8
            if max(queries.codes.max(initial=0), references.codes.max(initial=0)) < 127
            else np.int32
        )
        self._codes = [
            (
                queries.codes[:, k].astype(kind)[:, None],
                references.codes[:, k].astype(kind),
            )
            for k in range(queries.codes.shape[1])
        ]
        self._slack = _rounding(queries.width, known[:, ~plain])

    def block(self, start: int) -> Array:
        """Distances of the queries from `start` on."""
        rows = slice(start, min(start + _QUERIES, len(self._queries)))
        rough = np.empty((rows.stop - rows.start, len(self._references)), dtype=np.float32)
        for columns in _parts(len(self._references), _REFERENCES):
            rough[:, columns] = self._sums(rows, columns)
        if not self._queries.numbers.shape[1]:
            # Sums of zeros and ones are exact already, and ties among them many.
            closest: Array = rough.min(axis=1).astype(np.float64) / self._queries.width
            return closest
        # Sums are compared here, distances are sums over the number of columns.
        limit = rough.min(axis=1, keepdims=True) + np.float32(self._slack)
        query, reference = np.divmod(np.flatnonzero((rough <= limit).ravel()), rough.shape[1])
        exact = np.full(len(rough), np.inf)
        for part in _parts(len(query), _PAIRS):
            left = self._queries.take(query[part] + rows.start)
            right = self._references.take(reference[part])
            np.minimum.at(exact, query[part], distances(left, right))
        return exact

    def _sums(self, rows: slice, columns: slice) -> Singles:
        """Sums of the terms in single precision."""
        shape = (rows.stop - rows.start, columns.stop - columns.start)
        total = np.full(shape, float(len(self._plain)), dtype=np.float32)
        first, second = np.empty(shape, np.float32), np.empty(shape, np.float32)
        for query, query_inverse, reference, reference_inverse in self._plain:
            # (1 + min) / (1 + max) is the smaller of the two ratios.
            np.multiply(query[rows], reference_inverse[columns], out=first)
            np.multiply(query_inverse[rows], reference[columns], out=second)
            np.minimum(first, second, out=first)
            np.subtract(total, first, out=total)
        for query, reference in self._other:
            total += _any_sign(query[rows], reference[columns])
        if self._codes:
            counts = np.zeros(shape, np.uint8 if len(self._codes) < 256 else np.uint32)
            different = np.empty(shape, np.bool_)
            for query_codes, reference_codes in self._codes:
                np.not_equal(query_codes[rows], reference_codes[columns], out=different)
                np.add(counts, different.view(np.uint8), out=counts)
            total += counts
        return total


def _ratio_column(queries: Array, references: Array) -> tuple[Singles, Singles, Singles, Singles]:
    """One plus each value, and its inverse."""
    query, reference = 1.0 + queries[:, None], 1.0 + references
    return (
        query.astype(np.float32),
        (1.0 / query).astype(np.float32),
        reference.astype(np.float32),
        (1.0 / reference).astype(np.float32),
    )


def _any_sign(query: Singles, reference: Singles) -> Singles:
    """Terms of a column with negative or missing values."""
    low, high = np.minimum(query, reference), np.maximum(query, reference)
    terms = (high - low) / (np.float32(1.0) + high - np.minimum(low, np.float32(0.0)))
    missing, other_missing = np.isnan(query), np.isnan(reference)
    if missing.any() or other_missing.any():
        terms = np.where(missing ^ other_missing, np.float32(1.0), terms)
        terms[missing & other_missing] = 0.0
    return terms.astype(np.float32, copy=False)


def _rounding(width: int, signed: Array) -> float:
    """Twice the largest error of a rough sum: how far the closest may lie above the smallest.

    Every term is a few roundings off, and every addition rounds a number up to `width`. With
    negative values the difference itself loses digits, in proportion to the values.
    """
    terms = 8.0 * width + 4.0 * float(np.abs(signed).max(axis=0, initial=0.0).sum())
    return 2.0 * _UNIT * (terms + width * width)


def _parts(count: int, most: int) -> Iterator[slice]:
    """Consecutive slices of nearly equal length."""
    pieces = -(-count // most)
    ends = [count * piece // pieces for piece in range(pieces + 1)]
    return map(slice, ends[:-1], ends[1:])
