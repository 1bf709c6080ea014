"""Can a model distinguish released rows from training rows by all columns, label included?

Rows are decoded, as a reader of the release would see them. Both tables weigh one half in training
and in testing; released rows are weighted to the real class shares, as in `_pooled`.
"""

from __future__ import annotations

from dataclasses import dataclass
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
from bench.metrics._shared import bootstrap, record_distance
from bench.metrics._shared.auroc import auroc
from bench.metrics._shared.bootstrap import Array, Estimate
from bench.metrics._shared.downstream_models import TREES, ask_trees, grow_trees
from bench.metrics._shared.record_distance import Records
from bench.metrics.fidelity._pooled import (
    RESAMPLES,
    PooledRows,
    decoded_train,
    feature_columns,
    pooled,
)

FOLDS = 5

REPEATS, REPEATED_ROWS = 3, 5000
"""Foldings of small tables: the area then depends less on the chance of the folds."""

MOST_ROWS = 20_000
"""Rows of one table for the discriminator: more would not move its area by a hundredth."""

MOST_TIMES, LEAST_ROWS = 25, 5000
"""Rows of the larger table for each of the smaller one, beyond the first 5,000: what the trees
learn, and the interval of their area, depend on the rows of the smaller table then."""

MOST_VALUES = 1_000_000
"""Rows times columns of one table, for the discriminator: 1273 images of 784 pixels."""

MOST_PARAMETERS = 300
"""Parameters of the propensity model: a logistic model of pixels does not describe images."""

SHARE = 0.5
"""c: the weight of the released rows over that of all rows."""

_STEPS = 30
_ENOUGH = 1e-9
_RIDGE = 1e-8
"""On standardised columns: keeps Newton's steps finite where the two tables are separated."""

ROWS_PER_PARAMETER = 10
"""Effective released rows for each parameter that the null expectation in closed form needs."""


@final
class Discriminator(Metric):
    """Area under the ROC curve of trees that distinguish released from training rows."""

    name: ClassVar[str] = "discriminator"
    family: ClassVar[Family] = Family.FIDELITY
    outputs: ClassVar[tuple[Output, ...]] = (
        Output("discriminator/auc", Direction.LOWER, shown=True),
    )
    definition: ClassVar[str] = (
        "Area under the ROC curve of XGBoost (settings of the zero-order paper, section 4.7) "
        "trained to distinguish released rows from training rows, by out-of-fold predictions of 5 "
        "folds, mean of 3 foldings up to 5,000 rows (fidelity paper, section 3.6.3). 0.5 is "
        "indistinguishable and the best; lower values are chance. Equal records, real or "
        "released, are kept in one fold: a copied row whose twin was trained on would count as "
        "fidelity below 0.5. Both tables weigh the same, released rows are weighted to the "
        "real class shares, times their own weights; at most 20,000 rows and 1,000,000 values "
        "of each table, and of one at most 25 times as many as of the other (5,000 at least), "
        "drawn at random. Interval: 200 bootstrap resamples of the predictions within table and "
        "class; models are not refitted, which makes it too narrow for tables of "
        "some hundred rows."
    )
    cost: ClassVar[str] = "about 5 seconds (about 15 for 784 pixels)"

    def compute(self, evaluation: Evaluation) -> Scores:
        rows = pooled(evaluation)
        columns = [*feature_columns(evaluation), evaluation.dataset.schema.label]
        rng = evaluation.generator("discriminator")
        kept = _drawn(rows, len(columns), rng)
        records = record_distance.identities(
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
            areas.append(auroc(released.astype(np.int64), predictions))

        def statistic(counts: Array) -> Array:
            weighted = counts * weights[:, None]
            mean: Array = np.mean([area(weighted) for area in areas], axis=0)
            return mean

        estimate = bootstrap.bootstrap(
            statistic, rows.strata[kept], evaluation.generator("bootstrap/joint"), RESAMPLES
        )
        return Scores((estimate.score(self, "discriminator/auc"),))


@final
class PropensityError(Metric):
    """Mean squared difference of propensities from those of indistinguishable tables."""

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
        "real class shares. Absent above 300 parameters; the ratio needs 10 effective released "
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
        weights = np.abs(rows.signed(np.ones((len(rows.frame), 1))))[:, 0] / 2
        released = np.arange(len(weights)) >= rows.real
        model = fit_propensity(Design.of(rows, columns), released, weights)

        def statistic(counts: Array) -> Array:
            return model.resampled(np.abs(rows.signed(counts)) / 2)

        # The resamples of the other metrics of both tables.
        rng = evaluation.generator("bootstrap/fidelity")
        samples = bootstrap.bootstrap(statistic, rows.strata, rng, RESAMPLES).samples
        low, high = Estimate(model.pmse, samples).distance_interval(SHARE**2)
        value = self.score("pmse", model.pmse, low, high)
        label = evaluation.dataset.schema.label
        free, within = evaluation.reference(
            "fidelity/propensity",
            lambda rng: null_parameters(
                _design(rows, columns)[: rows.real],
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


def null_expectation(rows: PooledRows, within: Array) -> float:
    """Expected pMSE of rows drawn from the training rows, class by class, with these weights.

    To first order p - c = c (1 - c) x'b for whitened x, where b has the variance of the score over
    the squared information: E = (1 - c)^2 sum w_i^2 T_i over released rows whose weights sum to c,
    all weights summing to one, with T_i the variance within the class (`null_parameters`). For
    equal weights and one class, T = k - 1 and w = 1 / N, this is (k - 1)(1 - c)^2 c / N.
    """
    labels = rows.strata[rows.real :] - 1
    weights = SHARE * rows.released_weights
    return float((1.0 - SHARE) ** 2 * (np.square(weights) @ within[labels]))


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
        # Dealing continues where it stopped, so that few records of a kind do not share a fold.
        folds[shuffled] = (dealt + np.arange(len(shuffled))) % FOLDS
        dealt += len(shuffled)
    return folds[of_row]


def _drawn(rows: PooledRows, columns: int, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Rows of both tables, as many as the discriminator takes."""
    most = max(FOLDS, min(MOST_ROWS, MOST_VALUES // columns))
    smaller = min(rows.real, len(rows.frame) - rows.real)
    most = min(most, max(LEAST_ROWS, MOST_TIMES * smaller))
    kept = []
    for start, stop in ((0, rows.real), (rows.real, len(rows.frame))):
        table = np.arange(start, stop)
        if len(table) > most:
            table = np.sort(rng.choice(table, most, replace=False))
        kept.append(table)
    return np.concatenate(kept)


def _balanced(rows: PooledRows, kept: npt.NDArray[np.intp]) -> Array:
    """Weights: mean 1 in the smaller table, and the same sum in the larger one."""
    weights = np.abs(rows.signed(np.ones((len(rows.frame), 1))))[kept, 0]
    released = kept >= rows.real
    smaller = min(int(released.sum()), int((~released).sum()))
    for table in (released, ~released):
        weights[table] *= smaller / weights[table].sum()
    result: Array = weights
    return result


def _plain(rows: PooledRows, column: Column) -> Array:
    if isinstance(column, Numeric):
        return rows.numbers(column.name)
    return rows.codes(column.name).astype(np.float64)


def _terms(column: Column) -> int:
    return len(column.categories) - 1 if isinstance(column, Categorical) else 1


def _design(rows: PooledRows, columns: list[Column]) -> Array:
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
    """Predictions for the held-out rows of a model of the others."""
    parameters = {**TREES, "objective": "binary:logistic"}
    types: dict[str, Any] = {"feature_types": kinds, "enable_categorical": True}
    columns = {"label": released[~held], "weight": weights[~held], **types}
    booster = grow_trees(features[~held], columns, parameters, rng)
    return ask_trees(booster, features[held], **types)


# Logistic propensity model -----------------------------------------------------------------------
#
# How likely is a row a released one? Every row has a weight; released rows and training rows weigh
# one half each, so that the share c of released rows is 1/2 for releases of any size.


@final
@dataclass(frozen=True)
class Design:
    """A matrix with few entries per row: one number per column of a table."""

    places: npt.NDArray[np.int32]
    """(rows, entries): columns of the matrix."""
    values: Array
    """The numbers there; all others are zero."""
    width: int

    @classmethod
    def of(cls, rows: PooledRows, columns: list[Column]) -> Design:
        """Numeric columns in units of the public range, and indicators of categories but one."""
        places, values = [], []
        start = 0
        for column in columns:
            if isinstance(column, Numeric):
                places.append(np.full(len(rows.frame), start))
                values.append(rows.numbers(column.name) / (column.high - column.low))
            else:
                codes = rows.codes(column.name)
                places.append(start + np.maximum(codes - 1, 0))
                values.append((codes > 0).astype(np.float64))
            start += _terms(column)
        # A column with one category has no term; its zeros stand in some column.
        place = np.minimum(np.column_stack(places), max(0, start - 1)).astype(np.int32)
        return cls(place, np.column_stack(values), start)

    @classmethod
    def dense(cls, columns: Array) -> Design:
        """A matrix in which any entry can be other than zero."""
        places = np.broadcast_to(np.arange(columns.shape[1], dtype=np.int32), columns.shape)
        return cls(np.ascontiguousarray(places), np.ascontiguousarray(columns), columns.shape[1])

    def times(self, factors: Array) -> Array:
        """This matrix times (columns, k) numbers."""
        from bench.metrics.fidelity import _design_kernel

        result = np.zeros((len(self.places), factors.shape[1]))
        _design_kernel.times(self.places, self.values, np.ascontiguousarray(factors), result)
        return result

    def transposed_times(self, factors: Array) -> Array:
        """The transposed matrix times (rows, k) numbers."""
        from bench.metrics.fidelity import _design_kernel

        result = np.zeros((self.width, factors.shape[1]))
        factors = np.ascontiguousarray(factors)
        _design_kernel.transposed_times(self.places, self.values, factors, result)
        return result

    def gram(self, weights: Array) -> Array:
        """Sum over rows of weight x row' x row."""
        from bench.metrics.fidelity import _design_kernel

        half = np.zeros((self.width, self.width))
        _design_kernel.gram(self.places, self.values, np.ascontiguousarray(weights), half)
        # Entries of one row are in ascending columns: the lower triangle is whole, the upper empty.
        result: Array = half + half.T
        result[np.diag_indices_from(result)] -= np.diagonal(half)
        return result


@final
@dataclass(frozen=True)
class _Whitened:
    """A design in uncorrelated columns of mean 0 and variance 1, after a column of ones."""

    design: Design
    mean: Array
    directions: Array
    """(columns, parameters but one)."""

    @classmethod
    def of(cls, design: Design, weights: Array) -> _Whitened:
        mean = design.transposed_times(weights[:, None])[:, 0]
        covariance = design.gram(weights) - np.outer(mean, mean)
        values, vectors = _varying(covariance)
        return cls(design, mean, vectors / np.sqrt(values))

    @property
    def parameters(self) -> int:
        return 1 + int(self.directions.shape[1])

    def times(self, coefficients: Array) -> Array:
        """(rows, k) from (parameters, k)."""
        slopes = self.directions @ coefficients[1:]
        result: Array = self.design.times(slopes) + (coefficients[0] - self.mean @ slopes)
        return result

    def transposed_times(self, factors: Array) -> Array:
        """(parameters, k) from (rows, k)."""
        totals = factors.sum(axis=0)
        centred = self.design.transposed_times(factors) - np.outer(self.mean, totals)
        return np.concatenate([totals[None], self.directions.T @ centred])

    def gram(self, weights: Array) -> Array:
        """(parameters, parameters): sum over rows of weight x row' x row."""
        total = float(weights.sum())
        sums = self.design.transposed_times(weights[:, None])[:, 0]
        crossed = np.outer(sums, self.mean)
        centred = self.design.gram(weights) - crossed - crossed.T
        centred += total * np.outer(self.mean, self.mean)
        result = np.empty((self.parameters, self.parameters))
        result[0, 0] = total
        result[0, 1:] = result[1:, 0] = (sums - total * self.mean) @ self.directions
        result[1:, 1:] = self.directions.T @ centred @ self.directions
        return result


@final
@dataclass(frozen=True)
class PropensityModel:
    """A fitted model."""

    rows: _Whitened
    probabilities: Array
    released: npt.NDArray[np.bool_]
    weights: Array
    """Weights of the rows, of sum one."""
    curvature: Array
    """Minus the second derivative of the log-likelihood."""

    @property
    def pmse(self) -> float:
        """Weighted mean of (p - c)^2."""
        return float(self.weights @ np.square(self.probabilities - SHARE))

    def resampled(self, weights: Array) -> Array:
        """pMSE under other weights, (rows, resamples): one Newton step from the fitted model."""
        residuals = (self.released - self.probabilities)[:, None] * weights
        steps: Array = np.linalg.solve(
            self.curvature, self.rows.transposed_times(residuals)
        ).astype(np.float64, copy=False)
        moved = self.rows.times(steps)
        moved += np.log(self.probabilities / (1.0 - self.probabilities))[:, None]
        # (p - 1/2)^2 of a logistic p is (tanh(odds / 2) / 2)^2: in single precision, which is
        # exact to 1e-7 where an interval needs three digits.
        half = (0.5 * moved).astype(np.float32)
        np.tanh(half, out=half)
        np.square(half, out=half)
        result: Array = np.einsum("ij,ij->j", weights, half.astype(np.float64)) / 4.0
        return result


def fit_propensity(
    columns: Array | Design, released: npt.NDArray[np.bool_], weights: Array
) -> PropensityModel:
    """Maximum likelihood by Newton's method."""
    design = columns if isinstance(columns, Design) else Design.dense(columns)
    rows = _Whitened.of(design, weights)
    coefficients = np.zeros(rows.parameters)
    odds = np.zeros(len(weights))
    loss = _loss(odds, released, weights)
    ridge = _RIDGE * np.eye(rows.parameters)
    for _ in range(_STEPS):
        p = _logistic(odds)
        curvature = rows.gram(weights * p * (1.0 - p)) + ridge
        score = rows.transposed_times((weights * (released - p))[:, None])[:, 0]
        step: Array = np.linalg.solve(curvature, score - _RIDGE * coefficients).astype(
            np.float64, copy=False
        )
        along = rows.times(step[:, None])[:, 0]
        length, better = 1.0, np.inf
        while length > 1e-6:
            better = _loss(odds + length * along, released, weights)
            if better <= loss:
                break
            length /= 2
        if loss - better < _ENOUGH:
            break
        coefficients, odds, loss = coefficients + length * step, odds + length * along, better
    else:
        p = _logistic(odds)
        curvature = rows.gram(weights * p * (1.0 - p)) + ridge
    return PropensityModel(rows, p, released, weights, curvature)


def independent(columns: Array, weights: Array) -> Array:
    """The same space of columns, as uncorrelated ones of mean 0 and variance 1."""
    centred, values, vectors = _principal(columns, weights)
    result: Array = centred @ (vectors / np.sqrt(values))
    return result


def null_parameters(
    columns: Array, labels: npt.NDArray[np.integer], classes: int
) -> tuple[int, Array]:
    """Free parameters of the real rows, and the variance within each class in these units.

    The variance is the trace of the class's covariance after all rows were whitened; for a single
    class it is the number of free parameters.
    """
    white = independent(columns, np.full(len(columns), 1.0 / len(columns)))
    within = np.full(classes, float(white.shape[1]))
    for label in np.unique(labels):
        within[label] = white[labels == label].var(axis=0).sum()
    return white.shape[1], within


def _principal(columns: Array, weights: Array) -> tuple[Array, Array, Array]:
    """Centred columns, variances and directions of those combinations that vary."""
    centred = columns - weights @ columns
    return (centred, *_varying((centred * weights[:, None]).T @ centred))


def _varying(covariance: Array) -> tuple[Array, Array]:
    """Variances and directions of those combinations of columns that vary."""
    values, vectors = np.linalg.eigh(covariance)
    kept = values > 1e-9 * max(1.0, float(values.max(initial=0.0)))
    return values[kept], vectors[:, kept]


def _logistic(odds: Array) -> Array:
    # Beyond 30 the probability is 1 to all digits that matter, and its logarithm is still finite.
    result: Array = 1.0 / (1.0 + np.exp(-np.clip(odds, -30.0, 30.0)))
    return result


def _loss(odds: Array, released: npt.NDArray[np.bool_], weights: Array) -> float:
    return float(weights @ (np.logaddexp(0.0, odds) - released * odds))
