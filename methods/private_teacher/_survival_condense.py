"""Few rows on which survival models agree with a teacher.

Times first: the times of events, and those of censored rows, are evenly spaced quantiles of the
two (noisy) time distributions, so that Kaplan and Meier's curve of the rows, weighted to the
declared shares, is the one that was paid for. Each place (status and time) then gets a patient of
the pool. By the teacher, the distribution of patients with the event at t is

    p(x | event at t) ~ p(x) r(x) exp(-H(t) r(x)),    p(x | censored at t) ~ p(x) exp(-H(t) r(x)),

r the risk and H the baseline. Independent draws would be a cohort of that size, with all its
chance. Several candidates are drawn for each place instead: a large cohort, to which Cox's model
is fitted with the coefficients b. One candidate per place is kept so that the score residuals
u_i at b, which sum to the derivative of the partial likelihood (Lin and Wei, 1989), have the same
mean in the release as in the large cohort. The derivative of the release is then zero where that
of the large cohort is, and so Cox's model fitted to the few rows has its coefficients. The same is
asked at once of rows weighted to the declared shares, and, with less weight, of the bins of every
feature within both statuses, which is what trees see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from bench.methods._shared.cox import cox_coefficients
from bench.methods.private_teacher._bins import Array, Codes, MergedBins
from bench.methods.private_teacher._condense import Indices, Labels, candidates_per_place, herded
from bench.methods.private_teacher._survival_model import (
    BaselineHazard,
    WeightedPool,
    design,
    time_ends,
)

_BIN_WEIGHT = 0.3
"""Weight of the bins relative to the score residuals."""


@final
@dataclass(frozen=True)
class ReleasePlaces:
    """Status and time of each row to release."""

    labels: Labels
    times: Array
    """Encoded times."""
    bins: Codes
    """Bins of the times."""

    @classmethod
    def of(cls, sizes: Sequence[int], counts: Sequence[Array]) -> ReleasePlaces:
        """Evenly spaced quantiles of the noisy times of censored rows, and of events."""
        labels = np.repeat(np.arange(len(sizes)), sizes)
        ends = time_ends(len(counts[0]))
        times = np.concatenate(
            [quantiles(mass, ends, size) for mass, size in zip(counts, sizes, strict=True)]
        )
        bins = np.clip(np.searchsorted(ends, times, side="right") - 1, 0, len(ends) - 2)
        return cls(labels, times, bins.astype(np.int64))


def quantiles(counts: Array, ends: Array, size: int) -> Array:
    """The (i + 1/2) / size quantiles of mass that is uniform within bins."""
    mass = np.maximum(counts, 0.0)
    mass = mass / mass.sum() if mass.sum() > 0 else np.full(len(mass), 1.0 / len(mass))
    below = np.concatenate([[0.0], np.cumsum(mass)])
    # Empty bins make steps; interpolation needs the later end of each.
    shares = (np.arange(size) + 0.5) / max(size, 1)
    bins = np.clip(np.searchsorted(below, shares, side="right") - 1, 0, len(mass) - 1)
    inside = (shares - below[bins]) / np.where(mass[bins] > 0, mass[bins], 1.0)
    result: Array = ends[bins] + np.clip(inside, 0.0, 1.0) * (ends[bins + 1] - ends[bins])
    return result


def candidates(
    places: ReleasePlaces,
    pool: WeightedPool,
    log_risks: Array,
    hazard: BaselineHazard,
    sharpness: float,
    rng: np.random.Generator,
) -> Indices:
    """(places, candidates) rows of the pool, drawn by the teacher's law of who is at a place."""
    each = candidates_per_place(len(places.labels))
    risks = np.exp(log_risks)
    chosen = np.zeros((len(places.labels), each), dtype=np.intp)
    for label, time in sorted(set(zip(places.labels.tolist(), places.bins.tolist(), strict=True))):
        here = np.flatnonzero((places.labels == label) & (places.bins == time))
        logs = label * log_risks - hazard.middle[time] * risks
        chances = pool.weights * np.exp(sharpness * (logs - logs.max()))
        cumulated = np.cumsum(chances)
        draws = rng.random((len(here), each)) * cumulated[-1]
        chosen[here] = np.minimum(np.searchsorted(cumulated, draws), len(chances) - 1)
    return chosen


@final
@dataclass(frozen=True)
class CondensedCohort:
    """One row of the pool for every place."""

    rows: Indices
    coefficients: Array
    """Coefficients of Cox's model of the large cohort, which the release is to reproduce."""


def condense(
    places: ReleasePlaces,
    pool: WeightedPool,
    bins: MergedBins,
    offered: Indices,
    shares: Sequence[float],
    penalty: float,
) -> CondensedCohort:
    """Keep one candidate per place; `shares` are the declared counts of the statuses."""
    each = offered.shape[1]
    labels, times = np.repeat(places.labels, each), np.repeat(places.times, each)
    features = pool.features[offered.reshape(-1)]
    coefficients = cox_coefficients(features, times + 1.0, labels, penalty)
    traits = [
        _whitened(*score_residuals(features, times, labels, weights, coefficients, penalty))
        for weights, coefficients in (
            (np.ones(len(labels)), coefficients),
            _population(features, times, labels, shares, penalty),
        )
    ]
    one_hot = design(bins, pool.codes[offered.reshape(-1)])
    one_hot = one_hot / np.maximum(one_hot.std(axis=0), 0.05)
    traits += [_BIN_WEIGHT * one_hot * (labels == label)[:, None] for label in (0, 1)]
    table = np.hstack(traits).reshape(len(places.labels), each, -1)
    kept = herded(table - table.mean(axis=1, keepdims=True))
    return CondensedCohort(offered[np.arange(len(kept)), kept], coefficients)


def _population(
    features: Array, times: Array, labels: Labels, shares: Sequence[float], penalty: float
) -> tuple[Array, Array]:
    """Weights to the declared shares, and the coefficients of a cohort with these shares."""
    present = np.bincount(labels, minlength=2)
    wanted = np.asarray(shares, dtype=np.float64) / max(float(sum(shares)), 1.0)
    factors = np.divide(wanted * len(labels), present, out=np.zeros(2), where=present > 0)
    # A subset instead of weights: every k-th row of the status that is too frequent.
    keep = factors / max(factors.max(), 1e-9)
    place = np.arange(len(labels))
    kept = np.floor((place + 1) * keep[labels]) > np.floor(place * keep[labels])
    if not (labels[kept] == 1).any():
        kept |= labels == 1
    coefficients = cox_coefficients(features[kept], times[kept] + 1.0, labels[kept], penalty)
    return factors[labels], coefficients


def score_residuals(
    features: Array,
    times: Array,
    labels: Labels,
    weights: Array,
    coefficients: Array,
    penalty: float,
) -> tuple[Array, Array]:
    """u_i = w_i [d_i (x_i - m(t_i)) - e_i (x_i A(t_i) - B(t_i))], e_i = exp(b'x_i).

    m(t) is the risk-weighted mean of who is at risk at t, A(t) the sum over events s <= t of
    w(s) / S(s), S the risk at risk, and B(t) the same sum of m(s) w(s) / S(s). Columns are divided
    by their deviation, as Cox's penalty is. The second value is the penalised information, in which
    differences of the derivative are measured.
    """
    spread = features.std(axis=0)
    varying = spread > 1e-9
    standard = (features - features.mean(axis=0))[:, varying] / spread[varying]
    order = np.argsort(-times, kind="stable")
    falling = times[order]
    last = np.searchsorted(-falling, -falling, side="right") - 1
    logs = standard @ (coefficients[varying] * spread[varying])
    risks = np.exp(logs - logs.max())
    weighted = (weights * risks)[order]
    at_risk = np.cumsum(weighted)[last]
    means = np.cumsum(weighted[:, None] * standard[order], axis=0)[last] / at_risk[:, None]
    jumps = (weights * (labels == 1))[order] / at_risk
    # Events up to a row's time stand behind it in falling order, its ties included.
    first = np.searchsorted(-falling, -falling, side="left")
    passed = np.cumsum(jumps[::-1])[::-1][first]
    drift = np.cumsum((jumps[:, None] * means)[::-1], axis=0)[::-1][first]
    covariates = standard[order]
    residuals = (labels[order] == 1)[:, None] * (covariates - means)
    residuals -= risks[order][:, None] * (covariates * passed[:, None] - drift)
    values = np.empty_like(residuals)
    values[order] = weights[order][:, None] * residuals
    information = (covariates * (weighted * passed)[:, None]).T @ covariates
    information -= (means * (jumps * at_risk)[:, None]).T @ means
    ridge = penalty * len(features) * np.eye(len(information))
    return values, (information + ridge) / len(features)


def _whitened(residuals: Array, information: Array) -> Array:
    factor = np.linalg.cholesky(information)
    whitened: Array = np.linalg.solve(factor, residuals.T).T
    return whitened
