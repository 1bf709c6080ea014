"""Every bootstrap of the metrics: resamples are counts, never copies of rows.

Drawing n of n rows with replacement is the same as counting how often each row was drawn. A
statistic is therefore a function of a matrix of weights, one column per resample: whatever depends
on the rows alone (sorting, ties, comparable pairs) is done once, and a thousand resamples are one
pass over one matrix. Sums of counts are exact and equal those of the duplicated rows.

Counts are bytes and are kept for the statistics that follow: the same strata and the same seed give
the same counts, whichever metric asks first. A `Counted` statistic takes them as they are; any
other function gets them in float64, some resamples at a time.

* `bootstrap`, `bootstrap_all`, `paired`: any statistics of weights; AUROC and C-index are in the
  modules of these names.
* `jointly`: several numbers on the same resamples, to be combined afterwards.
* `bootstrap_quantile`, `bootstrap_median`, `bootstrap_mean`: exact without weights.
* `ResampledSums`: sums over rows for many statistics that are planned first.
* `GroupedRows`: rows assigned to groups, for statistics that are functions of sums.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast, final

import numpy as np
import numpy.typing as npt
from scipy import sparse

from bench import Evaluation, Floats, Integers, NotComputable, Score
from bench.metrics._shared.intervals import LEVEL, AnyMetric

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.uint8]
Index = npt.NDArray[np.intp]
Statistic = Callable[[Array], Array]
"""(rows, resamples) weights in, one value per resample out; NaN where it is not defined."""

RESAMPLES = 1000

_BLOCK_CELLS = 2**19
"""Weights in float64 at a time (4 MB): what a statistic makes of them then stays in the cache."""

_BLOCK_BYTES = 2**25
"""Counts at a time (32 MB), and the largest matrix that is kept: 33,000 rows, 1000 resamples."""

_KEPT_BYTES = 4 * 2**25
"""Counts kept in a process (128 MB), the last used ones: those of real rows serve all releases of a
dataset, and would be lost between two releases with less."""

_MOST_CODES = 64
"""Combinations of column values whose counts are added up in one pass."""

_ROWS_AT_A_TIME = 256
"""Rows of counts that are converted to float64 for a product with columns of any numbers."""

_COLUMNS_AT_A_TIME = 64
"""Columns of a table of groups copied at a time."""


# Statistics of weights ---------------------------------------------------------------------------


class Counted(ABC):
    """A statistic that takes counts in bytes as well as weights in float64."""

    @abstractmethod
    def __call__(self, weights: Array | Counts) -> Array:
        """(rows, resamples) counts or weights in, one value per resample out."""

    @abstractmethod
    def at(self, rows: Index) -> Counted:
        """The same statistic where its rows are these rows of a larger table."""


@final
@dataclass(frozen=True, eq=False)
class Share(Counted):
    """Sum of one number per row over the sum of another."""

    above: Array
    below: Array
    rows: Index | None = None

    def __call__(self, weights: Array | Counts) -> Array:
        return self.quotient(weighted_sums(np.stack(self.columns), self.taken(weights)))

    @property
    def columns(self) -> tuple[Array, Array]:
        """The numbers whose sums are needed."""
        return self.above, self.below

    def quotient(self, sums: Array) -> Array:
        """Value from the sums of the columns."""
        return ratio(sums[0], sums[1])

    def taken(self, weights: Array | Counts) -> Array | Counts:
        """Weights of the rows that it is about."""
        return weights if self.rows is None else weights[self.rows]

    def at(self, rows: Index) -> Share:
        return Share(self.above, self.below, rows if self.rows is None else rows[self.rows])


@final
@dataclass(frozen=True, eq=False)
class _Combined(Counted):
    """A function of several statistics on the same weights."""

    parts: tuple[Counted, ...]
    combine: Callable[..., Array]

    def __call__(self, weights: Array | Counts) -> Array:
        return self.combine(*(part(weights) for part in self.parts))

    def at(self, rows: Index) -> _Combined:
        return _Combined(tuple(part.at(rows) for part in self.parts), self.combine)


@final
@dataclass(frozen=True, eq=False)
class Means(Counted):
    """Means of several numbers per row: (columns, resamples) out."""

    numbers: Array
    """(columns, rows)."""
    rows: Index | None = None

    def __call__(self, weights: Array | Counts) -> Array:
        taken = weights if self.rows is None else weights[self.rows]
        sums = weighted_sums(np.concatenate([self.numbers, np.ones((1, len(taken)))]), taken)
        return ratio(sums[:-1], np.broadcast_to(sums[-1], sums[:-1].shape))

    def at(self, rows: Index) -> Means:
        return Means(self.numbers, rows if self.rows is None else rows[self.rows])


def stacked(parts: Sequence[Counted]) -> Counted:
    """Several statistics as one with several numbers, for `jointly`."""
    return _Combined(tuple(parts), lambda *values: np.stack(values))


def combined(parts: Sequence[Statistic], combine: Callable[..., Array]) -> Statistic:
    """A function of several statistics on the same weights; counted where all of them are."""
    counted = tuple(part for part in parts if isinstance(part, Counted))
    if len(counted) == len(parts):
        return _Combined(counted, combine)
    return lambda weights: combine(*(part(weights) for part in parts))


def mean(values: npt.ArrayLike) -> Share:
    """Mean of one number per row, such as the accuracy from right and wrong answers."""
    numbers = np.asarray(values, dtype=np.float64)
    return Share(numbers, np.ones(len(numbers)))


def share(part: npt.ArrayLike, whole: npt.ArrayLike) -> Share:
    """Sum of one number per row over the sum of another, as in sensitivity, PPV and F1."""
    return Share(np.asarray(part, dtype=np.float64), np.asarray(whole, dtype=np.float64))


def average(statistics: Sequence[Counted]) -> Counted:
    """Mean of several statistics."""
    return _Combined(tuple(statistics), lambda *values: np.mean(values, axis=0))


def difference(first: Statistic, second: Statistic) -> Statistic:
    """First minus second, on the same weights."""
    return combined([first, second], np.subtract)


def quotient(above: Statistic, below: Statistic) -> Statistic:
    """One statistic over another, on the same weights; not defined where the lower one is 0."""
    return combined([above, below], ratio)


def weighted_sums(columns: Array, weights: Array | Counts) -> Array:
    """(columns, resamples) sums over the rows of (columns, rows) numbers times their weights.

    Columns of few different values, such as right and wrong answers, are combined to codes, whose
    counts are added up exactly; all others are one matrix product.
    """
    if weights.dtype != np.uint8:
        product: Array = columns @ weights
        return product
    sums = np.empty((len(columns), weights.shape[1]))
    few: list[tuple[int, Index, Array]] = []
    many: list[int] = []
    for place, column in enumerate(columns):
        coded = _coded(column)
        if coded is None:
            many.append(place)
        else:
            few.append((place, *coded))
    while few:
        few = _add_codes(few, cast(Counts, weights), sums)
    if many:
        chosen = columns[many]
        sums[many] = 0.0
        for start in range(0, weights.shape[0], _ROWS_AT_A_TIME):
            block = slice(start, start + _ROWS_AT_A_TIME)
            sums[many] += chosen[:, block] @ weights[block].astype(np.float64)
    return sums


def _coded(column: Array) -> tuple[Index, Array] | None:
    """Codes of a column and the value of each; None where it has more than three values."""
    codes = np.zeros(len(column), dtype=np.intp)
    values: list[float] = []
    left = np.ones(len(column), dtype=bool)
    while left.any():
        if len(values) == 3:
            return None
        value = float(column[np.argmax(left)])
        same = column == value
        codes[same] = len(values)
        values.append(value)
        left &= ~same
        if np.isnan(value):
            return None
    return codes, np.array(values)


def _add_codes(
    few: list[tuple[int, Index, Array]], weights: Counts, sums: Array
) -> list[tuple[int, Index, Array]]:
    """Sum as many columns as share one pass over the counts; return the others."""
    from bench.metrics._shared import resample_kernels

    codes = np.zeros(weights.shape[0], dtype=np.intp)
    kinds = 1
    taken: list[tuple[int, Index, Array]] = []
    for number, (place, column, values) in enumerate(few):
        both = codes * len(values) + column
        present = np.bincount(both, minlength=kinds * len(values)) > 0
        if taken and np.count_nonzero(present) > _MOST_CODES:
            left = few[number:]
            break
        codes = (np.cumsum(present) - 1)[both]
        kinds = int(np.count_nonzero(present))
        taken.append((place, column, values))
    else:
        left = []
    by_code = np.zeros((max(1, kinds), weights.shape[1]))
    taken_rows = np.array([len(codes) - 1] if len(codes) else [], dtype=np.intp)
    resample_kernels.sums_by_code(contiguous(weights, taken_rows), codes, by_code)
    first = np.zeros(len(by_code), dtype=np.intp)
    first[codes] = np.arange(len(codes))
    for place, column, values in taken:
        sums[place] = values[column[first]] @ by_code if len(codes) else 0.0
    return left


def contiguous(weights: Array | Counts, rows: Index) -> Array | Counts:
    """Return the weights as compiled loops take them: bytes or float64, rows side by side.

    Refuse a table without one of `rows`: compiled loops do not check where they read.
    """
    if len(rows) and not 0 <= rows.min() <= rows.max() < len(weights):
        raise ValueError(
            f"the statistic is about row {rows.max()}, the weights are of {len(weights)} rows; "
            "expected the weights of the table that it was made for"
        )
    return np.ascontiguousarray(weights, dtype=np.uint8 if weights.dtype == np.uint8 else float)


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
        for counts in resampled_counts(strata, rng, resamples):
            for name, samples in _samples(defined, counts).items():
                blocks[name].append(samples)
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


def _samples(statistics: Mapping[str, Statistic], counts: Counts) -> dict[str, Array]:
    """Values of statistics on resamples; shares are added up together."""
    shares = {
        name: one for name, one in statistics.items() if isinstance(one, Share) and one.rows is None
    }
    samples: dict[str, Array] = {}
    if shares:
        columns = [column for one in shares.values() for column in one.columns]
        sums = weighted_sums(np.stack(columns), counts)
        for place, (name, one) in enumerate(shares.items()):
            samples[name] = one.quotient(sums[2 * place : 2 * place + 2])
    opaque: dict[str, list[Array]] = {}
    for name, statistic in statistics.items():
        if isinstance(statistic, Counted):
            if name not in samples:
                samples[name] = statistic(counts)
        else:
            opaque[name] = []
    if opaque:
        for weights in _as_weights(counts):
            for name, values in opaque.items():
                values.append(statistics[name](weights))
    samples.update({name: np.concatenate(values) for name, values in opaque.items()})
    return samples


def resampled_counts(
    strata: npt.NDArray[np.generic], rng: np.random.Generator, resamples: int
) -> Iterator[Counts]:
    """Yield (rows, resamples) counts of a multinomial draw within each stratum, in blocks.

    They are not to be changed: a matrix that is small enough is kept for whoever asks next. The
    generator gives the seed of all draws at once: what is drawn after them does not depend on
    whether they were kept.
    """
    from bench.metrics._shared import resample_kernels

    strata = np.asarray(strata)
    rows = len(strata)
    state = rng.integers(0, 2**64, size=4, dtype=np.uint64)
    order = np.argsort(strata, kind="stable")
    sorted_strata = strata[order]
    ends = np.append(np.flatnonzero(sorted_strata[1:] != sorted_strata[:-1]) + 1, rows)
    if rows * resamples > _BLOCK_BYTES:
        width = max(1, _BLOCK_BYTES // rows)
        for start in range(0, resamples, width):
            block = np.empty((rows, min(width, resamples - start)), dtype=np.uint8)
            resample_kernels.draw(state, order, ends, block)
            yield block
        return
    digest = hashlib.blake2b(np.concatenate([state, [resamples, rows]]).tobytes(), digest_size=16)
    digest.update(order.tobytes())
    digest.update(ends.tobytes())
    key = digest.digest()
    counts = _DRAWN.get(key)
    if counts is None:
        counts = np.empty((rows, resamples), dtype=np.uint8)
        resample_kernels.draw(state, order, ends, counts)
        _DRAWN[key] = counts
        while sum(kept.nbytes for kept in _DRAWN.values()) > _KEPT_BYTES:
            _DRAWN.popitem(last=False)
    else:
        _DRAWN.move_to_end(key)
    yield counts


_DRAWN: OrderedDict[bytes, Counts] = OrderedDict()


def seed_of_dataset(evaluation: Evaluation) -> int:
    """Seed of resamples of the test rows that are the same for every release of a dataset.

    For numbers of a model of the real rows, kept for all releases, and numbers beside them.
    """
    return evaluation.reference("bootstrap/test", lambda rng: int(rng.integers(2**31)))


def of_dataset(evaluation: Evaluation) -> np.random.Generator:
    """Generator of resamples of real rows, the same for every release of a dataset.

    All metrics that draw within the same strata get the same resamples, which are drawn once: two
    releases are then judged by the same rows, and their intervals differ by the releases only.
    """
    return np.random.default_rng(seed_of_dataset(evaluation))


def resampled_weights(
    strata: npt.NDArray[np.generic], rng: np.random.Generator, resamples: int
) -> Iterator[Array]:
    """Multinomial counts of each row in float64, in blocks of resamples."""
    for counts in resampled_counts(strata, rng, resamples):
        yield from _as_weights(counts)


def _as_weights(counts: Counts) -> Iterator[Array]:
    width = max(1, _BLOCK_CELLS // max(1, counts.shape[0]))
    for start in range(0, counts.shape[1], width):
        yield counts[:, start : start + width].astype(np.float64)


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
    if isinstance(statistic, Counted):
        blocks = [statistic(counts) for counts in resampled_counts(strata, rng, resamples)]
    else:
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
            columns = np.ascontiguousarray(self._by_group().T)
            blocks = resampled_counts(np.zeros(columns.shape[1]), self._rng, RESAMPLES)
            resampled = [weighted_sums(columns, counts).T for counts in blocks]
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
