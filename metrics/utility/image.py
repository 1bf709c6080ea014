"""How well an image classifier trained on the release does on real test images."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import (
    Direction,
    Evaluation,
    Family,
    Floats,
    Integers,
    Metric,
    NotComputable,
    Output,
    ReleasedModel,
    Rows,
    Scores,
    Task,
)
from bench.metrics._shared import bootstrap as _bootstrap
from bench.metrics._shared import models as _models
from bench.metrics._shared.bootstrap import Array, Estimate, Statistic
from bench.metrics.utility import _convnet


@final
class ConvNetAccuracy(Metric):
    """The condensation literature's ConvNet."""

    name: ClassVar[str] = "accuracy/convnet"
    family: ClassVar[Family] = Family.UTILITY
    definition: ClassVar[str] = (
        "The three-block ConvNet of the condensation literature, trained from scratch on the "
        "released images (NDPDC paper, section V, table I; weights and soft labels of the release "
        "used; no augmentation), or the model that was released, asked about the real test "
        "images. Intervals: 1000 bootstrap resamples of the test rows."
    )
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "accuracy/convnet",
            Direction.HIGHER,
            "Share of test images that it classifies right.",
            shown=True,
        ),
        Output(
            "accuracy/ratio",
            Direction.HIGHER,
            "`accuracy/convnet` divided by that of the ConvNet trained on the real training "
            "images.",
            shown=True,
        ),
        Output(
            "auroc/convnet",
            Direction.HIGHER,
            "Area under the ROC curve of each class against the rest, mean over the classes.",
        ),
    )
    tasks: ClassVar[tuple[Task, ...]] = (Task.IMAGE,)
    cost: ClassVar[str] = (
        "seconds at 8x8 pixels, half a minute at 28x28; some times that for the real images of a "
        "dataset, once"
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        labels = _test_labels(evaluation)
        answers = _answers(evaluation, convnet(evaluation))
        right = answers.argmax(axis=1) == labels
        real = evaluation.reference(
            "accuracy/convnet", lambda rng: _right_by_real(evaluation, labels, rng)
        )
        statistics: dict[str, Callable[[], Statistic]] = {
            "accuracy/convnet": lambda: _bootstrap.mean(right),
            "accuracy/ratio": lambda: _bootstrap.quotient(
                _bootstrap.mean(right), _bootstrap.mean(real)
            ),
            "auroc/convnet": lambda: _bootstrap.one_against_rest(_bootstrap.auroc, labels, answers),
        }
        scores = []
        for output, statistic in statistics.items():
            try:
                scores.append(_estimate(evaluation, statistic()).score(self, output))
            except NotComputable as problem:
                scores.append(self.absent(output, str(problem)))
        return Scores(tuple(scores), {"predictions-convnet": _predictions(labels, answers)})


class _NetworkAccuracy(Metric):
    """Accuracy of one more network, trained on the released images."""

    family: ClassVar[Family] = Family.UTILITY
    direction: ClassVar[Direction] = Direction.HIGHER
    tasks: ClassVar[tuple[Task, ...]] = (Task.IMAGE,)
    optional: ClassVar[bool] = True

    @property
    @abstractmethod
    def network(self) -> str:
        """What its predictions are kept under."""

    @abstractmethod
    def fit(self, rows: Rows, classes: int, evaluation: Evaluation) -> ReleasedModel:
        """The trained network."""

    def compute(self, evaluation: Evaluation) -> Scores:
        labels = _test_labels(evaluation)
        if evaluation.predictor is not None:
            raise NotComputable("the release is a model, not images to train an architecture on")
        network = self.fit(evaluation.rows, len(evaluation.dataset.schema.classes), evaluation)
        answers = _answers(evaluation, network)
        estimate = _estimate(evaluation, _bootstrap.mean(answers.argmax(axis=1) == labels))
        details = {f"predictions-{self.network}": _predictions(labels, answers)}
        return Scores((estimate.score(self),), details)


@final
class AugmentedAccuracy(_NetworkAccuracy):
    """The same ConvNet, trained as the condensation papers do it."""

    name: ClassVar[str] = "accuracy/convnet-augmented"
    definition: ClassVar[str] = (
        "As `accuracy/convnet`, with every image augmented at random in each step of a training "
        "twice as long: colour, crop, cutout, flip, scale or rotate (NDPDC paper, section V, after "
        "its reference [3]). Interval: 1000 bootstrap resamples of the test rows."
    )
    cost: ClassVar[str] = "seconds at 8x8 pixels, a minute or two at 28x28"
    network = "convnet-augmented"

    def fit(self, rows: Rows, classes: int, evaluation: Evaluation) -> ReleasedModel:
        return _convnet.fit_convnet(
            rows.values,
            rows.labels,
            classes,
            _shape(evaluation),
            evaluation.generator("model/convnet-augmented"),
            weights=rows.weights,
            soft_labels=rows.soft_labels,
            augment=True,
        )


class _ArchitectureAccuracy(_NetworkAccuracy):
    """Accuracy of another architecture than the ConvNet."""

    cost: ClassVar[str] = "seconds at 8x8 pixels, up to a minute at 28x28"

    @property
    @abstractmethod
    def architecture(self) -> str:
        """Its name in `_architectures`."""

    @property
    def network(self) -> str:
        return self.architecture

    def fit(self, rows: Rows, classes: int, evaluation: Evaluation) -> ReleasedModel:
        from bench.metrics.utility import _architectures

        return _architectures.fit(
            self.architecture,
            rows.values,
            rows.labels,
            classes,
            _shape(evaluation),
            evaluation.generator(f"model/{self.architecture}"),
            weights=rows.weights,
            soft_labels=rows.soft_labels,
        )


def _defined(architecture: str, more: str) -> str:
    return (
        f"Share of real test images that {architecture} classifies right after training from "
        f"scratch on the released images (NDPDC paper, table III; {more}; steps as those of the "
        "ConvNet, no augmentation). Interval: 1000 bootstrap resamples of the test rows."
    )


@final
class MlpAccuracy(_ArchitectureAccuracy):
    """Multi-layer perceptron."""

    name: ClassVar[str] = "accuracy/mlp"
    definition: ClassVar[str] = _defined("an MLP", "two hidden layers of 128")
    architecture = "mlp"


@final
class LeNetAccuracy(_ArchitectureAccuracy):
    """LeNet."""

    name: ClassVar[str] = "accuracy/lenet"
    definition: ClassVar[str] = _defined("LeNet", "12x12 grey or 16x16 colour pixels at least")
    architecture = "lenet"


@final
class AlexNetAccuracy(_ArchitectureAccuracy):
    """AlexNet."""

    name: ClassVar[str] = "accuracy/alexnet"
    definition: ClassVar[str] = _defined("AlexNet", "a quarter of its channels")
    architecture = "alexnet"


@final
class Vgg11Accuracy(_ArchitectureAccuracy):
    """VGG11."""

    name: ClassVar[str] = "accuracy/vgg11"
    definition: ClassVar[str] = _defined(
        "VGG11",
        "a quarter of its channels, instance normalisation, 28x28 grey or 32x32 colour pixels at "
        "least",
    )
    architecture = "vgg11"


@final
class ResNet18Accuracy(_ArchitectureAccuracy):
    """ResNet18."""

    name: ClassVar[str] = "accuracy/resnet18"
    definition: ClassVar[str] = _defined(
        "ResNet18", "a quarter of its channels, instance normalisation, 9x9 pixels at least"
    )
    architecture = "resnet18"


# Models and test images --------------------------------------------------------------------------


def convnet(evaluation: Evaluation) -> ReleasedModel:
    """The ConvNet trained on the release, or the released model."""
    released = evaluation.predictor
    if released is not None:
        return released
    rows = evaluation.rows
    return evaluation.shared(
        ("model", "convnet"),
        lambda: _convnet.fit_convnet(
            rows.values,
            rows.labels,
            len(evaluation.dataset.schema.classes),
            _shape(evaluation),
            evaluation.generator("model/convnet"),
            weights=rows.weights,
            soft_labels=rows.soft_labels,
        ),
    )


def _right_by_real(
    evaluation: Evaluation, labels: Integers, rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    """Which test images the ConvNet trained on the real training images gets right."""
    train, classes = evaluation.dataset.train.rows, len(evaluation.dataset.schema.classes)
    network = _convnet.fit_convnet(train.values, train.labels, classes, _shape(evaluation), rng)
    right: npt.NDArray[np.bool_] = _answers(evaluation, network).argmax(axis=1) == labels
    return right


def _shape(evaluation: Evaluation) -> tuple[int, int, int]:
    shape = evaluation.dataset.schema.image_shape
    if shape is None:
        raise NotComputable("the dataset declares no image shape")
    return shape


def _test_labels(evaluation: Evaluation) -> Integers:
    test = evaluation.dataset.test.rows
    if not len(test):
        raise NotComputable("the dataset has no test rows")
    return test.labels


def _answers(evaluation: Evaluation, model: ReleasedModel) -> Array:
    test: Floats = evaluation.dataset.test.rows.values
    features = test[:, : evaluation.dataset.encoder.feature_width]
    return _models.class_scores(model, features, len(evaluation.dataset.schema.classes))


def _estimate(evaluation: Evaluation, statistic: Statistic) -> Estimate:
    """Every architecture is compared on the same resamples."""
    return _bootstrap.bootstrap(
        statistic,
        np.zeros(len(evaluation.dataset.test.rows)),
        evaluation.generator("bootstrap/image"),
    )


def _predictions(labels: Integers, answers: Array) -> pd.DataFrame:
    return pd.DataFrame({"label": labels, "predicted": answers.argmax(axis=1)})
