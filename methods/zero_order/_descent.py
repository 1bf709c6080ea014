"""The descent of zero-order condensation: gradients, Adam's steps, and the best rows on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench.methods.zero_order import _teachers
from bench.methods.zero_order._differences import FittedTeacher
from bench.methods.zero_order._losses import CompositeLoss, LossValue
from bench.methods.zero_order._privacy import clipped, noise_level
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

    def quality(self, rows: Array, rng: np.random.Generator) -> float:
        """AUROC or C-index on the validation rows."""
        synthetic = LabelledRows(
            self.units.rows(rows), self.labels, self.times, self.held_out.classes
        )
        return _teachers.quality(self.kind, _teachers.fit(self.kind, synthetic, rng), self.held_out)


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
@dataclass(frozen=True)
class Descent:
    """Settings of a descent; see `zero_order_dc` for their meaning."""

    steps: int
    learning_rate: float
    least_difference: float
    largest_difference: float
    clip: float
    noise_base: float
    """sigma_base; 0 descends without clipping and noise."""
    validate_every: int

    def run(
        self,
        loss: CondensationLoss,
        start: Array,
        judge: ValidationJudge | None,
        rng: np.random.Generator,
    ) -> DescentRecord:
        """Take all steps from `start`; without a judge the rows of the last step are kept."""
        rows = start.copy()
        adam = _Adam(rows.shape, self.learning_rate)
        seed = int(rng.integers(2**63))
        record = DescentRecord(rows)
        for step in range(1, self.steps + 1):
            lengths = rng.uniform(self.least_difference, self.largest_difference, (rows.shape[1],))
            value, gradient = loss.gradient(rows, lengths, rng)
            if self.noise_base:
                gradient = clipped(gradient, self.clip)
                level = noise_level(gradient, self.clip, self.noise_base) * self.noise_base
                gradient += level * self.clip * rng.standard_normal(rows.shape)
                record.noises.append(level)
            rows += adam.step(gradient)
            record.losses.append(value.total)
            if judge is None:
                if step == self.steps:
                    record.keep(rows, step)
            elif step % self.validate_every == 0 or step == self.steps:
                record.compare(rows, step, judge.quality(rows, np.random.default_rng(seed)))
        return record


@final
class _Adam:
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
