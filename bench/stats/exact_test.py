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
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench.stats.tally import Tally

Floats = npt.NDArray[np.float64]
Frontier = Callable[[Floats], Floats]
"""False positive rate -> largest true positive rate allowed."""

_NUISANCE_ERROR = 1e-8
_NEGLECTED = 1e-12
"""More than the mass outside the windows of both counts."""
_TOLERANCE = 0.03
"""The p-value may be too large by this share, never too small."""
_ROUNDS = 12
_ADDED = _NUISANCE_ERROR + 2 * _NEGLECTED
_FIRST_INTERVALS = 48
_ROWS_AT_ONCE = 128


def clopper_pearson_low(count: npt.ArrayLike, trials: npt.ArrayLike, error: float) -> Floats:
    """Largest p that is below the true rate but for probability `error` (Clopper, Pearson 1934)."""
    from scipy.special import betaincinv

    count, trials = np.asarray(count, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    low = betaincinv(np.maximum(count, 1.0), trials - count + 1.0, error)
    return np.asarray(np.where(count > 0, low, 0.0), dtype=np.float64)


def clopper_pearson_high(count: npt.ArrayLike, trials: npt.ArrayLike, error: float) -> Floats:
    """Smallest p that is above the true rate but for probability `error`."""
    from scipy.special import betainccinv

    count, trials = np.asarray(count, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    high = betainccinv(count + 1.0, np.maximum(trials - count, 1.0), error)
    return np.asarray(np.where(count < trials, high, 1.0), dtype=np.float64)


def rectangle_error(tally: Tally, frontier: Frontier) -> float:
    """The smallest error of each end at which the rectangle leaves the null; 0.5 if none does."""

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
    """p-value of the null that the method's trade-off lies on or below the frontier."""
    error = rectangle_error(tally, frontier)
    if error >= 0.5:
        return 1.0
    largest, settled = 0.0, 0.0
    search = _search(tally, frontier, error)
    bounds, values = next(search)
    for _ in range(_ROUNDS):
        largest = max(largest, float(values.max()))
        unsettled = bounds > largest * (1 + _TOLERANCE)
        settled = max(settled, float(bounds[~unsettled].max(initial=0.0)))
        if not unsettled.any():
            break
        bounds, values = search.send(unsettled)
    worst = max(settled, float(bounds.max()))
    return min(1.0, 2.0 * error, worst + _ADDED)


def rejects(tally: Tally, frontier: Frontier, level: float) -> bool:
    """Whether the p-value, computed without tolerance, is below the level: quicker than it is."""
    error = rectangle_error(tally, frontier)
    if 2.0 * error < level:
        return True
    if error >= 0.5:
        return False
    search = _search(tally, frontier, error)
    bounds, values = next(search)
    for _ in range(_ROUNDS):
        if values.max() + _ADDED >= level:
            return False
        unsettled = bounds + _ADDED >= level
        if not unsettled.any():
            return True
        bounds, values = search.send(unsettled)
    return False


def _search(
    tally: Tally, frontier: Frontier, error: float
) -> Generator[tuple[Floats, Floats], npt.NDArray[np.bool_], None]:
    """Upper bounds over intervals of the nuisance, and values in them; splits those sent back."""
    lowest = float(clopper_pearson_low(tally.false_alarms, tally.negatives, _NUISANCE_ERROR / 2))
    highest = float(clopper_pearson_high(tally.false_alarms, tally.negatives, _NUISANCE_ERROR / 2))
    staircase = _staircase(tally, frontier, error, lowest, highest)
    # Square-root arcsine: the spread of a binomial share is the same everywhere on this scale.
    ends = math.asin(math.sqrt(lowest)), math.asin(math.sqrt(highest))
    edges = np.linspace(*ends, _FIRST_INTERVALS + 1)
    left, right = edges[:-1], edges[1:]
    while True:
        start, end = np.sin(left) ** 2, np.sin(right) ** 2
        bounds = staircase.probability(frontier(end), start)
        middle = (start + end) / 2
        unsettled = yield bounds, staircase.probability(frontier(middle), middle)
        parts = np.linspace(left[unsettled], right[unsettled], 4)
        left, right = parts[:-1].ravel(), parts[1:].ravel()


@final
@dataclass(frozen=True)
class _Staircase:
    """The pairs h >= steps[k], for k in a window outside of which there is no mass to speak of."""

    positives: int
    negatives: int
    first: int
    """The window's first k; those before count as inside, those after as outside."""
    steps: npt.NDArray[np.int64]

    def probability(self, true: Floats, false: Floats) -> Floats:
        """P(h >= steps[k]) for pairs of rates, from above by less than the neglected mass."""
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
    """A count beyond which a binomial has no mass to speak of."""
    from scipy.stats import binom

    return min(trials, max(at_least, int(binom.isf(_NEGLECTED, trials, rate)) + 1))


def _masses(counts: npt.NDArray[np.int64], trials: int, rates: Floats) -> Floats:
    """Binomial probabilities: a row for each rate, a column for each count."""
    from scipy.special import gammaln

    ways = gammaln(trials + 1) - gammaln(counts + 1) - gammaln(trials - counts + 1)
    with np.errstate(divide="ignore"):
        # A finite floor: a rate of exactly 0 or 1 then gives masses 0 and 1, not 0 times infinity.
        yes, no = np.maximum(np.log(rates), -1e6), np.maximum(np.log1p(-rates), -1e6)
    masses = np.exp(ways + np.outer(yes, counts) + np.outer(no, trials - counts))
    return np.asarray(masses, dtype=np.float64)
