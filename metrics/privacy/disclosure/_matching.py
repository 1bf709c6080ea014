"""Attributes under attack, and what an attacker infers by matching quasi-identifiers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench import (
    Categorical,
    Column,
    Evaluation,
    Metric,
    NotComputable,
    Numeric,
    Schema,
    Score,
    Split,
    Task,
)
from bench.metrics._shared.bootstrap import Array, bootstrap_mean
from bench.metrics._shared.rows import positive_rows, row_weights

Codes = npt.NDArray[np.int64]

TARGETS_AT_MOST = 5
"""Attributes attacked where the schema declares none; the zero-order paper attacks five."""

CELL = 0.02
"""Width of the cells in which continuous quasi-identifiers match, as a share of the public range.

Section 4.1.3 matches exactly by default, or in a range around the value. Cells of a public grid
are such a range, and unlike windows they are equivalence classes, which equation 6 counts.
Categories and whole numbers match exactly.
"""

_EDGE = 1e-4
"""Share of a cell: values on an edge stay on one side after encoding in single precision."""

MISSING = "(missing)"
"""Name of the category of a missing answer in schemas."""


# Which attributes --------------------------------------------------------------------------------


def attacked(schema: Schema) -> tuple[Column, ...]:
    """The sensitive attributes of the schema that a release holds.

    Where it declares none, the first numeric or binary features that are no quasi-identifiers:
    attributes that one regression can predict, whether or not they are sensitive.
    """
    declared = tuple(
        column for column in released_columns(schema) if column.name in schema.sensitive
    )
    if declared:
        return declared
    if schema.task is Task.IMAGE:
        raise NotComputable(
            "the schema declares no sensitive attribute, and pixels are not sensitive"
        )
    chosen = tuple(
        column
        for column in schema.features
        if column.name not in schema.quasi_identifiers and _one_number(column)
    )[:TARGETS_AT_MOST]
    if not chosen:
        raise NotComputable(
            "the schema declares no sensitive attribute, and no numeric or binary feature is left "
            "to attack in their place"
        )
    return chosen


def released_columns(schema: Schema) -> tuple[Column, ...]:
    """Columns that every release of this schema holds: all but the site."""
    time = () if schema.time is None else (schema.time,)
    return (*schema.features, *time, schema.label)


def _one_number(column: Column) -> bool:
    return isinstance(column, Numeric) or (isinstance(column, Categorical) and column.binary)


# Tables as an attacker reads them -----------------------------------------------------------------


@final
@dataclass(frozen=True)
class ReadableTable:
    """Rows in the units of the schema: numbers, or category codes in declared order."""

    columns: Mapping[str, Array]
    weights: Array

    def __len__(self) -> int:
        return len(self.weights)


def released_table(evaluation: Evaluation) -> ReadableTable:
    """The release; rows without weight are left out."""
    return evaluation.shared("targets/released", lambda: _released(evaluation))


def _released(evaluation: Evaluation) -> ReadableTable:
    kept = positive_rows(evaluation)
    table = _readable(evaluation.dataset.schema, evaluation.decoded)
    columns = {name: values[kept] for name, values in table.items()}
    return ReadableTable(columns, row_weights(evaluation.rows)[kept])


def real_table(evaluation: Evaluation, name: Literal["train", "control"]) -> ReadableTable:
    """Real rows as they would look if they had been released: clipped, filled and rounded alike."""
    dataset = evaluation.dataset
    encoder, split = dataset.encoder, dataset.train if name == "train" else dataset.control

    def build(rng: np.random.Generator) -> ReadableTable:
        decoded = encoder.decode(split.rows.values, split.rows.labels, complete=True)
        return ReadableTable(_readable(encoder.schema, decoded), np.ones(len(decoded)))

    return evaluation.reference(f"targets/{name}", build)


def _readable(schema: Schema, decoded: pd.DataFrame) -> dict[str, Array]:
    table: dict[str, Array] = {}
    for column in released_columns(schema):
        series = decoded[column.name]
        if isinstance(column, Categorical):
            codes = pd.Categorical(series, categories=list(column.categories)).codes
            table[column.name] = codes.astype(np.float64)
        else:
            table[column.name] = series.to_numpy(dtype=np.float64)
    return table


def missing(split: Split, column: Column) -> npt.NDArray[np.bool_]:
    """Rows of a split whose value was missing: filled, or in the category of missing answers."""
    series = split.frame[column.name]
    return (series.isna() | (series.astype(str) == MISSING)).to_numpy(dtype=bool)


# Quasi-identifiers --------------------------------------------------------------------------------


def quasi_identifiers(schema: Schema) -> tuple[Column, ...]:
    """Quasi-identifiers that a release holds."""
    known = tuple(
        column for column in released_columns(schema) if column.name in schema.quasi_identifiers
    )
    if not known:
        raise NotComputable("the schema declares no quasi-identifiers that a release holds")
    return known


def equivalence_classes(known: tuple[Column, ...], *tables: ReadableTable) -> list[Codes]:
    """A number for each row of each table: equal where all quasi-identifiers match."""
    parts = [
        np.concatenate([_cells(column, table.columns[column.name]) for table in tables])
        for column in known
    ]
    numbers = np.zeros(sum(map(len, tables)), dtype=np.int64)
    for part in parts:
        distinct, codes = np.unique(part, return_inverse=True)
        # Numbered anew after each column: products of many columns would overflow.
        numbers = np.unique(numbers * len(distinct) + codes, return_inverse=True)[1]
    return list(np.split(numbers, np.cumsum([len(table) for table in tables])[:-1]))


def _cells(column: Column, values: Array) -> Codes:
    if isinstance(column, Numeric) and not column.integer:
        share = (values - column.low) / (column.high - column.low)
        return np.floor(share / CELL + _EDGE).astype(np.int64)
    return np.rint(values).astype(np.int64)


@final
@dataclass(frozen=True)
class MatchedTable:
    """A table, and the equivalence class of each of its rows."""

    table: ReadableTable
    classes: Codes


@final
@dataclass(frozen=True)
class Matching:
    """The three tables of an evaluation, with classes that are common to all of them."""

    released: MatchedTable
    train: MatchedTable
    control: MatchedTable

    @classmethod
    def of(cls, evaluation: Evaluation, known: tuple[Column, ...]) -> Matching:
        """Match rows over the columns that an attacker knows."""
        tables = (
            released_table(evaluation),
            real_table(evaluation, "train"),
            real_table(evaluation, "control"),
        )
        return cls(*map(MatchedTable, tables, equivalence_classes(known, *tables)))


# What an attacker infers --------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class InferredValues:
    """Section 4.1.3: the attacker's guess in each equivalence class of the release."""

    classes: Codes
    """Equivalence classes that the release holds, ascending."""
    guesses: Array

    def matched(self, classes: Codes) -> npt.NDArray[np.bool_]:
        """Whether the release holds a match of each record."""
        return self._places(classes)[1]

    def of(self, classes: Codes) -> Array:
        """The guess for each record; NaN without a match."""
        places, matched = self._places(classes)
        return np.where(matched, self.guesses[places], np.nan)

    def _places(self, classes: Codes) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
        places = np.minimum(np.searchsorted(self.classes, classes), len(self.classes) - 1)
        return places, self.classes[places] == classes


def infer(column: Column, released: MatchedTable) -> InferredValues:
    """Mode of a categorical, median of a numeric attribute in each class, by the rows' weights."""
    values, weights = released.table.columns[column.name], released.table.weights
    inferred = _modes if isinstance(column, Categorical) else _medians
    return inferred(released.classes, values, weights)


def _modes(classes: Codes, values: Array, weights: Array) -> InferredValues:
    """The heaviest value of each class; of several the first in declared order."""
    order = np.lexsort((values, classes))
    classes, values, weights = classes[order], values[order], weights[order]
    new = np.append(True, (np.diff(classes) != 0) | (np.diff(values) != 0))
    starts = np.flatnonzero(new)
    # Rounded, so that a tie of weights does not depend on the order of their sum.
    heavy = np.round(np.add.reduceat(weights, starts) / weights.mean(), 9)
    classes, values = classes[starts], values[starts]
    order = np.lexsort((values, -heavy, classes))
    distinct, first = np.unique(classes[order], return_index=True)
    return InferredValues(distinct, values[order][first])


def _medians(classes: Codes, values: Array, weights: Array) -> InferredValues:
    """Half of the weight lies on either side; with equal weights this is the usual median."""
    order = np.lexsort((values, classes))
    classes, values, weights = classes[order], values[order], weights[order]
    distinct, starts, counts = np.unique(classes, return_index=True, return_counts=True)
    totals = np.add.reduceat(weights, starts)
    up_to = np.cumsum(weights)
    up_to -= np.repeat(up_to[starts] - weights[starts], counts)
    slack = 1e-9 * totals
    lower = _first(up_to >= np.repeat(totals / 2 - slack, counts), starts)
    upper = _first(up_to > np.repeat(totals / 2 + slack, counts), starts)
    return InferredValues(distinct, (values[lower] + values[upper]) / 2)


def _first(holds: npt.NDArray[np.bool_], starts: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """The first row of each class where the condition holds; it holds in the last row of each."""
    places = np.where(holds, np.arange(len(holds)), len(holds))
    return np.minimum.reduceat(places, starts)


# Members against non-members ----------------------------------------------------------------------

LEAST_ROWS = 10
"""Fewer rows of one kind are too few for a difference."""


def member_gap(
    metric: type[Metric], output: str, members: Array, others: Array, rng: np.random.Generator
) -> Score:
    """Mean over training rows minus mean over control rows; both sides are resampled."""
    if min(len(members), len(others)) < LEAST_ROWS:
        reason = (
            f"{len(members)} training and {len(others)} control rows occur only once in the two; "
            f"at least {LEAST_ROWS} of each are needed"
        )
        return metric.absent(output, reason)
    gap = bootstrap_mean(members, rng) - bootstrap_mean(others, rng)
    return gap.score(metric, output)
