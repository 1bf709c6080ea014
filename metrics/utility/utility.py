"""How well models trained on the release do on real test rows: classification of tables.

Every model gives one number a row and class. Two classes: the second one is the positive. All
numbers of all models are taken on the same bootstrap resamples of the test rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

import numpy as np
import pandas as pd

from bench import Direction, Evaluation, Family, Metric, NotComputable, Output, Score, Scores, Task
from bench.metrics._shared import models as _models
from bench.metrics.utility import _assessment, _classifiers
from bench.metrics.utility._assessment import Answers, Estimates

STORED_AT_MOST = 20_000
"""Predictions of the models beside XGBoost that are kept with a release: a table of some 100 kB."""

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
        estimates = _assessment.trees(evaluation)
        scores = tuple(_as_score(self, output.name, estimates) for output in self.outputs)
        answers = _assessment.released(evaluation, "xgboost")
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
            "rare positives it lies below the accuracy of a model without. "
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
        _rate("sensitivity", "Share of positive test rows that are found"),
        _rate("specificity", "Share of negative test rows that are left alone"),
        _rate("ppv", "Share of positives among the test rows that are called positive"),
        _rate("npv", "Share of negatives among the test rows that are called negative"),
    )
    definition: ClassVar[str] = f"Classification scores of {_MODEL}. {_INTERVAL}"
    tasks: ClassVar[tuple[Task, ...]] = (Task.CLASSIFICATION,)

    def compute(self, evaluation: Evaluation) -> Scores:
        estimates = _assessment.trees(evaluation)
        return Scores(tuple(_as_score(self, output.name, estimates) for output in self.outputs))


def _beside(name: str, what: str) -> Output:
    return Output(
        f"auroc/{name}",
        Direction.HIGHER,
        f"AUROC on the real test rows (as `auroc`) of {what}, trained on the released rows, at "
        f"most {_classifiers.ROWS_AT_MOST:,} of them; class weighting, release weights used. "
        f"{_INTERVAL}",
    )


@final
class Downstream(Metric):
    """The same question to other models: a release should not serve one of them only.

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
        "6 seconds, 10 where categories are fractional; 6 more once for the real rows of a dataset"
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        # Refused before anything is trained: a released model leaves nothing to train others on.
        _ = evaluation.rows, _models.real_test_features(evaluation)
        answers = _assessment.others(evaluation)
        estimates = _assessment.compared(evaluation, answers)
        scores = tuple(_beside_score(name, estimates[name]) for name in answers)
        details = {"downstream": _score_table(evaluation, estimates)}
        stored = {
            name: found for name, found in answers.items() if not isinstance(found, NotComputable)
        }
        if 0 < sum(found.test.size for found in stored.values()) <= STORED_AT_MOST:
            tables = [
                _predictions(evaluation, found).assign(model=name) for name, found in stored.items()
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


def _predictions(evaluation: Evaluation, answers: Answers) -> pd.DataFrame:
    """Label and score of each test row; more than two classes: one score a class."""
    labels, scores = evaluation.dataset.test.rows.labels, answers.test
    if scores.shape[1] == 2:
        return pd.DataFrame({"label": labels, "score": scores[:, 1]})
    columns = {f"score-{code}": column for code, column in enumerate(scores.T)}
    return pd.DataFrame({"label": labels, **columns})


def _real_curve(evaluation: Evaluation, points: int = 101) -> pd.DataFrame:
    """ROC curve of the model trained on the real rows, at equal false-positive rates."""
    labels = np.asarray(evaluation.dataset.test.rows.labels)
    scores = _assessment.real(evaluation, "xgboost").test[:, 1]
    order = np.argsort(-scores, kind="stable")
    # Rows of one score enter together: the curve is straight there.
    last = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    found = np.cumsum(labels[order] == 1)[last]
    alarms = 1 + last - found
    rates = np.linspace(0.0, 1.0, points)
    tpr = np.interp(rates, np.append(0, alarms) / alarms[-1], np.append(0, found) / found[-1])
    return pd.DataFrame({"fpr": rates, "tpr": tpr})


def _score_table(
    evaluation: Evaluation, estimates: Mapping[str, Estimates | NotComputable]
) -> pd.DataFrame:
    """One row a model and score: value and interval, and the value after training on real rows."""
    rows = []
    for model, found in estimates.items():
        real = _assessment.real_values(evaluation, model)
        for name in _assessment.SCORES:
            estimate = found if isinstance(found, NotComputable) else found[name]
            if isinstance(estimate, NotComputable):
                rows.append((model, name, np.nan, np.nan, np.nan, real[name], str(estimate)))
            else:
                rows.append((model, name, estimate.value, *estimate.interval, real[name], ""))
    return pd.DataFrame(rows, columns=["model", "score", "value", "low", "high", "real", "reason"])
