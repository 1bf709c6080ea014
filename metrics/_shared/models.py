"""Downstream models: trained on released rows, asked about real ones.

Settings are those of the zero-order paper's section 4.7. Fitting takes `Examples`, whoever they
come from, so that the same model can be trained on real rows for comparison; the functions at the
end train on the release of an evaluation, once for all metrics. A model that was itself released
stands in for each of these. The classifiers beside XGBoost are in `_classifiers`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import Encoder, Evaluation, Floats, Integers, NotComputable, ReleasedModel

if TYPE_CHECKING:
    import xgboost

Array = npt.NDArray[np.float64]

ROUNDS = 100
TREES: dict[str, Any] = {"learning_rate": 0.1, "max_depth": 5, "subsample": 0.7, "verbosity": 0}
"""Section 4.7. No early stopping: `up to 100 rounds` needs rows to stop on, a release has none."""

COX_PENALTY = 0.1
"""L2 penalty on standardised columns, in the units of lifelines, which divides the likelihood by
the number of rows.

Section 4.7 says "strength 1" without units. On SEER, 0.1 gives the hazard ratios of the paper's
table 5(b) and its C-index; 1 shrinks the ratios to a third.
"""

SHORTEST_TIME = 1e-3
"""The AFT model sees log(time). Shorter times than this share of the public bound count as it:
noisy releases hold times that decoding clipped to zero."""

_ROWS_WORTH_THREADS = 100_000
"""Below, one thread is faster: on a busy machine threads that wait for each other cost seconds a
model. The trees are the same for any number of threads."""


@final
@dataclass(frozen=True)
class Examples:
    """Rows to train on, as a model wants them."""

    features: Floats
    labels: Integers
    """Class codes; for survival 1 is the event and 0 is censored."""
    weights: Array
    """Of mean 1: penalties and least leaf sizes then mean the same for every release."""
    times: Array | None
    """In the units of the schema; None without a time column."""
    soft_labels: Floats | None = None
    """(rows, classes) shares, for models that take them; trees do not."""

    @classmethod
    def of(
        cls,
        encoder: Encoder,
        values: Floats,
        labels: Integers,
        weights: Floats | None = None,
        soft_labels: Floats | None = None,
    ) -> Examples:
        """Split encoded rows into features and time. Rows without weight are left out."""
        given = np.ones(len(labels)) if weights is None else np.asarray(weights, dtype=np.float64)
        kept = given > 0
        if not kept.any():
            raise NotComputable("every row has weight 0")
        values, labels = np.asarray(values)[kept], np.asarray(labels)[kept]
        time = encoder.schema.time
        times = None
        if time is not None:
            times = encoder.decode(values, labels)[time.name].to_numpy(dtype=np.float64)
        mean_one = given[kept] / given[kept].mean()
        soft = None if soft_labels is None else np.asarray(soft_labels)[kept]
        return cls(values[:, : encoder.feature_width], labels, mean_one, times, soft)

    def totals(self, classes: int) -> Array:
        """Weight of each class; a classifier needs two that have any."""
        totals = np.zeros(classes)
        np.add.at(totals, self.labels, self.weights)
        if np.count_nonzero(totals) < 2:
            raise NotComputable(
                "the training rows hold one class only: no classifier can be trained"
            )
        return totals

    def survival_times(self) -> Array:
        """Times of rows that a survival model can be trained on."""
        if self.times is None:
            raise NotComputable("the training rows have no time column")
        if not (self.labels == 1).any():
            raise NotComputable("no training row has the event: no survival model can be trained")
        return self.times


@final
@dataclass(frozen=True)
class TreeClassifier(ReleasedModel):
    """Gradient-boosted trees with a logistic (two classes) or softmax loss."""

    booster: xgboost.Booster

    def predict(self, values: Floats) -> Array:
        probabilities = _ask(self.booster, values)
        if probabilities.ndim == 1:
            return np.column_stack([1.0 - probabilities, probabilities])
        return probabilities


@final
@dataclass(frozen=True)
class TreeSurvival(ReleasedModel):
    """Accelerated failure time; the risk is minus the predicted log time."""

    booster: xgboost.Booster

    def predict(self, values: Floats) -> Array:
        return -_ask(self.booster, values, output_margin=True)


@final
@dataclass(frozen=True)
class LinearRisk(ReleasedModel):
    """Log hazard of a Cox model, up to a constant."""

    coefficients: Array

    def predict(self, values: Floats) -> Array:
        return np.asarray(values, dtype=np.float64) @ self.coefficients


def fit_tree_classifier(
    examples: Examples, classes: int, rng: np.random.Generator, threads: int = 1
) -> TreeClassifier:
    """XGBoost of section 4.7 with class weighting; soft labels are not used.

    Two classes: scale_pos_weight is the total weight of the negatives over that of the positives.
    More: each class gets the same total weight, which is the same thing up to a constant.
    """
    totals = examples.totals(classes)
    weights = examples.weights
    parameters = {**TREES, "objective": "binary:logistic"}
    if classes == 2:
        parameters["scale_pos_weight"] = totals[0] / totals[1]
    else:
        parameters |= {"objective": "multi:softprob", "num_class": classes}
        present = totals[examples.labels]
        weights = weights * totals.sum() / (np.count_nonzero(totals) * present)
    labels = {"label": examples.labels, "weight": weights}
    return TreeClassifier(_grow(examples.features, labels, parameters, rng, threads))


def fit_tree_survival(
    examples: Examples, longest: float, rng: np.random.Generator, threads: int = 1
) -> TreeSurvival:
    """XGBoost with the AFT loss: log times are normal with scale 1 (section 4.7).

    Times are divided by the interquartile range of the event times, or by their median where that
    is zero (equation 1 of the zero-order paper), both of the rows handed in. A censored row is an
    interval without upper end.
    """
    times = np.maximum(examples.survival_times(), SHORTEST_TIME * longest)
    scaled = times / time_scale(times[examples.labels == 1])
    bounds = {
        "label_lower_bound": scaled,
        "label_upper_bound": np.where(examples.labels == 1, scaled, np.inf),
        "weight": examples.weights,
    }
    parameters = {
        **TREES,
        "objective": "survival:aft",
        "aft_loss_distribution": "normal",
        "aft_loss_distribution_scale": 1.0,
    }
    return TreeSurvival(_grow(examples.features, bounds, parameters, rng, threads))


def time_scale(event_times: Array) -> float:
    """Equation 1 of the zero-order paper."""
    low, median, high = np.quantile(event_times, [0.25, 0.5, 0.75])
    return float(high - low) if high > low else float(median)


def fit_cox(examples: Examples) -> LinearRisk:
    """Cox's proportional hazards by lifelines, L2 penalty (section 4.7; see COX_PENALTY).

    Columns that are constant in the examples say nothing about risk and get the coefficient 0.
    """
    from lifelines import CoxPHFitter
    from lifelines.exceptions import ConvergenceError, ConvergenceWarning, StatisticalWarning

    times = examples.survival_times()
    features = np.asarray(examples.features, dtype=np.float64)
    varying = np.flatnonzero(features.std(axis=0) > 1e-9)
    if not len(varying):
        raise NotComputable("every feature of the training rows is constant: no Cox model fits")
    frame = pd.DataFrame(features[:, varying], columns=[f"x{column}" for column in varying])
    frame["time"], frame["event"] = times, examples.labels
    frame["weight"] = examples.weights
    fitter = CoxPHFitter(penalizer=COX_PENALTY, l1_ratio=0.0)
    try:
        with warnings.catch_warnings():
            # Both speak about standard errors and unpenalised fits, neither is used here: the
            # penalty keeps the coefficients finite, and weights need not be whole numbers.
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", StatisticalWarning)
            fitter.fit(frame, duration_col="time", event_col="event", weights_col="weight")
    except ConvergenceError as problem:
        reason = str(problem).strip().splitlines()[0]
        raise NotComputable(f"the Cox model did not converge ({reason})") from problem
    coefficients = np.zeros(features.shape[1])
    coefficients[varying] = fitter.params_.to_numpy(dtype=np.float64)
    return LinearRisk(coefficients)


def _grow(
    features: Floats,
    columns: dict[str, Any],
    parameters: dict[str, Any],
    rng: np.random.Generator,
    threads: int,
) -> xgboost.Booster:
    import xgboost

    threads = threads if len(features) >= _ROWS_WORTH_THREADS else 1
    seed = int(rng.integers(2**31))
    matrix = xgboost.DMatrix(features, nthread=threads, **columns)
    return xgboost.train({**parameters, "seed": seed, "nthread": threads}, matrix, ROUNDS)


def _ask(booster: xgboost.Booster, values: Floats, output_margin: bool = False) -> Array:
    import xgboost

    matrix = xgboost.DMatrix(np.asarray(values), nthread=1)
    return np.asarray(booster.predict(matrix, output_margin=output_margin), dtype=np.float64)


# Models of one evaluation ------------------------------------------------------------------------


def released_examples(evaluation: Evaluation) -> Examples:
    """The released rows to train on."""
    rows = evaluation.rows
    return evaluation.shared(
        "examples",
        lambda: Examples.of(
            evaluation.dataset.encoder, rows.values, rows.labels, rows.weights, rows.soft_labels
        ),
    )


def real_examples(evaluation: Evaluation) -> Examples:
    """The real training rows, for the same models trained on them."""
    dataset = evaluation.dataset
    rows = dataset.train.rows
    return evaluation.shared(
        "examples/train", lambda: Examples.of(dataset.encoder, rows.values, rows.labels)
    )


def real_test_features(evaluation: Evaluation) -> Floats:
    """Features of the real test rows, which models are asked about."""
    dataset = evaluation.dataset
    if not len(dataset.test):
        raise NotComputable("the dataset has no test rows")
    return dataset.test.rows.values[:, : dataset.encoder.feature_width]


def tree_classifier(evaluation: Evaluation) -> ReleasedModel:
    """XGBoost trained on the release."""
    return _trained(
        evaluation,
        "xgboost",
        lambda rng: fit_tree_classifier(
            released_examples(evaluation),
            len(evaluation.dataset.schema.classes),
            rng,
            evaluation.threads,
        ),
    )


def real_tree_classifier(evaluation: Evaluation) -> TreeClassifier:
    """The same XGBoost trained on the real training rows, once for all releases."""
    classes = len(evaluation.dataset.schema.classes)
    return evaluation.reference(
        "model/xgboost",
        lambda rng: fit_tree_classifier(
            real_examples(evaluation), classes, rng, evaluation.threads
        ),
    )


def tree_survival(evaluation: Evaluation) -> ReleasedModel:
    """XGBoost-AFT trained on the release."""
    time = evaluation.dataset.schema.time
    longest = 0.0 if time is None else time.high
    return _trained(
        evaluation,
        "xgboost-aft",
        lambda rng: fit_tree_survival(
            released_examples(evaluation), longest, rng, evaluation.threads
        ),
    )


def cox(evaluation: Evaluation) -> ReleasedModel:
    """Cox model trained on the release; it needs no randomness."""
    return _trained(evaluation, "cox", lambda rng: fit_cox(released_examples(evaluation)))


def _trained(
    evaluation: Evaluation, name: str, fit: Callable[[np.random.Generator], ReleasedModel]
) -> ReleasedModel:
    released = evaluation.predictor
    if released is not None:
        return released
    return evaluation.shared(("model", name), lambda: fit(evaluation.generator(f"model/{name}")))


def one_score(model: ReleasedModel, features: Floats) -> Array:
    """One number a row, higher for the second class: a probability, a risk or a margin."""
    answers = _answers(model, features)
    if answers.ndim == 2 and answers.shape[1] == 2:
        return answers[:, 1]
    if answers.ndim == 1:
        return answers
    raise NotComputable(f"the model answers with {answers.shape[1]} columns; expected 1 or 2")


def class_scores(model: ReleasedModel, features: Floats, classes: int) -> Array:
    """One number a row and class."""
    answers = _answers(model, features)
    if answers.ndim == 1 and classes == 2:
        return np.column_stack([1.0 - answers, answers])
    if answers.ndim == 2 and answers.shape[1] == classes:
        return answers
    raise NotComputable(
        f"the model answers in shape {answers.shape}; expected one column for each of "
        f"{classes} classes"
    )


def _answers(model: ReleasedModel, features: Floats) -> Array:
    answers = np.asarray(model.predict(features), dtype=np.float64)
    if answers.ndim not in (1, 2) or len(answers) != len(features):
        raise NotComputable(
            f"the model answers in shape {answers.shape} to {len(features)} rows of features"
        )
    broken = int(np.count_nonzero(~np.isfinite(answers)))
    if broken:
        raise NotComputable(f"{broken} predictions of the model are NaN or infinite")
    return answers
