"""Distance to the closest record: do released rows copy, or nearly copy, training rows?

Rows are compared as a reader of the release would see them: training and control rows go through
the encoder and back like the release does, so that clipped, filled and rounded values agree.
Weights of released rows are not looked at: a copy with a small weight is a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt

from bench import Direction, Evaluation, Family, Metric, NotComputable, Output, Score, Scores
from bench.metrics._shared import bootstrap as _bootstrap
from bench.metrics._shared import distance as _distance
from bench.metrics._shared import records as _records
from bench.metrics._shared.distance import Records
from bench.metrics._shared.intervals import clopper_pearson
from bench.metrics._shared.records import PERCENTILE_BINS, Copies, Tables, released_records, sides
from bench.metrics.privacy.disclosure import _closeness
from bench.metrics.privacy.disclosure._closeness import (
    LEAST_ROWS,
    Reach,
    bootstrap_quantile,
    histogram,
)

Array = npt.NDArray[np.float64]

COMPARISONS_AT_MOST = 1e12
"""Comparisons of single values between two tables: some minutes on one core. 50,000 x 50,000 x 30
is 7.5e10, and seconds."""


@final
class ClosestRecord(Metric):
    """Distances from real rows to the release, and exact copies among released rows.

    * `dcr/median`, higher is further: median over training rows. A useless release is far too.
    * `dcr/gap`, lower is better: median over control rows minus median over training rows, both
      without records that occur more than once in the two. Above 0 the release is closer to rows
      that it was made from than to fresh ones; differences below 0 are chance, not privacy.
    * `dcr/closer-to-train`, lower is better: 0.5 for fresh rows, 1 where every released row is
      closest to a training row; below 0.5 is chance, not privacy.
    * `dcr/copies`, lower is better: share of released rows that equal a training row in every
      column, label and time included. Small tables of few categories have copies by chance.
    * `dcr/copies-excess`, lower is better: the same beyond that chance.
    """

    name: ClassVar[str] = "dcr"
    family: ClassVar[Family] = Family.PRIVACY
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "dcr/median",
            Direction.HIGHER,
            "Median over training rows of the distance to the closest released row (equation 7).",
        ),
        Output(
            "dcr/gap",
            Direction.LOWER,
            "Median over control rows minus median over training rows, of records that occur once "
            "in the two; above 0 training rows are closer.",
        ),
        Output(
            "dcr/closer-to-train",
            Direction.LOWER,
            "Each released row points at the closest training or control row (records that occur "
            "more than once in the two left out everywhere; ties at random): pointers per training "
            "row, as a share of those per training and per control row. 0.5 for fresh rows, 1 for "
            "copies. Clopper-Pearson interval of clusters of rows that point at the same row.",
        ),
        Output(
            "dcr/copies",
            Direction.LOWER,
            "Share of released rows that equal a training row. Clopper-Pearson interval.",
            shown=True,
        ),
        Output(
            "dcr/copies-excess",
            Direction.LOWER,
            "Share of released rows that equal a training row, minus that of control rows in the "
            "class mix of the release: 0 for fresh rows. Newcombe's interval.",
        ),
    )
    definition: ClassVar[str] = (
        "Distance from a real row to the closest released row (fidelity paper, section 4.2.1, "
        "equation 7, by the distance of section 3.1, equation 1, whose printed numeric term is a "
        "similarity: one minus it): median over training rows, gap between the medians of control "
        "and training rows (above 0 training rows are closer), released rows that lie at training "
        "rather than control rows, and share of released rows that copy a training row. "
        "Intervals of medians: 1000 bootstrap resamples over real rows."
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        refuse_hours(evaluation)
        tables, rows = Tables.of(evaluation), sides(evaluation)
        to_train = closest(evaluation, "train", tables.train)
        to_control = closest(evaluation, "control", tables.control)
        copies = _records.copies(evaluation)
        median = _bootstrap.bootstrap_median(to_train, evaluation.generator("bootstrap/dcr"))
        scores = (
            median.score(self, "dcr/median"),
            _gap(evaluation, to_train[rows.train], to_control[rows.control]),
            _closer(
                self,
                "dcr/closer-to-train",
                evaluation,
                lambda: reach(evaluation, tables).pointed,
            ),
            _copies(copies.released),
            _excess(evaluation, copies),
        )
        table = histogram(
            {
                "train": to_train,
                "train, once": to_train[rows.train],
                "control, once": to_control[rows.control],
            }
        )
        return Scores(scores, {"dcr": table})


_QUANTILES = (("median", 0.5), ("5th", 0.05))


@final
class DistanceDistribution(Metric):
    """Distances from released rows to real ones, beside distances among real rows.

    The distance to the closest of many rows shrinks with their number. Two comparisons are fair:
    released rows to train against each training row to the others (figure 14 of the paper), and
    released rows to a sample of the training rows, as many as there are control rows, against
    released rows to those. The sample sees the copies of its own rows only.
    """

    name: ClassVar[str] = "dcr-distribution"
    family: ClassVar[Family] = Family.PRIVACY
    outputs: ClassVar[tuple[Output, ...]] = tuple(
        Output(f"dcr/{population}-{quantile}", direction, f"{words[quantile]} {text}")
        for words in (
            {"median": "Median of the distance from", "5th": "5th percentile of the distance from"},
        )
        for population, direction, text in (
            ("released", Direction.HIGHER, "a released row to the closest training row."),
            ("real", Direction.NEUTRAL, "a training row to the closest other training row."),
            (
                "matched",
                Direction.NEUTRAL,
                "a released row to the closest of as many training rows as there are control rows.",
            ),
            ("control", Direction.NEUTRAL, "a released row to the closest control row."),
        )
        for quantile, _ in _QUANTILES
    )
    definition: ClassVar[str] = (
        "Distance to the closest record (fidelity paper, sections 3.1 and 4.2.1; figure 14): "
        "released to training rows, to be read beside training to other training rows; released "
        "to sampled training rows, to be read beside released to equally many control rows, both "
        "of records that occur once in the two. Intervals: 1000 bootstrap resamples over the rows "
        "that distances are taken from."
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        refuse_hours(evaluation)
        tables, rows = Tables.of(evaluation), sides(evaluation)
        found = reach(evaluation, tables)
        populations = {
            "released": found.train[:, 0],
            "matched": found.matched_train,
            "control": found.matched_control,
        }
        reasons: dict[str, str] = {}
        try:
            populations["real"] = among_train(evaluation, tables.train, "dcr/real")
        except NotComputable as reason:
            reasons["real"] = str(reason)
        if rows.matched < LEAST_ROWS:
            reasons["matched"] = reasons["control"] = _closeness.too_few(rows)
            del populations["matched"], populations["control"]
        scores = []
        for name in ("released", "real", "matched", "control"):
            for quantile, level in _QUANTILES:
                output = f"dcr/{name}-{quantile}"
                if name in reasons:
                    scores.append(self.absent(output, reasons[name]))
                else:
                    scores.append(_quantile(self, output, evaluation, populations[name], level))
        return Scores(tuple(scores), {"dcr-distribution": histogram(populations)})


@final
class BinnedDistance(Metric):
    """The same by the distance that the paper reports its own results by.

    Numbers are put into deciles of the training rows and compared like categories: the distance is
    the share of columns that differ. The paper names neither the number of bins nor the rows.
    """

    name: ClassVar[str] = "dcr-hamming"
    family: ClassVar[Family] = Family.PRIVACY
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "dcr-hamming/median",
            Direction.HIGHER,
            "Median over training rows of the distance to the closest released row (equation 7).",
        ),
        Output(
            "dcr-hamming/real-median",
            Direction.NEUTRAL,
            "Median over training rows of the distance to the closest other training row.",
        ),
        Output(
            "dcr-hamming/closer-to-train",
            Direction.LOWER,
            "As dcr/closer-to-train: 0.5 for fresh rows, 1 for copies.",
        ),
    )
    definition: ClassVar[str] = (
        "Distance to the closest record by the share of columns that differ, numbers in bins "
        f"({PERCENTILE_BINS} equal parts of the training rows; fidelity paper, section "
        "3.1, last alternative, and equation 7). Intervals as for dcr."
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        refuse_hours(evaluation)
        tables = Tables.of(evaluation).binned()
        to_released = _distance.nearest(tables.train, tables.released, evaluation.threads)
        rng = evaluation.generator("bootstrap/dcr-hamming")
        scores = [
            _bootstrap.bootstrap_median(to_released, rng).score(self, "dcr-hamming/median"),
        ]
        populations = {"train to released": to_released}
        try:
            real = among_train(evaluation, tables.train, "dcr-hamming/real")
            populations["train to train"] = real
            scores.append(
                _bootstrap.bootstrap_median(real, rng).score(self, "dcr-hamming/real-median")
            )
        except NotComputable as reason:
            scores.append(self.absent("dcr-hamming/real-median", str(reason)))
        rows, ties = sides(evaluation), evaluation.generator("ties/dcr-hamming")
        scores.append(
            _closer(
                self,
                "dcr-hamming/closer-to-train",
                evaluation,
                lambda: _closeness.pointed_rows(tables, rows, evaluation.threads, ties),
            )
        )
        return Scores(tuple(scores), {"dcr-hamming": histogram(populations)})


def refuse_hours(evaluation: Evaluation) -> None:
    """Exact distances only: where they would take hours, the score is absent and says so."""
    dataset = evaluation.dataset
    real = len(dataset.train) + len(dataset.control)
    released = len(evaluation.rows)
    _refuse(
        real * released,
        len(dataset.encoder.blocks),
        f"{real:,} real and {released:,} released rows",
    )


def _refuse(pairs: int, columns: int, what: str) -> None:
    comparisons = pairs * columns
    if comparisons > COMPARISONS_AT_MOST:
        raise NotComputable(
            f"{what} of {columns} columns are {comparisons:.2g} comparisons, over "
            f"{COMPARISONS_AT_MOST:.2g}; distances are exact or absent, never of a sample"
        )


def closest(evaluation: Evaluation, name: str, real: Records) -> Array:
    """DCR of each real row (equation 7)."""
    return evaluation.shared(
        f"dcr/{name}",
        lambda: _distance.nearest(real, released_records(evaluation), evaluation.threads),
    )


def reach(evaluation: Evaluation, tables: Tables) -> Reach:
    """Distances of released rows to real ones."""
    return evaluation.shared(
        "dcr/reach",
        lambda: _closeness.reach(
            tables, sides(evaluation), evaluation.threads, evaluation.generator("ties/dcr")
        ),
    )


def among_train(evaluation: Evaluation, train: Records, purpose: str) -> Array:
    """Distance of each training row to the closest other one, once for all releases."""
    _refuse(len(train) ** 2, train.width, f"{len(train):,} training rows among themselves")
    if len(train) < 2:
        raise NotComputable(f"{len(train)} training rows: none has another one")
    # The closest row of a table to each of its own rows is that row, at distance 0.
    return evaluation.reference(
        purpose, lambda _: _distance.k_nearest(train, train, 2, evaluation.threads)[:, 1]
    )


def _closer(
    metric: Metric,
    output: str,
    evaluation: Evaluation,
    pointed: Callable[[], npt.NDArray[np.int64]],
) -> Score:
    rows = sides(evaluation)
    try:
        if rows.matched < LEAST_ROWS:
            raise NotComputable(_closeness.too_few(rows))
        rare = ~_records.copies(evaluation).common
        share = _closeness.closer_to_train(pointed()[rare], rows)
    except NotComputable as reason:
        return metric.absent(output, str(reason))
    return share.score(type(metric), output)


def _quantile(
    metric: Metric, output: str, evaluation: Evaluation, values: Array, level: float
) -> Score:
    if len(values) < LEAST_ROWS:
        return metric.absent(output, f"{len(values)} rows; at least {LEAST_ROWS} are needed")
    rng = evaluation.generator(f"bootstrap/{output}")
    return bootstrap_quantile(values, level, rng).score(metric, output)


def _gap(evaluation: Evaluation, train: Array, control: Array) -> Score:
    if min(len(train), len(control)) < LEAST_ROWS:
        return ClosestRecord.absent("dcr/gap", _closeness.too_few(sides(evaluation)))
    rng = evaluation.generator("bootstrap/dcr/gap")
    near = _bootstrap.bootstrap_median(train, rng)
    far = _bootstrap.bootstrap_median(control, rng)
    gap = _bootstrap.Estimate(far.value - near.value, far.samples - near.samples)
    return gap.score(ClosestRecord, "dcr/gap")


def _copies(copied: npt.NDArray[np.bool_]) -> Score:
    count = int(np.count_nonzero(copied))
    low, high = clopper_pearson(count, len(copied))
    return ClosestRecord.score("dcr/copies", count / len(copied), low, high)


def _excess(evaluation: Evaluation, copies: Copies) -> Score:
    try:
        excess = _closeness.beyond_chance(evaluation, copies.released, copies.control)
    except NotComputable as reason:
        return ClosestRecord.absent("dcr/copies-excess", str(reason))
    return excess.score(ClosestRecord, "dcr/copies-excess")
