"""The way down of zero-order condensation: a step's gradient, how its rows do, what was seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench.methods._shared import teachers as _teachers
from bench.methods._shared.differences import Teacher
from bench.methods._shared.teachers import Examples, Kind
from bench.methods.zero_order._losses import Composite, Value
from bench.methods.zero_order._setup import Units

Array = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]


@final
@dataclass(frozen=True)
class Problem:
    """The loss of synthetic rows, and its zero-order gradient, in standardised columns."""

    teacher: Teacher
    units: Units
    loss: Composite
    pools: list[Array]
    """The teacher's predictions on the real rows of each class or stratum."""
    sizes: npt.NDArray[np.intp]
    """Synthetic rows of each: as many real ones are drawn in a step."""

    def gradient(
        self, rows: Array, lengths: Array, rng: np.random.Generator
    ) -> tuple[Value, Array]:
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
class Judge:
    """Fits the teacher's kind of model on synthetic rows and asks it about validation rows."""

    kind: Kind
    units: Units
    held_out: Examples
    labels: Labels
    times: Array | None

    def quality(self, rows: Array, rng: np.random.Generator) -> float:
        examples = Examples(self.units.rows(rows), self.labels, self.times, self.held_out.classes)
        return _teachers.quality(self.kind, _teachers.fit(self.kind, examples, rng), self.held_out)


@final
class Course:
    """What happened on the way down."""

    def __init__(self, best: Array, best_step: int) -> None:
        self.best = best
        self.best_step = best_step
        self.best_quality: float | None = None
        self.noises: list[float] = []
        self.first = self.last = Value(0.0, 0.0, 0.0, np.zeros(0))
        self._any = False

    def seen(self, value: Value) -> None:
        if not self._any:
            self.first, self._any = value, True
        self.last = value

    def keep(self, rows: Array, step: int) -> None:
        self.best, self.best_step = rows.copy(), step

    def compare(self, rows: Array, step: int, quality: float) -> None:
        """Keep the rows if they are the best so far, or the first."""
        if self.best_quality is None or quality > self.best_quality:
            self.keep(rows, step)
            self.best_quality = None if np.isnan(quality) else quality
