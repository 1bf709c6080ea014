"""XGBoost as in the zero-order authors' demos: shallow trees, stopped on validation rows.

Section 4.7 of the paper says depth 5 and "up to 100 rounds", which `downstream_models` reads as
100. The demos have depth 3, and as many rounds as have the lowest loss on validation rows: up to
15,000 with a patience of 250 for classes, up to 1,000 with one of 50 for survival. On SEER the
latter is the paper's full-data score, the former is not. The validation rows are real rows that no
release has seen. An evaluator may stop on them; a method that does reads private rows.

These are judges for a comparison with the paper, not the shared ones: they take up to ten times as
long, and what they score depends on rows that a user of the release does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bench import Evaluation, NotComputable, ReleasedModel
from bench.metrics._shared.downstream_models import (
    SHORTEST_TIME,
    TREES,
    Examples,
    TreeClassifier,
    TreeSurvival,
    real_examples,
    released_examples,
    time_scale,
)

if TYPE_CHECKING:
    import xgboost

DEPTH: Final = 3
CLASSIFIER: Final = (15_000, 250)
"""Most rounds, and rounds without a lower loss after which no more are tried, for classes."""
SURVIVAL: Final = (1000, 50)
"""The same for survival."""


def demo_classifier(evaluation: Evaluation, real: bool = False) -> ReleasedModel:
    """The demo's classifier, trained on the release (or on the real training rows)."""
    classes = len(evaluation.dataset.schema.classes)

    def fit(examples: Examples, rng: np.random.Generator) -> TreeClassifier:
        return fit_classifier(examples, validation_examples(evaluation), classes, rng)

    if real:
        return evaluation.reference(
            "model/xgboost-demo", lambda rng: fit(real_examples(evaluation), rng)
        )
    if evaluation.predictor is not None:
        return evaluation.predictor
    return fit(released_examples(evaluation), evaluation.generator("model/xgboost-demo"))


def demo_survival(evaluation: Evaluation, real: bool = False) -> ReleasedModel:
    """The demo's AFT model, trained on the release (or on the real training rows)."""
    time = evaluation.dataset.schema.time
    longest = 0.0 if time is None else time.high

    def fit(examples: Examples, rng: np.random.Generator) -> TreeSurvival:
        return fit_survival(examples, validation_examples(evaluation), longest, rng)

    if real:
        return evaluation.reference(
            "model/xgboost-aft-demo", lambda rng: fit(real_examples(evaluation), rng)
        )
    if evaluation.predictor is not None:
        return evaluation.predictor
    return fit(released_examples(evaluation), evaluation.generator("model/xgboost-aft-demo"))


def validation_examples(evaluation: Evaluation) -> Examples:
    """The real validation rows, which only the evaluator uses."""
    dataset = evaluation.dataset
    rows = dataset.validation.rows
    if not len(rows.labels):
        raise NotComputable("the dataset has no validation rows to stop on")
    return evaluation.shared(
        "examples/validation", lambda: Examples.of(dataset.encoder, rows.values, rows.labels)
    )


def fit_classifier(
    examples: Examples, validation: Examples, classes: int, rng: np.random.Generator
) -> TreeClassifier:
    """Trees stopped by cross-entropy; classes have the same total weight on both sides."""

    def columns(rows: Examples) -> Mapping[str, Any]:
        totals = rows.totals(classes)
        balanced = totals.sum() / (np.count_nonzero(totals) * totals[rows.labels])
        return {"label": rows.labels, "weight": rows.weights * balanced}

    objective: dict[str, Any] = (
        {"objective": "binary:logistic"}
        if classes == 2
        else {"objective": "multi:softprob", "num_class": classes}
    )
    return TreeClassifier(
        _stopped(
            objective,
            (examples, columns(examples)),
            (validation, columns(validation)),
            CLASSIFIER,
            rng,
        )
    )


def fit_survival(
    examples: Examples, validation: Examples, longest: float, rng: np.random.Generator
) -> TreeSurvival:
    """Trees stopped by the AFT likelihood; both sides have the examples' time scale."""
    shortest = SHORTEST_TIME * longest
    times = np.maximum(examples.survival_times(), shortest)
    scale = time_scale(times[examples.labels == 1])

    def columns(rows: Examples) -> Mapping[str, Any]:
        scaled = np.maximum(rows.survival_times(), shortest) / scale
        upper = np.where(rows.labels == 1, scaled, np.inf)
        return {
            "label_lower_bound": scaled,
            "label_upper_bound": upper,
            "weight": rows.weights,
        }

    objective = {
        "objective": "survival:aft",
        "aft_loss_distribution": "normal",
        "aft_loss_distribution_scale": 1.0,
    }
    return TreeSurvival(
        _stopped(
            objective,
            (examples, columns(examples)),
            (validation, columns(validation)),
            SURVIVAL,
            rng,
        )
    )


def _stopped(
    objective: Mapping[str, Any],
    train: tuple[Examples, Mapping[str, Any]],
    validation: tuple[Examples, Mapping[str, Any]],
    rounds: tuple[int, int],
    rng: np.random.Generator,
) -> xgboost.Booster:
    """The trees up to the round with the lowest loss on the validation rows."""
    import xgboost

    most, patience = rounds
    matrices = [
        xgboost.DMatrix(rows.features, nthread=1, **columns)
        for rows, columns in (train, validation)
    ]
    booster = xgboost.train(
        {
            **TREES,
            **objective,
            "max_depth": DEPTH,
            "seed": int(rng.integers(2**31)),
            "nthread": 1,
        },
        matrices[0],
        most,
        evals=[(matrices[1], "validation")],
        early_stopping_rounds=patience,
        verbose_eval=False,
    )
    return booster[: booster.best_iteration + 1]
