"""Attribute inference by matching quasi-identifiers: what does a known person's match give away?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import (
    Categorical,
    Column,
    Direction,
    Evaluation,
    Family,
    Metric,
    NotComputable,
    Numeric,
    Output,
    Score,
    Scores,
)
from bench.metrics._shared.intervals import clopper_pearson
from bench.metrics._shared.records import occurring_once, real_records
from bench.metrics.privacy.disclosure import _targets
from bench.metrics.privacy.disclosure._targets import Codes, Readable

Array = npt.NDArray[np.float64]

CLOSE = 0.01
"""A number is inferred when the guess is this close, as a share of its public range."""

LEAST_ROWS = _targets.LEAST_ROWS
"""Fewer rows on one side say nothing about a difference of shares."""

_MATCH = (
    "released rows with the same quasi-identifiers (exact; continuous numbers in cells of "
    f"{_targets.CELL:g} of the public range)"
)
_RIGHT = f"the right category, or a number within {CLOSE:g} of the public range"


@final
@dataclass(frozen=True)
class _Judged:
    """The attack on the records of one split."""

    matched: npt.NDArray[np.bool_]
    right: npt.NDArray[np.bool_]
    """(rows, attributes); a record without a match is inferred wrongly."""
    once: npt.NDArray[np.bool_]
    """Rows whose record occurs once in training and control rows together."""


@final
class QuasiIdentifierMatch(Metric):
    """The attacker knows the quasi-identifiers of a person and looks that person up.

    The release is filtered to rows with the same quasi-identifiers; the sensitive attribute is
    inferred as the mode (categorical) or the median (numeric) of those rows, by their weights.
    Most of what is inferred is knowledge about the population: only `qi-match/gap`, against
    records that the release was not made from, speaks of leakage.
    """

    name: ClassVar[str] = "qi-match"
    family: ClassVar[Family] = Family.PRIVACY
    definition: ClassVar[str] = (
        "Attribute inference by quasi-identifiers (fidelity paper, section 4.1.3): a real record's "
        f"{_MATCH} are found, its sensitive attributes inferred as their mode or median. "
        "Judged on training rows, beside control rows. Attributes: those declared sensitive that "
        "are no quasi-identifiers; where none is declared, up to five numeric or binary features."
    )
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "qi-match/matched",
            Direction.LOWER,
            f"share of training records that have {_MATCH}; Clopper-Pearson interval",
        ),
        Output(
            "qi-match/matched-control",
            Direction.NEUTRAL,
            "the same share of the control records; Clopper-Pearson interval",
        ),
        Output(
            "qi-match/accuracy",
            Direction.LOWER,
            "share of matched training records whose category is inferred, mean over the "
            "categorical attributes; bootstrap interval over records",
        ),
        Output(
            "qi-match/accuracy-overall",
            Direction.LOWER,
            "the same share of all training records: no match counts as wrong",
        ),
        Output(
            "qi-match/close",
            Direction.LOWER,
            f"share of matched training records whose number is inferred within {CLOSE:g} of the "
            "public range, mean over the numeric attributes; bootstrap interval over records",
        ),
        Output(
            "qi-match/close-overall",
            Direction.LOWER,
            "the same share of all training records: no match counts as wrong",
        ),
        Output(
            "qi-match/right",
            Direction.LOWER,
            f"share of all training records for which {_RIGHT} is inferred, mean over all "
            "attributes; bootstrap interval over records",
        ),
        Output(
            "qi-match/right-control",
            Direction.NEUTRAL,
            "the same share of the control records: what the population gives away",
        ),
        Output(
            "qi-match/gap",
            Direction.LOWER,
            f"share for which {_RIGHT} is inferred, mean over all attributes: training minus "
            "control records, both without records that occur more than once in the two. Above 0 "
            "the release says more about those it was made from. Bootstrap interval, both sides",
        ),
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        dataset = evaluation.dataset
        known = _targets.quasi_identifiers(dataset.schema)
        hidden = tuple(
            column for column in _targets.attacked(dataset.schema) if column not in known
        )
        if not hidden:
            raise NotComputable("every attribute that could be attacked is a quasi-identifier")
        released = _targets.released_table(evaluation)
        train = _targets.real_table(evaluation, "train", dataset.train)
        control = _targets.real_table(evaluation, "control", dataset.control)
        classes = _targets.equivalence_classes(known, released, train, control)
        train_once, control_once = occurring_once(
            real_records(evaluation, "train", dataset.train),
            real_records(evaluation, "control", dataset.control),
        )
        members = _judged(hidden, released, classes[0], train, classes[1], train_once)
        others = _judged(hidden, released, classes[0], control, classes[2], control_once)
        scores = (
            _share("qi-match/matched", members.matched),
            _share("qi-match/matched-control", others.matched),
            *_kind(evaluation, members, hidden, Categorical, "accuracy"),
            *_kind(evaluation, members, hidden, Numeric, "close"),
            _mean(evaluation, "qi-match/right", members),
            _mean(evaluation, "qi-match/right-control", others),
            _gap(evaluation, members, others),
        )
        populations = {"train": members, "control": others}
        return Scores(scores, {"qi-match": _table(evaluation, hidden, populations)})


def _judged(
    hidden: tuple[Column, ...],
    released: Readable,
    released_classes: Codes,
    records: Readable,
    classes: Codes,
    once: npt.NDArray[np.bool_],
) -> _Judged:
    right = np.zeros((len(records), len(hidden)), dtype=bool)
    matched = np.isin(classes, released_classes)
    for place, column in enumerate(hidden):
        guesses = _targets.infer(column, released, released_classes).of(classes)
        right[:, place] = inferred_rightly(column, records.columns[column.name], guesses)
    return _Judged(matched, right, once)


def inferred_rightly(column: Column, truth: Array, guesses: Array) -> npt.NDArray[np.bool_]:
    """The right category, or a number close to the truth; a NaN guess is wrong."""
    if isinstance(column, Numeric):
        # A hair more than the tolerance: decoding leaves rounding errors at its very edge.
        width = CLOSE * (column.high - column.low) * (1 + 1e-6)
        close: npt.NDArray[np.bool_] = np.abs(guesses - truth) <= width
        return close
    same: npt.NDArray[np.bool_] = guesses == truth
    return same


def _share(output: str, hits: npt.NDArray[np.bool_]) -> Score:
    if not len(hits):
        return QuasiIdentifierMatch.absent(output, "there are no such records")
    count = int(np.count_nonzero(hits))
    low, high = clopper_pearson(count, len(hits))
    return QuasiIdentifierMatch.score(output, count / len(hits), low, high)


def _kind(
    evaluation: Evaluation,
    members: _Judged,
    hidden: tuple[Column, ...],
    kind: type[Column],
    name: str,
) -> tuple[Score, Score]:
    """Among the matched, and overall, for the attributes of one kind."""
    among, overall = f"qi-match/{name}", f"qi-match/{name}-overall"
    wanted = [place for place, column in enumerate(hidden) if isinstance(column, kind)]
    metric = QuasiIdentifierMatch
    if not wanted:
        reason = f"no {kind.__name__.lower()} attribute is attacked"
        return metric.absent(among, reason), metric.absent(overall, reason)
    right = members.right[:, wanted].mean(axis=1)
    rng = evaluation.generator(f"bootstrap/{overall}")
    everybody = _targets.bootstrap_mean(right, rng)
    if np.count_nonzero(members.matched) < LEAST_ROWS:
        reason = (
            f"{np.count_nonzero(members.matched)} training records have a match; at least "
            f"{LEAST_ROWS} are needed"
        )
        return metric.absent(among, reason), everybody.score(metric, overall)
    found = right[members.matched]
    rng = evaluation.generator(f"bootstrap/{among}")
    matched = _targets.bootstrap_mean(found, rng)
    return matched.score(metric, among), everybody.score(metric, overall)


def _mean(evaluation: Evaluation, output: str, judged: _Judged) -> Score:
    if not len(judged.right):
        return QuasiIdentifierMatch.absent(output, "there are no such records")
    right = judged.right.mean(axis=1)
    rng = evaluation.generator(f"bootstrap/{output}")
    estimate = _targets.bootstrap_mean(right, rng)
    return estimate.score(QuasiIdentifierMatch, output)


def _gap(evaluation: Evaluation, members: _Judged, others: _Judged) -> Score:
    return _targets.member_gap(
        QuasiIdentifierMatch,
        "qi-match/gap",
        members.right[members.once].mean(axis=1),
        others.right[others.once].mean(axis=1),
        evaluation.generator("bootstrap/qi-match/gap"),
    )


def _table(
    evaluation: Evaluation, hidden: tuple[Column, ...], populations: dict[str, _Judged]
) -> pd.DataFrame:
    """One row for each attribute and population."""
    sensitive = evaluation.dataset.schema.sensitive
    rows = []
    for name, judged in populations.items():
        everybody = np.ones(len(judged.once), dtype=bool)
        for label, kept in ((name, everybody), (f"{name}, once", judged.once)):
            matched = judged.matched & kept
            for place, column in enumerate(hidden):
                right = judged.right[:, place]
                rows.append(
                    {
                        "attribute": column.name,
                        "declared": column.name in sensitive,
                        "kind": type(column).__name__.lower(),
                        "rows": label,
                        "records": int(np.count_nonzero(kept)),
                        "matched": int(np.count_nonzero(matched)),
                        "right": int(np.count_nonzero(right & kept)),
                    }
                )
    return pd.DataFrame(rows)
