"""How well a survival model trained on the release ranks real patients by risk."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np
import pandas as pd

from bench.core.errors import NotComputable
from bench.core.metric import Direction, Evaluation, Family, Metric, Scores
from bench.core.release import ReleasedModel
from bench.core.schema import Task
from bench.metrics import _bootstrap, _models


@final
class CoxConcordance(Metric):
    """C-index of a Cox model."""

    name: ClassVar[str] = "c-index/cox"
    family: ClassVar[Family] = Family.UTILITY
    direction: ClassVar[Direction] = Direction.HIGHER
    definition: ClassVar[str] = (
        "Harrell's C-index on the real test rows of a Cox model with an L2 penalty of 0.1 "
        "(lifelines' units) trained on the released rows (zero-order paper, section 4.7), or of "
        "the model that was released. "
        "Interval: 1000 bootstrap resamples of the test rows."
    )
    tasks: ClassVar[tuple[Task, ...]] = (Task.SURVIVAL,)

    def compute(self, evaluation: Evaluation) -> Scores:
        return _concordance(self, evaluation, _models.cox(evaluation), "risks-cox")


@final
class AftConcordance(Metric):
    """C-index of gradient-boosted trees."""

    name: ClassVar[str] = "c-index/aft"
    family: ClassVar[Family] = Family.UTILITY
    direction: ClassVar[Direction] = Direction.HIGHER
    definition: ClassVar[str] = (
        "Harrell's C-index on the real test rows of XGBoost with the accelerated-failure-time "
        "loss (normal, scale 1; zero-order paper, section 4.7, times scaled by equation 1) "
        "trained on the released rows, or of the model that was released. Interval: 1000 "
        "bootstrap resamples of the test rows."
    )
    tasks: ClassVar[tuple[Task, ...]] = (Task.SURVIVAL,)

    def compute(self, evaluation: Evaluation) -> Scores:
        return _concordance(self, evaluation, _models.tree_survival(evaluation), "risks-aft")


def _concordance(
    metric: Metric, evaluation: Evaluation, model: ReleasedModel, table: str
) -> Scores:
    encoder, test = evaluation.dataset.encoder, evaluation.dataset.test.rows
    if not len(test):
        raise NotComputable("the dataset has no test rows")
    truth = evaluation.shared(
        "examples/test", lambda: _models.Examples.of(encoder, test.values, test.labels)
    )
    if truth.times is None:
        raise NotComputable("the dataset has no time column")
    risks = _models.one_score(model, truth.features)
    statistic = _bootstrap.concordance(truth.times, truth.labels, risks)
    # Both models are compared on the same resamples.
    estimate = _bootstrap.bootstrap(
        statistic, np.zeros(len(test)), evaluation.generator("bootstrap/survival")
    )
    details = pd.DataFrame({"time": truth.times, "event": truth.labels, "risk": risks})
    return Scores((estimate.score(metric),), {table: details})
