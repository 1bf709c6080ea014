"""What is known exactly about a simulated table: effects, odds and the best possible scores.

A simulator knows the law that its rows were drawn from, which no real dataset does. Metrics and
tests compare with it: an estimated hazard ratio with the true one, a classifier's AUROC with the
best that any classifier can have in expectation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, final, runtime_checkable

import numpy as np
import numpy.typing as npt
import pandas as pd

Array = npt.NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class Truth:
    """The law behind a table, as far as it concerns the task; None where it says nothing."""

    hazard_ratios: Mapping[str, float] | None = None
    """Per standard deviation of each covariate in the simulated population. A category of a
    column is a covariate, named `column=category`; only differences between the
    categories of one column are identified."""
    log_hazards: Array | None = None
    """True log hazard of each row relative to the baseline."""
    concordance: float | None = None
    """Harrell's C-index of the true log hazards in the simulated population."""
    log_odds: Array | None = None
    """True log-odds of the second class given the features of each row; with more than two
    classes one column per class, its log-odds against all the others."""
    bayes_auroc: float | None = None
    """AUROC of the true log-odds in the simulated population, which no classifier exceeds in
    expectation; with more than two classes the mean over classes, each against the others."""
    bayes_accuracy: float | None = None
    """Share of rows whose most probable class is their class, where accuracy is the score."""
    error: float = 0.0
    """Largest Monte Carlo standard error of the population numbers above; 0 if they are exact."""


@runtime_checkable
class KnowsTruth(Protocol):
    """A dataset source that can say what is true of its rows."""

    def truth(self, frame: pd.DataFrame) -> Truth:
        """Return the truth about the rows of `frame`, a table of this source or a part of it."""
        ...


def auroc_with_error(negative: Array, positive: Array) -> tuple[float, float]:
    """Return the AUROC of two samples of scores and its standard error; ties count one half.

    The variance is that of DeLong, DeLong and Clarke-Pearson (Biometrics 44:837, 1988):
    var(V10) / m + var(V01) / n, where V10 is the share of negatives below each positive and V01
    the share of positives above each negative.
    """
    below = _share_below(negative, positive)
    above = 1.0 - _share_below(positive, negative)
    variance = below.var(ddof=1) / len(positive) + above.var(ddof=1) / len(negative)
    return float(below.mean()), float(np.sqrt(variance))


def _share_below(sample: Array, scores: Array) -> Array:
    ordered = np.sort(sample)
    left = np.searchsorted(ordered, scores, side="left")
    right = np.searchsorted(ordered, scores, side="right")
    return np.asarray((left + right) / (2.0 * len(ordered)))
