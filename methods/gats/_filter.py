"""Correlation of combined rows with real rows: the filter of GATS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Single = npt.NDArray[np.float32]
Index = npt.NDArray[np.int64]

_NUMBERS_AT_ONCE = 4_000_000
"""Numbers that a comparison with real rows holds in memory at once."""
_CONSTITUENTS_AT_ONCE = 8
_REAL_ROWS_AT_ONCE = 1024


@final
@dataclass(frozen=True)
class Directions:
    """Real rows as unit vectors, so that a correlation of two rows is their inner product.

    Only the largest correlation of a combined row matters, and only if it is below a bound, that of
    the best earlier attempt. Rows are compared with a few real rows at a time and dropped once they
    reach their bound: where nearly every attempt fails, nearly all of the work is saved. A dropped
    row gets some number at or above its bound, not its largest correlation.
    """

    units: Single
    mean: Array
    spread: Array

    @classmethod
    def of(cls, values: npt.NDArray[np.floating]) -> Directions:
        """Directions of these rows, in standardised columns."""
        mean = values.mean(axis=0, dtype=np.float64)
        spread = values.std(axis=0, dtype=np.float64)
        # A constant column says nothing about resemblance.
        spread[spread < 1e-9] = np.inf
        return cls(_unit((values - mean) / spread), mean, spread)

    def closest_of(self, made: Single, index: Index, bounds: Array) -> Array:
        """Largest correlation with the rows at `index`, where it is below the bound."""
        units = _unit((made - self.mean) / self.spread)
        largest = np.full(len(made), -np.inf)
        step = max(1, _NUMBERS_AT_ONCE // (_CONSTITUENTS_AT_ONCE * units.shape[1]))
        for start in range(0, len(made), step):
            alive = np.arange(start, min(start + step, len(made)))
            for first in range(0, index.shape[1], _CONSTITUENTS_AT_ONCE):
                here = index[alive, first : first + _CONSTITUENTS_AT_ONCE]
                # Not a matrix product: its last digits depend on the number of threads.
                products = np.einsum("ijk,ik->ij", self.units[here], units[alive])
                alive = _raise(largest, alive, products, bounds)
        return largest

    def closest(self, made: Single, index: Index, bounds: Array) -> Array:
        """Largest correlation with any real row, where it is below the bound.

        Constituents come first: no other rows are as likely to be close.
        """
        largest = self.closest_of(made, index, bounds)
        units = _unit((made - self.mean) / self.spread)
        step = _NUMBERS_AT_ONCE // _REAL_ROWS_AT_ONCE
        for start in range(0, len(made), step):
            here = np.arange(start, min(start + step, len(made)))
            alive = here[largest[here] < bounds[here]]
            for first in range(0, len(self.units), _REAL_ROWS_AT_ONCE):
                real = self.units[first : first + _REAL_ROWS_AT_ONCE]
                alive = _raise(largest, alive, units[alive] @ real.T, bounds)
        return largest


def _raise(largest: Array, rows: Index, products: Single, bounds: Array) -> Index:
    """Take further correlations into account; return `rows` that are still below their bound."""
    largest[rows] = np.maximum(largest[rows], products.max(axis=1))
    below: Index = rows[largest[rows] < bounds[rows]]
    return below


def _unit(values: Array) -> Single:
    """Rows centred and of length one; a row without variation becomes zero, correlated to none."""
    centred = values - values.mean(axis=1, keepdims=True)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    units: Single = (centred / np.where(length > 1e-9, length, np.inf)).astype(np.float32)
    return units
