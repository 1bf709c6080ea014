"""Compiled loop over pairs of rows. Import this module lazily: it brings in numba.

Sums run over the columns in one order for every pair, whatever the number of threads: a matrix
product does not promise that, and a correlation at a threshold would fall to either side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

Floats = npt.NDArray[np.floating[Any]]
Integers = npt.NDArray[np.integer[Any]]

_BLOCK = 256
"""References that stay in the cache from query to query."""


@njit(nogil=True, error_model="numpy")
def correlate(
    queries: Floats,
    references: Floats,
    query_labels: Integers,
    reference_labels: Integers,
    below: float,
    bins: int,
) -> tuple[Integers, Floats, Integers]:
    """Correlations of unit vectors: queries are (rows, columns), references (columns, rows).

    For each query, how many references have a correlation below `below` in size, and the largest
    correlation; over all pairs, how many fall into each of `bins` equal bins from -1 to 1, first of
    pairs with different labels, then of pairs with the same.
    """
    columns, total = references.shape
    counts = np.zeros(len(queries), dtype=np.int64)
    largest = np.full(len(queries), -np.inf, dtype=np.float32)
    histogram = np.zeros((2, bins), dtype=np.int64)
    sums = np.empty(_BLOCK, dtype=np.float32)
    scale = np.float32(bins / 2.0)
    for start in range(0, total, _BLOCK):
        size = min(_BLOCK, total - start)
        block = references[:, start : start + size].copy()
        for i in range(len(queries)):
            sums[:size] = 0.0
            column = 0
            while column + 4 <= columns:
                first, second = queries[i, column], queries[i, column + 1]
                third, fourth = queries[i, column + 2], queries[i, column + 3]
                one, two = block[column], block[column + 1]
                three, four = block[column + 2], block[column + 3]
                for j in range(size):
                    sums[j] += (
                        first * one[j] + second * two[j] + third * three[j] + fourth * four[j]
                    )
                column += 4
            while column < columns:
                first, one = queries[i, column], block[column]
                for j in range(size):
                    sums[j] += first * one[j]
                column += 1
            small = 0
            most = largest[i]
            label = query_labels[i]
            for j in range(size):
                value = sums[j]
                small += abs(value) < below
                most = max(most, value)
                place = min(max(int((value + np.float32(1.0)) * scale), 0), bins - 1)
                histogram[np.int64(reference_labels[start + j] == label), place] += 1
            counts[i] += small
            largest[i] = most
    return counts, largest, histogram
