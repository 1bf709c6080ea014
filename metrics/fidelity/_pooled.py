"""Training rows and released rows side by side, weighted to the same population.

A release with as many rows of each class as of any other would differ from the training rows in
every column that goes with the class, without being wrong. Released rows are therefore weighted to
the declared class shares (within a class by the release's own weights): what is compared is the
population that the release stands for. A class that the release lacks is left out of the shares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import pandas as pd

from bench import Column, Evaluation, Integers, NotComputable
from bench.metrics._shared import bootstrap as _bootstrap
from bench.metrics._shared.bootstrap import Array, Estimate

RESAMPLES = 200
"""Each resample of these metrics goes over all columns; 200 give the ends of an interval."""

ColumnStatistic = Callable[[Array], Array]
"""(rows, resamples) signed weights in, (distances, resamples) out. Released rows weigh positively,
training rows negatively, each sums to one."""

WEIGHTS_AND_INTERVAL = (
    "Released rows are weighted to the declared class shares, times their own weights. Interval: "
    "200 bootstrap resamples of both tables (released rows within class), corrected for the "
    "inflation of distances between resamples."
)


def class_shares(labels: Integers, declared: Sequence[int]) -> Array:
    """Of each row: the declared share of its class among the classes that are present."""
    present = np.bincount(labels, minlength=len(declared)) > 0
    shares = np.where(present, declared, 0)
    if not shares.sum():
        raise NotComputable("the release holds rows of classes only that are declared empty")
    result: Array = (shares / shares.sum())[labels]
    return result


@final
@dataclass(frozen=True)
class Pooled:
    """Training rows, then released rows with a positive weight."""

    frame: pd.DataFrame
    strata: Integers
    """0 for a training row, 1 + class for a released one."""
    weights: Array
    """Of the released rows, as released."""
    shares: Array
    """Of the released rows: the declared share of the class."""

    @property
    def real(self) -> int:
        """Number of training rows."""
        return len(self.frame) - len(self.weights)

    @property
    def released_weights(self) -> Array:
        """Of the released rows: class share times own weight within the class, summing to one."""
        ones = np.ones((len(self.frame), 1))
        result: Array = self.signed(ones)[self.real :, 0]
        return result

    @property
    def effective(self) -> float:
        """Kish's effective number of released rows, 1 / sum of squared weights that sum to one.

        So many rows of equal weight would have a mean of the same variance.
        """
        return float(1.0 / np.square(self.released_weights).sum())

    def numbers(self, name: str) -> Array:
        """A numeric column of all rows."""
        values: Array = self.frame[name].to_numpy(dtype=np.float64)
        return values

    def codes(self, name: str) -> Integers:
        """A categorical column of all rows, coded by the declared order."""
        return self.frame[name].cat.codes.to_numpy().astype(np.int64)

    def signed(self, counts: Array) -> Array:
        """Weights of a resample: training rows sum to -1, released rows to 1."""
        signed = np.empty_like(counts)
        signed[: self.real] = counts[: self.real] / -self.real
        labels = self.strata[self.real :] - 1
        released = counts[self.real :] * self.weights[:, None]
        for label in np.unique(labels):
            own = labels == label
            # Drawn within class, and all weights are positive: no class is lost in a resample.
            released[own] *= self.shares[own][0] / released[own].sum(axis=0)
        signed[self.real :] = released / released.sum(axis=0)
        return signed


def feature_columns(evaluation: Evaluation) -> list[Column]:
    """Features, and the time of a survival task."""
    return [block.column for block in evaluation.dataset.encoder.blocks]


def pooled(evaluation: Evaluation) -> Pooled:
    """The rows that the fidelity metrics of one release compare."""

    def build() -> Pooled:
        dataset, rows = evaluation.dataset, evaluation.rows
        if not len(dataset.train):
            raise NotComputable("the dataset has no training rows")
        weights = np.ones(len(rows)) if rows.weights is None else np.asarray(rows.weights, float)
        kept = weights > 0
        if not kept.any():
            raise NotComputable("every released row has weight 0")
        real = decoded_train(evaluation)
        labels = np.asarray(rows.labels, dtype=np.int64)[kept]
        return Pooled(
            pd.concat([real, evaluation.decoded[kept]], ignore_index=True),
            np.concatenate([np.zeros(len(real), dtype=np.int64), 1 + labels]),
            weights[kept],
            class_shares(labels, dataset.counts.by_class),
        )

    return evaluation.shared("pooled", build)


def decoded_train(evaluation: Evaluation) -> pd.DataFrame:
    """Training rows as a reader would see them if they were released: clipped, filled, rounded."""
    dataset = evaluation.dataset
    train = dataset.train.rows
    return evaluation.reference(
        "fidelity/decoded", lambda rng: dataset.encoder.decode(train.values, train.labels)
    )


def mean_over_columns(
    evaluation: Evaluation, statistics: Sequence[ColumnStatistic]
) -> tuple[list[Estimate], Array]:
    """Means of statistics over columns with their resamples, and each column's values.

    The values are (columns, statistics); the resamples are the same for all metrics of a release.
    """
    rows = pooled(evaluation)

    def mean(counts: Array) -> Array:
        signed = rows.signed(counts)
        total = statistics[0](signed)
        for statistic in statistics[1:]:
            total += statistic(signed)
        return total / len(statistics)

    ones = rows.signed(np.ones((len(rows.frame), 1)))
    values = np.array([statistic(ones)[:, 0] for statistic in statistics])
    rng = evaluation.generator("bootstrap/fidelity")
    resampled = _bootstrap.resampled_weights(rows.strata, rng, RESAMPLES)
    samples = np.concatenate([mean(counts) for counts in resampled], axis=1)
    means = values.mean(axis=0)
    return [Estimate(float(means[k]), samples[k]) for k in range(len(means))], values


def interval_of_distance(estimate: Estimate, most: float = np.inf) -> tuple[float, float]:
    """As `Estimate.distance_interval`, for distances with another upper bound than 1."""
    upper = estimate.interval[1]
    spread = max(0.0, upper - float(estimate.samples.mean()))
    low = min(estimate.value, 2 * estimate.value - upper)
    return max(0.0, low), min(most, estimate.value + spread)
