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
The integers q of a row are computed from that row alone, in one order of operations: a row that is
not finite, or larger than the squares of doubles allow, changes no bit of another row's integers.
What the kernel cannot see is a row function that computes the last bits of a row's vector in
another way when another row is in the batch, as matrix products do.

**Grid.** g is the largest power of two with g <= 2^-20 s (s: standard deviation of the noise) and
g sqrt(d) <= 2^-8 C, but not below 2^-32 s or 2^-36 C. It depends on public numbers alone. Noise of
some 2^32 / sqrt(d) times the clip leaves nothing of it: C' is then 0, and the answer is noise.

**Range.** An entry of q is below 2^37, so that sums of 2^25 rows (33 million) stay within 62 bits
at any noise, and of more rows at usual noise. (Beyond that they would wrap around, as a function of
the noisy integer: wrong, but as private.) The answer is a double, which rounds integers above 2^53:
post-processing as well. Zero has no sign.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench.privacy.compiled import compiled

Vectors = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

FINE = 20
"""The grid is so many powers of two finer than the noise, or more; less for next to no noise."""
FINEST = 31
"""And at most so many: beyond, exact sampling of the noise would be slow."""
_LARGEST = 36
"""Entries of a row are below 2^37 on the grid."""
_COLUMNS = 8
"""The share of the clip that rounding takes is at most 2^-9, where FINEST allows it."""


@final
@dataclass(frozen=True)
class Grid:
    """The grid 2^exponent, and noise of this standard deviation (or Laplace scale) on it."""

    exponent: int
    scale: float
    """In the units of the answer."""

    @staticmethod
    @functools.lru_cache(maxsize=1024)
    def of(scale: float, clip: float, columns: int) -> Grid:
        """Return the grid of vectors of norm `clip`, for noise of this scale."""
        finest = _power(scale) - FINEST
        rounding = _power(clip / math.sqrt(max(1, columns))) - _COLUMNS
        exponent = max(finest, min(_power(scale) - FINE, rounding), _power(clip) - _LARGEST)
        return Grid(exponent, scale)

    @classmethod
    def of_counts(cls, scale: float) -> Grid:
        """Return the grid of counts: counts are on it exactly."""
        return cls(min(0, max(_power(scale) - FINE, -_LARGEST)), scale)

    def sum(self, vectors: Vectors, clip: float) -> Integers:
        """Return the exact sum of the rows, each clipped and rounded to integers.

        A row with a non-finite entry counts as zero.
        """
        limit = clip_before_rounding(self.exponent, clip, vectors.shape[1])
        return _clipped_sum(np.ascontiguousarray(vectors), limit, 2.0**-self.exponent)

    def counts(self, counts: Integers) -> Integers:
        """Return counts in units of the grid."""
        return np.asarray(np.asarray(counts, dtype=np.int64) << -self.exponent)

    def answer(self, integers: Integers, draw: Callable[[float, int], Integers]) -> Vectors:
        """Add noise to integers, and return the answer in its own units."""
        # Rounded up: the noise is at least what was recorded.
        scale = self.scale * 2.0**-self.exponent * (1.0 + 2.0**-50)
        noise = draw(scale, integers.size).reshape(integers.shape)
        return np.asarray((integers + noise) * 2.0**self.exponent, dtype=np.float64)


@functools.lru_cache(maxsize=1024)
def clip_before_rounding(exponent: int, clip: float, columns: int) -> float:
    """Return C', to which vectors are clipped before they are rounded to the grid 2^exponent."""
    # 2^-50 for the rounding of the difference, which can be small against the clip.
    least = clip * (1.0 - 2.0**-50) - 2.0**exponent * math.sqrt(columns) / 2.0
    return max(0.0, least * (1.0 - (columns + 16) * 2.0**-52))


def _power(number: float) -> int:
    """Return k of the largest power of two 2^k that is not above the number."""
    return math.frexp(number)[1] - 1


_BLOCK = 2**12
"""Rows whose integers are added as doubles, which is exact below 2^53."""


@compiled
def _clipped_sum(vectors: Vectors, limit: float, unit: float) -> Integers:
    """Return the sum of round(v' unit), where v' is a row clipped to the norm `limit`."""
    rows, columns = vectors.shape
    total = np.zeros(columns, dtype=np.int64)
    for start in range(0, rows, _BLOCK):
        block = np.zeros(columns, dtype=np.float64)
        for row in range(start, min(rows, start + _BLOCK)):
            squares = 0.0
            for column in range(columns):
                squares += vectors[row, column] * vectors[row, column]
            if squares < np.inf:
                # Multiplying by a power of two is exact.
                factor = min(1.0, limit / math.sqrt(max(squares, 1e-300))) * unit
                for column in range(columns):
                    block[column] += np.rint(vectors[row, column] * factor)
                continue
            # Not finite, or finite with squares that overflow: such a row is scaled first.
            largest = 0.0
            finite = True
            for column in range(columns):
                finite = finite and np.isfinite(vectors[row, column])
                largest = max(largest, abs(vectors[row, column]))
            if finite:
                squares = 0.0
                for column in range(columns):
                    squares += (vectors[row, column] / largest) ** 2
                factor = limit / math.sqrt(squares) * unit
                for column in range(columns):
                    block[column] += np.rint(vectors[row, column] / largest * factor)
        for column in range(columns):
            total[column] += np.int64(block[column])
    return total
