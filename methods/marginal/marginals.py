"""The floor: independent noisy marginals per class.

Within each class, every column is binned by its public bounds or categories; one Gaussian
mechanism releases all its histograms (sensitivity sqrt(columns), add/remove of one row), and rows
are drawn column by column, independently. Classes are disjoint parts, so each has the whole
budget. What a method must beat to show that it learned more than marginals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt

from bench import (
    Claim,
    Method,
    Numeric,
    PlannedEvents,
    PrivateData,
    Release,
    Rows,
    Spec,
    gaussian,
)
from bench.methods._shared.codes import EqualBins, put_absent, put_categories


@final
@dataclass(frozen=True)
class Marginals(Method):
    """Independent columns, sampled from noisy class-wise histograms."""

    name: ClassVar[str] = "marginals"
    title: ClassVar[str] = "Independent noisy marginals (floor)"
    paper: ClassVar[str] = "none: a baseline of this benchmark"
    family: ClassVar[str] = "marginals"
    by_maintainers: ClassVar[bool] = True
    tuned_on: ClassVar[tuple[str, ...]] = ("unknown",)

    bins: int = 16
    """Bins of a numeric column, equal in width between the public bounds."""

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        binning = EqualBins(private.encoder, self.bins)
        parts = private.partition("class")

        def plans(noise: float) -> list[PlannedEvents]:
            return [part.plan(gaussian(noise)) for part in parts.values()]

        noise = private.calibrate(plans)
        private.reserve_all(plans(noise))
        values, labels = [], []
        sizes = spec.rows_per_class(private.counts)
        for code, (part, count) in enumerate(zip(parts.values(), sizes, strict=True)):
            histograms = part.histograms(binning.codes, binning.sizes, noise)
            values.append(self._draw(binning, histograms, count, rng))
            labels.append(np.full(count, code))
        rows = Rows(np.concatenate(values), np.concatenate(labels))
        claim = Claim.of(spec.budget, "one Gaussian mechanism per class")
        return Release(rows, claim=claim, notes={"noise_multiplier": noise})

    def _draw(
        self,
        binning: EqualBins,
        histograms: list[npt.NDArray[np.float64]],
        rows: int,
        rng: np.random.Generator,
    ) -> npt.NDArray[np.float64]:
        encoder = binning.encoder
        values = np.zeros((rows, encoder.width))
        for block, noisy in zip(binning.blocks, histograms, strict=True):
            weights = np.maximum(noisy, 0.0)
            # All counts drowned in noise: nothing is known, so nothing is preferred.
            weights = weights if weights.sum() > 0 else np.ones_like(weights)
            codes = rng.choice(len(weights), size=rows, p=weights / weights.sum())
            if isinstance(block.column, Numeric):
                values[:, block.start] = 2.0 * (codes + rng.random(rows)) / self.bins - 1.0
                indicator = encoder.indicator(block)
                if indicator is not None:
                    put_absent(values, block, indicator, codes == self.bins)
            else:
                put_categories(values, block, codes)
        return values
