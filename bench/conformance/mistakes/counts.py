"""Numbers of rows that are counted instead of declared or paid for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np

from bench.conformance.mistakes.sound import (
    SOURCE,
    STEPS,
    Array,
    Descent,
    Example,
    around_class_means,
    class_sums,
    fit_teacher,
    gradients,
    rows_around,
    teachers_vote,
)
from bench.data.encoder import EncodedRows, Floats
from bench.plugins.method import Spec
from bench.plugins.release import Claim, Release
from bench.privacy.events import gaussian
from bench.privacy.kernel import PlannedEvents, PrivateData


@final
@dataclass(frozen=True)
class DividedBySample(Example):
    """Divides the noisy sum of gradients by how many rows were sampled.

    The size of a Poisson sample is private: it tells whether the row is in it. DP-SGD divides by
    the expected size.
    """

    name: ClassVar[str] = "divided-by-sample"
    title: ClassVar[str] = "division by the size of the Poisson sample"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        descent = Descent.start(private)
        sampled = [1]

        def watched(rows: EncodedRows) -> Array:
            sampled[0] = max(1, len(rows))
            return gradients(descent.weights, rows)

        for _ in range(STEPS):
            descent.step(watched, size=lambda: sampled[0])
        return descent.release(spec)


@final
@dataclass(frozen=True)
class DividedByCount(Example):
    """Divides noisy sums by the exact numbers of rows, which the row function counts."""

    name: ClassVar[str] = "divided-by-count"
    title: ClassVar[str] = "division by the exact number of rows"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        counted: dict[int, int] = {}

        def values(rows: EncodedRows) -> Floats:
            for label in rows.labels[:1]:
                counted.setdefault(int(label), len(rows))
            return rows.values

        sums = class_sums(private, values)
        means = [total / counted.get(label, 1) for label, total in enumerate(sums)]
        claim = Claim.of(spec.budget, SOURCE)
        return Release(rows_around(means, private, spec, rng), claim=claim)


@final
@dataclass(frozen=True)
class WeightsFromCounts(Example):
    """Weights the released rows by the exact shares of the classes, to correct for equal sizes."""

    name: ClassVar[str] = "weights-from-counts"
    title: ClassVar[str] = "weights from exact class counts"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        counted: dict[int, int] = {}

        def values(rows: EncodedRows) -> Floats:
            for label in rows.labels[:1]:
                counted.setdefault(int(label), len(rows))
            return rows.values

        release = around_class_means(private, spec, rng, function=values)
        assert release.rows is not None
        shares = [counted.get(int(label), 0) for label in release.rows.labels]
        weights = np.array(shares) / max(1, sum(counted.values()))
        return replace(release, rows=replace(release.rows, weights=weights))


@final
@dataclass(frozen=True)
class DeltaFromCount(Example):
    """Claims a delta of 1 / (10 n), with the exact number n of rows."""

    name: ClassVar[str] = "delta-from-count"
    title: ClassVar[str] = "a claim computed from the rows"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        counted: dict[int, int] = {}

        def values(rows: EncodedRows) -> Floats:
            for label in rows.labels[:1]:
                counted.setdefault(int(label), len(rows))
            return rows.values

        release = around_class_means(private, spec, rng, function=values)
        if spec.budget is None:
            return release
        delta = 0.1 / max(1, sum(counted.values()))
        return replace(release, claim=Claim(spec.budget.epsilon, delta, SOURCE))


@final
@dataclass(frozen=True)
class TeachersFromCount(Example):
    """Chooses the number of teachers so that each has thirty rows, by the exact number of rows.

    One row can move every other row to another teacher.
    """

    name: ClassVar[str] = "teachers-from-count"
    title: ClassVar[str] = "a number of parts derived from the rows"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        counted: list[int] = []

        def one(rows: EncodedRows) -> Array:
            counted.append(len(rows))
            return np.ones((len(rows), 1))

        def plans(level: float) -> list[PlannedEvents]:
            return [private.plan(gaussian(level), 2)]

        noise = private.calibrate(plans)
        private.reserve_all(plans(noise))
        rough = private.gaussian_sum(one, 1.0, noise)[0]
        classes = len(private.schema.classes)
        # The noisy count is at hand, and then the exact one is used.
        teachers = max(2, counted[0] // 30)
        release = teachers_vote(
            private, spec, rng, lambda rows, _: fit_teacher(rows, classes), teachers, noise
        )
        return replace(release, notes={"noisy_count": rough})


@final
@dataclass(frozen=True)
class ClipFromRows(Example):
    """Clips the gradients of a step to the median norm of those of the step before.

    The clip is released with the scale of the noise, and the median is exact: adaptive clipping
    needs a noisy count of the gradients within the bound.
    """

    name: ClassVar[str] = "clip-from-rows"
    title: ClassVar[str] = "a clip computed from the rows"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        descent = Descent.start(private)
        norms = [1.0]

        def watched(rows: EncodedRows) -> Array:
            vectors = gradients(descent.weights, rows)
            if len(rows):
                norms.append(float(np.median(np.linalg.norm(vectors, axis=1))))
            return vectors

        for _ in range(STEPS):
            descent.clip = norms[-1]
            descent.step(watched)
        return descent.release(spec)
