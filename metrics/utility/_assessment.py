"""Answers of classifiers about real rows, and every score of them.

A model trained on the release and the same model trained on the real training rows are asked
about the same validation and test rows. The real side is computed once for all releases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from bench import Evaluation, Floats, NotComputable, ReleasedModel
from bench.metrics._shared import bootstrap as _bootstrap
from bench.metrics._shared import models as _models
from bench.metrics._shared.bootstrap import Array, Estimate, Statistic
from bench.metrics.utility import _classifiers, _thresholds

SCORES = (
    "auroc",
    "auprc",
    "accuracy",
    "accuracy/prevalence",
    "f1",
    "sensitivity",
    "specificity",
    "ppv",
    "npv",
)

Estimates = Mapping[str, Estimate | NotComputable]
"""By name of the score; or why there is none."""


@final
@dataclass(frozen=True)
class Answers:
    """Of one model about real rows: one number a row and class."""

    test: Array
    validation: Array

    @classmethod
    def of(cls, evaluation: Evaluation, model: ReleasedModel) -> Answers:
        """Ask the model."""
        dataset = evaluation.dataset
        classes = len(dataset.schema.classes)

        def ask(features: Floats) -> Array:
            return _models.class_scores(model, features, classes)

        test = ask(_models.real_test_features(evaluation))
        rows = dataset.validation.rows.values[:, : dataset.encoder.feature_width]
        return cls(test, ask(rows) if len(rows) else np.empty((0, classes)))


def released(evaluation: Evaluation, name: str) -> Answers:
    """Answers of a model trained on the release; for `xgboost` also of a released model."""

    def build() -> Answers:
        if name == "xgboost":
            return Answers.of(evaluation, _models.tree_classifier(evaluation))
        examples, rng = _models.released_examples(evaluation), evaluation.generator(f"model/{name}")
        return Answers.of(evaluation, _classifiers.FITS[name](examples, _classes(evaluation), rng))

    return evaluation.shared(("answers", name), build)


def real(evaluation: Evaluation, name: str) -> Answers:
    """Answers of the same model trained on the real training rows; the model is not kept."""

    def build(rng: np.random.Generator) -> Answers:
        if name == "xgboost":
            return Answers.of(evaluation, _models.real_tree_classifier(evaluation))
        examples = _models.real_examples(evaluation)
        return Answers.of(evaluation, _classifiers.FITS[name](examples, _classes(evaluation), rng))

    return evaluation.reference(f"answers/{name}", build)


def others(evaluation: Evaluation) -> dict[str, Answers | NotComputable]:
    """Answers of the models beside XGBoost: one that cannot be trained leaves the others alone."""
    answers: dict[str, Answers | NotComputable] = {}
    for name in _classifiers.FITS:
        try:
            answers[name] = released(evaluation, name)
        except NotComputable as reason:
            answers[name] = reason
    return answers


def statistics(
    evaluation: Evaluation, answers: Answers, sensitivity: float = _thresholds.SENSITIVITY
) -> dict[str, Statistic | NotComputable]:
    """Every score as a function of weights on the test rows, or why there is none."""
    labels, scores = evaluation.dataset.test.rows.labels, answers.test
    decided, classes = scores.argmax(axis=1), scores.shape[1]
    found: dict[str, Statistic | NotComputable] = {}
    for name, single in (("auroc", _bootstrap.auroc), ("auprc", _bootstrap.auprc)):
        try:
            found[name] = (
                single(labels, scores[:, 1])
                if classes == 2
                else _bootstrap.one_against_rest(single, labels, scores)
            )
        except NotComputable as reason:
            found[name] = reason
    undecided = _undecided(scores)
    found["accuracy"] = _bootstrap.mean(decided == labels) if undecided is None else undecided
    rates = [name for name in SCORES if name not in found]
    if classes > 2:
        several = NotComputable(f"defined for two classes, the dataset has {classes}")
        macro = _thresholds.macro_f1(labels, decided, classes)
        return {**found, **dict.fromkeys(rates, several), "f1": macro}
    try:
        least = _thresholds.threshold(
            evaluation.dataset.validation.rows.labels, answers.validation[:, 1], sensitivity
        )
    except NotComputable as reason:
        return {**found, **dict.fromkeys(rates, reason)}
    counts = evaluation.dataset.counts.by_class
    above = _thresholds.prevalence_threshold(answers.validation[:, 1], counts[1] / sum(counts))
    found["accuracy/prevalence"] = _bootstrap.mean((scores[:, 1] > above) == (labels == 1))
    return found | _thresholds.rates(labels, scores[:, 1] >= least)


def trees(evaluation: Evaluation) -> Estimates:
    """Scores of XGBoost trained on the release, and `auroc/ratio` to the real rows."""
    return evaluation.shared("assessment/xgboost", lambda: _trees(evaluation))


def _trees(evaluation: Evaluation) -> Estimates:
    own = statistics(evaluation, released(evaluation, "xgboost"))
    return _estimated(evaluation, {**own, "auroc/ratio": _ratio(evaluation, own["auroc"])})


def _ratio(evaluation: Evaluation, own: Statistic | NotComputable) -> Statistic | NotComputable:
    if isinstance(own, NotComputable):
        return own
    try:
        reference = statistics(evaluation, real(evaluation, "xgboost"))["auroc"]
    except NotComputable as reason:
        return NotComputable(f"on the real training rows: {reason}")
    if isinstance(reference, NotComputable):
        return reference
    return _bootstrap.quotient(own, reference)


def compared(
    evaluation: Evaluation, answers: Mapping[str, Answers | NotComputable]
) -> dict[str, Estimates | NotComputable]:
    """Scores of XGBoost and of these models, all on the same resamples."""
    both: dict[str, Estimates | NotComputable] = {}
    try:
        both["xgboost"] = trees(evaluation)
    except NotComputable as reason:
        both["xgboost"] = reason
    flat = {
        f"{model} {name}": statistic
        for model, found in answers.items()
        if isinstance(found, Answers)
        for name, statistic in statistics(evaluation, found).items()
    }
    estimates = _estimated(evaluation, flat)
    for model, found in answers.items():
        both[model] = (
            {name: estimates[f"{model} {name}"] for name in SCORES}
            if isinstance(found, Answers)
            else found
        )
    return both


def real_values(evaluation: Evaluation, name: str) -> Mapping[str, float]:
    """Scores of the same model trained on the real training rows; NaN where there is none."""

    def build(_: np.random.Generator) -> Mapping[str, float]:
        once = np.ones((len(evaluation.dataset.test), 1))
        try:
            found = statistics(evaluation, real(evaluation, name))
        except NotComputable:
            return dict.fromkeys(SCORES, np.nan)
        return {
            score: np.nan if isinstance(statistic, NotComputable) else float(statistic(once)[0])
            for score, statistic in found.items()
        }

    return evaluation.reference(f"assessment/{name}", build)


def _estimated(
    evaluation: Evaluation, found: Mapping[str, Statistic | NotComputable]
) -> dict[str, Estimate | NotComputable]:
    """The generator is named after the task: every metric and release sees the same resamples."""
    defined = {name: one for name, one in found.items() if not isinstance(one, NotComputable)}
    absent = {name: one for name, one in found.items() if isinstance(one, NotComputable)}
    labels = evaluation.dataset.test.rows.labels
    rng = evaluation.generator("bootstrap/classification")
    return {**_bootstrap.bootstrap_all(defined, labels, rng), **absent}


def _undecided(scores: Array) -> NotComputable | None:
    """A released model may give one number a row that is no probability: a risk has no 0.5."""
    if scores.shape[1] == 2 and np.array_equal(scores[:, 0], 1.0 - scores[:, 1]):
        outside = (scores[:, 1] < 0) | (scores[:, 1] > 1)
        if outside.any():
            return NotComputable(
                "the released model gives one number a row, some outside [0, 1]: no probability"
            )
    return None


def _classes(evaluation: Evaluation) -> int:
    return len(evaluation.dataset.schema.classes)
