"""Bootstrap of statistics that are functions of sums: histograms, moments, cross tables.

Rows are dealt at random into groups, within their table and class; each group's sums are taken
once, and a resample draws groups with replacement. A random group is a larger random row: means of
drawn groups spread as means of drawn rows do, at the cost of one pass over the rows instead of one
for each resample. With no more rows than groups, each row is a group and this is the bootstrap of
rows. Released groups are weighted back to the declared class shares in each resample, as in
`_pooled`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
from scipy import sparse

from bench import Evaluation, Floats, Integers
from bench.metrics._shared.bootstrap import Array
from bench.metrics.fidelity._pooled import RESAMPLES, Pooled, pooled

GROUPS = 100
"""Of the training rows, and of the released rows of all classes together."""

LEAST_GROUPS = 10
"""Of a class: fewer would make the interval too narrow, by 1 / (2 groups) of its length."""

_CELLS = 2**21
"""Sums of products held at a time, for all groups and for all resamples."""

_COLUMNS = 64
"""Columns copied at a time."""

GROUPED_INTERVAL = (
    "Interval: 200 bootstrap resamples of both tables, of rows in up to 100 random groups "
    "(released rows within class), corrected for the inflation of distances between resamples."
)


@final
@dataclass(frozen=True)
class Side:
    """One of the two tables: its rows in groups, and how often each resample draws a group."""

    rows: npt.NDArray[np.intp]
    """Rows of the pooled table, group by group."""
    starts: npt.NDArray[np.intp]
    """Where each group begins among them."""
    group: Integers
    """The group of each of these rows."""
    weights: Array
    """Of these rows, summing to one."""
    draws: Array
    """(1 + resamples, groups): factors on the sums of the groups; first those of the rows
    themselves, all one. Every resample's weights sum to one."""
    size: float
    """Rows, or for a weighted table Kish's effective number."""

    def means(self, values: Floats, power: int = 1) -> Array:
        """(1 + resamples, columns): weighted means of (pooled rows, columns), or of their squares.

        In blocks of columns: a table of images is too large to be copied.
        """
        by_group = sparse.csr_array(
            (self.weights, (self.group, self.rows)), shape=(len(self.starts), len(values))
        )
        result = np.empty((len(self.draws), values.shape[1]))
        for start in range(0, values.shape[1], _COLUMNS):
            block = slice(start, start + _COLUMNS)
            result[:, block] = self.draws @ (by_group @ values[:, block].astype(float) ** power)
        return result

    def shares(self, codes: Integers, categories: int, values: Floats | None = None) -> Array:
        """(1 + resamples, categories): shares of categories, or sums of values within them."""
        weights = self.weights if values is None else self.weights * values[self.rows]
        cells = self.group * categories + codes[self.rows]
        groups = len(self.starts)
        sums = np.bincount(cells, weights=weights, minlength=groups * categories)
        result: Array = self.draws @ sums.reshape(groups, categories)
        return result

    def products(self, left: Floats, right: Floats) -> Array:
        """(1 + resamples, left columns, right columns): weighted means of products.

        Of columns whose rows are in the order of `rows` already.
        """
        ends = [*self.starts[1:], len(self.rows)]
        sums = np.empty((len(self.starts), left.shape[1] * right.shape[1]))
        weighted = left * self.weights.astype(left.dtype)[:, None]
        for number, (start, end) in enumerate(zip(self.starts, ends, strict=True)):
            sums[number] = (weighted[start:end].T @ right[start:end]).ravel()
        result: Array = self.draws @ sums
        return result.reshape(len(self.draws), left.shape[1], right.shape[1])


@final
@dataclass(frozen=True)
class Sides:
    """Training rows and released rows in groups."""

    real: Side
    released: Side

    def correlations(self, values: Floats) -> Iterator[tuple[slice, slice, Array, Array]]:
        """Pearson correlations of columns, in blocks of the upper triangle.

        Blocks are (first columns, second columns, real, released), correlations of shape
        (1 + resamples, first, second). A column without variance has the correlation 0. Values are
        best given in units in which the training rows have mean 0 and variance 1.
        """
        width = values.shape[1]
        held = max(len(self.real.draws), len(self.real.starts), len(self.released.starts))
        block = max(1, _CELLS // (held * width))
        tables = [_Table.of(side, values) for side in (self.real, self.released)]
        for start in range(0, width, block):
            first, second = slice(start, min(start + block, width)), slice(start, width)
            real, released = (table.correlations(first, second) for table in tables)
            yield first, second, real, released


@final
@dataclass(frozen=True)
class _Table:
    """The columns of one side, in the order of its groups."""

    side: Side
    values: Floats
    centre: Array
    inverse_deviation: Array

    @classmethod
    def of(cls, side: Side, values: Floats) -> _Table:
        centre = side.means(values)
        inverse = inverse_or_zero(side.means(values, 2) - np.square(centre))
        return cls(side, values[side.rows], centre, inverse)

    def correlations(self, first: slice, second: slice) -> Array:
        result = self.side.products(self.values[:, first], self.values[:, second])
        result -= self.centre[:, first, None] * self.centre[:, None, second]
        result *= self.inverse_deviation[:, first, None]
        result *= self.inverse_deviation[:, None, second]
        return np.clip(result, -1.0, 1.0, out=result)


def inverse_or_zero(variance: Array) -> Array:
    """One over the square root, zero where there is no variance beyond rounding."""
    result = np.zeros_like(variance)
    np.divide(1.0, np.sqrt(np.maximum(variance, 0.0)), out=result, where=variance > 1e-12)
    return result


def sides(evaluation: Evaluation, resamples: int = RESAMPLES) -> Sides:
    """The pooled rows in groups; the same for every metric of a release."""
    return evaluation.shared(
        ("groups", resamples),
        lambda: _build(pooled(evaluation), evaluation.generator("bootstrap/groups"), resamples),
    )


def _build(rows: Pooled, rng: np.random.Generator, resamples: int) -> Sides:
    released = rows.released_weights
    all_weights = np.concatenate([np.full(rows.real, 1.0 / rows.real), released])
    classes = np.unique(rows.strata[rows.real :])
    least = max(LEAST_GROUPS, GROUPS // len(classes))
    return Sides(
        _side(rows.strata, all_weights, {0: GROUPS}, rng, resamples, float(rows.real)),
        _side(
            rows.strata,
            all_weights,
            {int(number): least for number in classes},
            rng,
            resamples,
            rows.effective,
        ),
    )


def _side(
    strata: Integers,
    weights: Array,
    groups: dict[int, int],
    rng: np.random.Generator,
    resamples: int,
    size: float,
) -> Side:
    rows, starts, draws = [], [], []
    total = 0
    for stratum, most in groups.items():
        # Released rows of a class that is declared empty weigh nothing.
        members = rng.permutation(np.flatnonzero((strata == stratum) & (weights > 0)))
        if not len(members):
            continue
        count = min(most, len(members))
        bounds = len(members) * np.arange(count) // count
        rows.append(members)
        starts.append(total + bounds)
        total += len(members)
        drawn = np.ones((1 + resamples, count))
        if resamples:
            drawn[1:] = rng.multinomial(count, np.full(count, 1.0 / count), resamples)
        heaviness = np.add.reduceat(weights[members], bounds)
        # The stratum keeps its share in every resample.
        draws.append(drawn * (heaviness.sum() / (drawn @ heaviness))[:, None])
    in_order, begin = np.concatenate(rows), np.concatenate(starts)
    group = np.repeat(np.arange(len(begin)), np.diff([*begin, total]))
    return Side(in_order, begin, group, weights[in_order], np.concatenate(draws, axis=1), size)
