"""A logistic propensity model: how likely is a row a released one?

Every row has a weight; released rows and training rows weigh one half each, so that the share c of
released rows is 1/2 for releases of any size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench.metrics._shared.bootstrap import Array

SHARE = 0.5
"""c: the weight of the released rows over that of all rows."""

_STEPS = 30
_ENOUGH = 1e-9
_RIDGE = 1e-8
"""On standardised columns: keeps Newton's steps finite where the two tables can be told apart."""


@final
@dataclass(frozen=True)
class Propensity:
    """A fitted model."""

    design: Array
    """(rows, parameters): independent columns of variance 1, after a column of ones."""
    probabilities: Array
    released: npt.NDArray[np.bool_]
    weights: Array
    """Of the rows; they sum to one."""
    curvature: Array
    """Minus the second derivative of the log-likelihood."""

    @property
    def pmse(self) -> float:
        """Weighted mean of (p - c)^2."""
        return float(self.weights @ np.square(self.probabilities - SHARE))

    def resampled(self, weights: Array) -> Array:
        """pMSE under other weights, (rows, resamples): one Newton step from the fitted model."""
        residuals = (self.released - self.probabilities)[:, None] * weights
        steps = np.linalg.solve(self.curvature, self.design.T @ residuals)
        odds = np.log(self.probabilities / (1.0 - self.probabilities))[:, None]
        moved = _logistic(odds + self.design @ steps)
        result: Array = np.einsum("ij,ij->j", weights, np.square(moved - SHARE))
        return result


def fit(columns: Array, released: npt.NDArray[np.bool_], weights: Array) -> Propensity:
    """Maximum likelihood by Newton's method."""
    design = np.column_stack([np.ones(len(columns)), independent(columns, weights)])
    coefficients = np.zeros(design.shape[1])
    loss = _loss(design @ coefficients, released, weights)
    for _ in range(_STEPS):
        p, curvature = _slope(design, coefficients, weights)
        gradient = design.T @ (weights * (released - p)) - _RIDGE * coefficients
        step = np.linalg.solve(curvature, gradient)
        length, better = 1.0, np.inf
        while length > 1e-6:
            better = _loss(design @ (coefficients + length * step), released, weights)
            if better <= loss:
                break
            length /= 2
        if loss - better < _ENOUGH:
            break
        coefficients, loss = coefficients + length * step, better
    p, curvature = _slope(design, coefficients, weights)
    return Propensity(design, p, released, weights, curvature)


def independent(columns: Array, weights: Array) -> Array:
    """The same space of columns, as uncorrelated ones of mean 0 and variance 1."""
    centred, values, vectors = _principal(columns, weights)
    result: Array = centred @ (vectors / np.sqrt(values))
    return result


def null_parameters(
    columns: Array, labels: npt.NDArray[np.integer], classes: int
) -> tuple[int, Array]:
    """Of the real rows: free parameters, and of each class the variance within it in these units.

    The variance is the trace of the class's covariance after all rows were whitened; for a single
    class it is the number of free parameters.
    """
    white = independent(columns, np.full(len(columns), 1.0 / len(columns)))
    within = np.full(classes, float(white.shape[1]))
    for label in np.unique(labels):
        within[label] = white[labels == label].var(axis=0).sum()
    return white.shape[1], within


def _slope(design: Array, coefficients: Array, weights: Array) -> tuple[Array, Array]:
    """Probabilities, and minus the second derivative of the log-likelihood."""
    p = _logistic(design @ coefficients)
    curvature: Array = (design * (weights * p * (1.0 - p))[:, None]).T @ design
    return p, curvature + _RIDGE * np.eye(len(curvature))


def _principal(columns: Array, weights: Array) -> tuple[Array, Array, Array]:
    """Centred columns, variances and directions of those combinations that vary."""
    centred = columns - weights @ columns
    values, vectors = np.linalg.eigh((centred * weights[:, None]).T @ centred)
    kept = values > 1e-9 * max(1.0, float(values.max(initial=0.0)))
    return centred, values[kept], vectors[:, kept]


def _logistic(odds: Array) -> Array:
    # Beyond 30 the probability is 1 to all digits that matter, and its logarithm is still finite.
    result: Array = 1.0 / (1.0 + np.exp(-np.clip(odds, -30.0, 30.0)))
    return result


def _loss(odds: Array, released: npt.NDArray[np.bool_], weights: Array) -> float:
    return float(weights @ (np.logaddexp(0.0, odds) - released * odds))
