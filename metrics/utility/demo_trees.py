"""AUROC and C-index by XGBoost as in the zero-order authors' demos, to compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt

from bench import (
    Direction,
    Evaluation,
    Family,
    Metric,
    NotComputable,
    Output,
    Scores,
    Task,
)
from bench.metrics._shared import bootstrap
from bench.metrics._shared.auroc import auroc, one_against_rest
from bench.metrics._shared.bootstrap import Statistic
from bench.metrics._shared.c_index import concordance
from bench.metrics._shared.demo_trees import demo_classifier, demo_survival
from bench.metrics._shared.downstream_models import (
    Examples,
    class_scores,
    one_score,
    real_test_features,
)
from bench.metrics._shared.rows import real_test_rows

_STOPPED = (
    "rounds without a lower loss on the real validation rows (which the evaluator may use: they "
    "change the score, not the release)"
)
_RATIO = (
    "The score over that of the same model trained on the real training rows, on the same 1000 "
    "bootstrap resamples of the test rows."
)


@final
class DemoAuroc(Metric):
    """Ranking of real test rows by trees whose number is chosen on validation rows."""

    name: ClassVar[str] = "auroc/xgboost-demo"
    family: ClassVar[Family] = Family.UTILITY
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "auroc/xgboost-demo",
            Direction.HIGHER,
            "Area under the ROC curve on the real test rows; more than two classes: mean over "
            "classes of one against the rest. Interval: 1000 bootstrap resamples.",
        ),
        Output("auroc/xgboost-demo-ratio", Direction.HIGHER, _RATIO),
    )
    definition: ClassVar[str] = (
        "As `auroc`, with the trees of the zero-order authors' demo: depth 3, up to 15,000 rounds, "
        f"stopped after 250 {_STOPPED}."
    )
    tasks: ClassVar[tuple[Task, ...]] = (Task.CLASSIFICATION,)
    cost: ClassVar[str] = "minutes"
    optional: ClassVar[bool] = True

    def compute(self, evaluation: Evaluation) -> Scores:
        labels = real_test_rows(evaluation).labels
        classes = len(evaluation.dataset.schema.classes)

        def area(real: bool) -> Statistic:
            model = demo_classifier(evaluation, real)
            scores = class_scores(model, real_test_features(evaluation), classes)
            if classes == 2:
                return auroc(labels, scores[:, 1])
            return one_against_rest(auroc, labels, scores)

        return _with_ratio(self, evaluation, area, labels, "bootstrap/classification")


@final
class DemoAftConcordance(Metric):
    """C-index of AFT trees whose number is chosen on validation rows."""

    name: ClassVar[str] = "c-index/aft-demo"
    family: ClassVar[Family] = Family.UTILITY
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "c-index/aft-demo",
            Direction.HIGHER,
            "Harrell's C-index on the real test rows. Interval: 1000 bootstrap resamples.",
        ),
        Output("c-index/aft-demo-ratio", Direction.HIGHER, _RATIO),
    )
    definition: ClassVar[str] = (
        "As `c-index/aft`, with the trees of the zero-order authors' demo: depth 3, up to 1,000 "
        f"rounds, stopped after 50 {_STOPPED}."
    )
    tasks: ClassVar[tuple[Task, ...]] = (Task.SURVIVAL,)
    optional: ClassVar[bool] = True

    def compute(self, evaluation: Evaluation) -> Scores:
        rows = real_test_rows(evaluation)
        truth = Examples.of(evaluation.dataset.encoder, rows.values, rows.labels)
        times = truth.survival_times()

        def ranked(real: bool) -> Statistic:
            model = demo_survival(evaluation, real)
            return concordance(times, truth.labels, one_score(model, truth.features))

        strata = np.zeros(len(times))
        return _with_ratio(self, evaluation, ranked, strata, "bootstrap/survival")


def _with_ratio(
    metric: Metric,
    evaluation: Evaluation,
    statistic: Callable[[bool], Statistic],
    strata: npt.ArrayLike,
    stream: str,
) -> Scores:
    """The score of the release, and its ratio to that of the real rows, on the same resamples."""
    released = statistic(False)
    score = bootstrap.bootstrap(released, strata, evaluation.generator(stream)).score(metric)
    output = f"{metric.name}-ratio"
    try:
        quotient = bootstrap.quotient(released, statistic(True))
        estimate = bootstrap.bootstrap(quotient, strata, evaluation.generator(stream))
        ratio = estimate.score(metric, output)
    except NotComputable as problem:
        ratio = metric.absent(output, f"no model of the real rows: {problem}")
    return Scores((score, ratio))
