"""A pool of rows drawn from noisy marginals and noisy associations, inside the schema's rules.

A Gaussian copula carries the associations: normal numbers with a correlation matrix, each turned
into the cell of its column that has the same rank in the noisy marginal. Rows that break a clinical
rule are drawn again, which shifts the marginals; weights put them back (raking).
Everything here is computed from outputs of the kernel and the public schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench.methods.private_teacher._feature_rules import FeatureRules
from bench.methods.private_teacher._survival_bins import Array, Bins, Cells, Codes

_SWEEPS = 20
"""Of raking over all features."""
_LARGEST_RATIO = 20.0
"""Of a raking weight to the mean: a row that stands for everybody would be noise."""
_CALIBRATIONS = 3
"""Of the copula's correlations, which binning attenuates."""
_BATCHES = 40
"""Of fresh rows to replace those that break a rule, before parts of rows are replaced."""
_REPAIRS = 200


@final
@dataclass(frozen=True)
class Pool:
    """Weighted rows: encoded features, and their cells."""

    features: Array
    codes: Codes
    weights: Array
    """Of mean 1."""
    broken: int
    """Rows that still break a rule; none unless the marginals leave no other row."""


def draw_pool(
    cells: Cells,
    bins: Bins,
    marginals: Sequence[Array],
    correlations: Array,
    size: int,
    rng: np.random.Generator,
) -> Pool:
    """`size` rows with about these marginals and these correlations of binned scores."""
    copula = _Copula.of(bins, marginals, correlations, size, rng)
    codes, features = copula.rows(cells, size, rng)
    rules = FeatureRules.of(cells.encoder)
    broken = rules.broken(features)
    for _ in range(_BATCHES):
        if not broken.any():
            break
        fresh_codes, fresh = copula.rows(cells, size, rng)
        good = np.flatnonzero(~rules.broken(fresh))
        holes = np.flatnonzero(broken)[: len(good)]
        codes[holes], features[holes] = fresh_codes[good[: len(holes)]], fresh[good[: len(holes)]]
        broken[holes] = False
    if broken.any():
        broken = _repair(cells, rules, copula, codes, features, broken, rng)
    weights = _raked(bins, marginals, codes)
    return Pool(features, codes, weights, int(broken.sum()))


@final
@dataclass(frozen=True)
class _Copula:
    """Correlated ranks, and the cells of each column by rank."""

    root: Array
    below: tuple[Array, ...]
    """Of each feature: cumulative shares of its cells."""

    @classmethod
    def of(
        cls,
        bins: Bins,
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
            scores = bins.scores(cls(_root(latent), below).codes(normals))
            spread = scores.std(axis=0)
            centred = (scores - scores.mean(axis=0)) / np.where(spread > 1e-9, spread, 1.0)
            found = centred.T @ centred / size
            both = np.outer(spread > 1e-9, spread > 1e-9)
            moved = latent + np.where(both, correlations - found, 0.0)
            latent = positive_correlations(np.clip(moved, -0.99, 0.99))
        return cls(_root(latent), below)

    def codes(self, normals: Array) -> Codes:
        """Cells of rows from independent normal numbers."""
        from scipy.stats import norm

        ranks = norm.cdf(normals @ self.root)
        codes = [
            np.minimum(np.searchsorted(own, ranks[:, number], side="right"), len(own) - 1)
            for number, own in enumerate(self.below)
        ]
        return np.stack(codes, axis=1).astype(np.int64)

    def rows(self, cells: Cells, size: int, rng: np.random.Generator) -> tuple[Codes, Array]:
        """Cells, and encoded features in them. Integers may lie in the cell next door."""
        codes = self.codes(rng.standard_normal((size, len(self.below))))
        features = cells.values(codes, rng.random(codes.shape))
        return cells.codes(features), features


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


def _repair(
    cells: Cells,
    rules: FeatureRules,
    copula: _Copula,
    codes: Codes,
    features: Array,
    broken: npt.NDArray[np.bool_],
    rng: np.random.Generator,
) -> npt.NDArray[np.bool_]:
    """Replace only the columns that rules read, which fits sooner than a whole new row."""
    ruled = rules.columns
    own = np.flatnonzero([block.column.name in ruled for block in cells.blocks])
    columns = np.concatenate([np.arange(cells.blocks[n].start, cells.blocks[n].stop) for n in own])
    for _ in range(_REPAIRS):
        holes = np.flatnonzero(broken)
        if not len(holes):
            break
        fresh_codes, fresh = copula.rows(cells, len(holes), rng)
        codes[np.ix_(holes, own)] = fresh_codes[:, own]
        features[np.ix_(holes, columns)] = fresh[:, columns]
        broken[holes] = rules.broken(features[holes])
    return broken


def _raked(bins: Bins, marginals: Sequence[Array], codes: Codes) -> Array:
    """Weights under which every feature's bins have their marginal shares (Deming and Stephan)."""
    own = bins.codes(codes)
    targets = [
        np.bincount(where, weights=counts, minlength=size) / counts.sum()
        for where, counts, size in zip(bins.bin_of, marginals, bins.sizes, strict=True)
    ]
    weights = np.ones(len(codes))
    for _ in range(_SWEEPS):
        for number, target in enumerate(targets):
            found = np.bincount(own[:, number], weights=weights, minlength=len(target))
            ratio = np.divide(
                target * weights.sum(), found, out=np.ones_like(target), where=found > 0
            )
            weights = np.clip(weights * ratio[own[:, number]], 1e-3, _LARGEST_RATIO)
        weights /= weights.mean()
    return weights
