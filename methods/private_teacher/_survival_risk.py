"""A risk model with one noisy sum: additive in bins, one Newton step of Cox's partial likelihood.

At log risk 0 the score of Cox's model is the sum of martingale residuals times covariates,

    U = sum over i of M_i x_i,   M_i = d_i - H(t_i),   H the cumulative hazard of the cohort,

so that each patient adds one bounded vector that knows the time as well as the event (Therneau and
Grambsch, Modeling Survival Data, section 4.1). H comes from noisy counts, M is clipped to [-1, 1],
and x is the centred one-hot code of all features' bins. With D events and C the covariance of x,
U = D C b + sampling error of covariance D C + noise of known variance, b the log hazard ratios.
For a Gaussian prior of b the posterior mean is then a matrix product: shrinkage that is as strong
as the noise demands, with the one free scale chosen by the evidence of U itself. C is that of the
pool.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from bench import EncodedRows
from bench.methods.private_teacher._survival_bins import (
    Array,
    Bins,
    Cells,
    Codes,
    evidence,
    time_cells,
)

_SCALES = (0.01, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.45, 0.7, 1.0)
"""Candidates for the prior deviation of a log hazard ratio between bins."""
_ORDERED = 0.6
"""Prior variance of a trend along a feature's bins; the rest, 1 less it, is of each bin alone."""
_LARGEST = 5.0
"""Log risks are kept within this: exp() of what noise made huge would be the whole cohort."""


@final
@dataclass(frozen=True)
class Hazard:
    """Cumulative baseline hazard in the middle and at the end of each cell of time."""

    middle: Array
    end: Array

    @classmethod
    def of(cls, events: Array, censored: Array, log_risks: Array, weights: Array) -> Hazard:
        """Breslow's estimate when a pool with these log risks stands for the cohort.

        The cohort's hazard in a cell is events over patients at risk in its middle; the baseline
        is that over the mean risk of who is still at risk, which falls as those of high risk die.
        """
        leaving = events + censored
        at_risk = np.cumsum(leaving[::-1])[::-1] - leaving / 2.0
        cohort = np.divide(events, at_risk, out=np.zeros_like(events), where=at_risk > 1e-9)
        risks = np.exp(np.clip(log_risks, -_LARGEST, _LARGEST))
        sums = np.zeros(len(events) + 1)
        for cell, hazard in enumerate(cohort):
            alive = weights * np.exp(-sums[cell] * risks)
            mean = float(alive @ risks / alive.sum()) if alive.sum() > 0 else float(risks.min())
            sums[cell + 1] = sums[cell] + hazard / mean
        return cls((sums[:-1] + sums[1:]) / 2.0, sums[1:])


@final
@dataclass(frozen=True)
class Risk:
    """Log risk, additive in bins."""

    cells: Cells
    bins: Bins
    coefficients: Array

    @classmethod
    def none(cls, cells: Cells, bins: Bins) -> Risk:
        """Everybody alike."""
        return cls(cells, bins, np.zeros(sum(bins.sizes)))

    def at(self, cell_codes: Codes) -> Array:
        """Log risks of rows in these cells."""
        risks: Array = np.clip(
            self.bins.design(cell_codes) @ self.coefficients, -_LARGEST, _LARGEST
        )
        return risks

    def score(self, hazard: Hazard) -> Callable[[EncodedRows], Array]:
        """Row function: M_i times (x_i, 1), M_i = d_i - H(t_i) exp(log risk), within [-1, 1]."""

        def vectors(rows: EncodedRows) -> Array:
            codes = self.cells.codes(rows.values)
            times = time_cells(rows.values, len(hazard.middle))
            expected = hazard.middle[times] * np.exp(self.at(codes))
            residuals = np.clip((np.asarray(rows.labels) == 1) - expected, -1.0, 1.0)
            design = self.bins.design(codes)
            whole: Array = residuals[:, None] * np.hstack([design, np.ones((len(design), 1))])
            return whole

        return vectors

    @property
    def reach(self) -> float:
        """Largest norm of a score vector."""
        return float(np.hypot(self.bins.reach, 1.0))

    def improved(
        self, score: Array, deviation: float, events: float, codes: Codes, weights: Array
    ) -> Risk:
        """The posterior mean after a noisy score; codes and weights are those of the pool.

        The last entry of the score is the sum of the residuals: what is left of it, because hazard
        and clipping are not exact, is taken out of the others at the pool's mean covariates.
        """
        share = weights * np.exp(self.at(codes))
        share = share / share.sum()
        design = self.bins.design(codes)
        mean = share @ design
        centred = design - mean
        information = events * (centred * share[:, None]).T @ centred
        observed = score[:-1] - score[-1] * mean
        noise = deviation**2 * (np.eye(len(mean)) + np.outer(mean, mean))
        prior = prior_covariance(self.bins)
        best, step = -np.inf, np.zeros(len(mean))
        for scale in _SCALES:
            spread = scale**2 * prior @ information
            value, weighted = evidence(information @ spread + information + noise, observed)
            if value > best:
                best, step = value, spread @ weighted
        return Risk(self.cells, self.bins, self.coefficients + step)


def prior_covariance(bins: Bins) -> Array:
    """Of the coefficients, up to a scale: a trend along the bins, and each bin on its own."""
    covariance = np.zeros((sum(bins.sizes), sum(bins.sizes)))
    for own, size in zip(bins.slices, bins.sizes, strict=True):
        trend = np.linspace(-1.0, 1.0, size) if size > 1 else np.zeros(1)
        inner = _ORDERED * np.outer(trend, trend) + (1.0 - _ORDERED) * np.eye(size)
        centre = np.eye(size) - 1.0 / size
        covariance[own, own] = centre @ inner @ centre
    return covariance


# Associations -----------------------------------------------------------------------------------


def pair_products(cells: Cells, bins: Bins) -> Callable[[EncodedRows], Array]:
    """Row function: products of the scores of every two features, each within [-1, 1]."""
    first, second = np.triu_indices(len(bins.sizes), 1)

    def vectors(rows: EncodedRows) -> Array:
        scores = bins.scores(cells.codes(rows.values))
        return scores[:, first] * scores[:, second]

    return vectors


def pair_reach(bins: Bins) -> float:
    """Largest norm of the products: only features of two or more bins have a score."""
    used = sum(size > 1 for size in bins.sizes)
    return float(np.sqrt(max(1.0, used * (used - 1) / 2)))


def correlations(
    bins: Bins, marginals: list[Array], products: Array, deviation: float, total: float
) -> Array:
    """Correlations of the features' scores, less one standard error of the noise towards 0.

    Soft thresholding: most pairs of clinical columns say little about each other, and a noisy
    correlation that is not there costs more than a true one that is halved.
    """
    count = len(bins.sizes)
    means, variances = np.zeros(count), np.ones(count)
    for number, (where, counts) in enumerate(zip(bins.bin_of, marginals, strict=True)):
        if bins.sizes[number] > 1:
            values = 2.0 * where / (bins.sizes[number] - 1) - 1.0
            share = counts / counts.sum()
            means[number] = share @ values
            variances[number] = max(share @ (values - means[number]) ** 2, 0.02)
    first, second = np.triu_indices(count, 1)
    units = np.sqrt(variances[first] * variances[second])
    raw = (products / max(total, 1.0) - means[first] * means[second]) / units
    error = deviation / max(total, 1.0) / units
    shrunk = np.clip(np.sign(raw) * np.maximum(np.abs(raw) - error, 0.0), -0.95, 0.95)
    used = np.array(bins.sizes) > 1
    shrunk = np.where(used[first] & used[second], shrunk, 0.0)
    matrix = np.eye(count)
    matrix[first, second] = matrix[second, first] = shrunk
    return matrix
