"""Models that zero-order condensation asks: fitted on raw rows, or on synthetic ones to compare.

Settings are those of the zero-order paper, section 4.7: trees with learning rate 0.1, depth 5, 70%
of the rows a tree and 100 rounds; Cox's model with an L2 penalty; AFT with a normal law of scale 1
and times divided by the scale of equation 1. "Up to" 100 rounds is read as 100, and hyperparameters
are not tuned on validation rows. Classes weigh the same in total ("where appropriate" in the
paper), because the synthetic labels are balanced. Strength 1 of the penalty has no units in the
paper; 0.1 in those of lifelines gives its hazard ratios.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from bench import NotApplicable
from bench.methods._shared.differences import BlackBox, Linear, Teacher, Trees

Array = npt.NDArray[np.float64]

Kind = Literal["xgboost", "logistic", "forest", "svm", "cox", "aft"]
CLASSIFIERS: tuple[Kind, ...] = ("xgboost", "logistic", "forest", "svm")
SURVIVAL: tuple[Kind, ...] = ("cox", "aft")

_ROUNDS = 100
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
_NEWTON_STEPS = 50


@final
@dataclass(frozen=True)
class Examples:
    """Rows to fit a model to."""

    features: Array
    labels: npt.NDArray[np.integer]
    """Classes, or 1 for an event and 0 for a censored row."""
    times: Array | None
    """Divided by the scale of equation 1; None without a time column."""
    classes: int

    def refuse_unfit(self) -> None:
        """No model without rows of every class, or without events."""
        found = np.bincount(self.labels, minlength=self.classes)
        if self.times is not None:
            if not found[1]:
                raise NotApplicable("no training row has the event: there is nothing to learn")
        elif not found.all():
            raise NotApplicable("a class has no training rows: no teacher knows it")

    def weights(self) -> Array:
        """The same total for each class, one a row on average."""
        counts = np.bincount(self.labels, minlength=self.classes)
        weights: Array = len(self.labels) / (np.count_nonzero(counts) * counts[self.labels])
        return weights


def fit(kind: Kind, examples: Examples, rng: np.random.Generator) -> Teacher:
    """Fit a model: probabilities of classes, log risks (Cox) or log times (AFT)."""
    fits: dict[Kind, Callable[[Examples, int], Teacher]] = {
        "xgboost": _xgboost,
        "logistic": _logistic,
        "forest": _forest,
        "svm": _svm,
        "cox": _cox,
        "aft": _aft,
    }
    return fits[kind](examples, int(rng.integers(2**31)))


def quality(kind: Kind, model: Teacher, examples: Examples) -> float:
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


def _xgboost(examples: Examples, seed: int) -> Teacher:
    import xgboost

    table = xgboost.DMatrix(
        examples.features, examples.labels, weight=examples.weights(), nthread=1
    )
    objective: dict[str, Any] = (
        {"objective": "binary:logistic"}
        if examples.classes == 2
        else {"objective": "multi:softprob", "num_class": examples.classes}
    )
    booster = xgboost.train({**_TREES, **objective, "seed": seed}, table, _ROUNDS)
    return Trees.of(booster, output="probability")


def _aft(examples: Examples, seed: int) -> Teacher:
    import xgboost

    assert examples.times is not None
    table = xgboost.DMatrix(examples.features, nthread=1)
    table.set_float_info("label_lower_bound", examples.times)
    censored = np.where(examples.labels == 1, examples.times, np.inf)
    table.set_float_info("label_upper_bound", censored)
    parameters = {
        **_TREES,
        "objective": "survival:aft",
        "aft_loss_distribution": "normal",
        "aft_loss_distribution_scale": 1.0,
        "seed": seed,
    }
    return Trees.of(xgboost.train(parameters, table, _ROUNDS), output="margin")


def _logistic(examples: Examples, seed: int) -> Teacher:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(class_weight="balanced", max_iter=1000)
    model.fit(examples.features, examples.labels)
    if examples.classes == 2:
        return Linear(model.coef_.T, model.intercept_, link="sigmoid")
    return Linear(model.coef_.T, model.intercept_, link="softmax")


def _forest(examples: Examples, seed: int) -> Teacher:
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


def _svm(examples: Examples, seed: int) -> Teacher:
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


def _black_box(model: Any, classes: int) -> Teacher:
    if classes == 2:
        return BlackBox(lambda rows: model.predict_proba(rows)[:, 1], 1)
    return BlackBox(model.predict_proba, classes)


def _cox(examples: Examples, seed: int) -> Teacher:
    assert examples.times is not None
    coefficients = cox_coefficients(examples.features, examples.times, examples.labels, _PENALTY)
    return Linear(coefficients, -(examples.features.mean(axis=0) @ coefficients)[None])


def cox_coefficients(
    features: Array, times: Array, events: npt.NDArray[np.integer], penalty: float
) -> Array:
    """Log hazard ratios that maximise log L / n - penalty / 2 |b|^2, by Newton's method.

    b is per standard deviation, as in lifelines; ties are Breslow's, as in equation 9 of the paper,
    where lifelines has Efron's. Constant columns get 0.
    """
    spread = features.std(axis=0, ddof=1) if len(features) > 1 else np.zeros(features.shape[1])
    varying = spread > 1e-9
    scale = np.where(varying, spread, 1.0)
    order = np.argsort(-times, kind="stable")
    standard = (((features - features.mean(axis=0)) / scale) * varying)[order]
    falling = times[order]
    last = np.searchsorted(-falling, -falling, side="right") - 1
    happened = np.flatnonzero(np.asarray(events)[order] == 1)
    # Distinct event times, with the number of events at each.
    ends, counts = np.unique(last[happened], return_counts=True)
    # Rows that enter the risk sets between one event time and the next later one.
    block = np.searchsorted(ends, np.arange(len(falling)), side="left")
    total = standard[happened].sum(axis=0)
    size, width = len(features), features.shape[1]

    def parts(point: Array) -> tuple[float, Array, Array]:
        scores = standard @ point
        highest = float(scores.max())
        risks = np.exp(scores - highest)
        sums = np.cumsum(risks)[ends]
        means = np.cumsum(risks[:, None] * standard, axis=0)[ends] / sums[:, None]
        value = float(scores[happened].sum() - counts @ (np.log(sums) + highest))
        # Each row's weight in the information: events that it is at risk of.
        hazard = np.append(np.cumsum((counts / sums)[::-1])[::-1], 0.0)[block]
        information = (standard * (risks * hazard)[:, None]).T @ standard
        information -= (means * counts[:, None]).T @ means
        return value / size, (total - counts @ means) / size, information / size

    def penalised(point: Array, value: float) -> float:
        return value - penalty / 2 * float(point @ point)

    point = np.zeros(width)
    value, gradient, information = parts(point)
    for _ in range(_NEWTON_STEPS):
        slope = gradient - penalty * point
        step = np.linalg.solve(information + penalty * np.eye(width), slope)
        if float(slope @ step) < 1e-12:
            break
        now = penalised(point, value)
        for _ in range(30):
            proposal = point + step
            value, gradient, information = parts(proposal)
            if penalised(proposal, value) >= now - 1e-12 * abs(now):
                break
            step = step / 2
        point = proposal
    result: Array = point / scale * varying
    return result
