"""Inputs of zero-order condensation: real rows as teachers take them, units and times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench import Categorical, EncodedRows, Encoder, Numeric
from bench.methods.zero_order import _teachers
from bench.methods.zero_order._teachers import LabelledRows

Array = npt.NDArray[np.float64]

_SHORTEST = 1e-3
"""Times shorter than this share of the public bound count as it: the AFT model takes logarithms."""


@final
@dataclass(frozen=True)
class RealRows:
    """Real rows as the teachers take them."""

    examples: LabelledRows
    times: Array | None
    """Times in the units of the schema."""
    scale: float
    shortest: float

    @classmethod
    def of(cls, encoder: Encoder, rows: EncodedRows, scale: float | None = None) -> RealRows:
        """Split features and time; the scale is that of equation 1 unless given."""
        features = np.asarray(rows.values[:, : encoder.feature_width], dtype=np.float64)
        labels = np.asarray(rows.labels)
        column = encoder.schema.time
        classes = len(encoder.schema.classes)
        if column is None:
            return cls(LabelledRows(features, labels, None, classes), None, 1.0, 0.0)
        encoded = np.asarray(rows.values[:, -1], dtype=np.float64)
        times = column.low + (encoded + 1.0) / 2.0 * (column.high - column.low)
        if column.integer:
            times = np.rint(times)
        if scale is None:
            scale = _teachers.time_scale(times, labels) if (labels == 1).any() else 1.0
        shortest = _SHORTEST * column.high
        scaled = np.maximum(times, shortest) / scale
        return cls(LabelledRows(features, labels, scaled, classes), times, scale, shortest)

    def scaled(self, times: Array) -> Array:
        """Equation 1, kept above zero for logarithms."""
        result: Array = np.maximum(times, self.shortest) / self.scale
        return result


@final
@dataclass(frozen=True)
class Units:
    """Standardised columns, in which the rows move: x = middle + spread z."""

    middle: Array
    spread: Array
    """0 for a column that is constant in the real rows: it stays so."""

    def rows(self, standard: Array) -> Array:
        """Rows in the encoder's columns."""
        return self.middle + self.spread * standard

    def standard(self, rows: Array) -> Array:
        """Rows in standardised columns: the inverse of `rows`."""
        return (rows - self.middle) / np.where(self.spread > 0, self.spread, 1.0)

    def lengths(self, standard: Array) -> Array:
        """Lengths of differences in the encoder's columns; a constant column needs some length."""
        return standard * np.where(self.spread > 0, self.spread, 1.0)


def initial_times(
    count: int, earliest: float, latest: float, bins: int, rng: np.random.Generator
) -> Array:
    """`count` times, as evenly as possible over equal bins of the range, uniform within each."""
    bins = max(1, min(bins, count))
    place = np.arange(count) * bins // max(1, count)
    width = (latest - earliest) / bins
    times: Array = earliest + width * (place + rng.random(count))
    return times


def middle(encoder: Encoder) -> Array:
    """Middle of each feature column's public range: 0, or 0.5 for one-hot columns."""
    return np.where(half_range(encoder) < 1.0, 0.5, 0.0)


def half_range(encoder: Encoder) -> Array:
    """Half the length of each feature column's public range: 1, or 0.5 for one-hot columns."""
    ranges = np.ones(encoder.feature_width)
    for block in encoder.blocks:
        if isinstance(block.column, Categorical) and not block.column.binary:
            ranges[block.slice] = 0.5
    return ranges


def encoded_times(encoder: Encoder, times: Array) -> Array:
    """Times as the encoder scales them, to [-1, 1]."""
    column = encoder.schema.time
    assert isinstance(column, Numeric)
    result: Array = 2.0 * (times - column.low) / (column.high - column.low) - 1.0
    return result
