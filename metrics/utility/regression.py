"""How well numbers of a real row are predicted by a model trained on the release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import (
    Block,
    Direction,
    Encoder,
    Evaluation,
    Family,
    Floats,
    Integers,
    Metric,
    NotComputable,
    Numeric,
    Output,
    Role,
    Score,
    Scores,
    Task,
)
from bench.metrics._shared import downstream_models
from bench.metrics._shared.bootstrap import (
    Array,
    Joint,
    Means,
    combined,
    jointly,
    ratio,
    seed_of_dataset,
)
from bench.metrics._shared.rows import real_test_rows

TARGETS_AT_MOST = 10

_ENCODED_RANGE = 2.0
"""Numbers are encoded from their public range to [-1, 1]."""


@final
@dataclass(frozen=True)
class _RealErrors:
    """Errors of the models trained on real rows: RMSE of every target, then MAE of every target."""

    errors: Joint
    seed: int


@final
class Regression(Metric):
    """Errors of predicted numeric columns."""

    name: ClassVar[str] = "regression"
    family: ClassVar[Family] = Family.UTILITY
    definition: ClassVar[str] = (
        "Errors on the real test rows of XGBoost (squared loss, settings of the zero-order paper, "
        "section 4.7) that predicts a numeric column from all others, trained on the released "
        "rows (fidelity paper, section 3.6.1, continuous targets; it names no targets). Targets: "
        f"the sensitive numeric columns, else the first {TARGETS_AT_MOST} numeric features; "
        "values outside the public bounds count as the bound. Intervals: 1000 bootstrap resamples "
        "of the test rows."
    )
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "regression/rmse",
            Direction.LOWER,
            "Root mean squared error as a share of the public range, mean over the targets.",
        ),
        Output(
            "regression/mae",
            Direction.LOWER,
            "Mean absolute error as a share of the public range, mean over the targets.",
        ),
        Output(
            "regression/rmse-ratio",
            Direction.LOWER,
            "Root mean squared error divided by that of the same model trained on the real "
            "training rows, mean over the targets: 1 is as good as real rows.",
        ),
        Output(
            "regression/mae-ratio",
            Direction.LOWER,
            "Mean absolute error divided by that of the same model trained on the real training "
            "rows, mean over the targets: 1 is as good as real rows.",
        ),
    )
    tasks: ClassVar[tuple[Task, ...]] = (Task.CLASSIFICATION, Task.SURVIVAL)
    cost: ClassVar[str] = "half a second per target; longer for the real rows of a dataset, once"

    def compute(self, evaluation: Evaluation) -> Scores:
        real_test_rows(evaluation)
        targets = target_blocks(evaluation.dataset.encoder)
        if not targets:
            raise NotComputable("the schema declares no numeric feature")
        rows = evaluation.rows
        real = evaluation.reference("regression", lambda rng: _real(evaluation, targets, rng))
        released = _errors(
            evaluation,
            targets,
            (rows.values, rows.labels, rows.weights),
            evaluation.generator("model/regression"),
            real.seed,
        )
        count = len(targets)
        scores = [
            released.take(range(count)).estimate(_mean).score(self, "regression/rmse"),
            released.take(range(count, 2 * count)).estimate(_mean).score(self, "regression/mae"),
            self._ratio("regression/rmse-ratio", released, real.errors, range(count)),
            self._ratio("regression/mae-ratio", released, real.errors, range(count, 2 * count)),
        ]
        return Scores(tuple(scores), {"regression": _table(evaluation, targets, real, released)})

    def _ratio(self, output: str, released: Joint, real: Joint, places: Sequence[int]) -> Score:
        """Targets that real rows predict without error have no ratio."""
        kept = [place for place in places if real.values[place] > 0]
        if not kept:
            return self.absent(output, "the model trained on real rows makes no errors")
        both = released.take(kept).beside(real.take(kept))
        half = len(kept)
        estimate = both.estimate(lambda numbers: _mean(ratio(numbers[:half], numbers[half:])))
        return estimate.score(self, output)


def target_blocks(encoder: Encoder) -> tuple[Block, ...]:
    """Columns to be predicted: sensitive numeric ones, else numeric features, in declared order."""
    numeric = [
        block
        for block in encoder.blocks
        if isinstance(block.column, Numeric) and block.column.role is Role.FEATURE
    ]
    sensitive = [block for block in numeric if block.column.name in encoder.schema.sensitive]
    return tuple((sensitive or numeric)[:TARGETS_AT_MOST])


def _real(
    evaluation: Evaluation, targets: Sequence[Block], rng: np.random.Generator
) -> _RealErrors:
    train = evaluation.dataset.train.rows
    seed = seed_of_dataset(evaluation)
    # Earlier results drew a seed of the resamples here: without this draw the models of the real
    # rows would get other seeds, and the ratios move by the chance of their row samples.
    rng.integers(2**31)
    return _RealErrors(
        _errors(evaluation, targets, (train.values, train.labels, None), rng, seed), seed
    )


def _errors(
    evaluation: Evaluation,
    targets: Sequence[Block],
    rows: tuple[Floats, Integers, Floats | None],
    rng: np.random.Generator,
    seed: int,
) -> Joint:
    """RMSE of every target, then MAE of every target, as shares of the public range."""
    encoder, test = evaluation.dataset.encoder, evaluation.dataset.test.rows
    values, labels, weights = rows
    given = np.ones(len(labels)) if weights is None else np.asarray(weights, dtype=np.float64)
    kept = given > 0
    if not kept.any():
        raise NotComputable("every row has weight 0")
    known = _with_label(encoder, np.asarray(values)[kept], np.asarray(labels)[kept])
    asked = _with_label(encoder, test.values, test.labels)
    mean_one = given[kept] / given[kept].mean()
    errors = np.empty((len(targets), len(test)))
    for place, block in enumerate(targets):
        others = np.arange(known.shape[1]) != block.start
        truth = np.clip(known[:, block.start], -1.0, 1.0)
        predicted = predict(known[:, others], truth, mean_one, asked[:, others], rng)
        errors[place] = (predicted - asked[:, block.start]) / _ENCODED_RANGE
    squares, sizes = Means(errors**2), Means(np.abs(errors))
    both = combined([squares, sizes], lambda one, two: np.concatenate([np.sqrt(one), two]))
    strata = np.zeros(len(test), dtype=np.int64)
    return jointly(both, strata, np.random.default_rng(seed))


def _with_label(encoder: Encoder, values: Floats, labels: Integers) -> Floats:
    """Encoded rows (features, then the survival time) and the label as one column per class."""
    classes = len(encoder.schema.classes)
    columns = np.eye(classes, dtype=np.float32)[labels]
    return np.hstack([values, columns[:, 1:] if classes == 2 else columns])


def predict(
    known: Floats,
    truth: npt.NDArray[np.floating],
    weights: Array,
    asked: Floats,
    rng: np.random.Generator,
) -> Array:
    """Train on the known rows, predict for the others."""
    parameters = {**downstream_models.TREES, "objective": "reg:squarederror"}
    columns = {"label": truth, "weight": weights}
    booster = downstream_models.grow_trees(known, columns, parameters, rng)
    return downstream_models.ask_trees(booster, asked)


def _mean(numbers: Array) -> Array:
    result: Array = numbers.mean(axis=0)
    return result


def _table(
    evaluation: Evaluation, targets: Sequence[Block], real: _RealErrors, released: Joint
) -> pd.DataFrame:
    """Errors in the units of each column, beside the spread of its real test values."""
    count = len(targets)
    spans = np.array(
        [
            block.column.high - block.column.low
            for block in targets
            if isinstance(block.column, Numeric)
        ]
    )
    test = evaluation.dataset.test.rows.values
    table: dict[str, object] = {"column": [block.column.name for block in targets]}
    for name, start in (("rmse", 0), ("mae", count)):
        part = released.take(range(start, start + count))
        intervals = np.array([estimate.interval for estimate in part.each()])
        table[name] = part.values * spans
        table[f"{name}-low"], table[f"{name}-high"] = (intervals * spans[:, None]).T
        table[f"{name}-real"] = real.errors.values[start : start + count] * spans
    encoded = np.array([test[:, block.start].astype(np.float64).std() for block in targets])
    table["deviation"] = encoded / _ENCODED_RANGE * spans
    return pd.DataFrame(table)
