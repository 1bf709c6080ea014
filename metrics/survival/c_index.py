"""C-index: how well a survival model trained on the release ranks real patients by risk."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, final

import numpy as np
import pandas as pd

from bench import (
    Direction,
    Evaluation,
    Family,
    Metric,
    NotComputable,
    Output,
    ReleasedModel,
    Scores,
    Task,
)
from bench.metrics._shared import bootstrap, downstream_models
from bench.metrics._shared.bootstrap import Estimate, Statistic
from bench.metrics._shared.c_index import concordance
from bench.metrics.survival import _survival_models

_RATIO = (
    "The C-index divided by that of the same model trained on the real training rows, on the same "
    "test rows. Interval: 1000 paired bootstrap resamples of the test rows; the chance in training "
    "trees (each tree uses 70% of the rows) is not included."
)


@final
class CoxConcordance(Metric):
    """C-index of a Cox model."""

    name: ClassVar[str] = "c-index/cox"
    family: ClassVar[Family] = Family.UTILITY
    outputs: ClassVar[tuple[Output, ...]] = (
        Output("c-index/cox", Direction.HIGHER, "The C-index on the real test rows.", shown=True),
        Output("c-index/cox-ratio", Direction.HIGHER, _RATIO, shown=True),
    )
    definition: ClassVar[str] = (
        "Harrell's C-index on the real test rows of a Cox model with an L2 penalty of 0.1 "
        "(lifelines' units) trained on the released rows (zero-order paper, section 4.7), or of "
        "the model that was released. "
        "Interval: 1000 bootstrap resamples of the test rows."
    )
    tasks: ClassVar[tuple[Task, ...]] = (Task.SURVIVAL,)

    def compute(self, evaluation: Evaluation) -> Scores:
        return _concordance(
            self, evaluation, downstream_models.cox(evaluation), _real_cox, "risks-cox"
        )


@final
class AftConcordance(Metric):
    """C-index of gradient-boosted trees."""

    name: ClassVar[str] = "c-index/aft"
    family: ClassVar[Family] = Family.UTILITY
    outputs: ClassVar[tuple[Output, ...]] = (
        Output("c-index/aft", Direction.HIGHER, "The C-index on the real test rows."),
        Output("c-index/aft-ratio", Direction.HIGHER, _RATIO),
    )
    definition: ClassVar[str] = (
        "Harrell's C-index on the real test rows of XGBoost with the accelerated-failure-time "
        "loss (normal, scale 1; zero-order paper, section 4.7, times scaled by equation 1) "
        "trained on the released rows, or of the model that was released. Interval: 1000 "
        "bootstrap resamples of the test rows."
    )
    tasks: ClassVar[tuple[Task, ...]] = (Task.SURVIVAL,)

    def compute(self, evaluation: Evaluation) -> Scores:
        model = downstream_models.tree_survival(evaluation)
        return _concordance(self, evaluation, model, _survival_models.real_trees, "risks-aft")


def _real_cox(evaluation: Evaluation) -> ReleasedModel:
    return downstream_models.LinearRisk(_survival_models.real_cox(evaluation).coefficients)


def _concordance(
    metric: Metric,
    evaluation: Evaluation,
    model: ReleasedModel,
    trained_on_real: Callable[[Evaluation], ReleasedModel],
    table: str,
) -> Scores:
    truth = _survival_models.held_out_examples(evaluation)
    strata = np.zeros(len(truth.labels))
    details = pd.DataFrame({"time": truth.times, "event": truth.labels})

    def ranked(by: ReleasedModel, column: str) -> Statistic:
        details[column] = downstream_models.one_score(by, truth.features)
        return concordance(details["time"].to_numpy(), truth.labels, details[column].to_numpy())

    def bootstrapped(statistic: Statistic) -> Estimate:
        # All models of all metrics of survival are compared on the same resamples.
        return bootstrap.bootstrap(statistic, strata, bootstrap.of_dataset(evaluation))

    released = ranked(model, "risk")
    score = bootstrapped(released).score(metric)
    output = f"{metric.name}-ratio"
    try:
        reference = ranked(trained_on_real(evaluation), "real-risk")
        ratio = bootstrapped(bootstrap.quotient(released, reference)).score(metric, output)
    except NotComputable as problem:
        ratio = metric.absent(output, f"no model of the real rows: {problem}")
    return Scores((score, ratio), {table: details})
