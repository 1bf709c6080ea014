"""How well an image classifier trained on the release does on real test images."""

from __future__ import annotations

import functools
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
from bench.metrics._shared import bootstrap, downstream_models
from bench.metrics._shared.auroc import auroc, one_against_rest
from bench.metrics._shared.bootstrap import Array, Estimate, Statistic
from bench.metrics._shared.intervals import score_or_reason
from bench.metrics._shared.rows import real_test_rows


@final
class ConvNetAccuracy(Metric):
    """Accuracy of the condensation literature's ConvNet."""

    name: ClassVar[str] = "accuracy/convnet"
    family: ClassVar[Family] = Family.UTILITY
    definition: ClassVar[str] = (
        "The three-block ConvNet of the condensation literature, trained from scratch on the "
        "released images (NDPDC paper, section V, table I; weights and soft labels of the release "
        "used; no augmentation), or the model that was released, tested on the real test "
        "images. Intervals: 1000 bootstrap resamples of the test rows."
    )
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "accuracy/convnet",
            Direction.HIGHER,
            "Share of test images that it classifies correctly.",
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
        "seconds at 8x8 pixels, half a minute at 28x28; several times that for the real images of "
        "a dataset, once"
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        labels = real_test_rows(evaluation).labels
        answers = _answers(evaluation, convnet(evaluation))
        right = answers.argmax(axis=1) == labels

        def right_by_real(rng: np.random.Generator) -> npt.NDArray[np.bool_]:
            train = evaluation.dataset.train.rows
            network = _fit_convnet(evaluation, Rows(train.values, train.labels), rng)
            by_real: npt.NDArray[np.bool_] = _answers(evaluation, network).argmax(axis=1) == labels
            return by_real

        real = evaluation.reference("accuracy/convnet", right_by_real)
        accuracy = bootstrap.mean(right)
        statistics: dict[str, Callable[[], Statistic]] = {
            "accuracy/convnet": lambda: accuracy,
            "accuracy/ratio": lambda: bootstrap.quotient(accuracy, bootstrap.mean(real)),
            "auroc/convnet": lambda: one_against_rest(auroc, labels, answers),
        }
        scores = tuple(
            score_or_reason(self, output, functools.partial(_estimate, evaluation, statistic))
            for output, statistic in statistics.items()
        )
        return Scores(scores, {"predictions-convnet": _predictions(labels, answers)})


class _NetworkAccuracy(Metric):
    """Accuracy of one more network, trained on the released images."""

    family: ClassVar[Family] = Family.UTILITY
    direction: ClassVar[Direction] = Direction.HIGHER
    tasks: ClassVar[tuple[Task, ...]] = (Task.IMAGE,)
    optional: ClassVar[bool] = True

    @property
    @abstractmethod
    def network(self) -> str:
        """Name that its predictions are stored under."""

    @abstractmethod
    def fit(self, rows: Rows, classes: int, evaluation: Evaluation) -> ReleasedModel:
        """Train the network."""

    def compute(self, evaluation: Evaluation) -> Scores:
        labels = real_test_rows(evaluation).labels
        if evaluation.predictor is not None:
            raise NotComputable("the release is a model, not images to train an architecture on")
        network = self.fit(evaluation.rows, len(evaluation.dataset.schema.classes), evaluation)
        answers = _answers(evaluation, network)
        right = answers.argmax(axis=1) == labels
        estimate = _estimate(evaluation, lambda: bootstrap.mean(right))
        details = {f"predictions-{self.network}": _predictions(labels, answers)}
        return Scores((estimate.score(self),), details)


@final
class AugmentedAccuracy(_NetworkAccuracy):
    """Accuracy of the same ConvNet, trained as the condensation papers train it."""

    name: ClassVar[str] = "accuracy/convnet-augmented"
    definition: ClassVar[str] = (
        "As `accuracy/convnet`, with every image augmented at random in each step of a training "
        "twice as long: colour, crop, cutout, flip, scale or rotate (NDPDC paper, section V, after "
        "its reference [3]). Interval: 1000 bootstrap resamples of the test rows."
    )
    cost: ClassVar[str] = "seconds at 8x8 pixels, a minute or two at 28x28"
    network = "convnet-augmented"

    def fit(self, rows: Rows, classes: int, evaluation: Evaluation) -> ReleasedModel:
        from bench.metrics.utility import _networks

        rng = evaluation.generator("model/convnet-augmented")
        return _networks.fit_convnet(rows, classes, _shape(evaluation), rng, augment=True)


class _ArchitectureAccuracy(_NetworkAccuracy):
    """Accuracy of another architecture than the ConvNet."""

    cost: ClassVar[str] = "seconds at 8x8 pixels, up to a minute at 28x28"

    @property
    @abstractmethod
    def architecture(self) -> str:
        """Its name in `_networks.ARCHITECTURES`."""

    @property
    def network(self) -> str:
        return self.architecture

    def fit(self, rows: Rows, classes: int, evaluation: Evaluation) -> ReleasedModel:

        from bench.metrics.utility import _networks

        rng = evaluation.generator(f"model/{self.architecture}")
        return _networks.fit(self.architecture, rows, classes, _shape(evaluation), rng)


def _defined(architecture: str, more: str) -> str:
    return (
        f"Share of real test images that {architecture} classifies correctly after training from "
        f"scratch on the released images (NDPDC paper, table III; {more}; steps as those of the "
        "ConvNet, no augmentation). Interval: 1000 bootstrap resamples of the test rows."
    )


@final
class MlpAccuracy(_ArchitectureAccuracy):
    """Accuracy of a multi-layer perceptron."""

    name: ClassVar[str] = "accuracy/mlp"
    definition: ClassVar[str] = _defined("an MLP", "two hidden layers of 128")
    architecture = "mlp"


@final
class LeNetAccuracy(_ArchitectureAccuracy):
    """Accuracy of LeNet."""

    name: ClassVar[str] = "accuracy/lenet"
    definition: ClassVar[str] = _defined("LeNet", "12x12 grey or 16x16 colour pixels at least")
    architecture = "lenet"


@final
class AlexNetAccuracy(_ArchitectureAccuracy):
    """Accuracy of AlexNet."""

    name: ClassVar[str] = "accuracy/alexnet"
    definition: ClassVar[str] = _defined("AlexNet", "a quarter of its channels")
    architecture = "alexnet"


@final
class Vgg11Accuracy(_ArchitectureAccuracy):
    """Accuracy of VGG11."""

    name: ClassVar[str] = "accuracy/vgg11"
    definition: ClassVar[str] = _defined(
        "VGG11",
        "a quarter of its channels, instance normalisation, 28x28 grey or 32x32 colour pixels at "
        "least",
    )
    architecture = "vgg11"


@final
class ResNet18Accuracy(_ArchitectureAccuracy):
    """Accuracy of ResNet18."""

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
    return evaluation.shared(
        ("model", "convnet"),
        lambda: _fit_convnet(evaluation, evaluation.rows, evaluation.generator("model/convnet")),
    )


def _fit_convnet(evaluation: Evaluation, rows: Rows, rng: np.random.Generator) -> ReleasedModel:
    from bench.metrics.utility import _networks

    classes = len(evaluation.dataset.schema.classes)
    return _networks.fit_convnet(rows, classes, _shape(evaluation), rng)


def _shape(evaluation: Evaluation) -> tuple[int, int, int]:
    shape = evaluation.dataset.schema.image_shape
    if shape is None:
        raise NotComputable("the dataset declares no image shape")
    return shape


def _answers(evaluation: Evaluation, model: ReleasedModel) -> Array:
    test: Floats = evaluation.dataset.test.rows.values
    features = test[:, : evaluation.dataset.encoder.feature_width]
    return downstream_models.class_scores(model, features, len(evaluation.dataset.schema.classes))


def _estimate(evaluation: Evaluation, statistic: Callable[[], Statistic]) -> Estimate:
    """Every architecture is compared on the same resamples."""
    return bootstrap.bootstrap(
        statistic(),
        np.zeros(len(evaluation.dataset.test.rows)),
        bootstrap.of_dataset(evaluation),
    )


def _predictions(labels: Integers, answers: Array) -> pd.DataFrame:
    return pd.DataFrame({"label": labels, "predicted": answers.argmax(axis=1)})
