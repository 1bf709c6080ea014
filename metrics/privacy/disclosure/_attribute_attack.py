"""The regression attack of the zero-order paper's section 4.6, on whoever's rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

from bench import Categorical, Column, Evaluation, NotComputable
from bench.metrics.privacy.disclosure import _targets
from bench.metrics.privacy.disclosure._targets import Design

if TYPE_CHECKING:
    import xgboost

Array = npt.NDArray[np.float64]

ROUNDS = 100
TREES: dict[str, Any] = {
    "max_depth": 3,
    "learning_rate": 0.1,
    # As scikit-learn's GradientBoostingRegressor: leaves are not shrunk and may be of any size.
    "reg_lambda": 0.0,
    "min_child_weight": 0.0,
    "base_score": 0.0,
    "nthread": 1,
    "verbosity": 0,
}
"""Section 4.6: 100 trees of depth 3, learning rate 0.1."""

REPEATS = 5
"""Section 4.6: five random seeds."""

EXACT_ROWS = 1000
"""Up to here every split is tried and the trees are scikit-learn's, ties aside; beyond, splits
between 256 quantiles of a column, which is some 30 times faster."""


@final
@dataclass(frozen=True)
class Answers:
    """What the attack said about one attribute of some rows."""

    errors: Array
    """Squared error of each row; of several categories their sum."""
    right: npt.NDArray[np.bool_] | None
    """Whether the category was guessed; None for a number."""
    predictions: Array | None
    """For a binary attribute, higher for the second category."""


@final
@dataclass(frozen=True)
class Attacked:
    """All attacks on one attribute."""

    column: Column
    on_train: Answers
    """From all released rows, about the training rows."""
    on_control: Answers
    """The same model, about the control rows."""
    from_released: tuple[Answers, ...]
    """About the training rows, from draws of released rows."""
    from_control: tuple[Answers, ...]
    """The same, from draws of equally many control rows."""


@final
@dataclass(frozen=True)
class Comparison:
    """Draws of equally many rows of the release and of the control rows.

    At most half of the larger table is drawn: draws that hold nearly all of its rows would say
    nothing about how much such an attack varies with the rows it learns from.
    """

    size: int
    released: int
    control: int

    @classmethod
    def of(cls, released: int, control: int) -> Comparison:
        """For two tables of so many rows."""
        size = min(released, control, max(released, control) // 2)
        return cls(size if size >= _targets.LEAST_ROWS else 0, released, control)

    def draws(self, rows: int, rng: np.random.Generator) -> tuple[npt.NDArray[np.intp], ...]:
        """Five draws from a table of so many rows; one where that is the whole table."""
        if not self.size:
            return ()
        repeats = REPEATS if self.size < rows else 1
        return tuple(
            np.sort(rng.choice(rows, self.size, replace=False)).astype(np.intp)
            for _ in range(repeats)
        )


@final
@dataclass(frozen=True)
class Attacks:
    """All attacks that one release is judged by."""

    train: Design
    control: Design
    comparison: Comparison
    attributes: tuple[Attacked, ...]


def attack(evaluation: Evaluation, targets: tuple[Column, ...]) -> Attacks:
    """Train on the release, on equally many control rows, and ask."""
    dataset = evaluation.dataset
    rows = evaluation.rows
    weights = np.ones(len(rows)) if rows.weights is None else np.asarray(rows.weights, np.float64)
    kept = np.flatnonzero(weights > 0)
    if len(kept) < 2:
        raise NotComputable(f"{len(kept)} released rows have a weight: nothing to learn from")
    released = Design.of(dataset.encoder, rows.values[kept], rows.labels[kept])
    weights = weights[kept]
    train = Design.of(dataset.encoder, dataset.train.rows.values, dataset.train.rows.labels)
    control = Design.of(dataset.encoder, dataset.control.rows.values, dataset.control.rows.labels)
    comparison = Comparison.of(len(released), len(control))
    parts = comparison.draws(len(released), evaluation.generator("aia/released"))
    purpose = f"aia/control/{comparison.size}"
    others = evaluation.reference(purpose, lambda rng: comparison.draws(len(control), rng))
    equal = np.ones(len(control))
    blank = released.hard

    def attributes(column: Column) -> Attacked:
        about_train = Judged.of(train, column, blank)
        about_control = Judged.of(control, column, blank)
        whole = trained(released, weights, column, blank)
        return Attacked(
            column,
            whole.asked(about_train),
            whole.asked(about_control),
            tuple(
                trained(released.take(part), weights[part], column, blank).asked(about_train)
                for part in parts
            ),
            evaluation.reference(
                f"{purpose}/{column.name}",
                lambda rng: tuple(
                    trained(control.take(part), equal[part], column, blank).asked(about_train)
                    for part in others
                ),
            ),
        )

    return Attacks(train, control, comparison, tuple(attributes(column) for column in targets))


@final
@dataclass(frozen=True)
class Judged:
    """Rows that a model is asked about: their other columns, and the truth."""

    column: Column
    matrix: xgboost.DMatrix | None
    """None for no rows."""
    truth: Array

    @classmethod
    def of(cls, table: Design, column: Column, blank: bool) -> Judged:
        """One attribute of a table."""
        import xgboost

        matrix = xgboost.DMatrix(table.others(column, blank), nthread=1) if len(table) else None
        return cls(column, matrix, table.target(column))


@final
@dataclass(frozen=True)
class Trained:
    """A model of one attribute."""

    booster: xgboost.Booster
    centre: Array

    def asked(self, judged: Judged) -> Answers:
        """Its answers about some rows."""
        predictions = np.empty(judged.truth.shape)
        if judged.matrix is not None:
            raw = self.booster.predict(judged.matrix)
            predictions = np.asarray(raw, np.float64).reshape(judged.truth.shape) + self.centre
        return _answers(judged.column, judged.truth, predictions)


def trained(table: Design, weights: Array, column: Column, blank: bool) -> Trained:
    """Gradient boosting of one attribute on all other columns; `blank` as in `Design.others`."""
    import xgboost

    values = table.target(column)
    mean_one = weights / weights.mean()
    centre = np.average(values, axis=0, weights=mean_one)
    method = "exact" if len(table) <= EXACT_ROWS else "hist"
    matrix = xgboost.DMatrix(
        table.others(column, blank), label=values - centre, weight=mean_one, nthread=1
    )
    return Trained(xgboost.train({**TREES, "tree_method": method}, matrix, ROUNDS), centre)


def _answers(column: Column, truth: Array, predictions: Array) -> Answers:
    errors: Array = ((truth - predictions) ** 2).sum(axis=1)
    if not isinstance(column, Categorical):
        return Answers(errors, None, None)
    if column.binary:
        # Categories are encoded as -1 and 1: the middle is the threshold 0.5 of section 4.6.
        one = predictions[:, 0]
        return Answers(errors, (one > 0) == (truth[:, 0] > 0), one)
    return Answers(errors, predictions.argmax(axis=1) == truth.argmax(axis=1), None)
