"""Teachers of zero-order condensation, fitted on raw rows, or on synthetic ones to compare.

Settings are those of the zero-order paper, section 4.7: trees with learning rate 0.1, depth 5, 70%
of the rows per tree and 100 rounds; Cox's model with an L2 penalty; AFT with a normal distribution
of scale 1 and times divided by the scale of equation 1. "Up to" 100 rounds is read as 100, and
hyperparameters are not tuned on validation rows. Classes weigh the same in total ("where
appropriate" in the paper), because the synthetic labels are balanced. Strength 1 of the penalty has
no units in the paper; 0.1 in those of lifelines reproduces its hazard ratios.

The authors' demos have other trees: depth 3, and the number of rounds with the lowest loss on
validation rows, which `fit` takes as `validation`: up to 15,000 with a patience of 250 for classes,
up to 1,000 with one of 50 for survival.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
import numpy.typing as npt

from bench import NotApplicable
from bench.methods._shared.cox import cox_coefficients
from bench.methods.zero_order._differences import BlackBox, FittedTeacher, Linear, Trees

if TYPE_CHECKING:
    import xgboost

Array = npt.NDArray[np.float64]

TeacherKind = Literal["xgboost", "logistic", "forest", "svm", "cox", "aft"]
CLASSIFIERS: tuple[TeacherKind, ...] = ("xgboost", "logistic", "forest", "svm")
SURVIVAL: tuple[TeacherKind, ...] = ("cox", "aft")

_ROUNDS = 100
_DEMO_DEPTH = 3
_DEMO_CLASSIFIER = (15_000, 250)
"""Most rounds of the demo, and rounds without a lower loss after which no more are tried."""
_DEMO_SURVIVAL = (1000, 50)
_TREES: dict[str, Any] = {
    "learning_rate": 0.1,
    "max_depth": 5,
    "subsample": 0.7,
    "verbosity": 0,
    "nthread": 1,
}
_PENALTY = 0.1
_SVM_ROWS = 5000
"""The exact kernel of more rows takes minutes; a sample of each class's share stands in."""


@final
@dataclass(frozen=True)
class LabelledRows:
    """Rows to fit a model to, or to evaluate it on."""

    features: Array
    labels: npt.NDArray[np.integer]
    """Classes, or 1 for an event and 0 for a censored row."""
    times: Array | None
    """Divided by the scale of equation 1; None without a time column."""
    classes: int

    def refuse_unfit(self) -> None:
        """Refuse rows without events, or that lack a class: no teacher can be fitted."""
        counts = np.bincount(self.labels, minlength=self.classes)
        if self.times is not None:
            if not counts[1]:
                raise NotApplicable("no training row has the event: there is nothing to learn")
        elif not counts.all():
            raise NotApplicable("a class has no training rows: no teacher can learn it")

    def weights(self) -> Array:
        """Weights with the same total for each class, 1 per row on average."""
        counts = np.bincount(self.labels, minlength=self.classes)
        weights: Array = len(self.labels) / (np.count_nonzero(counts) * counts[self.labels])
        return weights


def fit(
    kind: TeacherKind,
    examples: LabelledRows,
    rng: np.random.Generator,
    validation: LabelledRows | None = None,
) -> FittedTeacher:
    """Fit a model of probabilities of classes, log risks (Cox) or log times (AFT).

    With `validation` rows, boosted trees are those of the authors' demos, stopped on these rows;
    other models do not use them.
    """
    seed = int(rng.integers(2**31))
    if kind == "xgboost":
        return _xgboost(examples, seed, validation)
    if kind == "aft":
        return _aft(examples, seed, validation)
    fits: dict[TeacherKind, Callable[[LabelledRows, int], FittedTeacher]] = {
        "logistic": _logistic,
        "forest": _forest,
        "svm": _svm,
        "cox": _cox,
    }
    return fits[kind](examples, seed)


def quality(kind: TeacherKind, model: FittedTeacher, examples: LabelledRows) -> float:
    """AUROC (one class against the rest, averaged over classes present) or C-index; NaN if none."""
    predictions = model.predict(examples.features)
    if examples.times is None:
        columns = predictions if model.outputs > 1 else np.hstack([-predictions, predictions])
        scores = [_auroc(columns[:, c], examples.labels == c) for c in range(examples.classes)]
        kept = [score for score in scores if not np.isnan(score)]
        return float(np.mean(kept)) if kept else float("nan")
    if not (examples.labels == 1).any():
        return float("nan")
    from lifelines.utils import concordance_index

    longer = predictions[:, 0] if kind == "aft" else -predictions[:, 0]
    try:
        return float(concordance_index(examples.times, longer, examples.labels == 1))
    except ZeroDivisionError:  # no two rows can be compared
        return float("nan")


def _auroc(scores: Array, positive: npt.NDArray[np.bool_]) -> float:
    from scipy.stats import rankdata

    positives, negatives = int(positive.sum()), int((~positive).sum())
    if not positives or not negatives:
        return float("nan")
    ranks = rankdata(scores)[positive].sum() - positives * (positives + 1) / 2
    return float(ranks / (positives * negatives))


def time_scale(times: Array, events: npt.NDArray[np.integer]) -> float:
    """Equation 1: the interquartile range of the event times, or their median where it is 0."""
    happened = times[np.asarray(events) == 1]
    low, median, high = np.quantile(happened, [0.25, 0.5, 0.75])
    scale = float(high - low) if high > low else float(median)
    return scale if scale > 0 else 1.0


def _xgboost(examples: LabelledRows, seed: int, validation: LabelledRows | None) -> FittedTeacher:
    import xgboost

    def table(rows: LabelledRows) -> xgboost.DMatrix:
        return xgboost.DMatrix(rows.features, rows.labels, weight=rows.weights(), nthread=1)

    objective: dict[str, Any] = (
        {"objective": "binary:logistic"}
        if examples.classes == 2
        else {"objective": "multi:softprob", "num_class": examples.classes}
    )
    booster = _grown(
        {**_TREES, **objective, "seed": seed},
        table(examples),
        None if validation is None else table(validation),
        _DEMO_CLASSIFIER,
    )
    return Trees.of(booster, output="probability")


def _aft(examples: LabelledRows, seed: int, validation: LabelledRows | None) -> FittedTeacher:
    import xgboost

    def table(rows: LabelledRows) -> xgboost.DMatrix:
        assert rows.times is not None
        matrix = xgboost.DMatrix(rows.features, nthread=1)
        matrix.set_float_info("label_lower_bound", rows.times)
        censored = np.where(rows.labels == 1, rows.times, np.inf)
        matrix.set_float_info("label_upper_bound", censored)
        return matrix

    parameters = {
        **_TREES,
        "objective": "survival:aft",
        "aft_loss_distribution": "normal",
        "aft_loss_distribution_scale": 1.0,
        "seed": seed,
    }
    booster = _grown(
        parameters,
        table(examples),
        None if validation is None else table(validation),
        _DEMO_SURVIVAL,
    )
    return Trees.of(booster, output="margin")


def _grown(
    parameters: dict[str, Any],
    examples: xgboost.DMatrix,
    validation: xgboost.DMatrix | None,
    demo: tuple[int, int],
) -> xgboost.Booster:
    """Trees of section 4.7, or those of the demo up to the lowest loss on validation rows."""
    import xgboost

    if validation is None:
        return xgboost.train(parameters, examples, _ROUNDS)
    most, patience = demo
    booster = xgboost.train(
        {**parameters, "max_depth": _DEMO_DEPTH},
        examples,
        most,
        evals=[(validation, "validation")],
        early_stopping_rounds=patience,
        verbose_eval=False,
    )
    return booster[: booster.best_iteration + 1]


def _logistic(examples: LabelledRows, seed: int) -> FittedTeacher:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(class_weight="balanced", max_iter=1000)
    model.fit(examples.features, examples.labels)
    if examples.classes == 2:
        return Linear(model.coef_.T, model.intercept_, link="sigmoid")
    return Linear(model.coef_.T, model.intercept_, link="softmax")


def _forest(examples: LabelledRows, seed: int) -> FittedTeacher:
    from sklearn.ensemble import RandomForestClassifier

    model = RandomForestClassifier(
        n_estimators=100,
        min_samples_leaf=5,
        max_samples=min(5000, len(examples.labels)),
        class_weight="balanced",
        n_jobs=1,
        random_state=seed,
    )
    return _black_box(model.fit(examples.features, examples.labels), examples.classes)


def _svm(examples: LabelledRows, seed: int) -> FittedTeacher:
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.model_selection import StratifiedKFold
    from sklearn.svm import SVC

    order = np.random.default_rng(seed).permutation(len(examples.labels))[:_SVM_ROWS]
    labels = examples.labels[order]
    if np.bincount(labels, minlength=examples.classes).min() < 2:
        raise NotApplicable("an SVM needs two rows of every class to calibrate probabilities")
    # Distances from the boundary are calibrated to probabilities (Platt) by held-out folds.
    folds = StratifiedKFold(min(3, int(np.bincount(labels).min())))
    model = CalibratedClassifierCV(SVC(class_weight="balanced"), ensemble=False, cv=folds)
    return _black_box(model.fit(examples.features[order], labels), examples.classes)


def _black_box(model: Any, classes: int) -> FittedTeacher:
    if classes == 2:
        return BlackBox(lambda rows: model.predict_proba(rows)[:, 1], 1)
    return BlackBox(model.predict_proba, classes)


def _cox(examples: LabelledRows, seed: int) -> FittedTeacher:
    assert examples.times is not None
    coefficients = cox_coefficients(examples.features, examples.times, examples.labels, _PENALTY)
    return Linear(coefficients, -(examples.features.mean(axis=0) @ coefficients)[None])
