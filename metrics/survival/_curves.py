"""Survival curves: Kaplan-Meier, censoring, Breslow, log-rank test, distances of two curves.

At one time events come before censored rows: who was censored at t was still at risk of the events
at t. All estimators take one weight per row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench import Integers, NotComputable

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.intp]


@final
@dataclass(frozen=True)
class StepFunction:
    """A right-continuous step function: `values[k]` from `times[k]` on, `start` before."""

    times: Array
    values: Array
    start: float

    def at(self, times: npt.ArrayLike) -> Array:
        """Values at these times."""
        return self._read(np.searchsorted(self.times, times, side="right"))

    def before(self, times: npt.ArrayLike) -> Array:
        """Limits from the left at these times."""
        return self._read(np.searchsorted(self.times, times, side="left"))

    def _read(self, places: Indices) -> Array:
        result: Array = np.concatenate([[self.start], self.values])[places]
        return result


def kaplan_meier(times: Array, events: Flags, weights: Array | None = None) -> StepFunction:
    """S(t), the product over times s <= t of 1 - d(s) / r(s): events at s, weight at risk at s."""
    tied = TiedTimes.of(times, events)
    counts = np.ones(len(times)) if weights is None else weights
    return StepFunction(tied.distinct, tied.survival(counts[:, None])[:, 0], 1.0)


def censoring(times: Array, events: Flags) -> StepFunction:
    """G(t), the probability of not being censored up to t.

    Kaplan and Meier's estimate with the roles exchanged; events at a time leave the rows at risk
    of censoring first. The limit from the left is then the probability of observing an event at t.
    """
    tied = TiedTimes.of(times, events)
    died = tied.deaths(np.ones((len(times), 1)))[:, 0]
    at_risk = tied.at_risk(np.ones((len(times), 1)))[:, 0]
    left = at_risk - died
    censored = left - np.append(at_risk[1:], 0.0)
    stayed = 1.0 - np.divide(censored, left, out=np.zeros_like(left), where=left > 0)
    return StepFunction(tied.distinct, np.cumprod(stayed), 1.0)


def breslow(times: Array, events: Flags, weights: Array, log_risks: Array) -> StepFunction:
    """Baseline cumulative hazard H(t) = sum over events s <= t of d(s) / sum_{j at risk} w_j r_j.

    Survival of a row with log risk x is exp(-H(t) exp(x)) (Breslow, 1974).
    """
    tied = TiedTimes.of(times, events)
    died = tied.deaths(weights[:, None])[:, 0]
    at_risk = tied.at_risk((weights * np.exp(log_risks))[:, None])[:, 0]
    hazard = np.divide(died, at_risk, out=np.zeros_like(died), where=died > 0)
    return StepFunction(tied.distinct, np.cumsum(hazard), 0.0)


@final
@dataclass(frozen=True)
class TiedTimes:
    """Rows in the order of time, grouped by distinct time; sums for many weightings at once."""

    distinct: Array
    order: Indices
    starts: Indices
    """First row of each distinct time, in the order."""
    events: Array
    """1 for an event, in the order."""

    @classmethod
    def of(cls, times: Array, events: Flags) -> TiedTimes:
        """Sort and group rows by time."""
        order = np.argsort(times, kind="stable")
        starts: Indices
        distinct, starts = np.unique(times[order], return_index=True)
        return cls(distinct, order, starts, events[order].astype(np.float64))

    def at_risk(self, weights: Array) -> Array:
        """(distinct times, weightings): weight of the rows not earlier."""
        sums: Array = np.cumsum(weights[self.order][::-1], axis=0)[::-1][self.starts]
        return sums

    def deaths(self, weights: Array) -> Array:
        """(distinct times, weightings): weight of the events at each."""
        event_weights = self.events[:, None] * weights[self.order]
        sums: Array = np.add.reduceat(event_weights, self.starts, axis=0)
        return sums

    def survival(self, weights: Array) -> Array:
        """Kaplan-Meier curves at the distinct times; level where nobody is at risk."""
        at_risk = self.at_risk(weights)
        died = np.divide(
            self.deaths(weights), at_risk, out=np.zeros_like(at_risk), where=at_risk > 0
        )
        # Sums in another order may put the last share a rounding error above one.
        curves: Array = np.multiply.accumulate(np.maximum(0.0, 1.0 - died), axis=0)
        return curves


def population_weights(
    labels: Integers, weights: npt.NDArray[np.floating] | None, real: Sequence[int]
) -> Array:
    """Weights of mean 1 under which events and censored rows have their real shares.

    A release of half events and half censored rows is compared with the training rows, of which
    `real` are the numbers by status. Within a status rows keep their own weights. A status that the
    release lacks cannot be weighted up: the rows then represent the other status alone.
    """
    given = np.ones(len(labels)) if weights is None else np.asarray(weights, dtype=np.float64)
    totals = np.bincount(labels, weights=given, minlength=len(real))
    shares = np.where(totals > 0, np.asarray(real, dtype=np.float64), 0.0)
    if not shares.sum():
        raise NotComputable("every released row has a status that no training row has")
    factors = np.divide(shares, totals, out=np.zeros_like(shares), where=totals > 0)
    scaled = given * factors[labels]
    result: Array = scaled / scaled.mean()
    return result


def gap(differences: Array) -> Array:
    """Largest absolute difference along the first axis; before the first time it is 0."""
    largest: Array = np.abs(differences).max(axis=0, initial=0.0)
    return largest


def area(times: Array, differences: Array, horizon: float) -> Array:
    """Area between two step curves up to the horizon, divided by the horizon."""
    lengths = np.diff(np.append(times, horizon))
    result: Array = lengths @ np.abs(differences) / horizon
    return result


Curves = Callable[[Array], Array]
"""(rows, resamples) weights in, (times, resamples) survival out."""


def curves_at(times: Array, events: Flags, grid: Array) -> Curves:
    """Kaplan-Meier curves of weighted rows at the times of a grid."""
    tied = TiedTimes.of(times, events)
    places = np.searchsorted(tied.distinct, grid, side="right")

    def curves(weights: Array) -> Array:
        survival = tied.survival(weights)
        result: Array = np.concatenate([np.ones((1, weights.shape[1])), survival])[places]
        return result

    return curves


def log_rank(
    times: Array, events: Flags, group: Flags, weights: Array, *, by_status: bool = True
) -> tuple[float, float]:
    """Observed minus expected events of the group, and the p-value, for weighted rows.

    U = sum of w_i u_i over the score residuals u_i of a Cox model without effect of the group. Its
    variance is the sum of squares of w_i u_i about their mean within group and status (Lin and Wei,
    1989, within strata): classical variances count weighted rows as if they were that many rows,
    and both tables have their events and censored rows in shares that are given, not drawn.

    With `by_status=False` statuses are drawn, as for two groups of one table: squares are about the
    mean within the group alone.
    """
    from scipy.stats import norm

    tied = TiedTimes.of(times, events)
    member = group.astype(np.float64)
    stacked = np.column_stack([weights, weights * member])
    at_risk = tied.at_risk(stacked)
    died = tied.deaths(weights[:, None])[:, 0]
    share = at_risk[:, 1] / at_risk[:, 0]
    hazard = died / at_risk[:, 0]
    place = np.searchsorted(tied.distinct, times, side="left")
    residuals = events * (member - share[place])
    residuals -= member * np.cumsum(hazard)[place] - np.cumsum(share * hazard)[place]
    parts = weights * residuals
    variance = 0.0
    for of_group in (False, True):
        for status in (False, True) if by_status else (None,):
            stratum = parts[(group == of_group) & ((events == status) | (status is None))]
            if len(stratum) > 1:
                variance += len(stratum) * float(np.var(stratum, ddof=1))
            else:
                variance += float(stratum @ stratum)
    total = float(parts.sum())
    if variance <= 0:
        raise NotComputable("all rows are alike: the log-rank test has no variance")
    return total, float(2 * norm.sf(abs(total) / np.sqrt(variance)))
