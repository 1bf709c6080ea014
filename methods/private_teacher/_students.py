"""Students: models that people may train on a release, and whether they agree with the teacher.

A release is good where models trained on it rank rows as the teacher does. Judges are rows drawn
from the noisy counts of each class; the agreement of a student is its expected area under the ROC
curve on them if their classes were drawn from the teacher's probabilities,

    sum over rows i, j of p_i (1 - p_j) [s_i > s_j] / (sum of p_i  sum of 1 - p_j),

the mean over classes of one against the rest. It is largest for the teacher's ranking. Four kinds
of students are trained, so that rows do not suit one kind alone: boosted trees (zero-order paper,
section 4.7), a forest, logistic regression, and ridge regression with a Gaussian kernel, which
stands in for support vector machines and networks and has a closed form.

All of it is post-processing of private answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from bench import Floats, Integers
from bench.methods.private_teacher._bins import Array

TREES: dict[str, Any] = {"learning_rate": 0.1, "max_depth": 5, "subsample": 0.7}
TREE_ROUNDS = 100
FOREST: dict[str, Any] = {"learning_rate": 1.0, "max_depth": 8, "subsample": 0.63}
FOREST_TREES = 60
RIDGE = 1.0
KERNEL_ROWS = 1000
"""Most rows that span the kernel."""


@final
@dataclass(frozen=True)
class Judges:
    """Rows that students are asked about, with the teacher's probabilities."""

    values: Floats
    chances: Array
    """(rows, classes)."""
    matrix: Any
    """The same rows as a matrix of XGBoost."""

    @classmethod
    def of(cls, values: Floats, chances: Array) -> Judges:
        """Judges from encoded rows and the teacher's probabilities."""
        import xgboost

        values = np.ascontiguousarray(values, dtype=np.float32)
        return cls(values, chances, xgboost.DMatrix(values, nthread=1))

    def agreement(self, scores: Array) -> float:
        """Agreement of one student's (rows, classes) scores with the teacher."""
        classes = self.chances.shape[1]
        asked = [1] if classes == 2 else range(classes)
        return float(np.mean([expected_area(scores[:, c], self.chances[:, c]) for c in asked]))


def expected_area(scores: Array, chances: Array) -> float:
    """Area under the ROC curve expected for classes drawn with these chances; ties count half."""
    order = np.argsort(scores, kind="stable")
    ranked, positive = scores[order], chances[order]
    negative = 1.0 - positive
    # A row ranks above half of the negatives that it is tied with.
    first = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))
    ends = np.concatenate([np.cumsum(negative)[first[1:] - 1], [negative.sum()]])
    starts = np.concatenate([[0.0], ends[:-1]])
    gained = np.add.reduceat(positive, first)
    whole = positive.sum() * negative.sum()
    return float((gained * (starts + ends) / 2.0).sum() / whole) if whole > 0 else 0.5


Student = Callable[[Floats, Integers, int, Judges, int], Array]
"""(rows, labels, classes, judges, seed) -> (judges, classes) scores."""


def trees(values: Floats, labels: Integers, classes: int, judges: Judges, seed: int) -> Array:
    """Boosted trees."""
    return _boosted(values, labels, classes, judges, {**TREES, "seed": seed}, TREE_ROUNDS)


def forest(values: Floats, labels: Integers, classes: int, judges: Judges, seed: int) -> Array:
    """A forest, with sqrt(columns) of the columns at each split."""
    parameters = {
        **FOREST,
        "seed": seed,
        "colsample_bynode": values.shape[1] ** -0.5,
        "num_parallel_tree": FOREST_TREES,
        "base_score": 0.5,
    }
    return _boosted(values, labels, classes, judges, parameters, 1)


def _boosted(
    values: Floats,
    labels: Integers,
    classes: int,
    judges: Judges,
    parameters: dict[str, Any],
    rounds: int,
) -> Array:
    import xgboost

    sizes = np.bincount(labels, minlength=classes)
    weights = (sizes.sum() / np.count_nonzero(sizes) / np.maximum(sizes, 1))[labels]
    task: dict[str, Any] = {"objective": "binary:logistic"}
    if classes > 2:
        task = {"objective": "multi:softprob", "num_class": classes}
    matrix = xgboost.DMatrix(values, label=labels, weight=weights, nthread=1)
    shared = {**parameters, **task, "nthread": 1, "verbosity": 0}
    answers = xgboost.train(shared, matrix, rounds).predict(judges.matrix, output_margin=True)
    answers = np.asarray(answers, dtype=np.float64)
    return np.column_stack([-answers, answers]) if answers.ndim == 1 else answers


def logistic(values: Floats, labels: Integers, classes: int, judges: Judges, seed: int) -> Array:
    """Logistic regression, classes weighted to the same total."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1.0, max_iter=300, class_weight="balanced")
    answers = np.asarray(model.fit(values, labels).decision_function(judges.values))
    if answers.ndim == 1:
        return np.column_stack([-answers, answers])
    scores = np.full((len(answers), classes), answers.min(initial=0.0))
    scores[:, model.classes_] = answers
    return scores


def kernel(values: Floats, labels: Integers, classes: int, judges: Judges, seed: int) -> Array:
    """Ridge regression of class indicators, Gaussian kernel of width 1 / (columns x variance)."""
    if len(values) > KERNEL_ROWS:
        chosen = np.random.default_rng(seed).choice(len(values), KERNEL_ROWS, replace=False)
        values, labels = values[chosen], labels[chosen]
    width = 1.0 / max(values.shape[1] * float(np.var(values)), 1e-12)
    system = _gaussian_kernel(values, values, width)
    system[np.diag_indices(len(values))] += RIDGE
    targets = np.eye(classes)[labels]
    solved = np.linalg.solve(system, targets - targets.mean(axis=0))
    return np.asarray(_gaussian_kernel(judges.values, values, width) @ solved)


def _gaussian_kernel(left: Floats, right: Floats, width: float) -> Array:
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2.0 * left @ right.T
    closeness: Array = np.exp(-width * np.maximum(squares, 0.0))
    return closeness


STUDENTS: tuple[Student, ...] = (trees, forest, logistic, kernel)


def agreement(values: Floats, labels: Integers, classes: int, judges: Judges, seed: int) -> float:
    """Mean over the students of their agreement with the teacher; 0.5 where one class is left."""
    if len(np.unique(labels)) < 2:
        return 0.5
    rows = np.ascontiguousarray(values, dtype=np.float32)
    asked = [judges.agreement(ask(rows, labels, classes, judges, seed)) for ask in STUDENTS]
    return float(np.mean(asked))
