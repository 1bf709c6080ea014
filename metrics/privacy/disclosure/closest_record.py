"""Distance to the closest record: do released rows copy, or nearly copy, training rows?

Rows are compared as a reader of the release would see them: training and control rows are
encoded and decoded as the release is, so that clipped, filled and rounded values agree.
Weights of released rows are ignored: a copy with a small weight is a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import Direction, Evaluation, Family, Metric, NotComputable, Output, Score, Scores
from bench.metrics._shared import bootstrap, record_distance
from bench.metrics._shared.bootstrap import Array, Estimate, bootstrap_quantile
from bench.metrics._shared.intervals import (
    Interval,
    difference_of_shares,
    score_or_reason,
    share,
    weighted_share,
)
from bench.metrics._shared.record_distance import (
    PERCENTILE_BINS,
    ComparedRows,
    Records,
    RecordTables,
    ReferenceRange,
    compared_rows,
)

LEAST_ROWS = 10
"""Fewer rows of one kind are too few for a difference."""

_BINS = 50
"""Bins of stored histograms."""

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
        "and training rows (above 0 training rows are closer), released rows closer to a training "
        "row than to a control row, and share of released rows that copy a training row. "
        "Intervals of medians: 1000 bootstrap resamples over real rows."
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        refuse_hours(evaluation)
        tables, rows = RecordTables.of(evaluation), compared_rows(evaluation)
        to_train, to_control = closest(evaluation)
        copies = record_distance.copies(evaluation)
        median = bootstrap.bootstrap_median(to_train, evaluation.generator("bootstrap/dcr"))
        scores = (
            median.score(self, "dcr/median"),
            _gap(evaluation, to_train[rows.train], to_control[rows.control]),
            score_or_reason(
                self,
                "dcr/closer-to-train",
                lambda: _closer(evaluation, lambda: released_distances(evaluation, tables).pointed),
            ),
            share(copies.released).score(self, "dcr/copies"),
            score_or_reason(
                self,
                "dcr/copies-excess",
                lambda: beyond_chance(evaluation, copies.released, copies.control),
            ),
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
    released rows to those. The sample contains copies of the sampled rows only.
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
        tables, rows = RecordTables.of(evaluation), compared_rows(evaluation)
        distances = released_distances(evaluation, tables)
        populations = {
            "released": distances.train[:, 0],
            "matched": distances.matched_train,
            "control": distances.matched_control,
        }
        reasons: dict[str, str] = {}
        try:
            populations["real"] = among_train(evaluation, tables.train, "dcr/real")
        except NotComputable as reason:
            reasons["real"] = str(reason)
        if rows.matched < LEAST_ROWS:
            reasons["matched"] = reasons["control"] = too_few(rows)
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
    """The same by the distance that the paper uses for its results.

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
        tables = RecordTables.of(evaluation).binned()
        rows, ties = compared_rows(evaluation), evaluation.generator("ties/dcr-hamming")
        pointed, to_released = pointed_rows(tables, rows, evaluation.threads, ties)
        rng = evaluation.generator("bootstrap/dcr-hamming")
        scores = [
            bootstrap.bootstrap_median(to_released, rng).score(self, "dcr-hamming/median"),
        ]
        populations = {"train to released": to_released}

        def among_real() -> Estimate:
            real = among_train(evaluation, tables.train, "dcr-hamming/real")
            populations["train to train"] = real
            return bootstrap.bootstrap_median(real, rng)

        scores.append(score_or_reason(self, "dcr-hamming/real-median", among_real))
        scores.append(
            score_or_reason(
                self, "dcr-hamming/closer-to-train", lambda: _closer(evaluation, lambda: pointed)
            )
        )
        return Scores(tuple(scores), {"dcr-hamming": histogram(populations)})


def refuse_hours(evaluation: Evaluation) -> None:
    """Refuse exact distances that would take hours; there are no approximate ones."""
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


def closest(evaluation: Evaluation) -> tuple[Array, Array]:
    """DCR of each training and of each control row (equation 7)."""
    tables = RecordTables.of(evaluation)
    if len(tables.train) >= 2:
        found = released_distances(evaluation, tables)
        return found.from_train, found.from_control
    to_train, to_control = (
        record_distance.nearest(real, tables.released, evaluation.threads)
        for real in (tables.train, tables.control)
    )
    return to_train, to_control


def released_distances(evaluation: Evaluation, tables: RecordTables) -> ReleasedDistances:
    """Distances of released rows to real ones, computed once for all metrics."""
    return evaluation.shared(
        "dcr/reach",
        lambda: find_distances(
            tables, compared_rows(evaluation), evaluation.threads, evaluation.generator("ties/dcr")
        ),
    )


def among_train(evaluation: Evaluation, train: Records, purpose: str) -> Array:
    """Distance of each training row to the closest other one, once for all releases."""
    _refuse(len(train) ** 2, train.width, f"{len(train):,} training rows among themselves")
    if len(train) < 2:
        raise NotComputable(f"{len(train)} training rows: none has another one")
    # The closest row to each row of the same table is that row itself, at distance 0.
    return evaluation.reference(
        purpose, lambda _: record_distance.k_nearest(train, train, 2, evaluation.threads)[:, 1]
    )


def _closer(evaluation: Evaluation, pointed: Callable[[], npt.NDArray[np.int64]]) -> Interval:
    rows = compared_rows(evaluation)
    if rows.matched < LEAST_ROWS:
        raise NotComputable(too_few(rows))
    rare = ~record_distance.copies(evaluation).common
    return closer_to_train(pointed()[rare], rows)


def _quantile(
    metric: Metric, output: str, evaluation: Evaluation, values: Array, level: float
) -> Score:
    if len(values) < LEAST_ROWS:
        return metric.absent(output, f"{len(values)} rows; at least {LEAST_ROWS} are needed")
    rng = evaluation.generator(f"bootstrap/{output}")
    return bootstrap_quantile(values, level, rng).score(metric, output)


def _gap(evaluation: Evaluation, train: Array, control: Array) -> Score:
    if min(len(train), len(control)) < LEAST_ROWS:
        return ClosestRecord.absent("dcr/gap", too_few(compared_rows(evaluation)))
    rng = evaluation.generator("bootstrap/dcr/gap")
    near, far = bootstrap.bootstrap_median(train, rng), bootstrap.bootstrap_median(control, rng)
    return (far - near).score(ClosestRecord, "dcr/gap")


# Distances of released rows ----------------------------------------------------------------------


@final
@dataclass(frozen=True)
class ReleasedDistances:
    """Distances of released rows to training and control rows, all found in one pass."""

    train: Array
    """(released rows, 2): to the two closest training rows."""
    control: Array
    """(released rows, 2), the same of control rows; (released rows, 0) where there are too few."""
    matched_train: Array
    """Distances to the closest of equally many training rows and"""
    matched_control: Array
    """control rows whose record occurs once; empty where there are too few."""
    pointed: npt.NDArray[np.int64]
    """Place of the closest row in `ComparedRows.train`, then `ComparedRows.control`; empty where
    there are too few."""
    from_train: Array
    """Distance of each training row to the closest released row."""
    from_control: Array
    """The same of each control row."""


def find_distances(
    tables: RecordTables, rows: ComparedRows, threads: int, rng: np.random.Generator
) -> ReleasedDistances:
    """Look for the closest rows of every kind; ties of `pointed` are broken at random."""
    if len(tables.train) < 2:
        raise NotComputable(f"{len(tables.train)} training rows: no two closest ones")
    other = np.setdiff1d(np.arange(len(tables.train)), rows.train)
    other_control = np.setdiff1d(np.arange(len(tables.control)), rows.control)
    # Sampled rows of both kinds meet in the middle: every part is a run of consecutive rows.
    order = np.concatenate([other, rows.train[::-1]])
    order_control = np.concatenate([rows.control, other_control])
    references = record_distance.stacked(
        tables.train.take(order), tables.control.take(order_control)
    )
    middle, matched = len(tables.train), rows.matched
    parts = {"train": ReferenceRange(0, middle, 2)}
    if len(tables.control) >= LEAST_ROWS:
        parts["control"] = ReferenceRange(middle, len(references), 2)
    if matched >= LEAST_ROWS:
        parts["once"] = ReferenceRange(len(other), middle + len(rows.control))
        parts["matched_train"] = ReferenceRange(middle - matched, middle)
        parts["matched_control"] = ReferenceRange(middle, middle + matched)
    found, back = record_distance.both_ways(
        tables.released, references, list(parts.values()), threads, rng
    )
    nearest = dict(zip(parts, found, strict=True))
    none = record_distance.Neighbours(
        np.empty((len(tables.released), 0)), np.empty((0, 1), np.int64)
    )
    pointed = nearest.get("once", none).index[:, 0] - len(other)
    # Back from the order of the references to that of the compared rows.
    pointed = np.where(pointed < len(rows.train), len(rows.train) - 1 - pointed, pointed)
    return ReleasedDistances(
        nearest["train"].distances,
        nearest.get("control", none).distances,
        nearest.get("matched_train", none).distances.ravel(),
        nearest.get("matched_control", none).distances.ravel(),
        pointed,
        _in_order(back[:middle], order),
        _in_order(back[middle:], order_control),
    )


def _in_order(values: Array, order: npt.NDArray[np.intp]) -> Array:
    """Undo a permutation."""
    result = np.empty_like(values)
    result[order] = values
    return result


def pointed_rows(
    tables: RecordTables, rows: ComparedRows, threads: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int64], Array]:
    """Return `ReleasedDistances.pointed` and `ReleasedDistances.from_train` alone."""
    other = np.setdiff1d(np.arange(len(tables.train)), rows.train)
    references = record_distance.stacked(
        tables.train.take(rows.train),
        tables.control.take(rows.control),
        tables.train.take(other),
    )
    once = len(rows.train) + len(rows.control)
    parts = [ReferenceRange(0, once)] if rows.matched >= LEAST_ROWS else []
    found, back = record_distance.both_ways(tables.released, references, parts, threads, rng)
    pointed = found[0].index[:, 0] if parts else np.empty(0, np.int64)
    from_train = np.concatenate([back[: len(rows.train)], back[once:]])
    return pointed, _in_order(from_train, np.concatenate([rows.train, other]))


def closer_to_train(pointed: npt.NDArray[np.int64], rows: ComparedRows) -> Interval:
    """Share of released rows that lie at training rather than at control rows.

    Each released row points at the closest row of both kinds together, a tie broken at random;
    pointers per training row are set against pointers per control row,

        (a / n_train) / (a / n_train + b / n_control),

    for a and b released rows that point at each kind. Every row has the same chance to be pointed
    at by a release that does not depend on the split, so that one half is expected whatever the
    two numbers of rows. Released rows that equal a record which occurs more than once in the real
    rows, and so is on neither side, are to be left out before: they would point by chance, and
    leaving them out does not depend on the split. Released rows that point at the same row are one
    cluster: the interval of a / (a + b) counts clusters.

    To compare distances to a sample of the training rows, as many as there are control rows, has
    the same expectation, but misses copies of the other rows.
    """
    if rows.matched < LEAST_ROWS:
        raise NotComputable(too_few(rows))
    if not len(pointed):
        raise NotComputable("every released row equals a record that occurs more than once")
    count = len(rows.train) + len(rows.control)
    pointers = np.bincount(pointed, minlength=count)
    aimed = np.flatnonzero(pointers)
    raw = weighted_share(aimed < len(rows.train), pointers[aimed])
    fresh = len(rows.train) / count

    def rescaled(a: float) -> float:
        of_training, of_control = a / fresh, (1.0 - a) / (1.0 - fresh)
        return of_training / (of_training + of_control)

    return Interval(rescaled(raw.value), rescaled(raw.low), rescaled(raw.high))


def too_few(rows: ComparedRows) -> str:
    """Reason why training and control rows cannot be compared."""
    return (
        f"{len(rows.train)} training and {len(rows.control)} control rows occur only once in the "
        f"two; at least {LEAST_ROWS} of each are needed"
    )


def beyond_chance(
    evaluation: Evaluation,
    released: npt.NDArray[np.bool_],
    control: npt.NDArray[np.bool_],
) -> Interval:
    """Share of released rows minus that of control rows, had they been released in their place.

    Control rows are fresh rows of the same population, whatever the training rows are. They are
    weighted to the class mix of the release, which is often balanced by design.
    """
    if len(control) < LEAST_ROWS:
        raise NotComputable(f"{len(control)} control rows; at least {LEAST_ROWS} are needed")
    weights = in_the_mix_of(evaluation.rows.labels, evaluation.dataset.control.rows.labels)
    return difference_of_shares(share(released), weighted_share(control, weights))


def in_the_mix_of(wanted: npt.NDArray[np.integer], present: npt.NDArray[np.integer]) -> Array:
    """Weights of the rows of class `present` that give them the class shares of `wanted`."""
    size = int(max(wanted.max(initial=0), present.max(initial=0))) + 1
    shares = np.bincount(wanted, minlength=size) / len(wanted)
    counts = np.bincount(present, minlength=size)
    if (shares[counts == 0] > 0).any():
        raise NotComputable("a released class has no control row")
    weights: Array = shares[present] / counts[present]
    return weights


def histogram(populations: dict[str, Array]) -> pd.DataFrame:
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
