"""Distance to the closest record: do released rows copy, or nearly copy, training rows?

Rows are compared as a reader of the release would see them: training and control rows go through
the encoder and back like the release does, so that clipped, filled and rounded values agree.
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.core.errors import NotComputable
from bench.core.metric import Direction, Evaluation, Family, Metric, Output, Score, Scores
from bench.metrics import _bootstrap, _distance
from bench.metrics._distance import Records
from bench.metrics._intervals import clopper_pearson
from bench.metrics._records import occurring_once, real_records, released_records

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
    outputs: ClassVar[tuple[Output, ...]] = (
        Output("dcr/median", Direction.HIGHER),
        Output("dcr/gap", Direction.LOWER),
        Output("dcr/copies", Direction.LOWER),
    )
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
        train_once, control_once = occurring_once(train, control)
        copies = copied(train, released)
        median = _bootstrap.bootstrap_median(to_train, evaluation.generator("bootstrap/dcr"))
        scores = (
            median.score(self, "dcr/median"),
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


def _gap(evaluation: Evaluation, train: Array, control: Array) -> Score:
    if min(len(train), len(control)) < LEAST_ROWS:
        reason = (
            f"{len(train)} training and {len(control)} control rows occur only once in the two; "
            f"at least {LEAST_ROWS} of each are needed"
        )
        return ClosestRecord.absent("dcr/gap", reason)
    rng = evaluation.generator("bootstrap/dcr/gap")
    near = _bootstrap.bootstrap_median(train, rng)
    far = _bootstrap.bootstrap_median(control, rng)
    gap = _bootstrap.Estimate(far.value - near.value, far.samples - near.samples)
    return gap.score(ClosestRecord, "dcr/gap")


def _copies(count: int, rows: int) -> Score:
    low, high = clopper_pearson(count, rows)
    return ClosestRecord.score("dcr/copies", count / rows, low, high)


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
