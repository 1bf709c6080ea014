"""A model of a survival dataset from four noisy answers: hazard, risks, associations and a pool.

Histograms (`denoised`) have a Gaussian-process prior; times have public bins that are fine where
follow-up begins.

Risk is additive in bins, with one Newton step of Cox's partial likelihood from one noisy sum. At
log risk 0 the score of Cox's model is the sum of martingale residuals times covariates,

    U = sum over i of M_i x_i,   M_i = d_i - H(t_i),   H the cumulative hazard of the dataset,

so that each patient adds one bounded vector that depends on the time as well as the event (Therneau
and Grambsch, Modeling Survival Data, section 4.1). H comes from noisy counts, M is clipped to
[-1, 1], and x is the centred one-hot code of all features' bins. With D events and C the covariance
of x, U = D C b + sampling error of covariance D C + noise of known variance, b the log hazard
ratios. For a Gaussian prior of b the posterior mean is then a matrix product: shrinkage that is as
strong as the noise demands, with the one free scale chosen by the evidence of U itself. C is that
of the pool.

The pool is drawn from noisy marginals and noisy associations, within the schema's rules. A Gaussian
copula carries the associations: normal numbers with a correlation matrix, each turned into the bin
of its column that has the same rank in the noisy marginal. Rows that break a clinical rule are
drawn again, which shifts the marginals; weights put them back (raking).

Apart from the row functions that the kernel calls, everything here is computed from private answers
and the public schema.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from bench import EncodedRows, Floats
from bench.methods.private_teacher._bins import (
    Array,
    Codes,
    FeatureGrid,
    MergedBins,
    nearest_counts,
)
from bench.methods.private_teacher._pool import FeatureRules, Mask

_TIME_POWER = 3.0
"""Bin k of K ends at the share (k / K)^3 of the public time range. Many datasets lose half of their
patients in a small part of the range that a data dictionary allows; equal widths put them all into
the first bin (SUPPORT2), and who died first is then lost."""

_LENGTHS = (0.0, 1.0, 2.0, 4.0, 8.0)
"""Lengths of the smoothing kernel, in bins; 0 for bins that are independent of each other."""
_AMPLITUDES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Deviations from equal counts, in units of the mean count."""
_DOUBT = 2.0
"""A bin that is not this many deviations above 0 is left empty. A generous upper bound makes for
many empty bins; noise puts few rows there, but far from all others, and a linear model follows
them."""

_SCALES = (0.01, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.45, 0.7, 1.0)
"""Candidates for the prior deviation of a log hazard ratio between bins."""
_ORDERED = 0.6
"""Prior variance of a trend along a feature's bins; the rest, 1 less it, is of each bin alone."""
_LARGEST = 5.0
"""Log risks are kept within this: one row of a huge risk, made by noise, would dominate."""

_SWEEPS = 20
"""Sweeps of raking over all features."""
_LARGEST_RATIO = 20.0
"""Largest ratio of a raking weight to the mean: larger weights would amplify noise."""
_CALIBRATIONS = 3
"""Calibrations of the copula's correlations, which binning attenuates."""
_BATCHES = 40
"""Batches of fresh rows to replace those that break a rule, before parts of rows are replaced."""
_REPAIRS = 200


# Histograms and times ---------------------------------------------------------------------------


def time_bins(values: Floats, count: int) -> Codes:
    """Bin of each row's time."""
    share = np.clip((values[:, -1].astype(np.float64) + 1.0) / 2.0, 0.0, 1.0)
    return np.minimum(share ** (1.0 / _TIME_POWER) * count, count - 1).astype(np.int64)


def time_ends(count: int) -> Array:
    """Ends of the bins of time as encoded times in [-1, 1]."""
    ends: Array = 2.0 * np.linspace(0.0, 1.0, count + 1) ** _TIME_POWER - 1.0
    return ends


def denoised(
    noisy: Array, deviation: float, total: float, *, ordered: bool, doubt: float = _DOUBT
) -> Array:
    """Counts of a public total behind noise of known deviation: non-negative, and shrunk.

    Prior: counts deviate from equal ones by a Gaussian process over the bins (over unrelated bins
    where `ordered` is False). Its length and amplitude are those of the largest evidence. Bins
    whose posterior mean is less than `doubt` posterior deviations hold nothing, and what is left is
    projected on counts that are not negative and sum to the total.
    """
    bins = len(noisy)
    mean = total / bins
    apart = np.subtract.outer(np.arange(bins), np.arange(bins)) ** 2.0
    noise = deviation**2 * np.eye(bins)
    best, prior, weights = -np.inf, noise, np.zeros(bins)
    for length in _LENGTHS if ordered else _LENGTHS[:1]:
        kernel = np.eye(bins) if length == 0 else np.exp(-apart / (2.0 * length**2))
        for amplitude in _AMPLITUDES:
            tried = (amplitude * max(mean, 1e-9)) ** 2 * kernel
            value, weighted = evidence(tried + noise, noisy - mean)
            if value > best:
                best, prior, weights = value, tried, weighted
    estimate = mean + prior @ weights
    variance = np.diag(prior - prior @ np.linalg.solve(prior + noise, prior))
    certain = estimate > doubt * np.sqrt(np.maximum(variance, 0.0))
    if not certain.any():
        return nearest_counts(estimate, total)
    result = np.zeros(bins)
    result[certain] = nearest_counts(estimate[certain], total)
    return result


def evidence(covariance: Array, observed: Array) -> tuple[float, Array]:
    """Log density of N(0, covariance) up to a constant, and covariance^-1 observed."""
    size = len(covariance)
    factor = np.linalg.cholesky(covariance + 1e-9 * np.trace(covariance) / size * np.eye(size))
    half = np.linalg.solve(factor, observed)
    value = float(-0.5 * half @ half - np.log(np.diag(factor)).sum())
    return value, np.linalg.solve(factor.T, half)


# Hazard and risk --------------------------------------------------------------------------------


def design(bins: MergedBins, codes: Codes) -> Array:
    """One-hot merged bins less 1/k, of rows in these bins of the grid.

    The corners of a simplex around its middle have norm sqrt(1 - 1/k) instead of 1: for binary
    columns a sum over rows needs a factor sqrt(2) less noise, and what is given up, the sum of
    a feature's entries, is the same for every row.
    """
    merged = bins.merge(codes)
    table = np.zeros((len(merged), sum(bins.sizes)))
    for number, (size, start) in enumerate(zip(bins.sizes, bins.offsets[:-1], strict=True)):
        table[:, start : start + size] = -1.0 / size
        table[np.arange(len(merged)), start + merged[:, number]] += 1.0
    return table


def design_norm(bins: MergedBins) -> float:
    """Norm of every row of the design: the square root of the sum of 1 - 1/k."""
    return float(np.sqrt(sum(1.0 - 1.0 / size for size in bins.sizes)))


@final
@dataclass(frozen=True)
class BaselineHazard:
    """Cumulative baseline hazard in the middle and at the end of each bin of time."""

    middle: Array
    end: Array

    @classmethod
    def of(cls, events: Array, censored: Array, log_risks: Array, weights: Array) -> BaselineHazard:
        """Breslow's estimate when a pool with these log risks stands for the dataset.

        The dataset's hazard in a bin is events over patients at risk in its middle; the baseline
        is that over the mean risk of who is still at risk, which falls as those of high risk die.
        """
        leaving = events + censored
        at_risk = np.cumsum(leaving[::-1])[::-1] - leaving / 2.0
        hazards = np.divide(events, at_risk, out=np.zeros_like(events), where=at_risk > 1e-9)
        risks = np.exp(np.clip(log_risks, -_LARGEST, _LARGEST))
        sums = np.zeros(len(events) + 1)
        for number, hazard in enumerate(hazards):
            alive = weights * np.exp(-sums[number] * risks)
            mean = float(alive @ risks / alive.sum()) if alive.sum() > 0 else float(risks.min())
            sums[number + 1] = sums[number] + hazard / mean
        return cls((sums[:-1] + sums[1:]) / 2.0, sums[1:])


@final
@dataclass(frozen=True)
class CoxRisk:
    """Log risk, additive in bins."""

    bins: MergedBins
    coefficients: Array

    @classmethod
    def none(cls, bins: MergedBins) -> CoxRisk:
        """The same risk for all rows."""
        return cls(bins, np.zeros(sum(bins.sizes)))

    def at(self, codes: Codes) -> Array:
        """Log risks of rows in these bins of the grid."""
        risks: Array = np.clip(design(self.bins, codes) @ self.coefficients, -_LARGEST, _LARGEST)
        return risks

    def score(self, hazard: BaselineHazard) -> Callable[[EncodedRows], Array]:
        """Row function: M_i times (x_i, 1), M_i = d_i - H(t_i) exp(log risk), within [-1, 1]."""

        def vectors(rows: EncodedRows) -> Array:
            codes = self.bins.grid.codes(rows.values)
            times = time_bins(rows.values, len(hazard.middle))
            expected = hazard.middle[times] * np.exp(self.at(codes))
            residuals = np.clip((np.asarray(rows.labels) == 1) - expected, -1.0, 1.0)
            table = design(self.bins, codes)
            whole: Array = residuals[:, None] * np.hstack([table, np.ones((len(table), 1))])
            return whole

        return vectors

    @property
    def score_norm(self) -> float:
        """Largest norm of a score vector."""
        return float(np.hypot(design_norm(self.bins), 1.0))

    def improved(
        self, score: Array, deviation: float, events: float, codes: Codes, weights: Array
    ) -> CoxRisk:
        """Posterior mean after a noisy score; codes and weights are those of the pool.

        The last entry of the score is the sum of the residuals: what is left of it, because hazard
        and clipping are not exact, is taken out of the others at the pool's mean covariates.
        """
        share = weights * np.exp(self.at(codes))
        share = share / share.sum()
        table = design(self.bins, codes)
        mean = share @ table
        centred = table - mean
        information = events * (centred * share[:, None]).T @ centred
        observed = score[:-1] - score[-1] * mean
        noise = deviation**2 * (np.eye(len(mean)) + np.outer(mean, mean))
        prior = _prior_covariance(self.bins)
        best, step = -np.inf, np.zeros(len(mean))
        for scale in _SCALES:
            spread = scale**2 * prior @ information
            value, weighted = evidence(information @ spread + information + noise, observed)
            if value > best:
                best, step = value, spread @ weighted
        return CoxRisk(self.bins, self.coefficients + step)


def _prior_covariance(bins: MergedBins) -> Array:
    """Covariance of the coefficients, up to a scale: a trend along the bins, and each bin alone."""
    covariance = np.zeros((sum(bins.sizes), sum(bins.sizes)))
    for start, stop in itertools.pairwise(bins.offsets):
        size = int(stop - start)
        trend = np.linspace(-1.0, 1.0, size) if size > 1 else np.zeros(1)
        inner = _ORDERED * np.outer(trend, trend) + (1.0 - _ORDERED) * np.eye(size)
        centring = np.eye(size) - 1.0 / size
        covariance[start:stop, start:stop] = centring @ inner @ centring
    return covariance


# Associations -----------------------------------------------------------------------------------


def bin_scores(bins: MergedBins, codes: Codes) -> Array:
    """(rows, features) in [-1, 1]: merged bins at equal steps; 0 for a feature of one bin."""
    sizes = np.array(bins.sizes)
    scores: Array = 2.0 * bins.merge(codes) / np.maximum(sizes - 1, 1) - 1.0
    return np.where(sizes > 1, scores, 0.0)


def pair_products(bins: MergedBins) -> Callable[[EncodedRows], Array]:
    """Row function: products of the scores of every two features, each within [-1, 1]."""
    first, second = np.triu_indices(len(bins.sizes), 1)

    def vectors(rows: EncodedRows) -> Array:
        scores = bin_scores(bins, bins.grid.codes(rows.values))
        return scores[:, first] * scores[:, second]

    return vectors


def pair_norm(bins: MergedBins) -> float:
    """Largest norm of the products: only features of two or more bins have a score."""
    used = sum(size > 1 for size in bins.sizes)
    return float(np.sqrt(max(1.0, used * (used - 1) / 2)))


def correlations(
    bins: MergedBins, marginals: Sequence[Array], products: Array, deviation: float, total: float
) -> Array:
    """Correlations of the features' scores, less one standard error of the noise towards 0.

    Soft thresholding: most pairs of clinical columns are nearly independent, and a noisy
    correlation that is not there costs more than a true one that is halved.
    """
    count = len(bins.sizes)
    means, variances = np.zeros(count), np.ones(count)
    for number, (merged, counts) in enumerate(zip(bins.maps, marginals, strict=True)):
        if bins.sizes[number] > 1:
            values = 2.0 * merged / (bins.sizes[number] - 1) - 1.0
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


# The pool ---------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class WeightedPool:
    """Weighted rows: encoded features, and their bins of the grid."""

    features: Array
    codes: Codes
    weights: Array
    """Weights of mean 1."""
    broken: int
    """Rows that still break a rule; none unless the marginals leave no other row."""


def draw_weighted_pool(
    bins: MergedBins,
    marginals: Sequence[Array],
    correlations: Array,
    size: int,
    rng: np.random.Generator,
) -> WeightedPool:
    """`size` rows with about these marginals and these correlations of binned scores."""
    grid = bins.grid
    copula = _Copula.of(bins, marginals, correlations, size, rng)
    codes, features = copula.rows(grid, size, rng)
    rules = FeatureRules.of(grid.encoder)
    broken = rules.broken(features)
    for _ in range(_BATCHES):
        if not broken.any():
            break
        fresh_codes, fresh = copula.rows(grid, size, rng)
        good = np.flatnonzero(~rules.broken(fresh))
        holes = np.flatnonzero(broken)[: len(good)]
        codes[holes], features[holes] = fresh_codes[good[: len(holes)]], fresh[good[: len(holes)]]
        broken[holes] = False
    if broken.any():
        broken = _repaired(grid, rules, copula, codes, features, broken, rng)
    return WeightedPool(features, codes, _raked(bins, marginals, codes), int(broken.sum()))


@final
@dataclass(frozen=True)
class _Copula:
    """Correlated ranks, and the bins of each column by rank."""

    root: Array
    below: tuple[Array, ...]
    """Cumulative shares of the bins of each feature."""

    @classmethod
    def of(
        cls,
        bins: MergedBins,
        marginals: Sequence[Array],
        correlations: Array,
        size: int,
        rng: np.random.Generator,
    ) -> _Copula:
        """Latent correlations are moved until those of the binned scores are as asked."""
        below = tuple(np.cumsum(counts) / counts.sum() for counts in marginals)
        normals = rng.standard_normal((size, len(below)))
        latent = positive_correlations(correlations)
        for _ in range(_CALIBRATIONS):
            scores = bin_scores(bins, cls(_root(latent), below).codes(normals))
            spread = scores.std(axis=0)
            centred = (scores - scores.mean(axis=0)) / np.where(spread > 1e-9, spread, 1.0)
            binned = centred.T @ centred / size
            both = np.outer(spread > 1e-9, spread > 1e-9)
            moved = latent + np.where(both, correlations - binned, 0.0)
            latent = positive_correlations(np.clip(moved, -0.99, 0.99))
        return cls(_root(latent), below)

    def codes(self, normals: Array) -> Codes:
        """Bins of rows from independent normal numbers."""
        from scipy.stats import norm

        ranks = norm.cdf(normals @ self.root)
        codes = [
            np.minimum(np.searchsorted(below, ranks[:, number], side="right"), len(below) - 1)
            for number, below in enumerate(self.below)
        ]
        return np.stack(codes, axis=1).astype(np.int64)

    def rows(self, grid: FeatureGrid, size: int, rng: np.random.Generator) -> tuple[Codes, Array]:
        """Bins, and encoded features in them. Rounding may move integers to the next bin."""
        codes = self.codes(rng.standard_normal((size, len(self.below))))
        features = grid.values(codes, rng.random(codes.shape))
        return grid.codes(features), features


def positive_correlations(matrix: Array) -> Array:
    """A correlation matrix close to this symmetric one: small eigenvalues are raised."""
    matrix = matrix.copy()
    np.fill_diagonal(matrix, 1.0)
    values, vectors = np.linalg.eigh(matrix)
    raised = (vectors * np.maximum(values, 0.02)) @ vectors.T
    spread = np.sqrt(np.diag(raised))
    result: Array = raised / np.outer(spread, spread)
    return result


def _root(correlations: Array) -> Array:
    return np.asarray(np.linalg.cholesky(correlations).T, dtype=np.float64)


def _repaired(
    grid: FeatureGrid,
    rules: FeatureRules,
    copula: _Copula,
    codes: Codes,
    features: Array,
    broken: Mask,
    rng: np.random.Generator,
) -> Mask:
    """Replace only the columns that rules read, which fits sooner than a whole new row."""
    names = rules.columns
    blocks = [column.block for column in grid.columns]
    ruled = np.flatnonzero([block.column.name in names for block in blocks])
    columns = np.concatenate([np.arange(blocks[n].start, blocks[n].stop) for n in ruled])
    for _ in range(_REPAIRS):
        holes = np.flatnonzero(broken)
        if not len(holes):
            break
        fresh_codes, fresh = copula.rows(grid, len(holes), rng)
        codes[np.ix_(holes, ruled)] = fresh_codes[:, ruled]
        features[np.ix_(holes, columns)] = fresh[:, columns]
        broken[holes] = rules.broken(features[holes])
    return broken


def _raked(bins: MergedBins, marginals: Sequence[Array], codes: Codes) -> Array:
    """Weights under which every feature's bins have their marginal shares (Deming and Stephan)."""
    merged = bins.merge(codes)
    targets = [
        sums / counts.sum() for sums, counts in zip(bins.sums(marginals), marginals, strict=True)
    ]
    weights = np.ones(len(codes))
    for _ in range(_SWEEPS):
        for number, target in enumerate(targets):
            sums = np.bincount(merged[:, number], weights=weights, minlength=len(target))
            ratio = np.divide(
                target * weights.sum(), sums, out=np.ones_like(target), where=sums > 0
            )
            weights = np.clip(weights * ratio[merged[:, number]], 1e-3, _LARGEST_RATIO)
        weights /= weights.mean()
    return weights
