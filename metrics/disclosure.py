"""Distance to the closest record: do released rows copy, or nearly copy, training rows?

Rows are compared as a reader of the release would see them: training and control rows go through
the encoder and back like the release does, so that clipped, filled and rounded values agree.
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.core.dataset import Split
from bench.core.errors import NotComputable
from bench.core.metric import Direction, Evaluation, Family, Metric, Score, Scores
from bench.metrics import _bootstrap, _distance
from bench.metrics._distance import Records

Array = npt.NDArray[np.float64]

LEAST_ROWS = 10
"""Fewer rows on one side say nothing about a difference of medians."""

COMPARISONS_AT_MOST = 5e11
"""Comparisons of single values: some minutes on one core. 50,000 x 50,000 x 30 is 7.5e10."""

_BINS = 50


@final
class ClosestRecord(Metric):
    """Distances from real rows to the release, and exact copies among released rows.

    * `dcr/median`, higher is further: median over training rows. A useless release is far too.
    * `dcr/gap`, lower is better: median over control rows minus median over training rows, both
      without records that occur more than once in the two. Above 0 the release is closer to rows
      that it was made from than to fresh ones; differences below 0 are chance, not privacy.
    * `dcr/copies`, lower is better: share of released rows that equal a training row in every
      column, label and time included. Small tables of few categories have copies by chance.
    """

    name: ClassVar[str] = "dcr"
    family: ClassVar[Family] = Family.PRIVACY
    direction: ClassVar[Direction] = Direction.HIGHER
    definition: ClassVar[str] = (
        "Distance from a real row to the closest released row (fidelity paper, section 4.2.1, "
        "equation 7, by the distance of section 3.1, equation 1, whose printed numeric term is a "
        "similarity: one minus it): median over training rows, gap between the medians of control "
        "and training rows (above 0 training rows are closer), and share of released rows that "
        "copy a training row. Intervals: 1000 bootstrap resamples; Clopper-Pearson for copies."
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        _refuse_hours(evaluation)
        released = released_records(evaluation)
        train = real_records(evaluation, "train", evaluation.dataset.train)
        control = real_records(evaluation, "control", evaluation.dataset.control)
        to_train = closest(evaluation, "train", train)
        to_control = closest(evaluation, "control", control)
        train_once, control_once = _occurring_once(train, control)
        copies = copied(train, released)
        median = _bootstrap.bootstrap_median(to_train, evaluation.generator("bootstrap/dcr"))
        scores = (
            median.score("dcr/median", Direction.HIGHER, self.family),
            _gap(evaluation, to_train[train_once], to_control[control_once]),
            _copies(int(np.count_nonzero(copies)), len(copies)),
        )
        histogram = _histogram(
            {
                "train": to_train,
                "train, once": to_train[train_once],
                "control, once": to_control[control_once],
            }
        )
        return Scores(scores, {"dcr": histogram})


def _refuse_hours(evaluation: Evaluation) -> None:
    """Exact distances only: where they would take hours, the score is absent and says so."""
    dataset = evaluation.dataset
    real = len(dataset.train) + len(dataset.control)
    comparisons = real * len(evaluation.rows) * len(dataset.encoder.blocks)
    if comparisons > COMPARISONS_AT_MOST:
        raise NotComputable(
            f"{real:,} real and {len(evaluation.rows):,} released rows of "
            f"{len(dataset.encoder.blocks)} columns are {comparisons:.2g} comparisons, over "
            f"{COMPARISONS_AT_MOST:.2g}; distances are exact or absent, never of a sample"
        )


def released_records(evaluation: Evaluation) -> Records:
    """The released rows, for the record distance."""
    return evaluation.shared(
        "records/released",
        lambda: Records.of(evaluation.dataset.encoder, evaluation.decoded),
    )


def real_records(evaluation: Evaluation, name: str, split: Split) -> Records:
    """The rows of a split as they would look if they had been released."""
    encoder = evaluation.dataset.encoder
    return evaluation.shared(
        f"records/{name}",
        lambda: Records.of(encoder, encoder.decode(split.rows.values, split.rows.labels)),
    )


def closest(evaluation: Evaluation, name: str, real: Records) -> Array:
    """DCR of each real row (equation 7)."""
    return evaluation.shared(
        f"dcr/{name}",
        lambda: _distance.nearest(real, released_records(evaluation), evaluation.threads),
    )


def copied(train: Records, released: Records) -> npt.NDArray[np.bool_]:
    """For each released row: does it equal a training row?"""
    of_train, of_released = _distance.identities(train, released)
    return np.isin(of_released, of_train)


def clopper_pearson(successes: int, trials: int) -> tuple[float, float]:
    """Exact 95% interval of a share."""
    from scipy.stats import beta

    tail = (1 - _bootstrap.LEVEL) / 2
    failures = trials - successes
    low = beta.ppf(tail, successes, failures + 1) if successes else 0.0
    high = beta.ppf(1 - tail, successes + 1, failures) if failures else 1.0
    return float(low), float(high)


def _occurring_once(
    train: Records, control: Records
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Rows whose record occurs once in both tables together.

    A control row that also stands in train is no fresh row. To drop only those would leave the
    rare records among the control rows and the common ones, which are closer to any release,
    among the training rows: a gap without any copying. A record that occurs once is a training
    or a control row by the split's chance alone, wherever it lies.
    """
    of_train, of_control = _distance.identities(train, control)
    counts = np.bincount(np.concatenate([of_train, of_control]))
    return counts[of_train] == 1, counts[of_control] == 1


def _gap(evaluation: Evaluation, train: Array, control: Array) -> Score:
    if min(len(train), len(control)) < LEAST_ROWS:
        reason = (
            f"{len(train)} training and {len(control)} control rows occur only once in the two; "
            f"at least {LEAST_ROWS} of each are needed"
        )
        return Score("dcr/gap", None, None, None, Direction.LOWER, Family.PRIVACY, reason)
    rng = evaluation.generator("bootstrap/dcr/gap")
    near = _bootstrap.bootstrap_median(train, rng)
    far = _bootstrap.bootstrap_median(control, rng)
    gap = _bootstrap.Estimate(far.value - near.value, far.samples - near.samples)
    return gap.score("dcr/gap", Direction.LOWER, Family.PRIVACY)


def _copies(count: int, rows: int) -> Score:
    low, high = clopper_pearson(count, rows)
    return Score("dcr/copies", count / rows, low, high, Direction.LOWER, Family.PRIVACY)


def _histogram(populations: dict[str, Array]) -> pd.DataFrame:
    """Counts in equal bins, the same for each population; the first bin holds exact zeros."""
    largest = max(float(values.max(initial=0.0)) for values in populations.values())
    edges = np.linspace(0.0, largest if largest > 0 else 1.0, _BINS + 1)
    tables = []
    for name, values in populations.items():
        positive = values[values > 0]
        counts = [len(values) - len(positive), *np.histogram(positive, edges)[0]]
        tables.append(
            pd.DataFrame(
                {
                    "rows": name,
                    "low": [0.0, *edges[:-1]],
                    "high": [0.0, *edges[1:]],
                    "count": counts,
                }
            )
        )
    return pd.concat(tables, ignore_index=True)
