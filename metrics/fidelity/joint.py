"""Can a model tell released rows from training rows? It sees all columns together, label included.

Rows are shown as a reader of the release would see them. Both tables weigh one half in training and
in judging; released rows are weighted to the declared class shares, as in `_pooled`.
"""

from __future__ import annotations

from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from bench import (
    Categorical,
    Column,
    Direction,
    Evaluation,
    Family,
    Metric,
    NotComputable,
    Numeric,
    Output,
    Scores,
)
from bench.metrics._shared import bootstrap as _bootstrap
from bench.metrics._shared import distance as _distance
from bench.metrics._shared.bootstrap import Array, Estimate
from bench.metrics._shared.distance import Records
from bench.metrics._shared.models import ROUNDS, TREES
from bench.metrics.fidelity import _propensity
from bench.metrics.fidelity._pooled import (
    RESAMPLES,
    Pooled,
    decoded_train,
    feature_columns,
    interval_of_distance,
    pooled,
)

FOLDS = 5

REPEATS, REPEATED_ROWS = 3, 5000
"""How often small tables are folded anew: the area then depends less on the folds' chance."""

MOST_ROWS = 20_000
"""Of one table, for the discriminator: more rows would not move its area by a hundredth."""

MOST_VALUES = 1_000_000
"""Rows times columns of one table, for the discriminator: 1273 images of 784 pixels."""

MOST_PARAMETERS = 300
"""Of the propensity model: a logistic model of single pixels says nothing about images."""

ROWS_PER_PARAMETER = 10
"""Effective released rows for each parameter that the null expectation in closed form needs."""


@final
class Discriminator(Metric):
    """Area under the ROC curve of gradient-boosted trees that tell released from real rows."""

    name: ClassVar[str] = "discriminator"
    family: ClassVar[Family] = Family.FIDELITY
    outputs: ClassVar[tuple[Output, ...]] = (
        Output("discriminator/auc", Direction.LOWER, shown=True),
    )
    definition: ClassVar[str] = (
        "Area under the ROC curve of XGBoost (settings of the zero-order paper, section 4.7) "
        "trained to tell released rows from training rows, by predictions out of 5 folds, mean of "
        "3 foldings up to 5,000 rows (fidelity paper, section 3.6.3). 0.5 cannot tell and is the "
        "best; lower values are chance. Equal records, real or released, are kept in one fold: a "
        "copied row whose twin was trained on would count as fidelity below 0.5. Both tables "
        "weigh the same, released rows are weighted to the declared class shares, times their own "
        "weights; at most 20,000 rows and 1,000,000 values of each table, drawn at random. "
        "Interval: 200 bootstrap resamples of the predictions within table and class; models are "
        "not refitted, which makes it too narrow for tables of some hundred rows."
    )
    cost: ClassVar[str] = "some 5 seconds; 784 pixels some 15"

    def compute(self, evaluation: Evaluation) -> Scores:
        rows = pooled(evaluation)
        columns = [*feature_columns(evaluation), evaluation.dataset.schema.label]
        rng = evaluation.generator("discriminator")
        kept = _drawn(rows, len(columns), rng)
        records = _distance.identities(
            Records.of(evaluation.dataset.encoder, rows.frame.iloc[kept])
        )[0]
        released = kept >= rows.real
        weights = _balanced(rows, kept)
        features = np.column_stack([_plain(rows, column) for column in columns])[kept]
        kinds = ["q" if isinstance(column, Numeric) else "c" for column in columns]
        areas = []
        for _ in range(REPEATS if len(kept) <= REPEATED_ROWS else 1):
            folds = folds_of_records(records, released, rng)
            predictions = np.empty(len(kept))
            for fold in range(FOLDS):
                held = folds == fold
                predictions[held] = _fitted_and_asked(features, kinds, released, weights, held, rng)
            areas.append(_bootstrap.auroc(released.astype(np.int64), predictions))

        def statistic(counts: Array) -> Array:
            weighted = counts * weights[:, None]
            mean: Array = np.mean([area(weighted) for area in areas], axis=0)
            return mean

        estimate = _bootstrap.bootstrap(
            statistic, rows.strata[kept], evaluation.generator("bootstrap/joint"), RESAMPLES
        )
        return Scores((estimate.score(self, "discriminator/auc"),))


@final
class PropensityError(Metric):
    """Mean squared difference of propensities from what a model that cannot tell would say."""

    name: ClassVar[str] = "pmse"
    family: ClassVar[Family] = Family.FIDELITY
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "pmse",
            Direction.LOWER,
            "Mean of (p - 1/2)^2, between 0 and 1/4. It grows with the number of columns over the "
            "number of rows: small releases are far by chance.",
        ),
        Output(
            "pmse/ratio",
            Direction.LOWER,
            "pMSE over its expectation for a release of as many rows of each class drawn from the "
            "training rows, (k - 1)(1 - c)^2 c / N for k parameters and N rows in all (Snoke et "
            "al. 2018), here for weighted rows drawn class by class. 1 is faithful; fresh rows of "
            "the same population give 1 + released / training rows.",
        ),
    )
    definition: ClassVar[str] = (
        "Propensity score mean squared error (fidelity paper, section 3.6.3, equation 4, which "
        "lacks the division by the number of rows; Snoke et al. 2018) of a logistic model with one "
        "term for each numeric column and each category but one, label included, fitted to "
        "training and released rows, each table weighing one half (c = 1/2), released rows to the "
        "declared class shares. Absent above 300 parameters; the ratio needs 10 effective released "
        "rows for each. Interval: 200 bootstrap resamples of both tables with one Newton step "
        "each, corrected for the inflation of distances between resamples."
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        rows = pooled(evaluation)
        columns = [*feature_columns(evaluation), evaluation.dataset.schema.label]
        width = sum(_terms(column) for column in columns)
        if width + 1 > MOST_PARAMETERS:
            raise NotComputable(
                f"the logistic model would have {width + 1} parameters, over {MOST_PARAMETERS}"
            )
        design = _design(rows, columns)
        weights = np.abs(rows.signed(np.ones((len(design), 1))))[:, 0] / 2
        released = np.arange(len(design)) >= rows.real
        model = _propensity.fit(design, released, weights)

        def statistic(counts: Array) -> Array:
            return model.resampled(np.abs(rows.signed(counts)) / 2)

        rng = evaluation.generator("bootstrap/joint")
        samples = _bootstrap.bootstrap(statistic, rows.strata, rng, RESAMPLES).samples
        low, high = interval_of_distance(Estimate(model.pmse, samples), _propensity.SHARE**2)
        value = self.score("pmse", model.pmse, low, high)
        label = evaluation.dataset.schema.label
        free, within = evaluation.reference(
            "fidelity/propensity",
            lambda rng: _propensity.null_parameters(
                design[: rows.real],
                decoded_train(evaluation)[label.name].cat.codes.to_numpy(),
                len(label.categories),
            ),
        )
        if not free:
            reason = "no column varies among the training rows"
            return Scores((value, self.absent("pmse/ratio", reason)))
        if rows.effective < ROWS_PER_PARAMETER * free:
            reason = (
                f"{rows.effective:.0f} effective released rows for {free} parameters; the null "
                f"expectation needs {ROWS_PER_PARAMETER} for each"
            )
            return Scores((value, self.absent("pmse/ratio", reason)))
        expected = null_expectation(rows, within)
        ratio = self.score("pmse/ratio", model.pmse / expected, low / expected, high / expected)
        return Scores((value, ratio))


def null_expectation(rows: Pooled, within: Array) -> float:
    """Expected pMSE of rows drawn from the training rows, class by class, with these weights.

    To first order p - c = c (1 - c) x'b for whitened x, where b has the variance of the score over
    the squared information: E = (1 - c)^2 sum w_i^2 T_i over released rows whose weights sum to c,
    all weights summing to one, with T_i the variance within the class (`null_parameters`). For
    equal weights and one class, T = k - 1 and w = 1 / N, this is (k - 1)(1 - c)^2 c / N.
    """
    labels = rows.strata[rows.real :] - 1
    own = _propensity.SHARE * rows.released_weights
    return float((1.0 - _propensity.SHARE) ** 2 * (np.square(own) @ within[labels]))


def folds_of_records(
    records: npt.NDArray[np.intp], released: npt.NDArray[np.bool_], rng: np.random.Generator
) -> npt.NDArray[np.intp]:
    """A fold for each row; equal records share one. Each kind of record is dealt evenly."""
    names, of_row = np.unique(records, return_inverse=True)
    in_release = np.bincount(of_row, weights=released, minlength=len(names)) > 0
    in_train = np.bincount(of_row, weights=~released, minlength=len(names)) > 0
    if in_release.sum() < FOLDS or in_train.sum() < FOLDS:
        raise NotComputable(
            f"{int(in_release.sum())} distinct released and {int(in_train.sum())} distinct "
            f"training records; {FOLDS} folds need as many of each"
        )
    folds = np.empty(len(names), dtype=np.intp)
    dealt = 0
    for kind in (in_release & in_train, in_release & ~in_train, in_train & ~in_release):
        shuffled = rng.permutation(np.flatnonzero(kind))
        # Dealing goes on where it stopped, so that few records of a kind do not share a fold.
        folds[shuffled] = (dealt + np.arange(len(shuffled))) % FOLDS
        dealt += len(shuffled)
    return folds[of_row]


def _drawn(rows: Pooled, columns: int, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Rows of both tables, as many as the discriminator takes."""
    most = max(FOLDS, min(MOST_ROWS, MOST_VALUES // columns))
    kept = []
    for start, stop in ((0, rows.real), (rows.real, len(rows.frame))):
        table = np.arange(start, stop)
        if len(table) > most:
            table = np.sort(rng.choice(table, most, replace=False))
        kept.append(table)
    return np.concatenate(kept)


def _balanced(rows: Pooled, kept: npt.NDArray[np.intp]) -> Array:
    """Weights: mean 1 in the smaller table, and the same sum in the larger one."""
    weights = np.abs(rows.signed(np.ones((len(rows.frame), 1))))[kept, 0]
    released = kept >= rows.real
    smaller = min(int(released.sum()), int((~released).sum()))
    for table in (released, ~released):
        weights[table] *= smaller / weights[table].sum()
    result: Array = weights
    return result


def _plain(rows: Pooled, column: Column) -> Array:
    if isinstance(column, Numeric):
        return rows.numbers(column.name)
    return rows.codes(column.name).astype(np.float64)


def _terms(column: Column) -> int:
    return len(column.categories) - 1 if isinstance(column, Categorical) else 1


def _design(rows: Pooled, columns: list[Column]) -> Array:
    """Numeric columns in units of the public range, and indicators of categories but the first."""
    parts = []
    for column in columns:
        if isinstance(column, Numeric):
            parts.append(rows.numbers(column.name)[:, None] / (column.high - column.low))
        elif isinstance(column, Categorical):
            others = np.arange(1, len(column.categories))
            parts.append((rows.codes(column.name)[:, None] == others).astype(np.float64))
    return np.concatenate(parts, axis=1)


def _fitted_and_asked(
    features: Array,
    kinds: list[str],
    released: npt.NDArray[np.bool_],
    weights: Array,
    held: npt.NDArray[np.bool_],
    rng: np.random.Generator,
) -> Array:
    """Predictions for the rows held out, of a model of the others."""
    import xgboost

    parameters: dict[str, Any] = {
        **TREES,
        "objective": "binary:logistic",
        "seed": int(rng.integers(2**31)),
        # Of so few rows one thread is the fastest.
        "nthread": 1,
    }

    def matrix(chosen: npt.NDArray[np.bool_]) -> xgboost.DMatrix:
        return xgboost.DMatrix(
            features[chosen],
            label=released[chosen],
            weight=weights[chosen],
            feature_types=kinds,
            enable_categorical=True,
            nthread=1,
        )

    booster = xgboost.train(parameters, matrix(~held), ROUNDS)
    return np.asarray(booster.predict(matrix(held)), dtype=np.float64)
