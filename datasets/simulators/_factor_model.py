"""A latent-factor model of many correlated measurements with classes: proteins, genes.

Measurement j of a row of class c is x_j = m_j + s_j T_j(z_j) with the g-transform
T(z) = (exp(g z) - 1) / g (J. W. Tukey 1977; see D. C. Hoaglin in Exploring Data Tables, Trends, and
Shapes, 1985), which keeps the order and makes the right tail the longer one. The score is

    z = a d_c + L f + sqrt(1 - |L_j|^2) e,    f ~ N(0, I) of few dimensions, e ~ N(0, I),

so that its variance is one. A row of L has three entries that are not zero: a general factor that
moves most measurements together, and two of the others. The shifts d_c of the class are multiplied
by the share a of the row's state: a disease may show itself more in one person than in another.

Exact odds. With S = L L' + D the log-likelihood of class c is, but for a term common to all,

    log sum_k w_k exp(a_k p_c - a_k^2 Q_cc / 2),    p_c = d_c' S^-1 z,    Q = d' S^-1 d,

so that the best classifier sees a row through as many numbers p as there are classes. These are
normal with covariance Q and mean a_k Q_c in class c and state k: simulating them alone gives the
best AUROC and accuracy. S^-1 d needs no large matrix: by Woodbury's identity it is
D^-1 d - D^-1 L (I + L' D^-1 L)^-1 L' D^-1 d.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import auroc_with_error
from bench.datasets.simulators._simulation import Array, Labels


@final
@dataclass(frozen=True)
class Ranges:
    """Between which limits the parameters of a measurement are drawn."""

    mean: tuple[float, float]
    spread: tuple[float, float]
    skewness: tuple[float, float]
    general_loading: tuple[float, float] = (0.1, 0.5)
    other_loading: tuple[float, float] = (0.2, 0.55)


@final
@dataclass(frozen=True)
class DiseaseState:
    """Share of the shift of its class that a row shows, and the probability of that share."""

    chance: float
    share: float


@final
@dataclass(frozen=True)
class BayesScores:
    """What the best classifier reaches, and the largest standard error of both numbers."""

    auroc: float
    accuracy: float
    error: float


@final
@dataclass(frozen=True, eq=False)
class FactorModel:
    """Parameters of the measurements; arrays have one row (shifts: one column) a measurement."""

    names: tuple[str, ...]
    factor_count: int
    factors: npt.NDArray[np.int64]
    """Numbers of the three factors that a measurement loads on."""
    loadings: Array
    means: Array
    spreads: Array
    skewness: Array
    shifts: Array
    """One row per class."""
    states: tuple[DiseaseState, ...]
    bounds: tuple[float, float]

    @cached_property
    def unique(self) -> Array:
        """Standard deviation of the part of a score that no factor explains."""
        return np.asarray(np.sqrt(1.0 - (self.loadings**2).sum(axis=1)))

    @cached_property
    def weights(self) -> Array:
        """S^-1 d, with one row per class."""
        dense = np.zeros((len(self.names), self.factor_count))
        np.put_along_axis(dense, self.factors, self.loadings, axis=1)
        precision = 1.0 / self.unique**2
        inner = np.eye(self.factor_count) + dense.T @ (precision[:, None] * dense)
        plain = (precision * self.shifts).T
        whole = plain - precision[:, None] * (dense @ np.linalg.solve(inner, dense.T @ plain))
        return np.asarray(whole.T)

    @cached_property
    def distances(self) -> Array:
        """Q = d' S^-1 d, classes by classes."""
        return np.asarray(self.weights @ self.shifts.T)

    def simulate(self, labels: Labels, rng: np.random.Generator) -> pd.DataFrame:
        """Draw a row for each label, in single precision.

        Nothing larger than the table is held: measurements are drawn one after the other, and a
        model of fewer measurements has the same first ones.
        """
        rows = len(labels)
        chances = [state.chance for state in self.states]
        shares = np.array([state.share for state in self.states], dtype=np.float32)
        share = shares[rng.choice(len(self.states), size=rows, p=chances)]
        common = rng.standard_normal((self.factor_count, rows), dtype=np.float32)
        # One row a measurement: pandas keeps the columns of a table of one type that way.
        table = np.empty((len(self.names), rows), dtype=np.float32)
        for number, row in enumerate(table):
            rng.standard_normal(out=row, dtype=np.float32)
            row *= np.float32(self.unique[number])
            for factor, loading in zip(self.factors[number], self.loadings[number], strict=True):
                row += np.float32(loading) * common[factor]
            shift = self.shifts[:, number].astype(np.float32)
            if shift.any():
                row += shift[labels] * share
            self._report(number, row)
        return pd.DataFrame(table.T, columns=list(self.names), copy=False)

    def log_likelihoods(self, frame: pd.DataFrame) -> Array:
        """Log-likelihood of each row in each class, but for a term common to the classes.

        Values at the bounds, which are not expected, count as if they had not been clipped.
        """
        projections = np.zeros((len(frame), len(self.shifts)))
        for number, name in enumerate(self.names):
            score = self._score(number, frame[name].to_numpy(dtype=np.float64))
            projections += score[:, None] * self.weights[:, number]
        return self._mixtures(projections)

    def bayes_scores(self, priors: Sequence[float], draws: int, seed: int) -> BayesScores:
        """AUROC (mean over classes against the rest) and accuracy of the best classifier.

        `draws` rows of each class are simulated by what the best classifier sees of them, and
        weighted by the priors. With two classes the AUROC does not depend on the priors.
        """
        rng = np.random.default_rng(seed)
        shares = np.array([state.share for state in self.states])
        chances = [state.chance for state in self.states]
        values, vectors = np.linalg.eigh(self.distances)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        posteriors = []
        for label in range(len(self.shifts)):
            noise = rng.standard_normal((draws, len(values))) @ root.T
            share = shares[rng.choice(len(shares), size=draws, p=chances)]
            seen = noise + share[:, None] * self.distances[label]
            posteriors.append(log_odds(self._mixtures(seen), priors))
        hits = [
            float((odds.argmax(axis=1) == label).mean()) for label, odds in enumerate(posteriors)
        ]
        accuracy = float(np.dot(priors, hits) / np.sum(priors))
        errors = [np.sqrt(max(hit * (1.0 - hit), 1e-12) / draws) for hit in hits]
        areas = []
        for label, odds in enumerate(posteriors):
            area, error = _against_the_rest(label, odds, posteriors, priors, draws)
            areas.append(area)
            errors.append(error)
        return BayesScores(float(np.mean(areas)), accuracy, float(max(errors)))

    def _mixtures(self, projections: Array) -> Array:
        distances = np.diag(self.distances)
        terms = [
            np.log(state.chance) + state.share * projections - 0.5 * state.share**2 * distances
            for state in self.states
        ]
        return np.asarray(np.logaddexp.reduce(terms))

    def _report(self, number: int, row: npt.NDArray[np.float32]) -> None:
        row *= np.float32(self.skewness[number])
        np.expm1(row, out=row)
        row *= np.float32(self.spreads[number] / self.skewness[number])
        row += np.float32(self.means[number])
        np.clip(row, np.float32(self.bounds[0]), np.float32(self.bounds[1]), out=row)

    def _score(self, number: int, values: Array) -> Array:
        skewness = self.skewness[number]
        relative = (values - self.means[number]) / self.spreads[number]
        return np.asarray(np.log1p(skewness * relative) / skewness)


def log_odds(log_likelihoods: Array, priors: Sequence[float]) -> Array:
    """Log-odds of each class against all the others, one column per class."""
    joint = log_likelihoods + np.log(np.asarray(priors) / np.sum(priors))
    columns = []
    for label in range(joint.shape[1]):
        rest = np.logaddexp.reduce(np.delete(joint, label, axis=1), axis=1)
        columns.append(joint[:, label] - rest)
    return np.column_stack(columns)


def _against_the_rest(
    label: int,
    posterior: Array,
    posteriors: Sequence[Array],
    priors: Sequence[float],
    draws: int,
) -> tuple[float, float]:
    """AUROC of one class's log-odds; the other classes are drawn in proportion to the priors."""
    others = [number for number in range(len(posteriors)) if number != label]
    chances = np.array([priors[number] for number in others], dtype=np.float64)
    counts = np.floor(draws * chances / chances.max()).astype(int)
    rest = np.concatenate(
        [posteriors[other][:count, label] for other, count in zip(others, counts, strict=True)]
    )
    return auroc_with_error(rest, posterior[:, label])


def random_panel(
    names: Sequence[str],
    shifts: Array,
    states: tuple[DiseaseState, ...],
    bounds: tuple[float, float],
    factor_count: int,
    ranges: Ranges,
    stream: int,
) -> FactorModel:
    """A model with parameters drawn from a fixed stream, measurement by measurement.

    A panel with fewer names has the parameters of the first ones of a panel with more.
    """
    rng = np.random.default_rng(stream)
    count = len(names)
    factors = np.zeros((count, 3), dtype=np.int64)
    loadings = np.zeros((count, 3))
    means, spreads, skewness = np.zeros(count), np.zeros(count), np.zeros(count)
    for number in range(count):
        factors[number, 1:] = 1 + rng.choice(factor_count - 1, size=2, replace=False)
        signs = rng.choice([-1.0, 1.0], size=2)
        loadings[number, 0] = rng.uniform(*ranges.general_loading)
        loadings[number, 1:] = signs * rng.uniform(*ranges.other_loading, size=2)
        means[number] = rng.uniform(*ranges.mean)
        spreads[number] = rng.uniform(*ranges.spread)
        skewness[number] = rng.uniform(*ranges.skewness)
    return FactorModel(
        names=tuple(names),
        factor_count=factor_count,
        factors=factors,
        loadings=loadings,
        means=means,
        spreads=spreads,
        skewness=skewness,
        shifts=shifts,
        states=states,
        bounds=bounds,
    )
