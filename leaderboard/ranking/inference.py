"""Statistical tests behind the ranking.

Tests over blocks: Friedman, Nemenyi, Wilcoxon's signed ranks. A block is one row of a table with
one column per method. The procedure and its symbols (N blocks, k methods) are those of J. Demsar,
"Statistical comparisons of classifiers over multiple data sets", JMLR 7 (2006), section 3.

Student's test of the difference of two scores, from what is known about its error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
from scipy import stats

Array = npt.NDArray[np.float64]

_COUNTED = 100
"""Up to this number of blocks all signs are enumerated."""


@final
@dataclass(frozen=True)
class Friedman:
    """Test of whether any method differs from any other."""

    statistic: float
    p: float


def friedman(ranks: Array) -> Friedman:
    """Return Friedman's chi-square of (blocks, methods) ranks, corrected for ties; k > 2.

    With mean ranks R_j: 12 N / (k (k + 1)) * (sum_j R_j^2 - k (k + 1)^2 / 4), chi-square with k - 1
    degrees of freedom if all methods are equal. If every block is a single tie, p is 1.
    """
    if np.all(ranks == ranks[:, :1]):
        return Friedman(0.0, 1.0)
    result = stats.friedmanchisquare(*ranks.T)
    return Friedman(float(result.statistic), float(result.pvalue))


def critical_difference(methods: int, blocks: int, alpha: float) -> float:
    """Return Nemenyi's critical difference of mean ranks.

    q / sqrt(2) * sqrt(k (k + 1) / (6 N)), with q the upper quantile of the studentized range of k
    normals. It grows with the number of methods compared, and is therefore only shown for
    orientation; pairs are tested by `signed_rank_p`, which depends on the two alone (A. Benavoli,
    G. Corani, F. Mangili, "Should we really use post-hoc tests based on mean-ranks?", JMLR 17
    (2016)).
    """
    quantile = stats.studentized_range.ppf(1 - alpha, methods, math.inf)
    return float(quantile / math.sqrt(2)) * _standard_error(methods, blocks)


def nemenyi_p(difference: float, methods: int, blocks: int) -> float:
    """Return the p-value of a difference of two mean ranks, corrected for all pairs."""
    spread = abs(difference) / _standard_error(methods, blocks) * math.sqrt(2)
    return float(stats.studentized_range.sf(spread, methods, math.inf))


def _standard_error(methods: int, blocks: int) -> float:
    return math.sqrt(methods * (methods + 1) / (6 * blocks))


def signed_rank_p(differences: Array) -> float:
    """Return the two-sided p-value of Wilcoxon's signed-rank test, exact with ties and zeros.

    Absolute differences are ranked, equal ones share the mean of their ranks, zeros are ranked and
    then left out (J. W. Pratt, JASA 54 (1959)). If nobody is better, every sign is a fair coin: the
    distribution of the sum of positive ranks is counted, one rank at a time, over all 2^n signs.
    Ranks are doubled, so that shared ones are whole numbers too. Beyond a hundred blocks the normal
    approximation is close enough.
    """
    if len(differences) > _COUNTED and np.any(differences != 0):
        result = stats.wilcoxon(differences, zero_method="pratt", method="approx")
        return float(result.pvalue)
    doubled = np.rint(2 * stats.rankdata(np.abs(differences))).astype(np.int64)
    doubled, positive = doubled[differences != 0], differences[differences != 0] > 0
    chance = np.zeros(int(doubled.sum()) + 1)
    chance[0] = 1.0
    for rank in doubled:
        chance[rank:] += chance[:-rank].copy()
        chance /= 2.0
    observed = int(doubled[positive].sum())
    tail = min(chance[: observed + 1].sum(), chance[observed:].sum())
    return float(min(1.0, 2 * tail))


def signed_rank_sum(differences: Array) -> float:
    """Return the sum of signed ranks, whose sign is the direction of the difference."""
    ranks = stats.rankdata(np.abs(differences))
    return float((ranks * np.sign(differences)).sum())


def smallest_p(blocks: int, pairs: int = 1) -> float:
    """Return `signed_rank_p` if one method wins every block, Holm-corrected for the pairs.

    Of 2^N equally likely signs two are that extreme: 2^(1 - N). No data can give less.
    """
    return min(1.0, pairs * 2.0 ** (1 - blocks))


# The difference of two scores ---------------------------------------------------------------------


_NORMAL = float(stats.norm.ppf(0.975))
"""Half the width of a 95% interval, in standard errors."""


@final
@dataclass(frozen=True)
class VarianceComponent:
    """A component of the variance of a difference, with its degrees of freedom."""

    variance: float
    freedom: float
    """Degrees of freedom; infinite if the variance is known."""


@final
@dataclass(frozen=True)
class Difference:
    """First minus second, with its interval and two-sided p-value."""

    value: float
    low: float
    high: float
    p: float


def from_interval(low: float, high: float) -> VarianceComponent:
    """Return the variance behind a 95% test-set interval, assuming a normal distribution."""
    return VarianceComponent(((high - low) / (2 * _NORMAL)) ** 2, math.inf)


def from_seeds(deviation: float, count: int) -> VarianceComponent:
    """Return the variance of a mean over `count` seeds (two or more)."""
    return VarianceComponent(deviation**2 / count, count - 1)


def difference(value: float, parts: Sequence[VarianceComponent], alpha: float) -> Difference | None:
    """Return Student's test of a difference whose variance has independent components.

    The degrees of freedom are those of Welch and Satterthwaite: V^2 / sum_i (V_i^2 / nu_i) for
    V = sum_i V_i. Without components the error is unknown: None. Components with zero
    variance make every difference certain.
    """
    if not parts:
        return None
    variance = sum(part.variance for part in parts)
    if variance == 0:
        return Difference(value, value, value, 1.0 if value == 0 else 0.0)
    shares = sum((part.variance / variance) ** 2 / part.freedom for part in parts)
    freedom = 1 / shares if shares > 0 else math.inf
    error = math.sqrt(variance)
    reach = float(stats.t.ppf(1 - alpha / 2, freedom)) * error
    p = float(2 * stats.t.sf(abs(value) / error, freedom))
    return Difference(value, value - reach, value + reach, p)
