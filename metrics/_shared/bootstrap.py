"""Every bootstrap of the metrics: resamples are weights, never copies of rows.

Drawing n of n rows with replacement is the same as counting how often each row was drawn. A
statistic is therefore a function of a matrix of weights, one column per resample: whatever depends
on the rows alone (sorting, ties, comparable pairs) is done once, and a thousand resamples are a
few passes over one matrix. Weights are counts in float64, so that sums of products are exact and
equal those of the duplicated rows.

* `bootstrap`, `bootstrap_all`, `paired`: any statistics of weights; AUROC and C-index are in the
  modules of these names.
* `jointly`: several numbers on the same resamples, to be combined afterwards.
* `bootstrap_quantile`, `bootstrap_median`, `bootstrap_mean`: exact without weights.
* `ResampledSums`: sums over rows for many statistics that are planned first.
* `GroupedRows`: rows assigned to groups, for statistics that are functions of sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
from scipy import sparse

from bench import Floats, Integers, NotComputable, Score
from bench.metrics._shared.intervals import LEVEL, AnyMetric

Array = npt.NDArray[np.float64]
Statistic = Callable[[Array], Array]
"""(rows, resamples) weights in, one value per resample out; NaN where it is not defined."""

RESAMPLES = 1000

_BLOCK_CELLS = 2**19
"""Weights held at a time (4 MB): what a statistic makes of them then stays in the cache."""

_COLUMNS_AT_A_TIME = 64
"""Columns of a table of groups copied at a time."""


# Statistics of weights ---------------------------------------------------------------------------


def mean(values: npt.ArrayLike) -> Statistic:
    """Mean of one number per row, such as the accuracy from right and wrong answers."""
    numbers = np.asarray(values, dtype=np.float64)

    def statistic(weights: Array) -> Array:
        result: Array = numbers @ weights / weights.sum(axis=0)
        return result

    return statistic


def share(part: npt.ArrayLike, whole: npt.ArrayLike) -> Statistic:
    """Sum of one number per row over the sum of another, as in sensitivity, PPV and F1."""
    above, below = np.asarray(part, dtype=np.float64), np.asarray(whole, dtype=np.float64)
    return lambda weights: ratio(above @ weights, below @ weights)


def average(statistics: Sequence[Statistic]) -> Statistic:
    """Mean of several statistics."""
    return lambda weights: np.mean([each(weights) for each in statistics], axis=0)


def difference(first: Statistic, second: Statistic) -> Statistic:
    """First minus second, on the same weights."""
    return lambda weights: first(weights) - second(weights)


def quotient(above: Statistic, below: Statistic) -> Statistic:
    """One statistic over another, on the same weights; not defined where the lower one is 0."""
    return lambda weights: ratio(above(weights), below(weights))


def cumulated(weights: Array, order: npt.NDArray[np.intp]) -> Array:
    """Sums of the weights of the first k rows in the given order, for k from 0."""
    sums = np.empty((len(order) + 1, weights.shape[1]))
    sums[0] = 0.0
    np.cumsum(weights[order], axis=0, out=sums[1:])
    return sums


def weighted_wins(
    weights: Array,
    up_to: Array,
    below: npt.NDArray[np.intp],
    at_most: npt.NDArray[np.intp],
) -> Array:
    """Weighted wins: what lies below counts one, what is tied one half."""
    won: Array = np.einsum("ij,ij->j", weights, up_to[below])
    if np.array_equal(below, at_most):
        return won
    tied: Array = np.einsum("ij,ij->j", weights, up_to[at_most])
    return (won + tied) / 2


def ratio(above: Array, below: Array) -> Array:
    """Quotient of two arrays; NaN where the lower one is 0."""
    result = np.full(np.shape(below), np.nan)
    np.divide(above, below, out=result, where=below > 0)
    return result


def rank_correlation(first: Array, second: Array) -> Array:
    """Spearman's correlation of each column of two tables; NaN where a column is constant."""
    from scipy.stats import rankdata

    left, right = (
        ranks - ranks.mean(axis=0) for ranks in (rankdata(part, axis=0) for part in (first, second))
    )
    scale = np.sqrt((left**2).sum(axis=0) * (right**2).sum(axis=0))
    return ratio((left * right).sum(axis=0), scale)


# Resamples as weights ----------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Estimate:
    """A statistic of the rows, and of their resamples."""

    value: float
    samples: Array

    @classmethod
    def of(cls, samples: Array) -> Estimate:
        """The first sample is the value of the rows themselves, the others are resamples."""
        return cls(float(samples[0]), samples[1:])

    @classmethod
    def defined(cls, value: float, samples: Array) -> Estimate:
        """Leave out resamples that do not define the statistic; refuse where most do not."""
        if np.isnan(value):
            raise NotComputable("the statistic is not defined on these rows")
        kept = samples[~np.isnan(samples)]
        if 2 * len(kept) < len(samples):
            raise NotComputable(
                f"only {len(kept)} of {len(samples)} bootstrap resamples define the statistic: too "
                "few rows for an interval"
            )
        return cls(value, kept)

    def __sub__(self, other: Estimate) -> Estimate:
        return Estimate(self.value - other.value, self.samples - other.samples)

    @property
    def interval(self) -> tuple[float, float]:
        """Percentile interval."""
        low, high = np.quantile(self.samples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return float(low), float(high)

    def distance_interval(self, most: float = 1.0) -> tuple[float, float]:
        """Interval of a distance in [0, most] between two empirical distributions.

        Such a distance is larger than that of the populations, and larger still after resampling
        both: percentiles of a small distance lie above the distance itself. The upper end is the
        value plus the spread of the resamples above their mean; the lower end is that of the basic
        bootstrap, 2 value - upper percentile, which corrects the bias.
        """
        upper = self.interval[1]
        spread = max(0.0, upper - float(self.samples.mean()))
        low = min(self.value, 2 * self.value - upper)
        return max(0.0, low), min(most, self.value + spread)

    @property
    def p_value(self) -> float:
        """Two-sided p-value of the null hypothesis that the true value is 0.

        Twice the smaller share of resamples on either side of 0, each with one added above and
        below, because the rows themselves are a resample too: never 0. A resample at 0 counts on
        both sides, so that a difference which is always 0 has the p-value 1.
        """
        below = np.count_nonzero(self.samples <= 0.0)
        above = np.count_nonzero(self.samples >= 0.0)
        return min(1.0, 2.0 * (min(below, above) + 1) / (len(self.samples) + 1))

    def score(self, metric: AnyMetric, output: str = "") -> Score:
        """Return the score of an output (the metric's name by default), percentile interval."""
        return metric.score(output or metric.name, self.value, *self.interval)

    def distance_score(self, metric: AnyMetric, output: str = "", most: float = 1.0) -> Score:
        """The same with `distance_interval`."""
        return metric.score(output or metric.name, self.value, *self.distance_interval(most))


def bootstrap(
    statistic: Statistic,
    strata: npt.ArrayLike,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Estimate:
    """Return value and resamples of a statistic; rows are drawn within their stratum.

    The draws depend on the strata and the generator alone: two releases scored on the same test
    rows with the same seed get the same resamples.
    """
    (estimate,) = bootstrap_all({"": statistic}, strata, rng, resamples).values()
    if isinstance(estimate, NotComputable):
        raise estimate
    return estimate


def bootstrap_all(
    statistics: Mapping[str, Statistic],
    strata: npt.ArrayLike,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> dict[str, Estimate | NotComputable]:
    """Several statistics on the same resamples; the reason for one that is not defined."""
    strata = np.asarray(strata)
    once = np.ones((len(strata), 1))
    values = {name: float(statistic(once)[0]) for name, statistic in statistics.items()}
    defined = {name: statistics[name] for name, value in values.items() if not np.isnan(value)}
    blocks: dict[str, list[Array]] = {name: [np.empty(0)] for name in statistics}
    if defined:
        for weights in resampled_weights(strata, rng, resamples):
            for name, statistic in defined.items():
                blocks[name].append(statistic(weights))
    estimates: dict[str, Estimate | NotComputable] = {}
    for name, value in values.items():
        try:
            estimates[name] = Estimate.defined(value, np.concatenate(blocks[name]))
        except NotComputable as reason:
            estimates[name] = reason
    return estimates


def paired(
    first: Statistic,
    second: Statistic,
    strata: npt.ArrayLike,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Estimate:
    """First minus second, both on the same resamples of the same rows; see `Estimate.p_value`."""
    return bootstrap(difference(first, second), strata, rng, resamples)


def resampled_weights(
    strata: npt.NDArray[np.generic], rng: np.random.Generator, resamples: int
) -> Iterator[Array]:
    """Multinomial counts of each row, in blocks of resamples."""
    rows = len(strata)
    members = [np.flatnonzero(strata == stratum) for stratum in np.unique(strata)]
    width = max(1, min(resamples, _BLOCK_CELLS // rows))
    for start in range(0, resamples, width):
        block = min(width, resamples - start)
        weights = np.empty((rows, block))
        for index in members:
            size = len(index)
            drawn = rng.integers(0, size, (block, size))
            drawn += size * np.arange(block)[:, None]
            counts = np.bincount(drawn.ravel(), minlength=block * size)
            weights[index] = counts.reshape(block, size).T
        yield weights


# Several numbers on the same resamples -----------------------------------------------------------


@final
@dataclass(frozen=True)
class Joint:
    """Several numbers of the same rows and of the same resamples of them."""

    values: Array
    samples: Array
    """(numbers, resamples)."""

    def estimate(self, combine: Callable[[Array], Array]) -> Estimate:
        """One number made of them: (numbers, columns) in, one value per column out."""
        return Estimate.defined(float(combine(self.values[:, None])[0]), combine(self.samples))

    def take(self, places: Sequence[int]) -> Joint:
        """Some of the numbers."""
        return Joint(self.values[list(places)], self.samples[list(places)])

    def beside(self, other: Joint) -> Joint:
        """These numbers, then those of another model on the same resamples."""
        return Joint(
            np.concatenate([self.values, other.values]),
            np.concatenate([self.samples, other.samples]),
        )

    def each(self) -> Iterator[Estimate]:
        """Yield one estimate per number."""
        for value, samples in zip(self.values, self.samples, strict=True):
            yield Estimate.defined(float(value), samples)

    def half_widths(self) -> Array:
        """Half-widths of intervals that hold for all numbers simultaneously.

        Where |estimate_g - truth_g| <= c se_g for all g together in 95% of the cases, the largest
        truth lies between max(estimate_g - c se_g) and max(estimate_g + c se_g). The bootstrap
        gives se_g, and c as the quantile of the largest studentised deviation.
        """
        spread = np.nanstd(self.samples, axis=1)
        wide = spread > 0
        if not wide.any():
            return np.zeros(len(self.values))
        deviations = np.abs(self.samples[wide] - self.values[wide, None]) / spread[wide, None]
        factor = np.quantile(np.nanmax(deviations, axis=0), LEVEL)
        result: Array = factor * spread
        return result

    def lowest_interval(self) -> tuple[float, float]:
        """Interval of the smallest of several shares."""
        half = self.half_widths()
        low, high = np.min(self.values - half), np.min(self.values + half)
        return max(0.0, float(low)), min(1.0, float(high))


def jointly(
    statistic: Statistic,
    strata: npt.ArrayLike,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Joint:
    """Bootstrap of a statistic with several numbers: (numbers, columns) from (rows, columns)."""
    strata = np.asarray(strata)
    values = statistic(np.ones((len(strata), 1)))[:, 0]
    blocks = [statistic(weights) for weights in resampled_weights(strata, rng, resamples)]
    return Joint(values, np.concatenate(blocks, axis=1))


# Without weights ---------------------------------------------------------------------------------


def bootstrap_quantile(
    values: npt.ArrayLike,
    level: float,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Estimate:
    """Bootstrap of a quantile in constant time per resample, exact in distribution.

    Drawing n of n rows is floor(n U) for n uniforms, which keeps their order; the k-th smallest
    uniform is Beta(k, n + 1 - k), and the next one lies above it by a Beta(1, n - k) share of what
    is left. The quantile of a resample is read off the sorted values at these places.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    count = len(ordered)
    if not count:
        raise NotComputable("no rows to take a quantile of")

    def at(place: Array) -> Array:
        return ordered[np.minimum((place * count).astype(np.intp), count - 1)]

    below = int((count - 1) * level)
    part = (count - 1) * level - below
    place = rng.beta(below + 1, count - below, resamples)
    samples = at(place)
    if part > 0:
        place += (1.0 - place) * rng.beta(1, count - below - 1, resamples)
        samples = (1.0 - part) * samples + part * at(place)
    return Estimate(float(np.quantile(ordered, level)), samples)


def bootstrap_median(
    values: npt.ArrayLike, rng: np.random.Generator, resamples: int = RESAMPLES
) -> Estimate:
    """Bootstrap of a median: see `bootstrap_quantile`."""
    return bootstrap_quantile(values, 0.5, rng, resamples)


def bootstrap_mean(values: Array, rng: np.random.Generator) -> Estimate:
    """Bootstrap of a mean of values of which there are few different ones.

    Drawing n of n rows is a multinomial draw of how often each different value occurs.
    """
    distinct, counts = np.unique(values, return_counts=True)
    drawn = rng.multinomial(len(values), counts / len(values), RESAMPLES)
    return Estimate(float(np.mean(values)), drawn @ distinct / len(values))


# Sums over rows ----------------------------------------------------------------------------------


SUMMED_GROUPS = 1000
"""Groups of the rows of `ResampledSums`: half-widths then vary by 1 / sqrt(2000) of themselves, no
more than those of a thousand resamples do."""


@final
class ResampledSums:
    """Sums of columns over rows and over a thousand resamples, the same resamples for all.

    Rows are dealt at random into up to a thousand groups, whose sums are taken once; a resample
    draws groups with replacement, as `GroupedRows` does. Up to a thousand rows, each is a group and
    this is the bootstrap of rows.
    """

    def __init__(self, rows: int, rng: np.random.Generator) -> None:
        self._rows = rows
        self._rng = rng
        self._columns: list[Array] = []
        self._sums: Array | None = None

    def column(self, values: npt.ArrayLike) -> int:
        """Register one number per row; return its place among the sums."""
        self._columns.append(np.asarray(values, dtype=np.float64))
        return len(self._columns) - 1

    def sums(self, place: int) -> Array:
        """Sum of a registered column over the rows, then over each resample."""
        if self._sums is None:
            by_group = self._by_group()
            # One product for all statistics: the draws cost more than the sums.
            blocks = resampled_weights(np.zeros(len(by_group)), self._rng, RESAMPLES)
            resampled = [weights.T @ by_group for weights in blocks]
            whole = [column.sum() for column in self._columns]
            self._sums = np.concatenate([np.array(whole)[None], *resampled])
        sums: Array = self._sums[:, place]
        return sums

    def _by_group(self) -> Array:
        """(groups, columns): sums of the rows of each group."""
        if self._rows <= SUMMED_GROUPS:
            return np.column_stack(self._columns)
        group = self._rng.permutation(self._rows) % SUMMED_GROUPS
        # Groups differ by one row at most: a resample of larger ones is scaled to all rows.
        sizes = np.bincount(group)
        mean = self._rows / SUMMED_GROUPS
        return np.column_stack(
            [np.bincount(group, weights=column) * (mean / sizes) for column in self._columns]
        )


# Groups of rows ----------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class GroupedRows:
    """Rows of a table assigned at random to groups, and how often each resample draws a group.

    Each group's sums are taken once, and a resample draws groups with replacement. A random group
    is a larger random row: means of drawn groups spread as means of drawn rows do, at the cost of
    one pass over the rows instead of one for each resample. With no more rows than groups, each row
    is a group and this is the bootstrap of rows.
    """

    rows: npt.NDArray[np.intp]
    """Rows of the table, group by group."""
    starts: npt.NDArray[np.intp]
    """Place of the first row of each group."""
    group: Integers
    """The group of each of these rows."""
    weights: Array
    """Weights of these rows, of sum one."""
    draws: Array
    """(1 + resamples, groups): factors on the sums of the groups; first those of the rows
    themselves, all one. Every resample's weights sum to one."""
    size: float
    """Rows, or for a weighted table Kish's effective number."""

    @classmethod
    def dealt(
        cls,
        strata: Integers,
        weights: Array,
        groups: Mapping[int, int],
        rng: np.random.Generator,
        resamples: int,
        size: float,
    ) -> GroupedRows:
        """Deal the rows of each stratum that `groups` names into at most so many groups."""
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
        return cls(in_order, begin, group, weights[in_order], np.concatenate(draws, axis=1), size)

    def means(self, values: Floats, power: int = 1) -> Array:
        """(1 + resamples, columns): weighted means of the columns, or of their squares.

        In blocks of columns: a table of images is too large to be copied.
        """
        by_group = sparse.csr_array(
            (self.weights, (self.group, self.rows)), shape=(len(self.starts), len(values))
        )
        result = np.empty((len(self.draws), values.shape[1]))
        for start in range(0, values.shape[1], _COLUMNS_AT_A_TIME):
            block = slice(start, start + _COLUMNS_AT_A_TIME)
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

        The rows of both tables are in the order of `rows` already.
        """
        ends = [*self.starts[1:], len(self.rows)]
        sums = np.empty((len(self.starts), left.shape[1] * right.shape[1]))
        weighted = left * self.weights.astype(left.dtype)[:, None]
        for number, (start, end) in enumerate(zip(self.starts, ends, strict=True)):
            sums[number] = (weighted[start:end].T @ right[start:end]).ravel()
        result: Array = self.draws @ sums
        return result.reshape(len(self.draws), left.shape[1], right.shape[1])
