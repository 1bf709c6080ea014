"""An exact test of two binomial counts against a trade-off curve.

Null hypothesis: the attack's true and false positive rates (t, a) obey t <= g(a), where the
*frontier* g does not fall. g(a) = min(e^epsilon a + delta, 1 - e^-epsilon (1 - delta - a)) is
(epsilon, delta)-DP, g(a) = Phi(Phi^-1(a) + mu) is mu-GDP, and 1 - f(a) any trade-off curve f.

*Ordering.* The evidence of a count pair (h, k) is the error e at which the Clopper-Pearson
rectangle t >= low_e(h), a <= high_e(k) just leaves the null: low_e(h) > g(high_e(k)). Pairs with
evidence at least that of the observed one are h >= h*(k), where h*(k) is the smallest h with
P(Binomial(n, g(high_e(k))) >= h) <= e: a staircase that rises with k.

*p-value.* The largest probability of this staircase under the null, an exact unconditional test
(Barnard 1947). It is at most 2 e, what the rectangle alone gives, and typically far below. The
probability rises with t and falls with a, so its supremum lies on t = g(a), and on a <= a' <= b it
is at most its value at (t, a) = (g(b), a): intervals are split until this bound is tight, and the
bound, never the value at a point, is reported. The nuisance a is searched in a Clopper-Pearson
interval of error gamma, and gamma is added (Berger and Boos 1994, Lemma 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench.errors import InputError
from bench.stats.inference import Floats, clopper_pearson_high, clopper_pearson_low

Frontier = Callable[[Floats], Floats]
"""Map from false positive rates to the largest true positive rates allowed."""

_NUISANCE_ERROR = 1e-8
_NEGLECTED = 1e-12
"""Upper bound of the mass outside the windows of both counts."""
_TOLERANCE = 0.03
"""Share by which the p-value may be too large; it is never too small."""
_ROUNDS = 13
_FIRST_INTERVALS = 48
_ROWS_AT_ONCE = 128


@final
@dataclass(frozen=True)
class Tally:
    """Calls of an attack on independent trials that were not used to choose it."""

    hits: int
    """Trials with the canary that were called `in`."""
    positives: int
    """Trials with the canary."""
    false_alarms: int
    """Trials without the canary that were called `in`."""
    negatives: int
    """Trials without the canary."""

    def __post_init__(self) -> None:
        if self.positives < 1 or self.negatives < 1:
            raise InputError(
                f"{self.positives} trials with the canary and {self.negatives} without: an audit "
                "needs at least one of each; ask for more trials"
            )
        if not (0 <= self.hits <= self.positives and 0 <= self.false_alarms <= self.negatives):
            raise InputError(f"{self}: more calls than trials, or fewer than none")

    @property
    def true_positives(self) -> float:
        """Share of trials with the canary that were called `in`."""
        return self.hits / self.positives

    @property
    def false_positives(self) -> float:
        """Share of trials without the canary that were called `in`."""
        return self.false_alarms / self.negatives

    @property
    def false_negatives(self) -> float:
        """Share of trials with the canary that were called `out`."""
        return 1.0 - self.true_positives


def rectangle_error(tally: Tally, frontier: Frontier) -> float:
    """Smallest error of each end at which the rectangle leaves the null; 0.5 if none does."""

    def leaves(error: float) -> bool:
        low = clopper_pearson_low(tally.hits, tally.positives, error)
        high = clopper_pearson_high(tally.false_alarms, tally.negatives, error)
        return bool(low > frontier(np.atleast_1d(high))[0])

    if not leaves(0.5):
        return 0.5
    low, high = math.log(1e-290), math.log(0.5)
    for _ in range(42):
        middle = (low + high) / 2
        if leaves(math.exp(middle)):
            high = middle
        else:
            low = middle
    # Pairs of the same evidence belong to the staircase; rounding must not drop them.
    return min(math.exp(high) * (1 + 1e-9), 0.5)


def exact_p_value(tally: Tally, frontier: Frontier) -> float:
    """Return the p-value of the null that the method's trade-off is on or below the frontier."""
    error = rectangle_error(tally, frontier)
    if error >= 0.5:
        return 1.0
    lowest = float(clopper_pearson_low(tally.false_alarms, tally.negatives, _NUISANCE_ERROR / 2))
    highest = float(clopper_pearson_high(tally.false_alarms, tally.negatives, _NUISANCE_ERROR / 2))
    staircase = _staircase(tally, frontier, error, lowest, highest)
    # Square-root arcsine: the spread of a binomial share is the same everywhere on this scale.
    ends = math.asin(math.sqrt(lowest)), math.asin(math.sqrt(highest))
    edges = np.linspace(*ends, _FIRST_INTERVALS + 1)
    left, right = edges[:-1], edges[1:]
    largest = worst = 0.0
    for _ in range(_ROUNDS):
        start, end = np.sin(left) ** 2, np.sin(right) ** 2
        bounds = staircase.probability(frontier(end), start)
        middle = (start + end) / 2
        largest = max(largest, float(staircase.probability(frontier(middle), middle).max()))
        unsettled = bounds > largest * (1 + _TOLERANCE)
        worst = max(worst, float(bounds[~unsettled].max(initial=0.0)))
        if not unsettled.any():
            break
        parts = np.linspace(left[unsettled], right[unsettled], 4)
        left, right = parts[:-1].ravel(), parts[1:].ravel()
    else:
        worst = max(worst, float(bounds.max()))
    return min(1.0, 2.0 * error, worst + _NUISANCE_ERROR + 2 * _NEGLECTED)


@final
@dataclass(frozen=True)
class _Staircase:
    """The pairs h >= steps[k], for k in a window outside of which the mass is negligible."""

    positives: int
    negatives: int
    first: int
    """First k of the window; those before count as inside, those after as outside."""
    steps: npt.NDArray[np.int64]

    def probability(self, true: Floats, false: Floats) -> Floats:
        """Return P(h >= steps[k]) for pairs of rates, at most the neglected mass too large."""
        pieces = [
            self._some(true[at : at + _ROWS_AT_ONCE], false[at : at + _ROWS_AT_ONCE])
            for at in range(0, len(true), _ROWS_AT_ONCE)
        ]
        return np.concatenate(pieces)

    def _some(self, true: Floats, false: Floats) -> Floats:
        from scipy.special import bdtr

        counts = np.arange(self.first, self.first + len(self.steps))
        masses = _masses(counts, self.negatives, false)
        reached = self.steps[self.steps <= self.positives]
        if not len(reached):
            tails = np.zeros((len(true), 0))
        else:
            bottom, top = int(reached[0]), _top(self.positives, float(true.max()), int(reached[-1]))
            hits = np.arange(bottom, top + 1)
            sums = np.cumsum(_masses(hits, self.positives, true)[:, ::-1], axis=1)[:, ::-1]
            tails = np.minimum(sums[:, reached - bottom], 1.0)
        total = (masses[:, : len(reached)] * tails).sum(axis=1)
        if self.first > 0:
            total = total + bdtr(self.first - 1, self.negatives, false)
        return np.asarray(np.minimum(total, 1.0), dtype=np.float64)


def _staircase(
    tally: Tally, frontier: Frontier, error: float, lowest: float, highest: float
) -> _Staircase:
    from scipy.stats import binom

    trials = tally.negatives
    first = int(max(binom.ppf(_NEGLECTED, trials, lowest) - 1, 0))
    last = int(min(binom.isf(_NEGLECTED, trials, highest) + 1, trials))
    counts = np.arange(first, last + 1)
    allowed = np.clip(frontier(clopper_pearson_high(counts, trials, error)), 0.0, 1.0)
    # isf is the smallest x with P(X > x) <= error, so the step is one above.
    steps = binom.isf(error, tally.positives, allowed).astype(np.int64) + 1
    observed = tally.false_alarms - first
    steps[: observed + 1] = np.minimum(steps[: observed + 1], tally.hits)
    return _Staircase(tally.positives, trials, first, np.maximum.accumulate(steps))


def _top(trials: int, rate: float, at_least: int) -> int:
    """Return a count beyond which a binomial has negligible mass."""
    from scipy.stats import binom

    return min(trials, max(at_least, int(binom.isf(_NEGLECTED, trials, rate)) + 1))


def _masses(counts: npt.NDArray[np.int64], trials: int, rates: Floats) -> Floats:
    """Binomial probabilities: one row per rate, one column per count."""
    from scipy.special import gammaln

    ways = gammaln(trials + 1) - gammaln(counts + 1) - gammaln(trials - counts + 1)
    with np.errstate(divide="ignore"):
        # A finite floor: a rate of exactly 0 or 1 then gives masses 0 and 1, not 0 times infinity.
        yes, no = np.maximum(np.log(rates), -1e6), np.maximum(np.log1p(-rates), -1e6)
    masses = np.exp(ways + np.outer(yes, counts) + np.outer(no, trials - counts))
    return np.asarray(masses, dtype=np.float64)
