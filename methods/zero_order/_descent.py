"""Parts of the descent of zero-order condensation: gradients, Adam, and the best rows so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench.methods.zero_order import _teachers
from bench.methods.zero_order._differences import FittedTeacher
from bench.methods.zero_order._losses import CompositeLoss, LossValue
from bench.methods.zero_order._setup import Units
from bench.methods.zero_order._teachers import LabelledRows, TeacherKind

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

_FIRST_DECAY, _SECOND_DECAY, _SMALL = 0.9, 0.999, 1e-8


@final
@dataclass(frozen=True)
class CondensationLoss:
    """The loss of synthetic rows, and its zero-order gradient, in standardised columns."""

    teacher: FittedTeacher
    units: Units
    loss: CompositeLoss
    pools: list[Array]
    """The teacher's predictions on the real rows of each class or stratum."""
    sizes: npt.NDArray[np.intp]
    """Synthetic rows of each class or stratum: as many real ones are drawn in a step."""

    def gradient(
        self, rows: Array, lengths: Array, rng: np.random.Generator
    ) -> tuple[LossValue, Array]:
        """Loss and gradient at these rows, by differences of these lengths (equations 6 and 7)."""
        real = np.zeros((len(self.pools), self.teacher.outputs))
        for group, (pool, size) in enumerate(zip(self.pools, self.sizes, strict=True)):
            if len(pool) and size:
                real[group] = pool[rng.integers(len(pool), size=size)].mean(axis=0)
        asked = self.units.rows(rows)
        value = self.loss.at(self.teacher.predict(asked), real)
        weights = value.gradient * self.loss.supervision.averaged
        slopes = self.teacher.slopes(asked, self.units.lengths(lengths), weights)
        return value, slopes * self.units.spread


@final
@dataclass(frozen=True)
class ValidationJudge:
    """Fits the teacher's kind of model on synthetic rows and evaluates it on validation rows."""

    kind: TeacherKind
    units: Units
    held_out: LabelledRows
    labels: Labels
    times: Array | None
    stop_trees: bool = False
    """Whether trees stop on the validation rows that they are evaluated on, as in the demos."""

    def quality(self, rows: Array, rng: np.random.Generator) -> float:
        """AUROC or C-index on the validation rows."""
        synthetic = LabelledRows(
            self.units.rows(rows), self.labels, self.times, self.held_out.classes
        )
        stopping = self.held_out if self.stop_trees else None
        model = _teachers.fit(self.kind, synthetic, rng, stopping)
        return _teachers.quality(self.kind, model, self.held_out)


@final
class DescentRecord:
    """The best rows, the losses and the noise levels of a descent."""

    def __init__(self, start: Array) -> None:
        self.best = start
        self.best_step = 0
        self.best_quality: float | None = None
        self.noises: list[float] = []
        self.losses: list[float] = []

    def keep(self, rows: Array, step: int) -> None:
        """Take these rows as the best."""
        self.best, self.best_step = rows.copy(), step

    def compare(self, rows: Array, step: int, quality: float) -> None:
        """Keep the rows if they are the best so far, or the first."""
        if self.best_quality is None or quality > self.best_quality:
            self.keep(rows, step)
            self.best_quality = None if np.isnan(quality) else quality


@final
class Adam:
    """Adam (Kingma and Ba, 2015, Algorithm 1); a step moves a number by about `rate` at most."""

    def __init__(self, shape: tuple[int, ...], rate: float) -> None:
        self._rate = rate
        self._first = np.zeros(shape)
        self._second = np.zeros(shape)
        self._steps = 0

    def step(self, gradient: Array) -> Array:
        """What to add to the numbers in order to descend."""
        self._steps += 1
        self._first += (1.0 - _FIRST_DECAY) * (gradient - self._first)
        self._second += (1.0 - _SECOND_DECAY) * (gradient**2 - self._second)
        first = self._first / (1.0 - _FIRST_DECAY**self._steps)
        second = self._second / (1.0 - _SECOND_DECAY**self._steps)
        update: Array = -self._rate * first / (np.sqrt(second) + _SMALL)
        return update
