"""Disclosure risk of a match over quasi-identifiers (fidelity paper, equation 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import (
    Column,
    Direction,
    Evaluation,
    Family,
    Metric,
    NotComputable,
    Numeric,
    Output,
    Scores,
    Split,
)
from bench.metrics._shared.bootstrap import Array, bootstrap_mean
from bench.metrics._shared.record_distance import rows_occurring_once
from bench.metrics.privacy.disclosure import _jenks, _matching
from bench.metrics.privacy.disclosure._jenks import Breaks
from bench.metrics.privacy.disclosure._matching import Codes, MatchedTable, Matching, ReadableTable

LIMIT = 0.05
"""Section 4.1.3: at most this is very low and acceptable."""

MISSING_WEIGHT = 0.5
"""Section 4.1.3: a missing value discloses less; its risk is reduced by half."""

MATCH_RATE = 0.23
ERROR_RATE = 0.0426
"""Verified matches, and errors in a field: the rates that [27] took from field studies."""

CONSERVATIVE_MATCH_RATE = 0.8


@final
@dataclass(frozen=True)
class ErrorAssumption:
    """One assumption about errors in matching."""

    name: str
    factor: float
    """lambda' of equation 6, as computed here."""
    tables: float
    """The factor that the paper's tables 8a to 8d were computed with, as their ratios show."""


def error_assumptions(known: int) -> tuple[ErrorAssumption, ...]:
    """The three of section 4.1.3, for a number of quasi-identifiers.

    The reference factor is printed as (1 + (0.23 (1 - 0.0426))^k) / 2. The paper does not print
    how the other two enter, and its tables 8a to 8d do not fit the printed form: they divide as
    0.202 (k = 3) or 0.193 (k = 4) to 0.8 to 1, which is match rate x (1 - error rate)^k. The
    printed factor is kept, because it is the larger one by far; the conservative factor is the
    0.8 of the tables (the printed form would make it (1 + 0.8^k) / 2) and without errors it is 1
    in either reading.
    """
    printed = (1.0 + (MATCH_RATE * (1.0 - ERROR_RATE)) ** known) / 2.0
    return (
        ErrorAssumption("reference", printed, MATCH_RATE * (1.0 - ERROR_RATE) ** known),
        ErrorAssumption("conservative", CONSERVATIVE_MATCH_RATE, CONSERVATIVE_MATCH_RATE),
        ErrorAssumption("no-errors", 1.0, 1.0),
    )


_R = (
    "R_s is 1 where the value inferred from the matching rows (mode; median of a number) is the "
    "record's own (same Jenks class of a number) and fewer than half of the records share it, "
    "0.5 instead of 1 for a missing value"
)


@final
class DisclosureRisk(Metric):
    """Equation 6: mean over training records s of 1/f_s x lambda' x I_s x R_s, for each variable.

    * f_s: training records with the quasi-identifiers of s, s included.
    * I_s: the release holds rows with the quasi-identifiers of s.
    * R_s: the attacker learns something new. The paper leaves this to [27] (El Emam, Mosquera and
      Bass 2020), where a category j is learned when it is right and 1 - p_j > sqrt(p_j (1 - p_j)),
      that is p_j < 1/2, with p_j its share among the real records. Numbers are put into natural
      classes, which then are categories. What is inferred from several matching rows is what the
      attacker of section 4.1.3 infers, their mode or median; to accept any matching row would let
      the risk grow with the number of released rows, whatever they hold. [27] accepts a number by
      p_j |x - y| < 1.48 MAD instead of classes: never met where half of the values are equal.
    * lambda': `error_assumptions`.

    The risk of a record is its largest one over all variables that are no quasi-identifiers.
    """

    name: ClassVar[str] = "disclosure-risk"
    family: ClassVar[Family] = Family.PRIVACY
    definition: ClassVar[str] = (
        "Mean over training records of the largest 1/f_s x lambda' x I_s x R_s over all variables "
        f"that are no quasi-identifiers (fidelity paper, equation 6): {_R}. Bootstrap interval "
        "over records, class sizes kept."
    )
    outputs: ClassVar[tuple[Output, ...]] = (
        Output(
            "disclosure-risk/reference",
            Direction.LOWER,
            "Equation 6 with lambda' = (1 + (0.23 x (1 - 0.0426))^k) / 2 as printed, k the number "
            "of quasi-identifiers",
            LIMIT,
            shown=True,
        ),
        Output(
            "disclosure-risk/conservative",
            Direction.LOWER,
            "Equation 6 with lambda' = 0.8: 80% match rate, no errors, as in tables 8a to 8d",
            LIMIT,
        ),
        Output(
            "disclosure-risk/no-errors",
            Direction.LOWER,
            "Equation 6 with lambda' = 1: every match is right",
            LIMIT,
        ),
        Output(
            "disclosure-risk/gap",
            Direction.LOWER,
            "The same without errors, training minus control records, class sizes counted in both "
            "together, without records that occur more than once in the two: what the release "
            "discloses beyond the population. Bootstrap interval, both sides",
        ),
    )

    def compute(self, evaluation: Evaluation) -> Scores:
        dataset = evaluation.dataset
        known = _matching.quasi_identifiers(dataset.schema)
        hidden = tuple(
            column for column in _matching.released_columns(dataset.schema) if column not in known
        )
        if not hidden:
            raise NotComputable("every column is a quasi-identifier: nothing is left to disclose")
        matching = Matching.of(evaluation, known)
        released, train, control = matching.released, matching.train, matching.control
        coded = evaluation.reference(
            "disclosure-risk/values", lambda rng: tuple(_Values.of(c, train.table) for c in hidden)
        )
        members = _learned(hidden, coded, released, train, dataset.train)
        risks = members / _class_sizes(train.classes, train.classes)[:, None]
        worst = risks.max(axis=1)
        rng = evaluation.generator("bootstrap/disclosure-risk")
        estimate = bootstrap_mean(worst, rng)
        low, high = estimate.interval
        factors = error_assumptions(len(known))
        scores = [
            self.score(
                f"disclosure-risk/{variant.name}",
                variant.factor * estimate.value,
                variant.factor * low,
                variant.factor * high,
            )
            for variant in factors
        ]
        others = _learned(hidden, coded, released, control, dataset.control)
        pooled = np.concatenate([train.classes, control.classes])
        train_once, control_once = rows_occurring_once(evaluation)
        gap = _matching.member_gap(
            DisclosureRisk,
            "disclosure-risk/gap",
            (members.max(axis=1) / _class_sizes(train.classes, pooled))[train_once],
            (others.max(axis=1) / _class_sizes(control.classes, pooled))[control_once],
            evaluation.generator("bootstrap/disclosure-risk/gap"),
        )
        matched = np.isin(train.classes, released.classes)
        table = _table(evaluation, hidden, coded, risks, matched, factors)
        return Scores((*scores, gap), {"disclosure-risk": table})


@final
@dataclass(frozen=True)
class _Values:
    """The values of one variable as categories, with their shares among the training records."""

    breaks: Breaks | None
    """Natural classes of a number."""
    shares: Array

    @classmethod
    def of(cls, column: Column, records: ReadableTable) -> _Values:
        values = records.columns[column.name]
        breaks = _jenks.natural_breaks(values) if isinstance(column, Numeric) else None
        codes = values.astype(np.int64) if breaks is None else breaks.classes(values)
        return cls(breaks, np.bincount(codes) / len(codes))

    def codes(self, values: Array) -> Array:
        """NaN, where nothing was inferred, is kept."""
        if self.breaks is None:
            return values
        return np.where(np.isnan(values), np.nan, self.breaks.classes(values))

    def rare(self, codes: Array) -> npt.NDArray[np.bool_]:
        """Values that are informative: 1 - p > sqrt(p (1 - p)), that is p < 1/2."""
        places = codes.astype(np.int64)
        known = places < len(self.shares)
        shares = self.shares[np.where(known, places, 0)]
        rare: npt.NDArray[np.bool_] = ~known | (shares < 0.5)
        return rare


def _learned(
    hidden: tuple[Column, ...],
    coded: tuple[_Values, ...],
    released: MatchedTable,
    records: MatchedTable,
    split: Split,
) -> Array:
    """I_s x R_s for each record and variable."""
    learned = np.zeros((len(records.table), len(hidden)))
    for place, (column, values) in enumerate(zip(hidden, coded, strict=True)):
        guesses = _matching.infer(column, released).of(records.classes)
        truth = values.codes(records.table.columns[column.name])
        new = (values.codes(guesses) == truth) & values.rare(truth)
        weight = np.where(_matching.missing(split, column), MISSING_WEIGHT, 1.0)
        learned[:, place] = new * weight
    return learned


def _class_sizes(classes: Codes, among: Codes) -> npt.NDArray[np.int64]:
    """Number of records of `among` that share the quasi-identifiers of each record."""
    distinct, counts = np.unique(among, return_counts=True)
    sizes: npt.NDArray[np.int64] = counts[np.searchsorted(distinct, classes)]
    return sizes


def _table(
    evaluation: Evaluation,
    hidden: tuple[Column, ...],
    coded: tuple[_Values, ...],
    risks: Array,
    matched: npt.NDArray[np.bool_],
    factors: tuple[ErrorAssumption, ...],
) -> pd.DataFrame:
    """The paper's table 2: one row for each variable and variant, and the total."""
    sensitive = evaluation.dataset.schema.sensitive
    rows = []
    columns = [(column.name, values) for column, values in zip(hidden, coded, strict=True)]
    for place, (name, values) in enumerate([*columns, ("(total)", None)]):
        risk = risks.max(axis=1) if values is None else risks[:, place]
        breaks = None if values is None else values.breaks
        for variant in factors:
            rows.append(
                {
                    "variable": name,
                    "sensitive": name in sensitive,
                    "variant": variant.name,
                    "risk": variant.factor * float(risk.mean()),
                    "risk-as-in-tables": variant.tables * float(risk.mean()),
                    "factor": variant.factor,
                    "matched": float(matched.mean()),
                    "at-risk": float(np.mean(risk > 0)),
                    "classes": 0 if breaks is None else len(breaks),
                    "goodness": np.nan if breaks is None else breaks.goodness,
                    "grouped": breaks is not None and breaks.grouped,
                }
            )
    return pd.DataFrame(rows)
