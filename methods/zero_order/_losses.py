"""Losses of zero-order dataset condensation, and their gradients by the teacher's predictions.

A loss sees the (m, K) predictions of the teacher on the synthetic rows: one number per row for two
classes (the probability of the second), for a Cox model (log risk) and for an AFT model (log time);
one probability per class for K > 2 classes. Equation numbers are those of the zero-order paper.

The weight alpha of equation 5 is recomputed at every step and held constant in the gradient, as the
text treats it (a weighting factor, not a term); differentiating it would cancel most of the
gradient, because alpha times the matching loss is a fixed share of the other loss by design.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]

_PROBABILITY = 1e-7
"""Predictions closer to 0 or 1 count as this, so that logarithms are finite."""
_STABLE = 1e-9
"""The constant epsilon of equation 5."""


class Supervision(ABC):
    """How well predictions on the synthetic rows agree with their labels."""

    @property
    @abstractmethod
    def averaged(self) -> int:
        """Rows that the loss is a mean over; 1 for a sum.

        Gradients times this number do not depend on the size of the release, so that a clipping
        norm means the same for every size.
        """

    @abstractmethod
    def at(self, predictions: Array) -> tuple[float, Array]:
        """The loss, and its gradient of the predictions' shape."""


@final
@dataclass(frozen=True)
class CrossEntropy(Supervision):
    """Equation 2; for more than two classes the mean of -log p of the row's class."""

    labels: npt.NDArray[np.integer]

    @property
    def averaged(self) -> int:
        return len(self.labels)

    def at(self, predictions: Array) -> tuple[float, Array]:
        rows = len(self.labels)
        inside = np.clip(predictions, _PROBABILITY, 1.0 - _PROBABILITY)
        gradient = np.zeros_like(inside)
        if predictions.shape[1] == 1:
            positive = self.labels == 1
            chances = np.where(positive, inside[:, 0], 1.0 - inside[:, 0])
            gradient[:, 0] = np.where(positive, -1.0, 1.0) / chances / rows
        else:
            chances = inside[np.arange(rows), self.labels]
            gradient[np.arange(rows), self.labels] = -1.0 / chances / rows
        return float(-np.log(chances).mean()), gradient


@final
class PartialLikelihood(Supervision):
    """Equation 9: minus Cox's log partial likelihood, rows with T_j >= T_i being at risk at T_i."""

    def __init__(self, times: Array, events: npt.NDArray[np.integer]) -> None:
        self._order = np.argsort(-times, kind="stable")
        falling = times[self._order]
        # Rows of one time are at risk together: sums run up to the last of them.
        self._last = np.searchsorted(-falling, -falling, side="right") - 1
        self._first = np.searchsorted(-falling, -falling, side="left")
        self._events = (np.asarray(events)[self._order] == 1).astype(np.float64)

    @property
    def averaged(self) -> int:
        return 1

    def at(self, predictions: Array) -> tuple[float, Array]:
        scores = predictions[self._order, 0]
        highest = scores.max()
        risks = np.exp(scores - highest)
        at_risk = np.maximum(np.cumsum(risks)[self._last], 1e-300)
        loss = -float(self._events @ (scores - highest - np.log(at_risk)))
        hazards = np.cumsum((self._events / at_risk)[::-1])[::-1][self._first]
        gradient = np.zeros_like(predictions)
        gradient[self._order, 0] = risks * hazards - self._events
        return loss, gradient


@final
@dataclass(frozen=True)
class SmoothL1(Supervision):
    """Equation 10: the mean over all rows, censored ones too, of SmoothL1(prediction, log time).

    x^2 / 2 for |x| < 1, and |x| - 1/2 beyond.
    """

    log_times: Array

    @property
    def averaged(self) -> int:
        return len(self.log_times)

    def at(self, predictions: Array) -> tuple[float, Array]:
        apart = predictions[:, 0] - self.log_times
        size = np.abs(apart)
        loss = np.where(size < 1.0, 0.5 * apart**2, size - 0.5).mean()
        return float(loss), np.clip(apart, -1.0, 1.0)[:, None] / len(apart)


@final
class MatchingLoss:
    """Equations 3 and 11: how far mean predictions of each group lie from those of real rows.

    `factor` is 1 in equation 3 (a sum over classes) and 1/K in equation 11 (a mean over strata).
    With several outputs the distances of all of them are added. `present` marks groups that hold
    real rows; the others cannot be matched and are left out.
    """

    def __init__(
        self, groups: Indices, present: npt.NDArray[np.bool_], factor: float = 1.0
    ) -> None:
        self._groups = groups
        self._factor = factor
        self._sizes = np.bincount(groups, minlength=len(present)).astype(np.float64)
        self._kept = present & (self._sizes > 0)
        self._sizes = np.maximum(self._sizes, 1.0)

    def at(self, predictions: Array, real: Array) -> tuple[float, Array]:
        """The loss and its gradient; `real` holds mean predictions of real rows, by group."""
        sums = np.zeros_like(real)
        for output in range(predictions.shape[1]):
            sums[:, output] = np.bincount(
                self._groups, weights=predictions[:, output], minlength=len(real)
            )
        apart = np.where(self._kept[:, None], sums / self._sizes[:, None] - real, 0.0)
        slopes = self._factor * np.sign(apart) / self._sizes[:, None]
        return self._factor * float(np.abs(apart).sum()), slopes[self._groups]


@final
@dataclass(frozen=True)
class LossValue:
    """The composite loss at some predictions."""

    supervision: float
    matching: float
    alpha: float
    gradient: Array

    @property
    def total(self) -> float:
        """Equation 4."""
        return self.supervision + self.alpha * self.matching


@final
@dataclass(frozen=True)
class CompositeLoss:
    """Equation 4, with the weight of equation 5 for the target ratio `ratio` (rho)."""

    supervision: Supervision
    matching: MatchingLoss
    ratio: float

    def at(self, predictions: Array, real: Array, alpha: float | None = None) -> LossValue:
        """The loss with its gradient for constant alpha; by default the alpha of equation 5."""
        supervised, gradient = self.supervision.at(predictions)
        matched, slopes = self.matching.at(predictions, real)
        if alpha is None:
            alpha = supervised / (matched + _STABLE) * self.ratio / (1.0 - self.ratio)
        return LossValue(supervised, matched, alpha, gradient + alpha * slopes)


def event_strata(
    times: Array, events: npt.NDArray[np.integer], edges: Array
) -> npt.NDArray[np.intp]:
    """Stratum of each row: 0 for censored rows, then events up to each edge and beyond the last."""
    strata = np.searchsorted(edges, times, side="left") + 1
    result: npt.NDArray[np.intp] = np.where(np.asarray(events) == 1, strata, 0)
    return result


def event_edges(times: Array, events: npt.NDArray[np.integer], strata: int) -> Array:
    """Edges that cut the events into `strata - 1` strata of equal size, by quantiles of time."""
    shares = np.arange(1, strata - 1) / (strata - 1)
    edges: Array = np.quantile(times[np.asarray(events) == 1], shares)
    return edges
