"""Detection of the rarer class on real test rows, by a detector trained on the release."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import (
    Detector,
    Direction,
    Evaluation,
    Family,
    Floats,
    Metric,
    NotComputable,
    Output,
    ReleasedModel,
    Score,
    Scores,
    Task,
)
from bench.metrics._shared import bootstrap as _bootstrap
from bench.metrics._shared.auroc import auroc
from bench.metrics._shared.bootstrap import Array
from bench.metrics._shared.intervals import clopper_pearson

if TYPE_CHECKING:
    from sklearn.ensemble import IsolationForest

Flags = npt.NDArray[np.bool_]

EXPLAINED = 0.8
"""Share of the variance of normal rows that the bottleneck of the autoencoder keeps."""

DEVIATIONS = (2.0, 3.0)
"""The paper's k, "typically 2 or 3": the first decides the scores, the details have both."""
TREES = 100
ROWS_PER_TREE = 256
"""Rows per tree of the isolation forest (Liu, Ting and Zhou, Isolation Forest, ICDM 2008)."""
REAL_DETECTORS = ("real", "isolation forest")
"""Names of the detectors trained on real rows: the linear autoencoder and the forest."""
NO_THRESHOLD = "no normal validation rows: no threshold"
NONE_FLAGGED = "no test row lies above the threshold"


@final
@dataclass(frozen=True)
class LinearAutoencoder(ReleasedModel):
    """Reconstruction error of a linear autoencoder, in closed form by principal components.

    The mean and the components minimise the squared reconstruction error among all linear maps
    through a bottleneck of that width.
    """

    mean: Array
    components: Array
    """(width of the bottleneck, features), orthonormal rows."""

    def predict(self, values: Floats) -> Array:
        """Equation 9: the norm of a row minus its reconstruction."""
        shifted = np.asarray(values, dtype=np.float64) - self.mean
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
    mean = shares @ rows
    shifted = rows - mean
    variances, directions = np.linalg.eigh(shifted.T @ (shifted * shares[:, None]))
    variances = np.maximum(variances[::-1], 0.0)
    if variances.sum() <= 1e-12:
        raise NotComputable("all normal rows are alike: no detector can be trained")
    explained = np.cumsum(variances) / variances.sum()
    kept = int(np.searchsorted(explained, EXPLAINED)) + 1
    return LinearAutoencoder(mean, directions[:, ::-1][:, :kept].T.copy())


@final
@dataclass(frozen=True)
class IsolationDetector(ReleasedModel):
    """Scores of an isolation forest in (0, 1], near 1 for rows that few cuts isolate."""

    forest: IsolationForest

    def predict(self, values: Floats) -> npt.NDArray[np.float64]:
        """s(x) = 2^(-mean depth / expected depth), equation 2 of the paper."""
        if not len(values):
            return np.zeros(0)
        scores: Any = self.forest.score_samples(np.asarray(values, dtype=np.float64))
        return np.asarray(-scores, dtype=np.float64)


def fit_forest(features: Floats, rng: np.random.Generator) -> IsolationDetector:
    """Grow an isolation forest on one thread, so that the sums are always the same."""
    from sklearn.ensemble import IsolationForest

    if len(features) < 2:
        raise NotComputable(f"{len(features)} real rows: no isolation forest can be grown")
    forest = IsolationForest(
        n_estimators=TREES,
        max_samples=min(ROWS_PER_TREE, len(features)),
        random_state=int(rng.integers(2**32)),
        n_jobs=1,
    )
    return IsolationDetector(forest.fit(np.asarray(features, dtype=np.float64)))


@final
@dataclass(frozen=True)
class DetectorThreshold:
    """Rows above it are flagged."""

    value: float
    deviations: float = math.nan
    """k of mean + k standard deviations; NaN for the threshold that a detector came with."""


@final
@dataclass(frozen=True)
class DetectorScores:
    """Scores that a detector gives to test rows, and thresholds: the first one decides."""

    scores: Array
    thresholds: tuple[DetectorThreshold, ...]

    def flagged(self, place: int = 0) -> Flags:
        """Rows above the threshold."""
        above: Flags = self.scores > self.thresholds[place].value
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
        "(the paper takes all rows, few of them anomalies); a released detector is judged by the "
        "threshold that it came with. The details hold the same numbers for the linear "
        "autoencoder and for an isolation forest on the real training rows of the more frequent "
        "class, pooled over all sites."
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
            raise NotComputable("the test rows hold one class only: nothing to distinguish")
        by_detector = scores_by_detector(evaluation, normal)
        released = by_detector["released"]
        auc = _bootstrap.bootstrap(
            auroc(anomalous, released.scores),
            labels,
            _bootstrap.of_dataset(evaluation),
        )
        scores = (auc.score(self, "anomaly/auc"), *self._at_threshold(released, anomalous))
        return Scores(
            scores,
            {
                "anomaly": threshold_table(by_detector, anomalous),
                "anomaly-scores": pd.DataFrame(
                    {"anomaly": anomalous.astype(np.int64), "score": released.scores}
                ),
            },
        )

    def _at_threshold(self, released: DetectorScores, anomalous: Flags) -> tuple[Score, Score]:
        if not released.thresholds:
            return (
                self.absent("anomaly/precision", NO_THRESHOLD),
                self.absent("anomaly/recall", NO_THRESHOLD),
            )
        flagged = released.flagged()
        caught, all_flagged = int((flagged & anomalous).sum()), int(flagged.sum())
        precision = (
            self.score(
                "anomaly/precision", caught / all_flagged, *clopper_pearson(caught, all_flagged)
            )
            if all_flagged
            else self.absent("anomaly/precision", NONE_FLAGGED)
        )
        every = int(anomalous.sum())
        recall = self.score("anomaly/recall", caught / every, *clopper_pearson(caught, every))
        return precision, recall


def normal_class(by_class: tuple[int, ...]) -> int:
    """The more frequent class by the public counts; the first one where they are equal."""
    return int(np.argmax(by_class))


def released_detector(evaluation: Evaluation, normal: int) -> ReleasedModel:
    """The released model, or the linear autoencoder of the released rows of the normal class."""
    if evaluation.release.model is not None:
        return evaluation.release.model
    rows = evaluation.rows

    def build() -> LinearAutoencoder:
        given = rows.weights
        weights = np.ones(len(rows)) if given is None else np.asarray(given, np.float64)
        kept = (rows.labels == normal) & (weights > 0)
        width = evaluation.dataset.encoder.feature_width
        return fit_autoencoder(rows.values[kept, :width], weights[kept])

    return evaluation.shared("anomaly/detector", build)


def real_detector(evaluation: Evaluation, name: str) -> ReleasedModel:
    """A detector trained on the real training rows of the normal class, of all sites together."""

    def build(rng: np.random.Generator) -> ReleasedModel:
        dataset = evaluation.dataset
        train, normal = dataset.train.rows, normal_class(dataset.declaration.by_class)
        features = train.values[train.labels == normal, : dataset.encoder.feature_width]
        if name == "real":
            return fit_autoencoder(features, np.ones(len(features)))
        return fit_forest(features, rng)

    purpose = "autoencoder" if name == "real" else name
    return evaluation.reference(f"anomaly/{purpose}", build)


def scores_by_detector(evaluation: Evaluation, normal: int) -> dict[str, DetectorScores]:
    """Score the test rows by the released detector and by those trained on real rows."""
    test = evaluation.dataset.test.rows
    features = test.values[:, : evaluation.dataset.encoder.feature_width]

    def asked(detector: ReleasedModel) -> DetectorScores:
        return _detector_scores(evaluation, detector, normal, features)

    released = evaluation.shared(
        "anomaly/released", lambda: asked(released_detector(evaluation, normal))
    )

    def by_real_rows(name: str) -> DetectorScores:
        return evaluation.reference(
            f"anomaly/scores/{name}", lambda _: asked(real_detector(evaluation, name))
        )

    return {"released": released} | {name: by_real_rows(name) for name in REAL_DETECTORS}


def scores_of(
    evaluation: Evaluation, normal: int, features: Floats
) -> dict[str, npt.NDArray[np.float64]]:
    """Scores of further rows by the same detectors."""
    detectors = {"released": released_detector(evaluation, normal)}
    detectors |= {name: real_detector(evaluation, name) for name in REAL_DETECTORS}
    return {name: _anomaly_scores(detector, features) for name, detector in detectors.items()}


def _detector_scores(
    evaluation: Evaluation, detector: ReleasedModel, normal: int, features: Floats
) -> DetectorScores:
    """Score rows; thresholds are the detector's, then those of the validation rows."""
    dataset = evaluation.dataset
    validation = dataset.validation.rows
    usual = validation.values[validation.labels == normal, : dataset.encoder.feature_width]
    thresholds: list[DetectorThreshold] = []
    if isinstance(detector, Detector):
        if not math.isfinite(detector.threshold):
            raise NotComputable(f"the released detector has the threshold {detector.threshold}")
        thresholds.append(DetectorThreshold(float(detector.threshold)))
    if len(usual):
        errors = _anomaly_scores(detector, usual)
        mean, spread = float(errors.mean()), float(errors.std())
        thresholds += [DetectorThreshold(mean + k * spread, k) for k in DEVIATIONS]
    return DetectorScores(_anomaly_scores(detector, features), tuple(thresholds))


def _anomaly_scores(detector: ReleasedModel, features: Floats) -> Array:
    scores = np.asarray(detector.predict(features), dtype=np.float64)
    if scores.shape != (len(features),):
        raise NotComputable(
            f"the released model answers in shape {scores.shape}: a classifier; a detector gives "
            "one number per row"
        )
    if not np.isfinite(scores).all():
        raise NotComputable("the released model answers with NaN or infinite scores")
    return scores


def threshold_table(by_detector: Mapping[str, DetectorScores], anomalous: Flags) -> pd.DataFrame:
    """One row per detector and threshold."""
    rows = []
    for name, one in by_detector.items():
        auc = float(auroc(anomalous, one.scores)(np.ones((len(anomalous), 1)))[0])
        for place, threshold in enumerate(one.thresholds):
            flagged = one.flagged(place)
            caught = int((flagged & anomalous).sum())
            precision = caught / int(flagged.sum()) if flagged.any() else math.nan
            recall = caught / int(anomalous.sum())
            counts = (int(flagged.sum()), caught)
            at = (threshold.deviations, threshold.value)
            rows.append((name, *at, auc, *counts, precision, recall))
    names = ["trained", "deviations", "threshold", "auc", "flagged", "caught"]
    return pd.DataFrame(rows, columns=[*names, "precision", "recall"])
