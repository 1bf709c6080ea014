"""Choices made by looking at rows: when to stop, which model to keep, whether to fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from bench.conformance.mistakes.sound import (
    SOURCE,
    STEPS,
    Array,
    Descent,
    Example,
    around_class_means,
    class_means,
    gradients,
    mean_loss,
    rows_around,
)
from bench.data.encoder import EncodedRows, Floats
from bench.data.schema import Numeric
from bench.plugins.method import Spec
from bench.plugins.release import Claim, Release
from bench.privacy.events import gaussian
from bench.privacy.kernel import PlannedEvents, PrivateData


@final
@dataclass(frozen=True)
class EarlyStopping(Example):
    """Stops the descent when the exact loss of the sampled rows has not fallen for three steps.

    All steps are charged, whether they are made or not; the number of steps made is released
    with the model and was chosen by the rows.
    """

    name: ClassVar[str] = "early-stopping"
    title: ClassVar[str] = "early stopping on an exact loss"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        descent = Descent.start(private)
        losses: list[float] = []

        def watched(rows: EncodedRows) -> Array:
            losses.append(mean_loss(descent.weights, rows))
            return gradients(descent.weights, rows)

        for _ in range(STEPS):
            descent.step(watched)
            if len(losses) > 3 and min(losses[-3:]) > min(losses[:-3]):
                break
        return descent.release(spec)


@final
@dataclass(frozen=True)
class UntilEnoughRows(Example):
    """Makes steps until three hundred rows were sampled, to see the data a fixed number of times.

    How many calls that takes depends on the exact sizes of the samples.
    """

    name: ClassVar[str] = "until-enough-rows"
    title: ClassVar[str] = "a number of calls that depends on the rows"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        descent = Descent.start(private)
        seen = [0]

        def watched(rows: EncodedRows) -> Array:
            seen.append(len(rows))
            return gradients(descent.weights, rows)

        for _ in range(STEPS):
            if sum(seen) > 300:
                break
            descent.step(watched)
        return descent.release(spec)


@final
@dataclass(frozen=True)
class BestOnValidation(Example):
    """Keeps the weights with the smallest exact loss on the validation rows.

    Validation rows are private as well. The author asks the kernel for the losses, with noise,
    and then chooses by the exact ones that the row function computed on the way.
    """

    name: ClassVar[str] = "best-on-validation"
    title: ClassVar[str] = "a choice by exact losses of validation rows"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        validation = private.validation
        assert validation is not None
        descent = Descent.start(private, [validation])
        states = [descent.weights]
        for _ in range(STEPS):
            descent.step()
            states.append(descent.weights)
        chosen: list[Array] = []

        def losses(rows: EncodedRows) -> Array:
            chosen.append(min(states, key=lambda weights: mean_loss(weights, rows)))
            return np.ones((len(rows), 1))

        validation.gaussian_sum(losses, 1.0, descent.noise)
        descent.weights = chosen[0]
        return descent.release(spec)


@final
@dataclass(frozen=True)
class BestOfSeveral(Example):
    """Fits the class means eight times and releases the fit nearest to the exact means.

    All eight fits are paid for; the choice among them is not.
    """

    name: ClassVar[str] = "best-of-several"
    title: ClassVar[str] = "the best of several fits, by an exact score"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        attempts = 8
        parts = private.partition("class")

        def plans(level: float) -> list[PlannedEvents]:
            return [part.plan(gaussian(level), attempts) for part in parts.values()]

        noise = private.calibrate(plans)
        private.reserve_all(plans(noise))
        exact: dict[int, Array] = {}

        def values(rows: EncodedRows) -> Floats:
            if len(rows):
                exact[int(rows.labels[0])] = rows.values.mean(axis=0)
            return rows.values

        fits = [
            class_means(
                private,
                [
                    part.gaussian_sum(values, private.encoder.max_norm, noise)
                    for part in parts.values()
                ],
            )
            for _ in range(attempts)
        ]

        def distance(means: list[Array]) -> float:
            return sum(float(np.linalg.norm(means[label] - exact[label])) for label in exact)

        means = min(fits, key=distance)
        claim = Claim.of(spec.budget, SOURCE)
        return Release(rows_around(means, private, spec, rng), claim=claim)


@final
@dataclass(frozen=True)
class RefusesRows(Example):
    """Refuses a table in which a number reaches the upper bound of its column.

    Whether the method fails, and the text of the error, reveal that a row is in the table. Such
    rows are clipped by the encoder.
    """

    name: ClassVar[str] = "refuses-rows"
    title: ClassVar[str] = "an error that depends on the rows"

    def synthesize(self, private: PrivateData, spec: Spec, rng: np.random.Generator) -> Release:
        numbers = [block for block in private.encoder.blocks if isinstance(block.column, Numeric)]

        def checked(rows: EncodedRows) -> Floats:
            for block in numbers:
                highest = float(rows.values[:, block.start].max(initial=-1.0))
                if highest >= 1.0:
                    raise ValueError(f"{block.column.name} is at its upper bound: {highest}")
            return rows.values

        return around_class_means(private, spec, rng, function=checked)
