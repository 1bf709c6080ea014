"""Compiled loops over pairs of rows. Import this module lazily: it imports numba.

Rough sums of the record distance are in single precision and decide only which pairs are compared
again; every number that is returned comes from `_exact`, in double precision. The rough loops are
therefore free to fuse multiplications with additions. None of them gets a missing, infinite or huge
value.

The machine code is kept on disk by numba, beside its source or, where that folder is not writable,
in the user's own cache: a process pays for reading it, not for compiling.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from numba import njit

Floats = npt.NDArray[np.floating[Any]]
Integers = npt.NDArray[np.integer[Any]]

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(**options: Any) -> Callable[[Function], Function]:
    """Compile a function at its first call; division by zero gives infinity, as in NumPy."""

    def decorate(function: Function) -> Function:
        settings = {"nogil": True, "error_model": "numpy", **options}
        try:
            made: Function = njit(cache=True, **settings)(function)
        except RuntimeError:  # neither the package's folder nor the user's cache can be written
            made = njit(**settings)(function)
        return made

    return decorate


_rough = compiled(fastmath={"nnan", "nsz", "contract"})
_precise = compiled()

_COUNTED = 255
"""Differences that one byte can count: as many bytes as the vector units hold are added at once."""

_COLUMNS = 32
"""Columns of a block of references that stay in the cache from query to query."""

_CIRCLE = 2**32 - 1
"""Places on the circle, less one."""

_CHUNK = 64
"""References looked at together: most chunks hold no new neighbour and are left at once."""


@_rough
def add_differences(
    sums: Floats, queries: Integers, row: int, references: Integers, start: int
) -> None:
    """Add the number of columns in which the codes differ.

    `sums` is (queries from `row` on, references from `start` on); both tables are whole, and
    (columns, rows).
    """
    rows, columns = sums.shape[1], references.shape[0]
    counts = np.empty(rows, dtype=np.uint8)
    for first in range(0, columns, _COUNTED):
        last = min(columns, first + _COUNTED)
        for i in range(sums.shape[0]):
            total = sums[i]
            counts[:] = 0
            for c in range(first, last):
                query = queries[c, row + i]
                values = references[c, start : start + rows]
                for j in range(rows):
                    counts[j] += values[j] != query
            for j in range(rows):
                total[j] += np.float32(counts[j])


@_rough
def add_ratios(sums: Floats, queries: Floats, row: int, references: Floats, start: int) -> None:
    """Add the terms of columns without negative or missing values, without a division.

    (1 + min) / (1 + max) is the smaller one of two ratios. Both tables are (columns, 2, rows): one
    plus the value, and its inverse.
    """
    rows, columns = sums.shape[1], references.shape[0]
    for first in range(0, columns, _COLUMNS):
        last = min(columns, first + _COLUMNS)
        for i in range(sums.shape[0]):
            total = sums[i]
            for j in range(rows):
                total[j] += np.float32(last - first)
            for c in range(first, last):
                query, inverse = queries[c, 0, row + i], queries[c, 1, row + i]
                values = references[c, 0, start : start + rows]
                inverses = references[c, 1, start : start + rows]
                for j in range(rows):
                    total[j] -= min(query * inverses[j], inverse * values[j])


@_precise
def add_exact(
    sums: Floats, numbers: Floats, other_numbers: Floats, codes: Integers, other_codes: Integers
) -> None:
    """Add the terms of all pairs in double precision; none of the numbers is missing.

    `sums` is (rows, others); `numbers` and `codes` are (rows, columns), those of the others
    (columns, others).
    """
    others = sums.shape[1]
    unequal = np.empty(others, dtype=np.int32)
    for row in range(len(sums)):
        total = sums[row]
        for column in range(numbers.shape[1]):
            value, values = numbers[row, column], other_numbers[column]
            for j in range(others):
                apart = abs(value - values[j])
                total[j] += apart / (1.0 + max(apart, max(value, values[j])))
        unequal[:] = 0
        for column in range(codes.shape[1]):
            code, other = codes[row, column], other_codes[column]
            for j in range(others):
                unequal[j] += code != other[j]
        for j in range(others):
            total[j] += unequal[j]


@_rough
def add_terms(sums: Floats, queries: Floats, row: int, references: Floats, start: int) -> None:
    """Add the terms of any other numeric columns.

    One minus either printed term is apart / (1 + max(apart, first, second)). Both tables are
    (columns, 2, rows): the value, and 1 where it is known, 0 where it is missing.
    """
    rows, columns = sums.shape[1], references.shape[0]
    one = np.float32(1.0)
    for first in range(0, columns, _COLUMNS):
        last = min(columns, first + _COLUMNS)
        for i in range(sums.shape[0]):
            total = sums[i]
            for c in range(first, last):
                query = queries[c, 0, row + i]
                values = references[c, 0, start : start + rows]
                known = references[c, 1, start : start + rows]
                if queries[c, 1, row + i] == 0:
                    for j in range(rows):
                        total[j] += known[j]
                    continue
                for j in range(rows):
                    apart = abs(query - values[j])
                    term = apart / (one + max(apart, max(query, values[j])))
                    total[j] += one + known[j] * (term - one)


@_precise
def _exact(numbers: Floats, codes: Integers, other: Floats, other_codes: Integers) -> float:
    """The distance of two rows: the arithmetic of `record_distance.distances`, step by step."""
    total = 0.0
    for c in range(len(numbers)):
        first, second = numbers[c], other[c]
        if np.isnan(first) or np.isnan(second):
            total += np.isnan(first) != np.isnan(second)
        else:
            apart = abs(first - second)
            total += apart / (1.0 + max(apart, max(first, second)))
    different = 0
    for c in range(len(codes)):
        different += codes[c] != other_codes[c]
    return float((different + total) / (len(numbers) + len(codes)))


@_precise
def select(
    sums: Floats,
    start: int,
    part: tuple[int, int],
    margin: float,
    query: tuple[Floats, Integers],
    reference: tuple[Floats, Integers],
    turns: tuple[Integers, Integers],
    best: Floats,
    index: Integers,
) -> None:
    """Keep the closest references of each query, exactly; `best` is sorted, infinity is empty.

    Only references numbered from `part[0]` on and below `part[1]` are used. One is compared where
    its rough sum is at most the exact one of the last place plus `margin`. Of equally close ones
    the first is taken where `turns` is empty; otherwise the first on a circle, on which each
    reference has its place and each query its own beginning.
    """
    width, places = query[0].shape[1] + query[1].shape[1], best.shape[1]
    begin, end = max(part[0] - start, 0), min(part[1] - start, sums.shape[1])
    beginnings, circle = turns
    for i in range(sums.shape[0]):
        row, closest, chosen = sums[i], best[i], index[i]
        limit = np.float32(closest[places - 1] * width + margin)
        for first in range(begin, end, _CHUNK):
            last = min(end, first + _CHUNK)
            chunk, near = row[first:last], np.int32(0)
            for j in range(len(chunk)):  # counted, since no vector unit takes an "or" of truths
                near += np.int32(chunk[j] <= limit)
            if near == 0:
                continue
            for j in range(first, last):
                if row[j] > limit:
                    continue
                r = start + j
                if query[0].shape[1]:
                    distance = _exact(query[0][i], query[1][i], reference[0][r], reference[1][r])
                else:
                    distance = np.float64(row[j]) / width
                place = places
                while place > 0 and distance <= closest[place - 1]:
                    if distance == closest[place - 1] and (
                        len(circle) == 0
                        or (circle[r] - beginnings[i]) & _CIRCLE
                        >= (circle[chosen[place - 1]] - beginnings[i]) & _CIRCLE
                    ):
                        break
                    place -= 1
                if place == places:
                    continue
                for later in range(places - 1, place, -1):
                    closest[later], chosen[later] = closest[later - 1], chosen[later - 1]
                closest[place], chosen[place] = distance, r
                limit = np.float32(closest[places - 1] * width + margin)


@_precise
def select_back(
    sums: Floats,
    start: int,
    margin: float,
    used: npt.NDArray[np.bool_],
    query: tuple[Floats, Integers],
    reference: tuple[Floats, Integers],
    best: Floats,
) -> None:
    """Keep the distance of each reference to its closest query, exactly.

    `best` has a place for every reference, infinity where nothing was compared yet. Queries that
    are not `used`, which equal another one, are passed over.
    """
    width, columns = query[0].shape[1] + query[1].shape[1], sums.shape[1]
    limits = np.empty(columns, dtype=np.float32)
    for j in range(columns):
        limits[j] = np.float32(best[start + j] * width + margin)
    for i in range(sums.shape[0]):
        if not used[i]:
            continue
        row = sums[i]
        for first in range(0, columns, _CHUNK):
            last = min(columns, first + _CHUNK)
            chunk, bounds, near = row[first:last], limits[first:last], np.int32(0)
            for j in range(len(chunk)):
                near += np.int32(chunk[j] <= bounds[j])
            if near == 0:
                continue
            for j in range(first, last):
                if row[j] > limits[j]:
                    continue
                r = start + j
                if query[0].shape[1]:
                    distance = _exact(query[0][i], query[1][i], reference[0][r], reference[1][r])
                else:
                    distance = np.float64(row[j]) / width
                if distance < best[r]:
                    best[r] = distance
                    limits[j] = np.float32(distance * width + margin)


# Encoded distance --------------------------------------------------------------------------------


@compiled(error_model="python")
def _insert(values: Any, best: Any) -> None:
    """Keep the smallest values seen so far, in ascending order."""
    last = best.shape[0] - 1
    for start in range(0, values.shape[0], _CHUNK):
        stop = min(start + _CHUNK, values.shape[0])
        limit = best[last]
        closer = 0
        for j in range(start, stop):
            closer += values[j] < limit
        if closer == 0:
            continue
        for j in range(start, stop):
            value = values[j]
            if value < best[last]:
                place = last
                while place > 0 and best[place - 1] > value:
                    best[place] = best[place - 1]
                    place -= 1
                best[place] = value


@compiled(error_model="python")
def update(
    first: int,
    last: int,
    numbers: Floats,
    starts: Integers,
    flags: Integers,
    norms: Floats,
    reference_numbers: Floats,
    base: Floats,
    tables: Floats,
    reference_norms: Floats,
    everything: bool,
    best: Floats,
) -> None:
    """Bring one block of references into the nearest distances of the queries first..last.

    `best` is (distances, queries, k): squared Euclidean, and with `everything` Manhattan and
    cosine. `base` and `tables` hold, for each reference, what its two-valued columns add when a
    query has the usual value in each, and what changes when it has the other one.
    """
    width = reference_norms.shape[0]
    squares, sums, angles = np.empty(width), np.empty(width), np.empty(width)
    for i in range(first, last):
        for j in range(width):
            squares[j] = base[0, j]
            sums[j] = base[1, j]
        for entry in range(starts[i], starts[i + 1]):
            flag = flags[entry]
            for j in range(width):
                squares[j] += tables[0, flag, j]
            if everything:
                for j in range(width):
                    sums[j] += tables[1, flag, j]
        for column in range(numbers.shape[1]):
            number = numbers[i, column]
            if everything:
                for j in range(width):
                    difference = number - reference_numbers[column, j]
                    squares[j] += difference * difference
                    sums[j] += abs(difference)
            else:
                for j in range(width):
                    difference = number - reference_numbers[column, j]
                    squares[j] += difference * difference
        _insert(squares, best[0, i])
        if everything:
            _insert(sums, best[1, i])
            norm = norms[i]
            for j in range(width):
                # 1 - cos = (|q - r|^2 - (|q| - |r|)^2) / (2 |q| |r|): no loss of digits near 0.
                product = 2.0 * norm * reference_norms[j]
                gap = norm - reference_norms[j]
                angles[j] = (squares[j] - gap * gap) / product if product > 0.0 else 1.0
            _insert(angles, best[2, i])
