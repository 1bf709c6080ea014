"""Copies of rare records, and near copies: high-risk rows and the distance ratio (NNDR)."""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np
import numpy.typing as npt

from bench import Direction, Evaluation, Family, Metric, NotComputable, Output, Score, Scores
from bench.metrics._shared import record_distance
from bench.metrics._shared.bootstrap import Array, bootstrap_quantile
from bench.metrics._shared.intervals import difference_of_means, score_or_reason, share
from bench.metrics._shared.record_distance import Records, RecordTables
from bench.metrics.privacy.disclosure.closest_record import (
    LEAST_ROWS,
    beyond_chance,
    histogram,
    refuse_hours,
    released_distances,
)

Mask = npt.NDArray[np.bool_]

RARE = 5
"""Largest equivalence class that the paper calls high risk."""

LIMIT = 0.01
"""The paper's 1% rule."""


@final
class HighRiskRows(Metric):
    """Copies of training rows that only few training rows resemble.

    The paper does not say by which columns rows are equivalent. `high-risk/train` and
    `high-risk/released` take the declared quasi-identifiers that the release holds, as in
    re-identification analysis, or all columns where none is declared. Two rows that share their
    quasi-identifiers may differ in everything else: a table with few of them has no small classes
    and no high-risk rows, even where it is released as it is. `high-risk/rare-train` and
    `high-risk/rare-released` therefore take all columns: copies of records that stand in the
    training rows 5 times or less.
    """

    name: ClassVar[str] = "high-risk"
    family: ClassVar[Family] = Family.PRIVACY
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "high-risk/train",
            Direction.LOWER,
            "Share of training rows that were copied and whose class by the declared "
            "quasi-identifiers (all columns where none is declared) has 5 rows or fewer; the "
            "paper accepts less than 1%.",
            limit=LIMIT,
        ),
        Output(
            "high-risk/released",
            Direction.LOWER,
            "Share of released rows that copy such a training row: 200 copies are 1% of 22,000 "
            "training rows, but all of 200 released ones.",
            shown=True,
        ),
        Output(
            "high-risk/rare-train",
            Direction.LOWER,
            "As high-risk/train with classes by all columns: copied records that occur 5 times or "
            "less.",
            limit=LIMIT,
        ),
        Output(
            "high-risk/rare-released",
            Direction.LOWER,
            "As high-risk/released with classes by all columns.",
        ),
        Output(
            "high-risk/rare-excess",
            Direction.LOWER,
            "high-risk/rare-released minus the same of control rows in the class mix of the "
            "release: 0 for fresh rows. Newcombe's interval.",
        ),
    )
    definition: ClassVar[str] = (
        "High-risk rows (fidelity paper, section 4.2.1, steps 1 to 3): training rows at distance 0 "
        "from the release whose equivalence class in the training rows has 5 rows or fewer, as a "
        "share of the training rows (limit 1%) and of the released rows. Clopper-Pearson intervals."
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        copies = record_distance.copies(evaluation)
        copied = np.isin(copies.of_train, copies.of_released)
        scores: list[Score] = []
        for prefix, rare in (
            ("", _rare(_quasi_identifiers(evaluation))),
            ("rare-", _sizes(copies.of_train) <= RARE),
        ):
            # Rows of one record share their class, so that the record is rare or not.
            records = np.unique(copies.of_train[rare])
            released = np.isin(copies.of_released, records)
            scores += [
                share(copied & rare).score(self, f"high-risk/{prefix}train"),
                share(released).score(self, f"high-risk/{prefix}released"),
            ]
        control = np.isin(copies.of_control, records)
        excess = score_or_reason(
            self, "high-risk/rare-excess", lambda: beyond_chance(evaluation, released, control)
        )
        scores.append(excess)
        return Scores(tuple(scores))


def _quasi_identifiers(evaluation: Evaluation) -> Records:
    """Training rows in the columns that identify people."""
    dataset = evaluation.dataset
    encoder, rows = dataset.encoder, dataset.train.rows
    declared = dataset.schema.quasi_identifiers
    decoded = encoder.decode(rows.values, rows.labels, complete=True)
    # A site is not part of a release, so that it may be the only one declared.
    known = [name for name in declared if name in decoded.columns]
    return Records.of(encoder, decoded, known or None)


def _rare(records: Records) -> Mask:
    return _sizes(record_distance.identities(records)[0]) <= RARE


def _sizes(names: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Number of rows that have the number of each row."""
    return np.bincount(names)[names]


@final
class NeighbourRatio(Metric):
    """How much closer the closest training row is than the second closest.

    Near 0 a released row belongs to one training row; near 1 it lies between several. A row that
    equals two training rows has the ratio 0/0, which counts as 1: it points at neither of them.
    """

    name: ClassVar[str] = "nndr"
    family: ClassVar[Family] = Family.PRIVACY
    outputs: ClassVar[tuple[Output, ...]] = (
        Output("nndr/median", Direction.HIGHER, "Median over released rows, to training rows."),
        Output("nndr/5th", Direction.HIGHER, "5th percentile of it: the rows at most risk."),
        Output("nndr/control-median", Direction.NEUTRAL, "Median of the same to control rows."),
        Output(
            "nndr/control-5th", Direction.NEUTRAL, "5th percentile of the same to control rows."
        ),
        Output(
            "nndr/gap",
            Direction.LOWER,
            "Mean over control rows minus mean over released rows, both to training rows: 0 for "
            "fresh rows of the same population and class mix, above 0 where released rows belong "
            "to single training rows. Welch's interval.",
        ),
    )
    definition: ClassVar[str] = (
        "Nearest-neighbour distance ratio: distance of a released row to its closest training row "
        "over that to its second closest (distance of the fidelity paper, section 3.1, equation "
        "1); 0/0 is 1. Median and 5th percentile, beside the same to control rows. Intervals: 1000 "
        "bootstrap resamples over the rows that distances are taken from."
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        refuse_hours(evaluation)
        tables = RecordTables.of(evaluation)
        distances = released_distances(evaluation, tables)
        ratios = {"released to train": _ratio(distances.train)}
        few = ""
        if len(tables.control) < LEAST_ROWS:
            few = f"{len(tables.control)} control rows; at least {LEAST_ROWS} are needed"
        else:
            ratios["released to control"] = _ratio(distances.control)
            ratios["control to train"] = evaluation.reference(
                "nndr/control-to-train",
                lambda _: _ratio(
                    record_distance.k_nearest(tables.control, tables.train, 2, evaluation.threads)
                ),
            )
        scores = self._scores(evaluation, ratios, few)
        return Scores(tuple(scores), {"nndr": histogram(ratios)})

    def _scores(self, evaluation: Evaluation, ratios: dict[str, Array], few: str) -> list[Score]:
        released = len(ratios["released to train"])
        if released < LEAST_ROWS:
            few = f"{released} released rows; at least {LEAST_ROWS} are needed"
            raise NotComputable(few)
        scores: list[Score] = []
        for name, prefix in (("released to train", ""), ("released to control", "control-")):
            for quantile, level in (("median", 0.5), ("5th", 0.05)):
                output = f"nndr/{prefix}{quantile}"
                if name in ratios:
                    rng = evaluation.generator(f"bootstrap/{output}")
                    scores.append(bootstrap_quantile(ratios[name], level, rng).score(self, output))
                else:
                    scores.append(self.absent(output, few))
        if few:
            scores.append(self.absent("nndr/gap", few))
        else:
            gap = difference_of_means(ratios["control to train"], ratios["released to train"])
            scores.append(gap.score(self, "nndr/gap"))
        return scores


def _ratio(pair: Array) -> Array:
    """First over second distance."""
    ratio: Array = np.ones(len(pair))
    np.divide(pair[:, 0], pair[:, 1], out=ratio, where=pair[:, 1] > 0)
    return ratio
