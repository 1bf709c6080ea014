"""Bootstrap intervals without resampled copies: a resample is a weight on every row.

Drawing n of n rows with replacement is the same as counting how often each row was drawn. A
statistic is therefore a function of a matrix of weights, one column a resample: whatever depends
on the rows alone (sorting, ties, comparable pairs) is done once, and a thousand resamples are a
few passes over one matrix. Weights are counts in float64, so that sums of products are exact and
equal those of the duplicated rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench import CONFIDENCE, Metric, NotComputable, Score
from bench.metrics._shared.statistics import (
    Array,
    Statistic,
    auprc,
    auroc,
    average,
    concordance,
    difference,
    mean,
    one_against_rest,
    quotient,
    share,
)

__all__ = [
    "LEVEL",
    "RESAMPLES",
    "Array",
    "Estimate",
    "Statistic",
    "auprc",
    "auroc",
    "average",
    "bootstrap",
    "bootstrap_all",
    "bootstrap_median",
    "concordance",
    "difference",
    "mean",
    "one_against_rest",
    "paired",
    "quotient",
    "share",
]

RESAMPLES = 1000
LEVEL = CONFIDENCE

_BLOCK_CELLS = 2**19
"""Weights held at a time (4 MB): what a statistic makes of them then stays in the cache."""


@final
@dataclass(frozen=True)
class Estimate:
    """A statistic of the rows, and of their resamples."""

    value: float
    samples: Array

    @property
    def interval(self) -> tuple[float, float]:
        """Percentile interval."""
        low, high = np.quantile(self.samples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return float(low), float(high)

    @property
    def distance_interval(self) -> tuple[float, float]:
        """Interval of a distance in [0, 1] between two empirical distributions.

        Such a distance is larger than that of the populations, and larger still after resampling
        both: percentiles of a small distance lie above the distance itself. The upper end is the
        value plus the spread of the resamples above their mean; the lower end is that of the basic
        bootstrap, 2 value - upper percentile, which takes the bias back.
        """
        upper = self.interval[1]
        spread = max(0.0, upper - float(self.samples.mean()))
        low = min(self.value, 2 * self.value - upper)
        return max(0.0, low), min(1.0, self.value + spread)

    @property
    def p_value(self) -> float:
        """Two-sided, against a true value of 0: of a difference, that there is none.

        Twice the smaller share of resamples on either side of 0, each with one added above and
        below, because the rows themselves are a resample too: never 0. A resample at 0 counts on
        both sides, so that a difference which is always 0 has the p-value 1.
        """
        below = np.count_nonzero(self.samples <= 0.0)
        above = np.count_nonzero(self.samples >= 0.0)
        return min(1.0, 2.0 * (min(below, above) + 1) / (len(self.samples) + 1))

    def score(self, metric: type[Metric] | Metric, output: str = "") -> Score:
        """As that output of a metric (of its own name where none is given), with the interval."""
        low, high = self.interval
        return metric.score(output or metric.name, self.value, low, high)


def bootstrap(
    statistic: Statistic,
    strata: npt.ArrayLike,
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Estimate:
    """Value and resamples of a statistic; rows are drawn within their stratum.

    The draws depend on the strata and the generator alone: two releases scored on the same test
    rows with the same seed see the same resamples.
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
    """Several statistics on the same resamples; one that is not defined gives its reason."""
    strata = np.asarray(strata)
    once = np.ones((len(strata), 1))
    values = {name: float(statistic(once)[0]) for name, statistic in statistics.items()}
    defined = {name: statistics[name] for name, value in values.items() if not np.isnan(value)}
    blocks: dict[str, list[Array]] = {name: [] for name in defined}
    if defined:
        for weights in resampled_weights(strata, rng, resamples):
            for name, statistic in defined.items():
                blocks[name].append(statistic(weights))
    return {
        name: _estimate(value, np.concatenate(blocks[name]), resamples)
        if name in blocks
        else NotComputable("the statistic is not defined on these rows")
        for name, value in values.items()
    }


def _estimate(value: float, samples: Array, resamples: int) -> Estimate | NotComputable:
    defined = samples[~np.isnan(samples)]
    if 2 * len(defined) < resamples:
        return NotComputable(
            f"only {len(defined)} of {resamples} bootstrap resamples define the statistic: too "
            "few rows for an interval"
        )
    return Estimate(value, defined)


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


def bootstrap_median(
    values: npt.ArrayLike, rng: np.random.Generator, resamples: int = RESAMPLES
) -> Estimate:
    """Bootstrap of a median in constant time a resample, exact in distribution.

    Drawing n of n rows is floor(n U) for n uniforms, which keeps their order; the k-th smallest
    uniform is Beta(k, n + 1 - k), and the next one lies above it by a Beta(1, n - k) share of what
    is left. The median of a resample is read off the sorted values at these places.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    count = len(ordered)
    if not count:
        raise NotComputable("no rows to take a median of")
    middle = (count + 1) // 2
    place = rng.beta(middle, count + 1 - middle, resamples)
    samples = ordered[_floor(place, count)]
    if count % 2 == 0:
        place += (1.0 - place) * rng.beta(1, count - middle, resamples)
        samples = (samples + ordered[_floor(place, count)]) / 2
    return Estimate(float(np.median(ordered)), samples)


def _floor(place: Array, count: int) -> npt.NDArray[np.intp]:
    return np.minimum((place * count).astype(np.intp), count - 1)
