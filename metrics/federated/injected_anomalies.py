"""Detection of injected rows whose values are legal but do not belong together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import (
    Categorical,
    Direction,
    Encoder,
    Evaluation,
    Family,
    Floats,
    Metric,
    NotComputable,
    Numeric,
    Output,
    Score,
    Scores,
    Task,
)
from bench.metrics._shared import bootstrap as _bootstrap
from bench.metrics._shared.auroc import auroc
from bench.metrics._shared.intervals import clopper_pearson
from bench.metrics.federated.anomaly import (
    DEVIATIONS,
    NO_THRESHOLD,
    NONE_FLAGGED,
    DetectorScores,
    Flags,
    normal_class,
    scores_by_detector,
    scores_of,
)

PREVALENCE = 0.02
"""Section 5.2: "2% of the samples in the test set"."""

REDRAWN = 0.2
"""Share of its columns in which an anomaly differs from a test row; at least one column."""

AT_LEAST = 500
"""Anomalies: 2% of a small test set would be one or two rows."""

_FOREST = "isolation forest"


def injected(
    encoder: Encoder, rows: Floats, count: int, rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Copies of random rows with some columns drawn anew, uniformly over the public schema."""
    blocks = [block for block in encoder.blocks if block.stop <= encoder.feature_width]
    values = np.array(rows[rng.integers(0, len(rows), count)], dtype=np.float64)
    changed = max(1, round(REDRAWN * len(blocks)))
    # The first places of a random order are a random subset of the columns.
    order = np.argsort(rng.random((count, len(blocks))), axis=1)
    for number, block in enumerate(blocks):
        chosen = np.flatnonzero((order[:, :changed] == number).any(axis=1))
        column, drawn = block.column, rng.random(len(chosen))
        if isinstance(column, Categorical):
            codes = np.floor(drawn * len(column.categories)).astype(np.intp)
            if column.binary:
                values[chosen, block.start] = 2.0 * codes - 1.0
            else:
                values[chosen, block.slice] = np.eye(len(column.categories))[codes]
        elif isinstance(column, Numeric):
            if column.integer:
                span = column.high - column.low
                drawn = np.floor(drawn * (span + 1.0)) / span
            values[chosen, block.start] = 2.0 * drawn - 1.0
    return values


def recombined(
    encoder: Encoder, rows: Floats, count: int, rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Copies of random rows with some columns taken from other random rows, each from its own."""
    blocks = [block for block in encoder.blocks if block.stop <= encoder.feature_width]
    values = np.array(rows[rng.integers(0, len(rows), count)], dtype=np.float64)
    changed = max(1, round(REDRAWN * len(blocks)))
    order = np.argsort(rng.random((count, len(blocks))), axis=1)
    for number, block in enumerate(blocks):
        chosen = np.flatnonzero((order[:, :changed] == number).any(axis=1))
        donors = rng.integers(0, len(rows), len(chosen))
        values[chosen, block.slice] = np.asarray(rows, dtype=np.float64)[donors, block.slice]
    return values


@final
class InjectedAnomalies(Metric):
    """Unlikely combinations of legal values as anomalies."""

    name: ClassVar[str] = "injected-anomalies"
    family: ClassVar[Family] = Family.UTILITY
    definition: ClassVar[str] = (
        "Detection of injected anomalies among the real test rows of the more frequent class, by "
        "the scores of the released detector or by the linear autoencoder of metric `anomaly`, "
        "trained on the released rows of that class. The federated distillation paper (section "
        '5.2, figure 2) injects "rare patterns not present in the training distribution" and does '
        "not say how. Here an anomaly is a copy of a random such test row with "
        f"{REDRAWN:.0%} of its columns, at least one, chosen at random and drawn anew, each "
        "uniformly over its public range or categories: every value is legal, the combination is "
        "rare as a rule, though some may be usual rows by chance. Values far from all real ones "
        "make such rows easy in wide tables, where even a detector trained on noise finds them; "
        "`injected/auc-recombined` is for anomalies that are not: their columns are those of other "
        "random test rows, each usual by itself. "
        "Threshold: the detector's own, or mean + "
        f"{DEVIATIONS[0]:g} standard deviations of the normal real validation rows. Beside it, in "
        "the details: the linear autoencoder and an isolation forest (100 trees) on the real "
        "training rows of that class, pooled over all sites, which no federated detector can see."
    )
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "injected/auc",
            Direction.HIGHER,
            f"Area under the ROC curve, with {AT_LEAST} anomalies or more, which the area does not "
            "depend on. Interval: 1000 bootstrap resamples of normal rows and of anomalies.",
        ),
        Output(
            "injected/precision",
            Direction.HIGHER,
            "Share of anomalies among the rows above the threshold, weighted so that "
            f"{PREVALENCE:.0%} of all rows are anomalies, as in the paper. Interval: bootstrap.",
        ),
        Output(
            "injected/recall",
            Direction.HIGHER,
            "Share of the anomalies that lie above the threshold. Interval: Clopper-Pearson.",
        ),
        Output(
            "injected/auc-ratio",
            Direction.HIGHER,
            "The area divided by that of an isolation forest on the pooled real rows, on the same "
            "rows; above 1 the release does better. Interval: paired bootstrap.",
        ),
        Output(
            "injected/forest",
            Direction.NEUTRAL,
            "The area of that isolation forest. Interval: bootstrap.",
        ),
        Output(
            "injected/auc-recombined",
            Direction.HIGHER,
            "Area under the ROC curve for anomalies whose columns are those of other rows. "
            "Interval: 1000 bootstrap resamples of normal rows and of anomalies.",
        ),
        Output(
            "injected/forest-recombined",
            Direction.NEUTRAL,
            "The area of the isolation forest for these anomalies. Interval: bootstrap.",
        ),
    )
    tasks: ClassVar[tuple[Task, ...]] = (Task.CLASSIFICATION,)

    def compute(self, evaluation: Evaluation) -> Scores:
        dataset = evaluation.dataset
        normal = normal_class(dataset.declaration.by_class)
        test = dataset.test.rows
        usual = test.values[test.labels == normal, : dataset.encoder.feature_width]
        if not len(usual):
            raise NotComputable("no test row of the more frequent class: nothing to inject into")
        count = max(AT_LEAST, round(PREVALENCE / (1.0 - PREVALENCE) * len(usual)))
        rng = evaluation.generator("injected-anomalies")
        strange = injected(dataset.encoder, usual, count, rng)
        anomalous = np.repeat([False, True], [len(usual), count])
        of_strange = scores_of(evaluation, normal, strange)
        by_detector = {
            name: replace(
                one, scores=np.concatenate([one.scores[test.labels == normal], of_strange[name]])
            )
            for name, one in scores_by_detector(evaluation, normal).items()
        }
        mixed = recombined(
            dataset.encoder, usual, count, evaluation.generator("recombined-anomalies")
        )
        of_mixed = scores_of(evaluation, normal, mixed)
        areas = {
            output: auroc(
                anomalous,
                np.concatenate([by_detector[name].scores[: len(usual)], of_mixed[name]]),
            )
            for output, name in (
                ("injected/auc-recombined", "released"),
                ("injected/forest-recombined", _FOREST),
            )
        }
        return Scores(
            self._scores(evaluation, by_detector, anomalous, areas),
            {
                "injected-anomalies": _threshold_table(by_detector, anomalous),
                "injected-scores": pd.DataFrame(
                    {"anomaly": anomalous.astype(np.int64)}
                    | {name.replace(" ", "_"): one.scores for name, one in by_detector.items()}
                ),
            },
        )

    def _scores(
        self,
        evaluation: Evaluation,
        by_detector: dict[str, DetectorScores],
        anomalous: Flags,
        areas: Mapping[str, _bootstrap.Statistic],
    ) -> tuple[Score, ...]:
        released = by_detector["released"]
        area, forest = (auroc(anomalous, one.scores) for one in (released, by_detector[_FOREST]))
        statistics: dict[str, _bootstrap.Statistic] = {
            "injected/auc": area,
            "injected/auc-ratio": _bootstrap.quotient(area, forest),
            "injected/forest": forest,
            **areas,
        }
        if released.thresholds and released.flagged().any():
            statistics["injected/precision"] = _precision(released.flagged(), anomalous)
        estimates = _bootstrap.bootstrap_all(
            statistics, anomalous, _bootstrap.of_dataset(evaluation)
        )
        scores = [
            self.absent(name, str(estimate))
            if isinstance(estimate, NotComputable)
            else estimate.score(self, name)
            for name, estimate in estimates.items()
        ]
        if "injected/precision" not in statistics:
            reason = NONE_FLAGGED if released.thresholds else NO_THRESHOLD
            scores.append(self.absent("injected/precision", reason))
        return (*scores, self._recall(released, anomalous))

    def _recall(self, released: DetectorScores, anomalous: Flags) -> Score:
        if not released.thresholds:
            return self.absent("injected/recall", NO_THRESHOLD)
        caught, every = int(released.flagged()[anomalous].sum()), int(anomalous.sum())
        return self.score("injected/recall", caught / every, *clopper_pearson(caught, every))


def _precision(flagged: Flags, anomalous: Flags) -> _bootstrap.Statistic:
    """pi TPR / (pi TPR + (1 - pi) FPR), where pi is the share of anomalies among all rows."""
    true = flagged & anomalous
    false = flagged & ~anomalous
    part = PREVALENCE * true / anomalous.sum()
    return _bootstrap.share(part, part + (1.0 - PREVALENCE) * false / (~anomalous).sum())


def _threshold_table(by_detector: dict[str, DetectorScores], anomalous: Flags) -> pd.DataFrame:
    """One row per detector and threshold."""
    rows = []
    once = np.ones((len(anomalous), 1))
    for name, one in by_detector.items():
        auc = float(auroc(anomalous, one.scores)(once)[0])
        for place, threshold in enumerate(one.thresholds):
            flagged = one.flagged(place)
            precision = (
                float(_precision(flagged, anomalous)(once)[0]) if flagged.any() else math.nan
            )
            shares = (float(flagged[~anomalous].mean()), float(flagged[anomalous].mean()))
            at = (threshold.deviations, threshold.value)
            rows.append((name, *at, auc, precision, *shares))
    names = ["trained", "deviations", "threshold", "auc", "precision"]
    return pd.DataFrame(rows, columns=[*names, "false_alarms", "recall"])
