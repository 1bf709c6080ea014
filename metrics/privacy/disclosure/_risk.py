"""How often an attack succeeds, and the risk that is left against control rows.

Definitions of Giomi et al., "A unified framework for quantifying privacy risk in synthetic data",
PoPETs 2023 (the `anonymeter` paper): Wilson's estimate of a success rate, the residual risk
(r_main - r_control) / (1 - r_control), and its error by linear propagation.

One deviation: `anonymeter` clips a negative risk to 0. Here it stays negative, since means over
seeds and splits of clipped values lie above 0 without any leak. Below 0 is chance, not privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import final

import numpy as np
import numpy.typing as npt

from bench.metrics._shared import bootstrap as _bootstrap
from bench.metrics._shared import distance as _distance
from bench.metrics._shared.distance import Records

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

QUANTILE = NormalDist().inv_cdf((1 + _bootstrap.LEVEL) / 2)

_CENSORED = 3
"""As many matches and more are told apart no further: few matches decide about exactly one."""


@final
@dataclass(frozen=True)
class Rate:
    """A success rate with its 95% interval."""

    value: float
    low: float
    high: float


@final
@dataclass(frozen=True)
class Risk:
    """What an attack gains on training rows over control rows."""

    value: float
    low: float
    high: float


def distinct(records: Records) -> Records:
    """Every released record once: repeating a record must not hide it from an attack."""
    return records.take(np.unique(_distance.identities(records)[0], return_index=True)[1])


def success_rate(successes: float, attacks: float) -> Rate:
    """Wilson's estimate, centre (s + z^2/2) / (n + z^2), and interval, the same on both sides.

    The centre leans towards one half. Rates that are to be compared need equal numbers of attacks,
    or the leaning alone makes a difference.
    """
    if attacks <= 0:
        raise ValueError("a success rate needs attacks")
    squared = QUANTILE**2
    spread = successes * (attacks - successes) / attacks
    value = (successes + squared / 2) / (attacks + squared)
    error = QUANTILE / (attacks + squared) * math.sqrt(max(0.0, spread) + squared / 4)
    return Rate(value, max(0.0, value - error), min(1.0, value + error))


def residual_risk(main: Rate, control: Rate) -> Risk:
    """(r_main - r_control) / (1 - r_control), the gain over what control rows would give anyway.

    Each end is sqrt((dR/dmain e_main)^2 + (dR/dcontrol e_control)^2) away from it, where e is how
    far the ends of the two rates are; for the lower end those that make the risk lower. (In the
    paper both sides are alike, as they are for Wilson's own intervals.) Ends above 1 are cut: no
    risk is above 1.
    """
    margin = 1.0 - control.value
    value = (main.value - control.value) / margin
    by_main, by_control = 1.0 / margin, (1.0 - main.value) / margin**2
    below = math.hypot(
        by_main * (main.value - main.low), by_control * (control.high - control.value)
    )
    above = math.hypot(
        by_main * (main.high - main.value), by_control * (control.value - control.low)
    )
    return Risk(value, value - below, min(1.0, value + above))


def exactly_one(
    matches: Counts, rows: int, wanted: int, groups: npt.NDArray[np.intp] | None = None
) -> float:
    """Share of predicates that would fit exactly one of `wanted` rows.

    Given how many of `rows` rows of the same kind each predicate fits. For `wanted` up to `rows`
    it is the mean over all subsets, by the hypergeometric distribution.

    Above, it is extrapolated. A predicate fits a row with a probability of its own, Beta
    distributed among predicates; the parameters are those of the largest likelihood, given how many
    predicates fit 0, 1, 2, and more rows. Predicates may come in groups: then each group has a mean
    of its own, and one shape is common, if Akaike's criterion prefers that to one mean.
    """
    if wanted <= rows:
        from scipy.stats import hypergeom

        return float(hypergeom.pmf(1, rows, matches, wanted).mean())
    together = _extrapolated(matches, rows, wanted, np.zeros(len(matches), dtype=np.intp))
    if groups is None:
        return together.rate
    apart = _extrapolated(matches, rows, wanted, groups)
    return apart.rate if apart.criterion < together.criterion else together.rate


@final
@dataclass(frozen=True)
class _Extrapolation:
    rate: float
    criterion: float
    """Akaike's, up to a constant and a factor: number of means minus the log-likelihood."""


def _extrapolated(
    matches: Counts, rows: int, wanted: int, groups: npt.NDArray[np.intp]
) -> _Extrapolation:
    """Beta-binomial fit on a grid: no start value and no search that could fail."""
    from scipy.special import betaln

    names, group = np.unique(groups, return_inverse=True)
    cells = _CENSORED + 1
    places = group * cells + np.minimum(matches, _CENSORED)
    counts = np.bincount(places, minlength=len(names) * cells).reshape(-1, cells)
    shape = np.geomspace(0.05, 50.0, 31)[:, None]
    mean = np.geomspace(1e-3 / wanted, 0.5, 301)
    other = shape * (1.0 - mean) / mean

    def chance(hits: int, among: int) -> Array:
        ways = -math.log(among + 1.0) - float(betaln(hits + 1, among - hits + 1))
        logs = betaln(hits + shape, among - hits + other) - betaln(shape, other)
        chances: Array = np.exp(ways + logs)
        return chances

    few = np.stack([chance(hits, rows) for hits in range(_CENSORED)])
    chances = np.concatenate([few, 1.0 - few.sum(axis=0, keepdims=True)])
    likelihood = np.einsum("gc,csm->gsm", counts, np.log(np.maximum(chances, 1e-300)))
    by_shape = likelihood.max(axis=2).sum(axis=0)
    best = int(by_shape.argmax())
    rates = chance(1, wanted)[best, likelihood[:, best].argmax(axis=1)]
    # Where no row was hit, the likeliest probability is 0, not the least of the grid.
    rates = np.where(counts[:, 1:].any(axis=1), rates, 0.0)
    rate = float(rates @ counts.sum(axis=1) / len(matches))
    return _Extrapolation(rate, len(names) - float(by_shape[best]))
