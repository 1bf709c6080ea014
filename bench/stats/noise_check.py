"""White-box tests of noise and sampling against what a ledger records.

All p-values are exact: under the null hypothesis each is uniform (continuous) or larger. A check
makes several tests and multiplies the smallest p-value by their number, so a sound kernel is
reported with probability at most the level, `FALSE_ALARM` unless the caller says otherwise.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench.errors import InputError
from bench.stats.inference import Floats

FALSE_ALARM = 1e-4
"""Rate at which a sound kernel may be reported: checks run in every conformance report."""


class Noise(enum.StrEnum):
    """Kinds of noise that the kernel adds."""

    GAUSSIAN = "gaussian"
    """`scale` is the standard deviation."""
    LAPLACE = "laplace"
    """`scale` is the mean absolute value."""


@final
@dataclass(frozen=True)
class NoiseCheck:
    """Tests of repeated draws against one recorded scale."""

    measured: float
    """The maximum likelihood estimate of the scale."""
    p_scale: float
    p_shape: float
    p_calls: float
    """p-value of independent calls: reused noise gives 0."""
    p_coordinates: float
    """p-value of independent coordinates within a call: one number added to all gives 0."""

    @property
    def p_value(self) -> float:
        """p-value of "the noise is as recorded"."""
        return _smallest(self.p_scale, self.p_shape, self.p_calls, self.p_coordinates)

    def passed(self, false_alarm: float = FALSE_ALARM) -> bool:
        """Return False for noise that is not as recorded, or by chance at the stated rate."""
        return self.p_value >= false_alarm


@final
@dataclass(frozen=True)
class SamplingCheck:
    """Tests of repeated Poisson samples against one recorded rate."""

    measured: float
    p_rate: float
    p_rows: float
    """p-value of equally likely rows: a row that is always in gives 0."""
    p_sizes: float
    """p-value of sizes that vary as those of Poisson samples: a fixed size gives 0."""

    @property
    def p_value(self) -> float:
        """p-value of "each row is in each sample with the recorded probability, independently"."""
        return _smallest(self.p_rate, self.p_rows, self.p_sizes)

    def passed(self, false_alarm: float = FALSE_ALARM) -> bool:
        """Return False for a sample that is not as recorded, or by chance at the stated rate."""
        return self.p_value >= false_alarm


def check_noise(noise: npt.ArrayLike, kind: Noise, scale: float) -> NoiseCheck:
    """Test draws (one row per call, one column per coordinate) against the recorded scale.

    `noise` is what was released minus the exact answer. Scale: sum x^2 / s^2 is chi-square with n
    degrees of freedom (Gaussian), sum |x| / b is Gamma(n) (Laplace), two-sided. Shape: exact
    Kolmogorov-Smirnov. Independence: with z = Phi^-1(F(x)) the means over calls, and those over
    coordinates, have chi-square sums of squares.
    """
    from scipy.special import chdtr, chdtrc, gammainc, gammaincc
    from scipy.stats import kstest, laplace, norm

    draws = _matrix(noise, "noise")
    if not (math.isfinite(scale) and scale > 0.0):
        raise InputError(f"a recorded scale of {scale} is not a positive number")
    count = draws.size
    if kind is Noise.GAUSSIAN:
        law = norm
        measured = math.sqrt(float(np.mean(draws**2)))
        total = count * (measured / scale) ** 2
        p_scale = _two_sided(float(chdtr(count, total)), float(chdtrc(count, total)))
    else:
        law = laplace
        measured = float(np.mean(np.abs(draws)))
        total = count * measured / scale
        p_scale = _two_sided(float(gammainc(count, total)), float(gammaincc(count, total)))
    standard = draws / scale
    # From the nearer tail: the other one would round to 1, and its normal score to infinity.
    scores = np.where(standard < 0, norm.ppf(law.cdf(standard)), norm.isf(law.sf(standard)))
    # Beyond what a double can tell: infinities of both signs would have no mean.
    scores = np.clip(scores, -38.0, 38.0)
    return NoiseCheck(
        measured=measured,
        p_scale=p_scale,
        p_shape=float(kstest(standard.ravel(), law.cdf, method="exact").pvalue),
        p_calls=_independent(scores),
        p_coordinates=_independent(scores.T),
    )


def check_sampling(included: npt.ArrayLike, rate: float, rng: np.random.Generator) -> SamplingCheck:
    """Test samples (one row per call, one column per private row) against the recorded rate.

    Rate: exact binomial test of all inclusions. Rows: the smallest exact binomial p-value of a row
    times their number. Sizes: each size's randomised distribution value u = F(s - 1) + V P(s) is
    uniform, so the sum of Phi^-1(u)^2 is chi-square; `rng` draws V.
    """
    from scipy.special import chdtr, chdtrc
    from scipy.stats import binom, binomtest, norm

    samples = _matrix(included, "samples")
    if not np.isin(samples, (0.0, 1.0)).all():
        raise InputError("samples hold something else than in (1) and out (0)")
    if not 0.0 < rate <= 1.0:
        raise InputError(f"a recorded sampling rate of {rate} is not in (0, 1]")
    calls, rows = samples.shape
    by_row, sizes = samples.sum(axis=0).astype(int), samples.sum(axis=1).astype(int)
    of_rows = [binomtest(int(count), calls, rate).pvalue for count in np.unique(by_row)]
    if rate < 1.0:
        uniform = binom.cdf(sizes - 1, rows, rate)
        uniform = uniform + rng.random(calls) * binom.pmf(sizes, rows, rate)
        squares = float((norm.ppf(np.clip(uniform, 1e-300, 1 - 1e-16)) ** 2).sum())
        p_sizes = _two_sided(float(chdtr(calls, squares)), float(chdtrc(calls, squares)))
    else:
        p_sizes = 1.0 if (sizes == rows).all() else 0.0
    return SamplingCheck(
        measured=float(samples.mean()),
        p_rate=float(binomtest(int(by_row.sum()), calls * rows, rate).pvalue),
        p_rows=min(1.0, rows * float(min(of_rows))),
        p_sizes=p_sizes,
    )


def _independent(scores: Floats) -> float:
    """Return the p-value of independent entries: means over the first axis have variance 1 / n."""
    from scipy.special import chdtr, chdtrc

    if len(scores) < 2:
        return 1.0
    squares = float((scores.mean(axis=0) ** 2).sum()) * len(scores)
    degrees = scores.shape[1]
    return _two_sided(float(chdtr(degrees, squares)), float(chdtrc(degrees, squares)))


def _two_sided(below: float, above: float) -> float:
    return min(1.0, 2.0 * min(below, above))


def _smallest(*p_values: float) -> float:
    return min(1.0, len(p_values) * min(p_values))


def _matrix(values: npt.ArrayLike, name: str) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or not array.size or not np.isfinite(array).all():
        raise InputError(
            f"{name} of shape {array.shape}: expected finite numbers, one row per call and "
            "one column per coordinate, at least one of both"
        )
    return array
