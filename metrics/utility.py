"""How well a model trained on the release does on real test rows: classification of tables."""

from __future__ import annotations

from typing import ClassVar, final

import pandas as pd

from bench.core.errors import NotComputable
from bench.core.metric import Direction, Evaluation, Family, Metric, Scores
from bench.core.schema import Task
from bench.metrics import _bootstrap, _models


@final
class Auroc(Metric):
    """Ranking of real test rows by a model that saw the release only."""

    name: ClassVar[str] = "auroc"
    family: ClassVar[Family] = Family.UTILITY
    direction: ClassVar[Direction] = Direction.HIGHER
    definition: ClassVar[str] = (
        "Area under the ROC curve on the real test rows of XGBoost trained on the released rows "
        "(zero-order paper, section 4.7; release weights used, soft labels not), or of the model "
        "that was released. Interval: 1000 bootstrap resamples of the test rows within each class."
    )
    tasks: ClassVar[tuple[Task, ...]] = (Task.CLASSIFICATION,)

    def compute(self, evaluation: Evaluation) -> Scores:
        dataset = evaluation.dataset
        classes = len(dataset.schema.classes)
        if classes != 2:
            raise NotComputable(f"defined for two classes, the dataset has {classes}")
        test = dataset.test.rows
        features = test.values[:, : dataset.encoder.feature_width]
        if not len(test):
            raise NotComputable("the dataset has no test rows")
        scores = _models.one_score(_models.tree_classifier(evaluation), features)
        estimate = _bootstrap.bootstrap(
            _bootstrap.auroc(test.labels, scores),
            test.labels,
            evaluation.generator("bootstrap/classification"),
        )
        return Scores(
            (estimate.score(self),),
            {"predictions": pd.DataFrame({"label": test.labels, "score": scores})},
        )
