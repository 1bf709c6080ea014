"""Attribute inference by matching quasi-identifiers: what does a match disclose?"""

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
from bench.metrics._shared.bootstrap import Array, bootstrap_mean
from bench.metrics._shared.intervals import share
from bench.metrics._shared.record_distance import rows_occurring_once
from bench.metrics.privacy.disclosure import _matching
from bench.metrics.privacy.disclosure._matching import MatchedTable, Matching

CLOSE = 0.01
"""A number is inferred when the guess is this close, as a share of its public range."""

_MATCH = (
    "released rows with the same quasi-identifiers (exact; continuous numbers in cells of "
    f"{_matching.CELL:g} of the public range)"
)
_RIGHT = f"the right category, or a number within {CLOSE:g} of the public range"


@final
@dataclass(frozen=True)
class _MatchAttack:
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
    records that the release was not made from, measures leakage.
    """

    name: ClassVar[str] = "qi-match"
    family: ClassVar[Family] = Family.PRIVACY
    definition: ClassVar[str] = (
        "Attribute inference by quasi-identifiers (fidelity paper, section 4.1.3): a real record's "
        f"{_MATCH} are found, its sensitive attributes inferred as their mode or median. "
        "Tested on training rows, beside control rows. Attributes: those declared sensitive that "
        "are no quasi-identifiers; where none is declared, up to five numeric or binary features."
    )
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "qi-match/matched",
            Direction.LOWER,
            f"Share of training records that have {_MATCH}; Clopper-Pearson interval",
        ),
        Output(
            "qi-match/matched-control",
            Direction.NEUTRAL,
            "The same share of the control records; Clopper-Pearson interval",
        ),
        Output(
            "qi-match/accuracy",
            Direction.LOWER,
            "Share of matched training records whose category is inferred, mean over the "
            "categorical attributes; bootstrap interval over records",
        ),
        Output(
            "qi-match/accuracy-overall",
            Direction.LOWER,
            "The same share of all training records: no match counts as wrong",
        ),
        Output(
            "qi-match/close",
            Direction.LOWER,
            f"Share of matched training records whose number is inferred within {CLOSE:g} of the "
            "public range, mean over the numeric attributes; bootstrap interval over records",
        ),
        Output(
            "qi-match/close-overall",
            Direction.LOWER,
            "The same share of all training records: no match counts as wrong",
        ),
        Output(
            "qi-match/right",
            Direction.LOWER,
            f"Share of all training records for which {_RIGHT} is inferred, mean over all "
            "attributes; bootstrap interval over records",
        ),
        Output(
            "qi-match/right-control",
            Direction.NEUTRAL,
            "The same share of the control records: what the population discloses",
        ),
        Output(
            "qi-match/gap",
            Direction.LOWER,
            f"Share for which {_RIGHT} is inferred, mean over all attributes: training minus "
            "control records, both without records that occur more than once in the two. Above 0 "
            "the release discloses more about those it was made from. Bootstrap interval, both "
            "sides",
        ),
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        dataset = evaluation.dataset
        known = _matching.quasi_identifiers(dataset.schema)
        hidden = tuple(
            column for column in _matching.attacked(dataset.schema) if column not in known
        )
        if not hidden:
            raise NotComputable("every attribute that could be attacked is a quasi-identifier")
        matching = Matching.of(evaluation, known)
        train_once, control_once = rows_occurring_once(evaluation)
        members = _attacked(hidden, matching.released, matching.train, train_once)
        others = _attacked(hidden, matching.released, matching.control, control_once)
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


def _attacked(
    hidden: tuple[Column, ...],
    released: MatchedTable,
    records: MatchedTable,
    once: npt.NDArray[np.bool_],
) -> _MatchAttack:
    right = np.zeros((len(records.table), len(hidden)), dtype=bool)
    for place, column in enumerate(hidden):
        guesses = _matching.infer(column, released).of(records.classes)
        right[:, place] = inferred_rightly(column, records.table.columns[column.name], guesses)
    return _MatchAttack(np.isin(records.classes, released.classes), right, once)


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
    return share(hits).score(QuasiIdentifierMatch, output)


def _kind(
    evaluation: Evaluation,
    members: _MatchAttack,
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
    everybody = bootstrap_mean(right, rng)
    if np.count_nonzero(members.matched) < _matching.LEAST_ROWS:
        reason = (
            f"{np.count_nonzero(members.matched)} training records have a match; at least "
            f"{_matching.LEAST_ROWS} are needed"
        )
        return metric.absent(among, reason), everybody.score(metric, overall)
    rng = evaluation.generator(f"bootstrap/{among}")
    matched = bootstrap_mean(right[members.matched], rng)
    return matched.score(metric, among), everybody.score(metric, overall)


def _mean(evaluation: Evaluation, output: str, attack: _MatchAttack) -> Score:
    if not len(attack.right):
        return QuasiIdentifierMatch.absent(output, "there are no such records")
    right = attack.right.mean(axis=1)
    rng = evaluation.generator(f"bootstrap/{output}")
    estimate = bootstrap_mean(right, rng)
    return estimate.score(QuasiIdentifierMatch, output)


def _gap(evaluation: Evaluation, members: _MatchAttack, others: _MatchAttack) -> Score:
    return _matching.member_gap(
        QuasiIdentifierMatch,
        "qi-match/gap",
        members.right[members.once].mean(axis=1),
        others.right[others.once].mean(axis=1),
        evaluation.generator("bootstrap/qi-match/gap"),
    )


def _table(
    evaluation: Evaluation, hidden: tuple[Column, ...], populations: dict[str, _MatchAttack]
) -> pd.DataFrame:
    """One row for each attribute and population."""
    sensitive = evaluation.dataset.schema.sensitive
    rows = []
    for name, attack in populations.items():
        everybody = np.ones(len(attack.once), dtype=bool)
        for label, kept in ((name, everybody), (f"{name}, once", attack.once)):
            matched = attack.matched & kept
            for place, column in enumerate(hidden):
                right = attack.right[:, place]
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
