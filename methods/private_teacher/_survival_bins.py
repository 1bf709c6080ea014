"""Public cells of features and times, noisy histograms over them, and coarse bins.

Cells come from the public schema alone: equal widths between a numeric column's bounds, one cell a
category, and cells of time that are fine where follow-up begins. Coarse bins join cells of about
equal mass by a noisy histogram, which is an output already.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench import Block, Encoder, Floats, Numeric

Array = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]

_TIME_POWER = 3.0
"""Cell k of K ends at the share (k / K)^3 of the public time range. Many cohorts lose half of their
patients in a small part of the range that a data dictionary allows; equal widths put them all into
the first cell (SUPPORT2), and who died first is then lost."""

_LENGTHS = (0.0, 1.0, 2.0, 4.0, 8.0)
"""Of the smoothing kernel, in cells; 0 for cells that have nothing to do with each other."""
_DOUBT = 2.0
"""A cell that is not this many deviations above 0 is left empty. A generous upper bound makes for
many cells that hold nobody; what noise puts there is few rows, but far from all others, and a
linear model follows them."""
_AMPLITUDES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Of the deviation from equal counts, in units of the mean count."""


@final
@dataclass(frozen=True)
class Cells:
    """Cells of every feature, by the schema."""

    encoder: Encoder
    count: int
    """Cells of a numeric column, equal in width between its public bounds."""

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Where the features sit in the encoded values."""
        return self.encoder.blocks[: len(self.encoder.schema.features)]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Cells of each feature."""
        return tuple(
            self.count if isinstance(block.column, Numeric) else max(2, block.stop - block.start)
            for block in self.blocks
        )

    def codes(self, values: Floats) -> Codes:
        """(rows, features) cell numbers."""
        codes = np.empty((len(values), len(self.blocks)), dtype=np.int64)
        for number, block in enumerate(self.blocks):
            own = values[:, block.slice]
            if isinstance(block.column, Numeric):
                scaled = (own[:, 0].astype(np.float64) + 1.0) / 2.0 * self.count
                codes[:, number] = np.clip(scaled, 0, self.count - 1)
            elif block.stop - block.start == 1:
                codes[:, number] = own[:, 0] > 0
            else:
                codes[:, number] = np.argmax(own, axis=1)
        return codes

    def values(self, codes: Codes, places: Array) -> Array:
        """Encoded features in these cells; `places` in [0, 1) say where within a numeric cell.

        Integers are put on the grid that decoding would round them to, so that a rule holds for
        the row as it will be read.
        """
        values = np.zeros((len(codes), self.encoder.feature_width))
        for number, block in enumerate(self.blocks):
            column, own = block.column, codes[:, number]
            if isinstance(column, Numeric):
                share = (own + places[:, number]) / self.count
                if column.integer:
                    span = column.high - column.low
                    share = (np.rint(column.low + share * span) - column.low) / span
                values[:, block.start] = 2.0 * np.clip(share, 0.0, 1.0) - 1.0
            elif block.stop - block.start == 1:
                values[:, block.start] = 2.0 * own - 1.0
            else:
                values[np.arange(len(codes)), block.start + own] = 1.0
        return values


@final
@dataclass(frozen=True)
class Bins:
    """Coarse bins of every feature: unions of cells."""

    bin_of: tuple[Codes, ...]
    """Of each feature: the bin of every cell."""

    @classmethod
    def of(cls, cells: Cells, marginals: Sequence[Array], most: int) -> Bins:
        """At most `most` bins of about equal mass for a numeric column; categories as they are."""
        return cls(
            tuple(
                _joined(counts, most)
                if isinstance(block.column, Numeric)
                else np.arange(len(counts))
                for block, counts in zip(cells.blocks, marginals, strict=True)
            )
        )

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bins of each feature."""
        return tuple(int(own.max()) + 1 for own in self.bin_of)

    @property
    def slices(self) -> tuple[slice, ...]:
        """Each feature's columns in the design."""
        ends = np.concatenate([[0], np.cumsum(self.sizes)])
        return tuple(slice(int(a), int(b)) for a, b in itertools.pairwise(ends))

    @property
    def reach(self) -> float:
        """Norm of every row of the design: the square root of the sum of 1 - 1/k."""
        return float(np.sqrt(sum(1.0 - 1.0 / size for size in self.sizes)))

    def codes(self, cell_codes: Codes) -> Codes:
        """(rows, features) bin numbers, each feature's own from 0."""
        return np.stack(
            [own[cell_codes[:, number]] for number, own in enumerate(self.bin_of)], axis=1
        )

    def design(self, cell_codes: Codes) -> Array:
        """One-hot bins less 1/k.

        The corners of a simplex around its centre have norm sqrt(1 - 1/k) instead of 1: for binary
        columns a sum over rows needs a factor sqrt(2) less noise, and what is given up, the sum of
        a feature's entries, says nothing about the feature.
        """
        codes = self.codes(cell_codes)
        design = np.zeros((len(codes), sum(self.sizes)))
        rows = np.arange(len(codes))
        for number, own in enumerate(self.slices):
            design[:, own] = -1.0 / self.sizes[number]
            design[rows, own.start + codes[:, number]] += 1.0
        return design

    def scores(self, cell_codes: Codes) -> Array:
        """(rows, features) in [-1, 1]: bins at equal steps; 0 for a feature of one bin."""
        steps = np.maximum(np.array(self.sizes) - 1, 1)
        scores: Array = 2.0 * self.codes(cell_codes) / steps - 1.0
        return np.where(np.array(self.sizes) > 1, scores, 0.0)


def _joined(counts: Array, most: int) -> Codes:
    """The quantile group of each cell's middle; groups that no cell falls into are left out."""
    share = counts / counts.sum()
    groups = np.minimum((np.cumsum(share) - share / 2) * most, most - 1).astype(np.int64)
    _, joined = np.unique(groups, return_inverse=True)
    return joined.astype(np.int64)


def time_cells(values: Floats, count: int) -> Codes:
    """Cell of each row's time."""
    share = np.clip((values[:, -1].astype(np.float64) + 1.0) / 2.0, 0.0, 1.0)
    return np.minimum(share ** (1.0 / _TIME_POWER) * count, count - 1).astype(np.int64)


def time_ends(count: int) -> Array:
    """Ends of the cells of time as encoded times in [-1, 1]."""
    ends: Array = 2.0 * np.linspace(0.0, 1.0, count + 1) ** _TIME_POWER - 1.0
    return ends


def denoised(
    noisy: Array, deviation: float, total: float, *, ordered: bool, doubt: float = _DOUBT
) -> Array:
    """Counts of a public total behind noise of known deviation: non-negative, and shrunk.

    Prior: counts deviate from equal ones by a Gaussian process over the cells (over unrelated cells
    where `ordered` is False). Its length and amplitude are those of the largest evidence. Cells
    whose posterior mean is less than `doubt` posterior deviations hold nothing, and what is left is
    projected on counts that are not negative and sum to the total.
    """
    cells = len(noisy)
    mean = total / cells
    apart = np.subtract.outer(np.arange(cells), np.arange(cells)) ** 2.0
    noise = deviation**2 * np.eye(cells)
    best, prior, weights = -np.inf, noise, np.zeros(cells)
    for length in _LENGTHS if ordered else _LENGTHS[:1]:
        kernel = np.eye(cells) if length == 0 else np.exp(-apart / (2.0 * length**2))
        for amplitude in _AMPLITUDES:
            tried = (amplitude * max(mean, 1e-9)) ** 2 * kernel
            value, found = evidence(tried + noise, noisy - mean)
            if value > best:
                best, prior, weights = value, tried, found
    estimate = mean + prior @ weights
    variance = np.diag(prior - prior @ np.linalg.solve(prior + noise, prior))
    certain = estimate > doubt * np.sqrt(np.maximum(variance, 0.0))
    if not certain.any():
        return projected(estimate, total)
    result = np.zeros(cells)
    result[certain] = projected(estimate[certain], total)
    return result


def evidence(covariance: Array, observed: Array) -> tuple[float, Array]:
    """Log density of N(0, covariance) up to a constant, and covariance^-1 observed."""
    size = len(covariance)
    factor = np.linalg.cholesky(covariance + 1e-9 * np.trace(covariance) / size * np.eye(size))
    half = np.linalg.solve(factor, observed)
    return float(-0.5 * half @ half - np.log(np.diag(factor)).sum()), np.linalg.solve(
        factor.T, half
    )


def projected(values: Array, total: float) -> Array:
    """The nearest non-negative vector with this sum (Duchi et al., ICML 2008, figure 1)."""
    total = max(float(total), 1e-9)
    falling = np.sort(values)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    kept = np.flatnonzero(falling > excess)[-1]
    result: Array = np.maximum(values - excess[kept], 0.0)
    return result
