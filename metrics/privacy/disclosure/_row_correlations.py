"""Correlations of rows, compiled. Import this module lazily: it imports numba.

Sums run over the columns in one order for every pair, whatever the number of threads: a matrix
product does not promise that, and a correlation at a threshold would fall to either side.
"""

from __future__ import annotations

import numpy as np

from bench.metrics._shared.kernels import Floats, Integers, compiled

_BLOCK = 128
"""Queries whose tables stay in the cache from reference to reference."""


@compiled()
def correlate(
    base: Floats,
    tables: Floats,
    query_numbers: Floats,
    starts: Integers,
    flags: Integers,
    numbers: Floats,
    inverse_lengths: Floats,
    query_labels: Integers,
    labels: Integers,
    below: float,
    bins: int,
) -> tuple[Integers, Floats, Integers]:
    """Correlations of queries with references.

    Of a query, `base` is the inner product with a reference that has the usual value in each
    two-valued column, `tables` (two-valued columns, queries) what changes where it has the other
    one, and `query_numbers` (numeric columns, queries) the rest. Of a reference, `flags` from
    `starts` on are the columns with the other value, `numbers` (references, numeric columns) the
    rest, and `inverse_lengths` the factor that makes it a unit vector.

    For each query, how many references have a correlation below `below` in size, and the largest
    correlation; over all pairs, how many fall into each of `bins` equal bins from -1 to 1, first of
    pairs with different labels, then of pairs with the same.
    """
    total = len(base)
    counts = np.zeros(total, dtype=np.int64)
    largest = np.full(total, -np.inf, dtype=np.float32)
    histogram = np.zeros((2, bins), dtype=np.int64)
    sums = np.empty(_BLOCK, dtype=np.float32)
    places = np.empty(_BLOCK, dtype=np.int32)
    one, limit = np.float32(1.0), np.float32(below)
    scale, last = np.float32(bins / 2.0), np.int32(bins - 1)
    for start in range(0, total, _BLOCK):
        size = min(_BLOCK, total - start)
        own_base, own_labels = base[start : start + size], query_labels[start : start + size]
        own_tables = tables[:, start : start + size].copy()
        own_numbers = query_numbers[:, start : start + size].copy()
        small, most = np.zeros(size, dtype=np.int32), largest[start : start + size]
        for i in range(len(inverse_lengths)):
            for j in range(size):
                sums[j] = own_base[j]
            for entry in range(starts[i], starts[i + 1]):
                change = own_tables[flags[entry]]
                for j in range(size):
                    sums[j] += change[j]
            for column in range(numbers.shape[1]):
                number, values = numbers[i, column], own_numbers[column]
                for j in range(size):
                    sums[j] += number * values[j]
            factor = inverse_lengths[i]
            for j in range(size):
                value = sums[j] * factor
                small[j] += np.int32(abs(value) < limit)
                most[j] = max(most[j], value)
                places[j] = min(max(np.int32((value + one) * scale), np.int32(0)), last)
            label = labels[i]
            for j in range(size):
                histogram[np.int64(own_labels[j] == label), places[j]] += 1
        for j in range(size):
            counts[start + j] = small[j]
    return counts, largest, histogram
