"""How well an image classifier trained on the release does on real test images."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np
import pandas as pd

from bench.core.errors import NotComputable
from bench.core.metric import Direction, Evaluation, Family, Metric, Scores
from bench.core.release import ReleasedModel
from bench.core.schema import Task
from bench.metrics import _bootstrap, _convnet, _models


@final
class ConvNetAccuracy(Metric):
    """Accuracy of the condensation literature's ConvNet."""

    name: ClassVar[str] = "accuracy/convnet"
    family: ClassVar[Family] = Family.UTILITY
    direction: ClassVar[Direction] = Direction.HIGHER
    definition: ClassVar[str] = (
        "Share of real test images that the three-block ConvNet of the condensation literature "
        "classifies correctly after training from scratch on the released images (NDPDC paper, "
        "section V, table I; weights and soft labels of the release used), or that the model that "
        "was released does. Interval: 1000 bootstrap resamples of the test rows."
    )
    tasks: ClassVar[tuple[Task, ...]] = (Task.IMAGE,)
    cost: ClassVar[str] = "seconds at 8x8 pixels, a minute at 28x28"

    def compute(self, evaluation: Evaluation) -> Scores:
        dataset = evaluation.dataset
        test = dataset.test.rows
        if not len(test):
            raise NotComputable("the dataset has no test rows")
        features = test.values[:, : dataset.encoder.feature_width]
        classes = len(dataset.schema.classes)
        scores = _models.class_scores(convnet(evaluation), features, classes)
        predicted = scores.argmax(axis=1)
        estimate = _bootstrap.bootstrap(
            _bootstrap.mean(predicted == test.labels),
            np.zeros(len(test)),
            evaluation.generator("bootstrap/image"),
        )
        details = pd.DataFrame({"label": test.labels, "predicted": predicted})
        return Scores(
            (estimate.score(self),),
            {"predictions-convnet": details},
        )


def convnet(evaluation: Evaluation) -> ReleasedModel:
    """The ConvNet trained on the release, or the released model."""
    if evaluation.release.model is not None:
        return evaluation.release.model
    schema, rows = evaluation.dataset.schema, evaluation.rows
    shape = schema.image_shape
    if shape is None:
        raise NotComputable("the dataset declares no image shape")
    return evaluation.shared(
        ("model", "convnet"),
        lambda: _convnet.fit_convnet(
            rows.values,
            rows.labels,
            len(schema.classes),
            shape,
            evaluation.generator("model/convnet"),
            weights=rows.weights,
            soft_labels=rows.soft_labels,
            threads=evaluation.threads,
        ),
    )
