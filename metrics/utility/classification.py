"""How well classifiers trained on the release do on real test rows: AUROC, AUPRC, accuracy, rates.

Every model gives one number per row and class. Of two classes the second is the positive one. All
scores of all models are taken on the same bootstrap resamples of the test rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import (
    Direction,
    Evaluation,
    Family,
    Metric,
    NotComputable,
    Output,
    ReleasedModel,
    Score,
    Scores,
    Task,
)
from bench.metrics._shared import bootstrap, downstream_models
from bench.metrics._shared.auroc import auprc, auroc, one_against_rest
from bench.metrics._shared.bootstrap import Array, Counted, Estimate, Statistic, average, share

SENSITIVITY = 0.85
"""Sensitivity on the validation rows that the threshold must reach."""

STORED_AT_MOST = 20_000
"""Predictions of the models beside XGBoost that are kept with a release: about 100 kB."""

_MODEL = (
    "XGBoost trained on the released rows (zero-order paper, section 4.7; class weighting, release "
    "weights used, soft labels not), or of the model that was released"
)
_INTERVAL = "Interval: 1000 bootstrap resamples of the test rows within each class."
_AT_THRESHOLD = (
    "at the largest threshold that reaches sensitivity 0.85 on the real validation rows (chosen by "
    "the evaluator, fixed in the resamples; two classes only)"
)


@final
class Auroc(Metric):
    """Ranking of real test rows by a model that saw the release only.

    * `auroc`: the area itself. More than two classes: the mean over classes of the area of one
      class against the rest (macro average).
    * `auroc/ratio`: over the same number of the same model trained on the real training rows, on
      the same resamples. 1 is as good as the real rows. A release without any information has a
      ratio of about 0.5 / real, not 0.
    """

    name: ClassVar[str] = "auroc"
    family: ClassVar[Family] = Family.UTILITY
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "auroc",
            Direction.HIGHER,
            f"Area under the ROC curve on the real test rows of {_MODEL}; more than two classes: "
            f"mean over classes of one against the rest. {_INTERVAL}",
            shown=True,
        ),
        Output(
            "auroc/ratio",
            Direction.HIGHER,
            "AUROC over that of the same XGBoost trained on the real training rows (fidelity "
            "paper, section 3.6.1; its other formula, real over synthetic, is the inverse). "
            "Interval: both on the same 1000 bootstrap resamples of the test rows.",
            shown=True,
        ),
    )
    definition: ClassVar[str] = f"Area under the ROC curve of {_MODEL}. {_INTERVAL}"
    tasks: ClassVar[tuple[Task, ...]] = (Task.CLASSIFICATION,)

    def compute(self, evaluation: Evaluation) -> Scores:
        estimates = tree_estimates(evaluation)
        scores = tuple(_as_score(self, output.name, estimates) for output in self.outputs)
        answers = released_scores(evaluation, "xgboost")
        details = {"predictions": _predictions(evaluation, answers)}
        if not isinstance(estimates["auroc/ratio"], NotComputable) and answers.test.shape[1] == 2:
            details["roc-real"] = _real_curve(evaluation)
        return Scores(scores, details)


def _rate(name: str, what: str) -> Output:
    return Output(name, Direction.HIGHER, f"{what} of {_MODEL}, {_AT_THRESHOLD}. {_INTERVAL}")


@final
class Classification(Metric):
    """Precision over recall, plain accuracy, and the rates at a fixed sensitivity.

    Resamples keep the number of rows of each class: the intervals of PPV, NPV, F1 and accuracy
    hold for the share of positives among the test rows.
    """

    name: ClassVar[str] = "classification"
    family: ClassVar[Family] = Family.UTILITY
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "auprc",
            Direction.HIGHER,
            f"Average precision (no interpolation) on the real test rows of {_MODEL}; more than "
            f"two classes: mean over classes of one against the rest. {_INTERVAL}",
        ),
        Output(
            "accuracy",
            Direction.HIGHER,
            "Share of real test rows whose class has the largest score (two classes: a "
            f"probability above 0.5), of {_MODEL}. Class weighting moves this point: with "
            "rare positives it lies below the accuracy of a model without weighting. "
            f"{_INTERVAL}",
        ),
        Output(
            "accuracy/prevalence",
            Direction.HIGHER,
            "Accuracy where as large a share of the real validation rows is called positive as is "
            "declared for the dataset (threshold chosen by the evaluator without labels, fixed in "
            f"the resamples; two classes only), of {_MODEL}. Releases with as many rows of each "
            "class are compared by it on equal terms: how a model was calibrated does not matter. "
            f"{_INTERVAL}",
        ),
        Output(
            "f1",
            Direction.HIGHER,
            f"F1 of the positive class of {_MODEL}, {_AT_THRESHOLD}; more than two classes: mean "
            f"over classes of the F1 where the largest score decides. {_INTERVAL}",
        ),
        _rate("sensitivity", "Share of positive test rows that are called positive"),
        _rate("specificity", "Share of negative test rows that are called negative"),
        _rate("ppv", "Share of positives among the test rows that are called positive"),
        _rate("npv", "Share of negatives among the test rows that are called negative"),
    )
    definition: ClassVar[str] = f"Classification scores of {_MODEL}. {_INTERVAL}"
    tasks: ClassVar[tuple[Task, ...]] = (Task.CLASSIFICATION,)

    def compute(self, evaluation: Evaluation) -> Scores:
        estimates = tree_estimates(evaluation)
        return Scores(tuple(_as_score(self, output.name, estimates) for output in self.outputs))


def _beside(name: str, what: str) -> Output:
    return Output(
        f"auroc/{name}",
        Direction.HIGHER,
        f"AUROC on the real test rows (as `auroc`) of {what}, trained on the released rows, at "
        f"most {downstream_models.ROWS_AT_MOST:,} of them; class weighting, release weights used. "
        f"{_INTERVAL}",
    )


@final
class Downstream(Metric):
    """AUROC of other models: a release should not serve XGBoost only.

    All scores of all models, XGBoost included, with those of the same model trained on the real
    training rows, are in the table `downstream`.
    """

    name: ClassVar[str] = "downstream"
    family: ClassVar[Family] = Family.UTILITY
    outputs: ClassVar[tuple[Output, ...]] = (
        _beside(
            "forest",
            "a random forest (100 trees of up to 5000 rows, leaves of 5; soft labels not used)",
        ),
        _beside("logistic", "logistic regression (L2 penalty, C = 1; soft labels used)"),
        _beside(
            "svm",
            "a support vector machine (Gaussian kernel spanned by 200 rows, squared hinge loss, "
            "C = 1; soft labels not used)",
        ),
        _beside(
            "mlp",
            "a neural network (one hidden layer of 100, 1000 steps of Adam; soft labels used)",
        ),
    )
    definition: ClassVar[str] = f"AUROC of downstream models beside XGBoost. {_INTERVAL}"
    tasks: ClassVar[tuple[Task, ...]] = (Task.CLASSIFICATION,)
    cost: ClassVar[str] = (
        "a second, more where categories are fractional; some more once for the real rows of a "
        "dataset"
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        # Refused before anything is trained: a released model leaves nothing to train others on.
        _ = evaluation.rows, downstream_models.real_test_features(evaluation)
        answers = other_scores(evaluation)
        estimates = all_estimates(evaluation, answers)
        scores = tuple(_beside_score(name, estimates[name]) for name in answers)
        details = {"downstream": _score_table(evaluation, estimates)}
        stored = {
            name: scores for name, scores in answers.items() if isinstance(scores, ClassScores)
        }
        if 0 < sum(scores.test.size for scores in stored.values()) <= STORED_AT_MOST:
            tables = [
                _predictions(evaluation, scores).assign(model=name)
                for name, scores in stored.items()
            ]
            details["predictions-downstream"] = pd.concat(tables, ignore_index=True)
        return Scores(scores, details)


def _as_score(metric: Metric, output: str, estimates: Estimates, name: str = "") -> Score:
    estimate = estimates[name or output]
    if isinstance(estimate, NotComputable):
        return metric.absent(output, str(estimate))
    return estimate.score(metric, output)


def _beside_score(name: str, estimates: Estimates | NotComputable) -> Score:
    if isinstance(estimates, NotComputable):
        return Downstream.absent(f"auroc/{name}", str(estimates))
    return _as_score(Downstream(), f"auroc/{name}", estimates, "auroc")


def _predictions(evaluation: Evaluation, answers: ClassScores) -> pd.DataFrame:
    """Label and score of each test row; more than two classes: one score per class."""
    labels, scores = evaluation.dataset.test.rows.labels, answers.test
    if scores.shape[1] == 2:
        return pd.DataFrame({"label": labels, "score": scores[:, 1]})
    columns = {f"score-{code}": column for code, column in enumerate(scores.T)}
    return pd.DataFrame({"label": labels, **columns})


def _real_curve(evaluation: Evaluation, points: int = 101) -> pd.DataFrame:
    """ROC curve of the model trained on the real rows, at equal false-positive rates."""
    labels = np.asarray(evaluation.dataset.test.rows.labels)
    scores = real_scores(evaluation, "xgboost").test[:, 1]
    order = np.argsort(-scores, kind="stable")
    # Rows of one score enter together: the curve is straight there.
    last = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    hits = np.cumsum(labels[order] == 1)[last]
    alarms = 1 + last - hits
    rates = np.linspace(0.0, 1.0, points)
    tpr = np.interp(rates, np.append(0, alarms) / alarms[-1], np.append(0, hits) / hits[-1])
    return pd.DataFrame({"fpr": rates, "tpr": tpr})


def _score_table(
    evaluation: Evaluation, estimates: Mapping[str, Estimates | NotComputable]
) -> pd.DataFrame:
    """One row per model and score: value, interval, and the value after training on real rows."""
    rows = []
    for model, scores in estimates.items():
        real = real_values(evaluation, model)
        for name in SCORES:
            estimate = scores if isinstance(scores, NotComputable) else scores[name]
            if isinstance(estimate, NotComputable):
                rows.append((model, name, np.nan, np.nan, np.nan, real[name], str(estimate)))
            else:
                rows.append((model, name, estimate.value, *estimate.interval, real[name], ""))
    return pd.DataFrame(rows, columns=["model", "score", "value", "low", "high", "real", "reason"])


# Predictions of classifiers, and every score of them ---------------------------------------------
#
# A model trained on the release and the same model trained on the real training rows are asked
# about the same validation and test rows. The real side is computed once for all releases.


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
"""Estimate of each score by name, or the reason why there is none."""


@final
@dataclass(frozen=True)
class ClassScores:
    """Predictions of one model for real rows: one number per row and class."""

    test: Array
    validation: Array

    @classmethod
    def of(cls, evaluation: Evaluation, model: ReleasedModel) -> ClassScores:
        """Ask the model about the test and the validation rows."""
        dataset = evaluation.dataset
        classes = len(dataset.schema.classes)

        test = downstream_models.real_test_features(evaluation)
        validation = dataset.validation.rows.values[:, : dataset.encoder.feature_width]
        # Asked once for both: a forest takes as long to be called as to answer.
        rows = evaluation.shared(
            "features/test and validation", lambda: np.concatenate([test, validation])
        )
        answers = downstream_models.class_scores(model, rows, classes)
        return cls(answers[: len(test)], answers[len(test) :])


def released_scores(evaluation: Evaluation, name: str) -> ClassScores:
    """Predictions of a model trained on the release; for `xgboost` also of a released model."""

    def build() -> ClassScores:
        if name == "xgboost":
            return ClassScores.of(evaluation, downstream_models.tree_classifier(evaluation))
        examples, rng = (
            downstream_models.released_examples(evaluation),
            evaluation.generator(f"model/{name}"),
        )
        return ClassScores.of(
            evaluation, downstream_models.FITS[name](examples, _classes(evaluation), rng)
        )

    return evaluation.shared(("answers", name), build)


def real_scores(evaluation: Evaluation, name: str) -> ClassScores:
    """Predictions of the same model trained on the real training rows; the model is not kept."""

    def build(rng: np.random.Generator) -> ClassScores:
        if name == "xgboost":
            return ClassScores.of(evaluation, downstream_models.real_tree_classifier(evaluation))
        examples = downstream_models.real_examples(evaluation)
        return ClassScores.of(
            evaluation, downstream_models.FITS[name](examples, _classes(evaluation), rng)
        )

    return evaluation.reference(f"answers/{name}", build)


def other_scores(evaluation: Evaluation) -> dict[str, ClassScores | NotComputable]:
    """Predictions of the models beside XGBoost; the reason for one that cannot be trained."""
    answers: dict[str, ClassScores | NotComputable] = {}
    for name in downstream_models.FITS:
        try:
            answers[name] = released_scores(evaluation, name)
        except NotComputable as reason:
            answers[name] = reason
    return answers


def score_statistics(
    evaluation: Evaluation, answers: ClassScores, sensitivity: float = SENSITIVITY
) -> dict[str, Statistic | NotComputable]:
    """Every score as a function of weights on the test rows, or why there is none."""
    labels, scores = evaluation.dataset.test.rows.labels, answers.test
    decided, classes = scores.argmax(axis=1), scores.shape[1]
    scored: dict[str, Statistic | NotComputable] = {}
    for name, single in (("auroc", auroc), ("auprc", auprc)):
        try:
            scored[name] = (
                single(labels, scores[:, 1])
                if classes == 2
                else one_against_rest(single, labels, scores)
            )
        except NotComputable as reason:
            scored[name] = reason
    undecided = _undecided(scores)
    scored["accuracy"] = bootstrap.mean(decided == labels) if undecided is None else undecided
    remaining = [name for name in SCORES if name not in scored]
    if classes > 2:
        several = NotComputable(f"defined for two classes, the dataset has {classes}")
        macro = macro_f1(labels, decided, classes)
        return {**scored, **dict.fromkeys(remaining, several), "f1": macro}
    try:
        least = threshold(
            evaluation.dataset.validation.rows.labels, answers.validation[:, 1], sensitivity
        )
    except NotComputable as reason:
        return {**scored, **dict.fromkeys(remaining, reason)}
    # Declared, not counted: the threshold is chosen without the label of any row.
    counts = evaluation.dataset.counts.by_class
    above = prevalence_threshold(answers.validation[:, 1], counts[1] / sum(counts))
    scored["accuracy/prevalence"] = bootstrap.mean((scores[:, 1] > above) == (labels == 1))
    return scored | decision_rates(labels, scores[:, 1] >= least)


def tree_estimates(evaluation: Evaluation) -> Estimates:
    """Scores of XGBoost trained on the release, and `auroc/ratio` to the real rows."""

    def build() -> Estimates:
        statistics = score_statistics(evaluation, released_scores(evaluation, "xgboost"))
        ratio = _ratio(evaluation, statistics["auroc"])
        return _estimated(evaluation, {**statistics, "auroc/ratio": ratio})

    return evaluation.shared("assessment/xgboost", build)


def _ratio(
    evaluation: Evaluation, released: Statistic | NotComputable
) -> Statistic | NotComputable:
    if isinstance(released, NotComputable):
        return released
    try:
        reference = score_statistics(evaluation, real_scores(evaluation, "xgboost"))["auroc"]
    except NotComputable as reason:
        return NotComputable(f"on the real training rows: {reason}")
    if isinstance(reference, NotComputable):
        return reference
    return bootstrap.quotient(released, reference)


def all_estimates(
    evaluation: Evaluation, answers: Mapping[str, ClassScores | NotComputable]
) -> dict[str, Estimates | NotComputable]:
    """Scores of XGBoost and of these models, all on the same resamples."""
    both: dict[str, Estimates | NotComputable] = {}
    try:
        both["xgboost"] = tree_estimates(evaluation)
    except NotComputable as reason:
        both["xgboost"] = reason
    flat = {
        f"{model} {name}": statistic
        for model, scores in answers.items()
        if isinstance(scores, ClassScores)
        for name, statistic in score_statistics(evaluation, scores).items()
    }
    estimates = _estimated(evaluation, flat)
    for model, scores in answers.items():
        both[model] = (
            {name: estimates[f"{model} {name}"] for name in SCORES}
            if isinstance(scores, ClassScores)
            else scores
        )
    return both


def real_values(evaluation: Evaluation, name: str) -> Mapping[str, float]:
    """Scores of the same model trained on the real training rows; NaN where there is none."""

    def build(_: np.random.Generator) -> Mapping[str, float]:
        once = np.ones((len(evaluation.dataset.test), 1))
        try:
            statistics = score_statistics(evaluation, real_scores(evaluation, name))
        except NotComputable:
            return dict.fromkeys(SCORES, np.nan)
        return {
            score: np.nan if isinstance(statistic, NotComputable) else float(statistic(once)[0])
            for score, statistic in statistics.items()
        }

    return evaluation.reference(f"assessment/{name}", build)


def _estimated(
    evaluation: Evaluation, statistics: Mapping[str, Statistic | NotComputable]
) -> dict[str, Estimate | NotComputable]:
    """Bootstrap of all statistics; every metric and release gets the same resamples."""
    absent = {name: one for name, one in statistics.items() if isinstance(one, NotComputable)}
    defined = {name: one for name, one in statistics.items() if not isinstance(one, NotComputable)}
    labels = evaluation.dataset.test.rows.labels
    rng = bootstrap.of_dataset(evaluation)
    return {**bootstrap.bootstrap_all(defined, labels, rng), **absent}


def _undecided(scores: Array) -> NotComputable | None:
    """Refuse decisions at 0.5 where a released model gives a risk instead of a probability."""
    if scores.shape[1] == 2 and np.array_equal(scores[:, 0], 1.0 - scores[:, 1]):
        outside = (scores[:, 1] < 0) | (scores[:, 1] > 1)
        if outside.any():
            return NotComputable(
                "the released model gives one number per row, some outside [0, 1]: no probability"
            )
    return None


def _classes(evaluation: Evaluation) -> int:
    return len(evaluation.dataset.schema.classes)


# Thresholds, and the rates of decisions ----------------------------------------------------------
#
# The operating point is the usual one of a screening test: fix the sensitivity, see what it costs.
# The threshold is chosen on the real validation rows. Only the evaluator uses them: the choice
# never reaches a method or a release, and the rates are then taken on test rows that the choice did
# not see.


def threshold(
    labels: npt.ArrayLike, scores: npt.ArrayLike, sensitivity: float = SENSITIVITY
) -> float:
    """Return the largest threshold that finds at least this share of the positives.

    A row is positive when its score is at least the threshold, so the threshold is the k-th
    largest score of a positive, where k is the smallest whole number of at least sensitivity x
    positives. Tied scores may make the sensitivity higher than asked for.
    """
    if not 0.0 < sensitivity <= 1.0:
        raise ValueError(f"a sensitivity lies above 0 and is at most 1, got {sensitivity}")
    positive = np.sort(np.asarray(scores, dtype=np.float64)[np.asarray(labels) == 1])[::-1]
    if not len(positive):
        raise NotComputable("the validation rows hold no positive: no threshold can be chosen")
    # 0.07 x 100 is a little more than 7 in floating point.
    needed = math.ceil(sensitivity * len(positive) - 1e-9)
    return float(positive[needed - 1])


def prevalence_threshold(scores: npt.ArrayLike, share: float) -> float:
    """Return the smallest threshold above which at most this share of the rows scores.

    A row is positive when its score is above it: of tied scores none, if not all fit. No label is
    used.
    """
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"a share of positives lies in 0 to 1, got {share}")
    ordered = np.sort(np.asarray(scores, dtype=np.float64))[::-1]
    if not len(ordered):
        raise NotComputable("there are no validation rows: no threshold can be chosen")
    fitting = math.floor(share * len(ordered) + 1e-9)
    return float(ordered[fitting]) if fitting < len(ordered) else -math.inf


def decision_rates(labels: npt.ArrayLike, decided: npt.ArrayLike) -> dict[str, Statistic]:
    """Rates of yes-or-no decisions about two classes; each is a share of weights.

    F1 is the harmonic mean of PPV and sensitivity: 2 TP / (positives + decided positives).
    """
    positive, yes = np.asarray(labels) == 1, np.asarray(decided, dtype=bool)
    return {
        "sensitivity": share(positive & yes, positive),
        "specificity": share(~positive & ~yes, ~positive),
        "ppv": share(positive & yes, yes),
        "npv": share(~positive & ~yes, ~yes),
        "f1": _f1(positive, yes),
    }


def macro_f1(labels: npt.ArrayLike, decided: npt.ArrayLike, classes: int) -> Counted:
    """Mean over classes of the F1 of that class against all others."""
    codes, chosen = np.asarray(labels), np.asarray(decided)
    return average([_f1(codes == code, chosen == code) for code in range(classes)])


def _f1(positive: npt.NDArray[np.bool_], yes: npt.NDArray[np.bool_]) -> Counted:
    return share(2 * (positive & yes), positive.astype(np.intp) + yes)
