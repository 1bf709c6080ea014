"""The public power-of-two grid on which the kernel answers.

Sums of doubles are not associative, and a double tells by its last bits which sum it came from
(Mironov 2012; Jin et al. 2022; Haney et al. 2022): an attacker who reads them recovers the table,
whatever the noise. Here every row's clipped vector is rounded to integers on a grid g, the
integers are summed exactly, integer noise is added (`noise.py`), and the total is multiplied
by g = 2^k, which is exact. What leaves the kernel is a function of an integer whose law is that
of the continuous mechanism, rounded.

**Sensitivity.** Let C be the clip, d the number of columns, v a row's vector, and

    v' = v min(1, C' / |v|),   C' = (C - g sqrt(d) / 2) (1 - (d + 16) 2^-52),   q = round(v' / g).

Rounding moves each coordinate by at most g / 2, so that

    |g q| <= |v'| + g sqrt(d) / 2 <= C' (1 + (d + 16) 2^-52) + g sqrt(d) / 2 <= C,

where the factor (1 + (d + 16) 2^-52) bounds the error of computing |v|, the quotient and the
products in doubles. The sensitivity in L2 is C, as recorded; what is lost is clip, not privacy.

**Grid.** g is the largest power of two with g <= 2^-20 s (s: standard deviation of the noise) and
g sqrt(d) <= 2^-8 C, but not below 2^-32 s or 2^-40 C. It depends on public numbers alone.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

FINE = 20
"""The grid is at least so many powers of two finer than the noise."""
FINEST = 31
"""And at most so many: beyond, exact sampling of the noise would be slow."""
_LARGEST = 40
"""Entries of a row are below 2^40 on the grid, so that sums of a block of rows are exact."""
_COLUMNS = 8
"""The share of the clip that rounding takes is at most 2^-9, where FINEST allows it."""


@final
@dataclass(frozen=True)
class Grid:
    """The grid 2^exponent, and noise of this standard deviation (or Laplace scale) on it."""

    exponent: int
    scale: float
    """In the units of the answer."""

    @classmethod
    def of(cls, scale: float, clip: float, columns: int) -> Grid:
        """Return the grid of vectors of norm `clip`, for noise of this scale."""
        finest = _power(scale) - FINEST
        rounding = _power(clip / math.sqrt(max(1, columns))) - _COLUMNS
        exponent = max(finest, min(_power(scale) - FINE, rounding), _power(clip) - _LARGEST)
        return cls(exponent, scale)

    @classmethod
    def of_counts(cls, scale: float) -> Grid:
        """Return the grid of counts: counts are on it exactly."""
        return cls(min(0, max(_power(scale) - FINE, -_LARGEST)), scale)

    def clip(self, clip: float, columns: int) -> float:
        """Return C', to which vectors are clipped before they are rounded."""
        least = clip - 2.0**self.exponent * math.sqrt(columns) / 2.0
        return max(0.0, least * (1.0 - (columns + 16) * 2.0**-52))

    def sum(self, vectors: Vectors, clip: float) -> Integers:
        """Return the exact sum of the rows, each clipped and rounded to integers.

        A row with a non-finite entry counts as zero.
        """
        limit = self.clip(clip, vectors.shape[1])
        squares = np.einsum("ij,ij->i", vectors, vectors)
        if not np.isfinite(squares).all():
            # Non-finite rows become zero; finite ones whose square overflows are scaled first.
            vectors = np.where(np.isfinite(vectors).all(axis=1, keepdims=True), vectors, 0.0)
            largest = np.maximum(np.abs(vectors).max(axis=1, initial=0.0), clip)
            vectors = vectors / largest[:, None]
            squares = np.einsum("ij,ij->i", vectors, vectors)
            factors = np.minimum(limit / np.maximum(np.sqrt(squares), 1e-300), largest)
        else:
            factors = np.minimum(1.0, limit / np.sqrt(np.maximum(squares, 1e-300)))
        # Multiplying by a power of two is exact.
        return np.asarray(_adding()(vectors, factors * 2.0**-self.exponent))

    def counts(self, counts: Integers) -> Integers:
        """Return counts in units of the grid."""
        return np.asarray(counts, dtype=np.int64) << -self.exponent

    def answer(self, integers: Integers, draw: Callable[[float, int], Integers]) -> Vectors:
        """Add noise to integers, and return the answer in its own units."""
        # Rounded up: the noise is at least what was recorded.
        scale = self.scale * 2.0**-self.exponent * (1.0 + 2.0**-50)
        noise = draw(scale, integers.size).reshape(integers.shape)
        return np.asarray((integers + noise) * 2.0**self.exponent, dtype=np.float64)


def _power(number: float) -> int:
    """Return k of the largest power of two 2^k that is not above the number."""
    return math.frexp(number)[1] - 1


_BLOCK = 2**12
"""Rows whose integers are added as doubles, which is exact below 2^53."""


@functools.cache
def _adding() -> Callable[[Vectors, Vectors], Integers]:
    import numba

    def add(vectors: Vectors, factors: Vectors) -> Any:
        rows, columns = vectors.shape
        total = np.zeros(columns, dtype=np.int64)
        for start in range(0, rows, _BLOCK):
            block = np.zeros(columns, dtype=np.float64)
            for i in range(start, min(rows, start + _BLOCK)):
                factor = factors[i]
                for j in range(columns):
                    block[j] += np.rint(vectors[i, j] * factor)
            for j in range(columns):
                total[j] += np.int64(block[j])
        return total

    compiled: Callable[[Vectors, Vectors], Integers] = numba.njit(cache=True, nogil=True)(add)
    return compiled
