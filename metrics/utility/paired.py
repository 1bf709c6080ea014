"""Which of two methods does better: both comparable on the same resamples of the same test rows.

Works on the details that metrics store (predictions of every test row), so that stored runs
can be compared without their releases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from bench import NotComputable
from bench.metrics._shared import bootstrap
from bench.metrics._shared.auroc import auroc, one_against_rest
from bench.metrics._shared.bootstrap import RESAMPLES, Array, Counted, Estimate, paired
from bench.metrics._shared.c_index import concordance


@final
@dataclass(frozen=True)
class ComparableMetric:
    """How a metric is computed again from the predictions that it stored."""

    details: str
    """Name of the table in `details/<key>/`."""
    identity: tuple[str, ...]
    """Columns that identify the test rows: equal for both methods."""
    statistic: Callable[[pd.DataFrame], Counted]
    stratum: str | None
    """Resamples are drawn within each value of this column."""


def _auroc(frame: pd.DataFrame) -> Counted:
    scores = frame.drop(columns="label").to_numpy(dtype=np.float64)
    labels = frame["label"].to_numpy()
    if scores.shape[1] == 1:
        return auroc(labels, scores[:, 0])
    return one_against_rest(auroc, labels, scores)


def _concordance(frame: pd.DataFrame) -> Counted:
    return concordance(frame["time"], frame["event"], frame["risk"])


def _accuracy(frame: pd.DataFrame) -> Counted:
    return bootstrap.mean(frame["label"] == frame["predicted"])


COMPARABLE: Mapping[str, ComparableMetric] = {
    "auroc": ComparableMetric("predictions", ("label",), _auroc, "label"),
    "c-index/cox": ComparableMetric("risks-cox", ("time", "event"), _concordance, None),
    "c-index/aft": ComparableMetric("risks-aft", ("time", "event"), _concordance, None),
    "accuracy/convnet": ComparableMetric("predictions-convnet", ("label",), _accuracy, None),
}
"""Metrics that two methods can be compared by."""


def compare(
    metric: str,
    first: Sequence[pd.DataFrame],
    second: Sequence[pd.DataFrame],
    rng: np.random.Generator,
    resamples: int = RESAMPLES,
) -> Estimate:
    """First minus second, each the mean over its seeds; one table of details per seed."""
    comparable = COMPARABLE[metric]
    rows = first[0]
    for frame in (*first, *second):
        same = len(frame) == len(rows) and all(
            np.array_equal(frame[name], rows[name]) for name in comparable.identity
        )
        if not same:
            raise NotComputable("the two were not tested on the same rows")
    strata: npt.NDArray[np.generic] = (
        np.zeros(len(rows)) if comparable.stratum is None else rows[comparable.stratum].to_numpy()
    )
    one, other = (
        bootstrap.average([comparable.statistic(frame) for frame in frames])
        for frames in (first, second)
    )
    return paired(one, other, strata, rng, resamples)


def by_seed(metric: str, frames: Sequence[pd.DataFrame]) -> Array:
    """The metric of each repetition, on the test rows as they are."""
    comparable = COMPARABLE[metric]
    whole = np.ones((len(frames[0]), 1))
    return np.array([float(comparable.statistic(frame)(whole)[0]) for frame in frames])


def t_test(first: npt.ArrayLike, second: npt.ArrayLike) -> float | None:
    """Paired t-test over repetitions, two-sided, as the federated distillation paper reports it.

    It tests whether other seeds would give the same result on these test rows; the resamples of
    `compare` test whether other test rows would. None for fewer than two seeds or no variation.
    """
    differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    if len(differences) < 2 or not np.ptp(differences) > 0:
        return None
    return float(stats.ttest_1samp(differences, 0.0).pvalue)
