"""How well a detector of anomalies trained on the release does on real test rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.core.encode import Floats
from bench.core.errors import NotComputable
from bench.core.metric import Direction, Evaluation, Family, Metric, Output, Score, Scores
from bench.core.release import ReleasedModel
from bench.core.schema import Task
from bench.metrics import _bootstrap
from bench.metrics._bootstrap import Array
from bench.metrics._intervals import clopper_pearson

EXPLAINED = 0.8
"""Share of the variance of normal rows that the bottleneck of the autoencoder keeps."""

DEVIATIONS = (2.0, 3.0)
"""The paper's k, "typically 2 or 3": the first decides the scores, the details have both."""


@final
@dataclass(frozen=True)
class LinearAutoencoder(ReleasedModel):
    """Reconstruction error of a linear autoencoder, in closed form by principal components.

    The mean and the components minimise the squared reconstruction error among all linear maps
    through a bottleneck of that width.
    """

    centre: Array
    components: Array
    """(width of the bottleneck, features), orthonormal rows."""

    def predict(self, values: Floats) -> Array:
        """Equation 9: the norm of a row minus its reconstruction."""
        shifted = np.asarray(values, dtype=np.float64) - self.centre
        error: Array = np.linalg.norm(
            shifted - shifted @ self.components.T @ self.components, axis=1
        )
        return error


def fit_autoencoder(features: Floats, weights: Array) -> LinearAutoencoder:
    """Train on normal rows: as many components as explain the share of the variance."""
    if len(features) < 2:
        raise NotComputable(f"{len(features)} normal rows: no detector can be trained")
    rows = np.asarray(features, dtype=np.float64)
    shares = weights / weights.sum()
    centre = shares @ rows
    shifted = rows - centre
    variances, directions = np.linalg.eigh(shifted.T @ (shifted * shares[:, None]))
    variances = np.maximum(variances[::-1], 0.0)
    if variances.sum() <= 1e-12:
        raise NotComputable("all normal rows are alike: no detector can be trained")
    explained = np.cumsum(variances) / variances.sum()
    kept = int(np.searchsorted(explained, EXPLAINED)) + 1
    return LinearAutoencoder(centre, directions[:, ::-1][:, :kept].T.copy())


@final
@dataclass(frozen=True)
class _Judged:
    """Scores of test rows, and thresholds from validation rows."""

    scores: Array
    thresholds: tuple[float, ...]

    def flagged(self, place: int) -> npt.NDArray[np.bool_]:
        """Rows above the threshold."""
        above: npt.NDArray[np.bool_] = self.scores > self.thresholds[place]
        return above


@final
class AnomalyDetection(Metric):
    """The rarer class as anomalies."""

    name: ClassVar[str] = "anomaly"
    family: ClassVar[Family] = Family.UTILITY
    definition: ClassVar[str] = (
        "Detection of the rarer class among the real test rows by reconstruction errors "
        "(federated distillation paper, section 4.6, equation 9) of an autoencoder trained on the "
        "released rows of the more frequent class, or by the scores of the model that was "
        "released. The paper leaves the autoencoder open: here it is linear (principal "
        f"components that explain {EXPLAINED:.0%} of the variance), the same for every release. "
        "It injects simulated anomalies into a closed dataset; here a class that the detector "
        "never saw stands for them. Threshold: mean + "
        f"{DEVIATIONS[0]:g} standard deviations of the errors of the normal real validation rows "
        "(the paper takes all rows, few of them anomalies)."
    )
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "anomaly/auc",
            Direction.HIGHER,
            "Area under the ROC curve. Interval: 1000 bootstrap resamples of the test rows within "
            "each class.",
        ),
        Output(
            "anomaly/precision",
            Direction.HIGHER,
            "Share of anomalies among the rows above the threshold. Interval: Clopper-Pearson.",
        ),
        Output(
            "anomaly/recall",
            Direction.HIGHER,
            "Share of the anomalies that lie above the threshold. Interval: Clopper-Pearson.",
        ),
    )
    tasks: ClassVar[tuple[Task, ...]] = (Task.CLASSIFICATION,)

    def compute(self, evaluation: Evaluation) -> Scores:
        dataset = evaluation.dataset
        classes = len(dataset.schema.classes)
        if classes != 2:
            raise NotComputable(f"defined for two classes, the dataset has {classes}")
        normal = normal_class(dataset.declaration.by_class)
        labels = dataset.test.rows.labels
        anomalous = labels != normal
        if not anomalous.any() or anomalous.all():
            raise NotComputable("the test rows hold one class only: nothing to tell apart")
        released = _judged(evaluation, _detector(evaluation, normal), normal)
        real = evaluation.reference("anomaly", lambda rng: _real(evaluation, normal))
        auc = _bootstrap.bootstrap(
            _bootstrap.auroc(anomalous, released.scores),
            labels,
            evaluation.generator("bootstrap/anomaly"),
        )
        scores = (auc.score(self, "anomaly/auc"), *self._at_threshold(released, anomalous))
        return Scores(
            scores,
            {
                "anomaly": _table({"released": released, "real": real}, anomalous),
                "anomaly-scores": pd.DataFrame(
                    {"anomaly": anomalous.astype(np.int64), "score": released.scores}
                ),
            },
        )

    def _at_threshold(
        self, judged: _Judged, anomalous: npt.NDArray[np.bool_]
    ) -> tuple[Score, Score]:
        if not judged.thresholds:
            reason = "no normal validation rows: no threshold"
            return (
                self.absent("anomaly/precision", reason),
                self.absent("anomaly/recall", reason),
            )
        flagged = judged.flagged(0)
        caught, all_flagged = int((flagged & anomalous).sum()), int(flagged.sum())
        precision = (
            self.score(
                "anomaly/precision", caught / all_flagged, *clopper_pearson(caught, all_flagged)
            )
            if all_flagged
            else self.absent("anomaly/precision", "no test row lies above the threshold")
        )
        every = int(anomalous.sum())
        recall = self.score("anomaly/recall", caught / every, *clopper_pearson(caught, every))
        return precision, recall


def normal_class(by_class: tuple[int, ...]) -> int:
    """The more frequent class by the public counts; the first one where they are equal."""
    return int(np.argmax(by_class))


def _detector(evaluation: Evaluation, normal: int) -> ReleasedModel:
    if evaluation.release.model is not None:
        return evaluation.release.model
    rows = evaluation.rows
    weights = np.ones(len(rows)) if rows.weights is None else np.asarray(rows.weights, np.float64)
    kept = (rows.labels == normal) & (weights > 0)
    width = evaluation.dataset.encoder.feature_width
    return fit_autoencoder(rows.values[kept, :width], weights[kept])


def _real(evaluation: Evaluation, normal: int) -> _Judged:
    """The detector trained on the real training rows of the normal class."""
    train = evaluation.dataset.train.rows
    features = train.values[train.labels == normal, : evaluation.dataset.encoder.feature_width]
    return _judged(evaluation, fit_autoencoder(features, np.ones(len(features))), normal)


def _judged(evaluation: Evaluation, detector: ReleasedModel, normal: int) -> _Judged:
    dataset, width = evaluation.dataset, evaluation.dataset.encoder.feature_width
    validation = dataset.validation.rows
    usual = validation.values[validation.labels == normal, :width]
    thresholds: tuple[float, ...] = ()
    if len(usual):
        errors = _anomaly_scores(detector, usual)
        thresholds = tuple(float(errors.mean() + k * errors.std()) for k in DEVIATIONS)
    return _Judged(_anomaly_scores(detector, dataset.test.rows.values[:, :width]), thresholds)


def _anomaly_scores(detector: ReleasedModel, features: Floats) -> Array:
    scores = np.asarray(detector.predict(features), dtype=np.float64)
    if scores.shape != (len(features),):
        raise NotComputable(
            f"the released model answers in shape {scores.shape}: a classifier; a detector gives "
            "one number a row"
        )
    if not np.isfinite(scores).all():
        raise NotComputable("the released model answers with NaN or infinite scores")
    return scores


def _table(judged: dict[str, _Judged], anomalous: npt.NDArray[np.bool_]) -> pd.DataFrame:
    """Both detectors at both thresholds."""
    rows = []
    for name, one in judged.items():
        auc = float(_bootstrap.auroc(anomalous, one.scores)(np.ones((len(anomalous), 1)))[0])
        for place, threshold in enumerate(one.thresholds):
            flagged = one.flagged(place)
            caught = int((flagged & anomalous).sum())
            precision = caught / int(flagged.sum()) if flagged.any() else math.nan
            recall = caught / int(anomalous.sum())
            counts = (int(flagged.sum()), caught)
            rows.append((name, DEVIATIONS[place], threshold, auc, *counts, precision, recall))
    names = ["trained", "deviations", "threshold", "auc", "flagged", "caught"]
    return pd.DataFrame(rows, columns=[*names, "precision", "recall"])
