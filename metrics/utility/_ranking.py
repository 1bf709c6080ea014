"""Utility of one model in groups of test rows, and numbers that share bootstrap resamples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from bench import Evaluation, Floats, NotComputable, ReleasedModel, Task
from bench.metrics._shared import bootstrap as _bootstrap
from bench.metrics._shared import models as _models
from bench.metrics._shared.bootstrap import Array, Statistic

LEAST_ROWS = 50
LEAST_OF_A_CLASS = 10
"""Smaller groups are listed, not scored: their noise would be the largest gap. A survival group
needs as many events."""

Index = npt.NDArray[np.intp]


@final
@dataclass(frozen=True)
class Group:
    """Some of the test rows."""

    column: str
    name: str
    rows: Index


@final
@dataclass(frozen=True)
class Joint:
    """Several numbers of the same rows and of the same resamples of them."""

    values: Array
    samples: Array
    """(numbers, resamples)."""

    def estimate(self, combine: Callable[[Array], Array]) -> _bootstrap.Estimate:
        """One number made of them: (numbers, columns) in, one value a column out."""
        value = float(combine(self.values[:, None])[0])
        samples = combine(self.samples)
        defined = samples[~np.isnan(samples)]
        if math.isnan(value) or 2 * len(defined) < len(samples):
            raise NotComputable("the statistic is not defined on these rows or their resamples")
        return _bootstrap.Estimate(value, defined)

    def take(self, places: Sequence[int]) -> Joint:
        """Some of the numbers."""
        return Joint(self.values[list(places)], self.samples[list(places)])

    def beside(self, other: Joint) -> Joint:
        """These numbers, then those of another model on the same resamples."""
        return Joint(
            np.concatenate([self.values, other.values]),
            np.concatenate([self.samples, other.samples]),
        )

    def each(self) -> Iterator[_bootstrap.Estimate]:
        """One estimate a number."""
        for row in range(len(self.values)):
            yield self.estimate(lambda numbers, row=row: numbers[row])  # type: ignore[misc]


def jointly(
    statistic: Callable[[Array], Array], strata: npt.ArrayLike, rng: np.random.Generator
) -> Joint:
    """Bootstrap of a statistic with several numbers: (numbers, columns) from (rows, columns)."""
    blocks: list[Array] = []

    def recorded(weights: Array) -> Array:
        blocks.append(statistic(weights))
        return np.zeros(weights.shape[1])

    _bootstrap.bootstrap(recorded, strata, rng)
    whole, *resampled = blocks
    return Joint(whole[:, 0], np.concatenate(resampled, axis=1))


# Ranking of test rows ----------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Ranking:
    """Real test rows, to be ranked by a model: AUROC of classes, C-index of survival."""

    features: Floats
    labels: npt.NDArray[np.integer]
    times: Array | None
    classes: int

    @classmethod
    def of(cls, evaluation: Evaluation) -> Ranking:
        """The test rows of an evaluation."""
        encoder, test = evaluation.dataset.encoder, evaluation.dataset.test.rows
        if not len(test):
            raise NotComputable("the dataset has no test rows")
        truth = _models.Examples.of(encoder, test.values, test.labels)
        return cls(truth.features, truth.labels, truth.times, len(encoder.schema.classes))

    def answers(self, model: ReleasedModel) -> Array:
        """What the model says about every test row."""
        if self.times is not None or self.classes == 2:
            return _models.one_score(model, self.features)
        return _models.class_scores(model, self.features, self.classes)

    def statistic(self, rows: Index, answers: Array) -> Statistic:
        """Utility on some of the rows; weights are those of these rows.

        Two classes: area under the ROC curve. More: its mean over the classes, each against the
        rest. Survival: Harrell's C-index.
        """
        labels, scores = self.labels[rows], answers[rows]
        if self.times is not None:
            return _bootstrap.concordance(self.times[rows], labels, scores)
        if self.classes == 2:
            return _bootstrap.auroc(labels, scores)
        return _bootstrap.one_against_rest(_bootstrap.auroc, labels, scores)

    def too_small(self, rows: Index) -> str:
        """Why the rows cannot be scored, or nothing."""
        if len(rows) < LEAST_ROWS:
            return f"{len(rows)} rows, at least {LEAST_ROWS} are needed"
        counts = np.bincount(self.labels[rows], minlength=self.classes)
        if self.times is not None:
            counts = counts[1:]
        if counts.min() < LEAST_OF_A_CLASS:
            what = "events" if self.times is not None else "rows of the smallest class"
            return f"{counts.min()} {what}, at least {LEAST_OF_A_CLASS} are needed"
        return ""

    def sorted_out(
        self, groups: Iterable[Group]
    ) -> tuple[tuple[Group, ...], tuple[tuple[Group, str], ...]]:
        """Groups that can be scored, and the others with the reason."""
        reasons = [(group, self.too_small(group.rows)) for group in groups]
        scored = tuple(group for group, why in reasons if not why)
        return scored, tuple((group, why) for group, why in reasons if why)

    def facts(self, group: Group) -> tuple[str, int, int]:
        """Name, rows, and rows of the second class or with the event."""
        positives = int(np.count_nonzero(self.labels[group.rows] == 1))
        return group.name, len(group.rows), positives

    def strata(self) -> npt.NDArray[np.integer]:
        """Classes are resampled apart; patients of a cohort together."""
        return self.labels if self.times is None else np.zeros_like(self.labels)

    def grouped(
        self,
        groups: Sequence[Group],
        answers: Array,
        strata: npt.NDArray[np.integer],
        rng: np.random.Generator,
    ) -> Joint:
        """Utility of the model in each group, on the same resamples of the test rows."""
        parts = [(group.rows, self.statistic(group.rows, answers)) for group in groups]
        return jointly(
            lambda weights: np.stack([part(weights[rows]) for rows, part in parts]), strata, rng
        )


def released_model(evaluation: Evaluation) -> ReleasedModel:
    """The downstream model of the task, trained on the release: XGBoost, or Cox for survival."""
    if evaluation.dataset.task is Task.SURVIVAL:
        return _models.cox(evaluation)
    return _models.tree_classifier(evaluation)


def real_model(evaluation: Evaluation) -> ReleasedModel:
    """The same model, trained on the real training rows."""
    if evaluation.dataset.task is Task.SURVIVAL:
        return evaluation.reference(
            "model/cox", lambda _: _models.fit_cox(_models.real_examples(evaluation))
        )
    return _models.real_tree_classifier(evaluation)


def split(column: str, codes: npt.NDArray[np.integer], names: Sequence[str]) -> Iterator[Group]:
    """Groups by a code a row; empty ones are left out."""
    for code, name in enumerate(names):
        rows = np.flatnonzero(codes == code)
        if len(rows):
            yield Group(column, name, rows)


# Intervals of extremes ----------------------------------------------------------------------------


def bands(values: Array, samples: Array) -> Array:
    """Half-widths of intervals that hold all at once: the largest of many then has one, too.

    Where |estimate_g - truth_g| <= c se_g for all g together in 95% of the cases, the largest
    truth lies between max(estimate_g - c se_g) and max(estimate_g + c se_g). The bootstrap gives
    se_g, and c as the quantile of the largest studentised deviation.
    """
    spread = np.nanstd(samples, axis=1)
    wide = spread > 0
    if not wide.any():
        return np.zeros(len(values))
    deviations = np.abs(samples[wide] - values[wide, None]) / spread[wide, None]
    factor = np.quantile(np.nanmax(deviations, axis=0), _bootstrap.LEVEL)
    half_widths: Array = factor * spread
    return half_widths


def lowest_interval(joint: Joint) -> tuple[float, float]:
    """Interval of the smallest of several shares."""
    half = bands(joint.values, joint.samples)
    low, high = np.min(joint.values - half), np.min(joint.values + half)
    return max(0.0, float(low)), min(1.0, float(high))
