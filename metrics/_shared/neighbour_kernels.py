"""Compiled inner loops of the nearest-neighbour search; imported where they are first needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_CHUNK = 64
"""References looked at together: most chunks hold no new neighbour and are left at once."""


@njit(nogil=True)
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


@njit(nogil=True)
def update(
    first: int,
    last: int,
    numbers: Array,
    starts: Integers,
    flags: Integers,
    norms: Array,
    reference_numbers: Array,
    base: Array,
    tables: Array,
    reference_norms: Array,
    everything: bool,
    best: Array,
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
