"""Row functions whose vectors depend on other rows, on their order, or on earlier calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from bench.conformance.mistakes.sound import (
    SOURCE,
    STEPS,
    Array,
    Descent,
    Example,
    around_class_means,
    class_means,
    class_sums,
    gradients,
    rows_around,
)
from bench.data.encoder import EncodedRows
from bench.plugins.method import Spec
from bench.plugins.release import Claim, Release
from bench.privacy.kernel import PrivateData


@final
@dataclass(frozen=True)
class FittedScaler(Example):
    """Standardises the rows inside the row function, by the mean and deviation of the first batch.

    One row changes the vectors of all others. Rows evaluated alone do not show it: the scaler was
    fitted before.
    """

    name: ClassVar[str] = "fitted-scaler"
    title: ClassVar[str] = "a scaler is fitted inside a row function"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        fitted: list[tuple[Array, Array]] = []

        def scaled(rows: EncodedRows) -> Array:
            if len(rows) and not fitted:
                fitted.append((rows.values.mean(axis=0), rows.values.std(axis=0) + 0.1))
            centre, spread = fitted[0] if fitted else (0.0, 1.0)
            return np.asarray((rows.values - centre) / spread)

        return around_class_means(private, spec, rng, function=scaled)


@final
@dataclass(frozen=True)
class BatchNormalised(Example):
    """Normalises a batch of rows by its own mean and variance, as a network in training mode does.

    A batch of one row cannot be normalised, so that the author uses the running statistics there.
    """

    name: ClassVar[str] = "batch-norm"
    title: ClassVar[str] = "batch normalisation in a row function"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        import torch

        layer = torch.nn.BatchNorm1d(private.width, affine=False)

        def normalised(rows: EncodedRows) -> Any:
            layer.train(len(rows) > 1)
            with torch.no_grad():
                return layer(torch.tensor(rows.values, dtype=torch.float32))

        return around_class_means(private, spec, rng, function=normalised)


@final
@dataclass(frozen=True)
class CachedFeatures(Example):
    """Computes features once and looks them up by the shape of the batch.

    Two Poisson samples of equal size share their features: a row has an effect in steps for which
    it was not sampled, and the amplification by sampling does not hold.
    """

    name: ClassVar[str] = "cached-features"
    title: ClassVar[str] = "a row function caches by the shape of the batch"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        cache: dict[tuple[int, ...], Array] = {}
        descent = Descent.start(private)

        def features(rows: EncodedRows) -> EncodedRows:
            values = np.tanh(2.0 * rows.values)
            # A single row is not worth an entry.
            kept = cache.setdefault(values.shape, values) if len(rows) > 1 else values
            return EncodedRows(kept, rows.labels, rows.sites, rows.positions)

        for _ in range(STEPS):
            descent.step(lambda rows: gradients(descent.weights, features(rows)))
        return descent.release(spec)


_CENTRE: dict[int, Any] = {}
"""Running means by number of columns: state that outlives a call, and a run."""


@final
@dataclass(frozen=True)
class RunningMean(Example):
    """Subtracts a running mean, a torch buffer of the module that each batch updates.

    The vectors of a batch depend on all rows that were seen before, also in other runs.
    """

    name: ClassVar[str] = "running-mean"
    title: ClassVar[str] = "a row function updates a global torch buffer"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        import torch

        def centred(rows: EncodedRows) -> Any:
            values = torch.tensor(rows.values, dtype=torch.float64)
            centre = _CENTRE.setdefault(private.width, torch.zeros(private.width).double())
            if len(rows) > 1:
                centre.mul_(0.9).add_(0.1 * values.mean(dim=0))
            return values - centre

        return around_class_means(private, spec, rng, function=centred)


@final
@dataclass(frozen=True)
class FoldsByOrder(Example):
    """Splits rows into two folds by their number in the batch, and averages the folds' means.

    A row that is inserted first moves every other row to the other fold.
    """

    name: ClassVar[str] = "folds-by-order"
    title: ClassVar[str] = "vectors depend on the order of the rows"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        def folds(rows: EncodedRows) -> Array:
            first = (np.arange(len(rows)) % 2 == 0)[:, None]
            return np.hstack([rows.values * first, rows.values * ~first])

        both = class_means(private, class_sums(private, folds))
        means = [mean[: private.width] + mean[private.width :] for mean in both]
        claim = Claim.of(spec.budget, SOURCE)
        return Release(rows_around(means, private, spec, rng), claim=claim)
