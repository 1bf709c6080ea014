"""Compiled products with a design matrix of few entries per row. Import lazily: it imports numba.

Row i of the matrix has the numbers `values[i]` in the columns `places[i]` and zeros elsewhere: one
entry per column of a table, however many categories the columns have.
"""

from __future__ import annotations

from bench.metrics._shared.kernels import Floats, Integers, compiled

_fast = compiled(fastmath={"contract", "reassoc", "nsz"})


@_fast
def times(places: Integers, values: Floats, factors: Floats, products: Floats) -> None:
    """Add the matrix times (columns, k) `factors` to (rows, k) `products`."""
    width = factors.shape[1]
    for row in range(len(places)):
        sums = products[row]
        for entry in range(places.shape[1]):
            value, factor = values[row, entry], factors[places[row, entry]]
            if value != 0.0:
                for k in range(width):
                    sums[k] += value * factor[k]


@_fast
def transposed_times(places: Integers, values: Floats, factors: Floats, products: Floats) -> None:
    """Add the transposed matrix times (rows, k) `factors` to (columns, k) `products`."""
    width = factors.shape[1]
    for row in range(len(places)):
        factor = factors[row]
        for entry in range(places.shape[1]):
            value, sums = values[row, entry], products[places[row, entry]]
            if value != 0.0:
                for k in range(width):
                    sums[k] += value * factor[k]


@_fast
def gram(places: Integers, values: Floats, weights: Floats, products: Floats) -> None:
    """Add the sum over rows of weight x row' x row to (columns, columns) `products`.

    Only one of each pair of entries is added: the sum is symmetric in what both triangles hold.
    """
    entries = places.shape[1]
    for row in range(len(places)):
        weight, place, value = weights[row], places[row], values[row]
        for first in range(entries):
            weighted = weight * value[first]
            if weighted != 0.0:
                sums = products[place[first]]
                for second in range(first + 1):
                    sums[place[second]] += weighted * value[second]
