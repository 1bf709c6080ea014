"""The confidence level of intervals, exact ends of a binomial share, and Holm's correction."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
"""Level of every interval and bound of the benchmark."""


def holm(p_values: npt.ArrayLike) -> Floats:
    """Return adjusted p-values that control the family-wise error rate (Holm 1979).

    The k-th smallest of m is multiplied by m + 1 - k, made monotone and capped at 1.
    """
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    steps = values[order] * np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def clopper_pearson_low(count: npt.ArrayLike, trials: npt.ArrayLike, error: float) -> Floats:
    """Lower end of a share, wrong with probability `error` at most (Clopper and Pearson 1934)."""
    from scipy.special import betaincinv

    count, trials = np.asarray(count, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    low = betaincinv(np.maximum(count, 1.0), trials - count + 1.0, error)
    return np.asarray(np.where(count > 0, low, 0.0), dtype=np.float64)


def clopper_pearson_high(count: npt.ArrayLike, trials: npt.ArrayLike, error: float) -> Floats:
    """Upper end of a share, wrong with probability `error` at most."""
    from scipy.special import betainccinv

    count, trials = np.asarray(count, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    high = betainccinv(count + 1.0, np.maximum(trials - count, 1.0), error)
    return np.asarray(np.where(count < trials, high, 1.0), dtype=np.float64)
