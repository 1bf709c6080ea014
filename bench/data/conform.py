"""Makes the rows of a user's table conform to its public schema, row by row, without failing.

A run that fails, or warns a reader, because of one row tells that the row is there. Rows of a
shipped dataset were checked against its schema once and for all; those of a user's table were not.
Each entry therefore follows a public rule that looks at this row and the schema alone:

1. A number outside the declared bounds, infinite ones included, is clipped to them.
2. An entry that is missing, or is no number in a numeric column, is missing where the column
   declares `missing = true`; else it becomes the declared `fill`, or the middle of the bounds.
3. A missing category becomes `(missing)`, the declared `fill`, `(other)` or the first category: the
   first of these that is declared. An undeclared one becomes `(other)`, `(missing)`, `fill` or the
   first category.
4. A row whose label is missing or undeclared is not in the table, and neither is one without a time
   (survival) or, where sites are declared, without a declared site. `(missing)` and `(other)`
   count where the column declares them.

What was changed is counted. The counts are non-private access to the rows: for the data owner and
the evaluator, never for a method or a reader.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.data.encoder import MISSING_CATEGORY, spell
from bench.data.schema import Categorical, Column, Numeric, Role, Schema

OTHER_CATEGORY = "(other)"
"""Category that stands for an undeclared entry."""

_WHOLE = re.compile(r"[+-]?[0-9]+\.0*")
_NEEDED = (Role.TARGET, Role.EVENT, Role.TIME, Role.SITE)
"""Roles without which a row is not in the table."""


@final
@dataclass(frozen=True)
class Adjustment:
    """What a rule changed in one column. Non-private: for the data owner and the evaluator only."""

    column: str
    problem: str
    """What was found, as in `values outside the declared bounds`."""
    rule: str
    """What was done, as in `clipped`."""
    count: int

    def describe(self) -> str:
        """Return one line for people; values of rows are never part of it."""
        return f"column {self.column!r}: {self.count} {self.problem}: {self.rule}"


OUTSIDE = "values outside the declared bounds"
ROW_LEFT_OUT = "these rows are not in the table"


@final
@dataclass(frozen=True)
class Conformed:
    """Rows that obey their schema, and what had to be changed for that."""

    frame: pd.DataFrame
    adjustments: tuple[Adjustment, ...]


def conform(frame: pd.DataFrame, schema: Schema) -> Conformed:
    """Apply the rules of this module; other columns than the schema's are kept as they are."""
    usable = usable_rows(frame, schema)
    frame = usable.frame.copy()
    adjustments = list(usable.adjustments)
    for column in schema:
        frame[column.name], _, made = _conformed(frame[column.name], column)
        adjustments += made
    return Conformed(frame, merged(adjustments))


def usable_rows(frame: pd.DataFrame, schema: Schema) -> Conformed:
    """Return the rows that are in the table by rule 4, with their entries as they are."""
    kept = np.ones(len(frame), dtype=bool)
    adjustments: list[Adjustment] = []
    for column in schema:
        if column.role in _NEEDED:
            _, bad, made = _conformed(frame[column.name], column)
            kept &= ~bad
            adjustments += [one for one in made if one.rule == ROW_LEFT_OUT]
    return Conformed(frame[kept], merged(adjustments))


def _conformed(series: pd.Series[Any], column: Column) -> _Made:
    if isinstance(column, Numeric):
        return _numeric(series, column)
    if isinstance(column, Categorical):
        return _categorical(series, column)
    raise TypeError(f"no rule for {type(column).__name__}")


def merged(adjustments: Iterable[Adjustment]) -> tuple[Adjustment, ...]:
    """Return one adjustment for all of the same kind; those that changed nothing are dropped."""
    counts: dict[Adjustment, int] = {}
    for one in adjustments:
        kind = replace(one, count=0)
        counts[kind] = counts.get(kind, 0) + one.count
    return tuple(replace(kind, count=count) for kind, count in counts.items() if count)


def numbers_of(series: pd.Series[Any]) -> npt.NDArray[np.float64]:
    """Return entries as numbers, one by one; nan where an entry is missing or is no number.

    `pandas.to_numeric` is faster, but decides about integers beyond 63 bits by the whole column.
    """
    if series.dtype != object:
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    numbers = np.full(len(series), np.nan)
    present = series.notna().to_numpy(dtype=bool)
    entries = series.to_numpy()[present].tolist()
    numbers[present] = _plain_numbers(entries) or [_number(entry) for entry in entries]
    return numbers


def _plain_numbers(entries: list[Any]) -> list[float]:
    """Return what `_number` returns for each, several times faster; nothing if one is strange."""
    try:
        text = "".join(entries)
        return list(map(float, entries)) if text.isascii() and "_" not in text else []
    except (TypeError, ValueError):
        return []


def _number(entry: Any) -> float:
    try:
        # Python also reads 1_000 and digits of other scripts, which no table means.
        strange = isinstance(entry, str) and ("_" in entry or not entry.isascii())
        return math.nan if strange else float(entry)
    except (TypeError, ValueError):
        return math.nan
    except OverflowError:  # an integer beyond all floats
        return math.copysign(math.inf, entry)


def texts_of(series: pd.Series[Any]) -> npt.NDArray[np.object_]:
    """Return entries as categories are spelled, one by one; None where an entry is missing."""
    codes, values = pd.factorize(series)
    texts = np.empty(len(values) + 1, dtype=object)
    texts[: len(values)] = [_text(value) for value in values]
    return texts[codes]  # the code -1 of a missing entry is the last: None


def _text(value: object) -> str:
    text = spell(value)
    # A column of whole numbers with a gap was written as floats by who saved the file.
    return str(int(text.partition(".")[0])) if _WHOLE.fullmatch(text) and len(text) < 30 else text


_Made = tuple[npt.NDArray[Any], npt.NDArray[np.bool_], list[Adjustment]]
"""New entries, where a row cannot be used for lack of this one, and what was changed."""


def _numeric(series: pd.Series[Any], column: Numeric) -> _Made:
    numbers = numbers_of(series)
    absent = np.isnan(numbers)
    missing = series.isna().to_numpy(dtype=bool)
    inside = np.clip(numbers, column.low, column.high)
    outside = int(np.count_nonzero(inside != numbers) - np.count_nonzero(absent))
    made = [Adjustment(column.name, OUTSIDE, "clipped", outside)]
    wrong = int((absent & ~missing).sum())
    if column.role in _NEEDED:
        made += [
            Adjustment(column.name, "entries are no number", ROW_LEFT_OUT, wrong),
            Adjustment(column.name, "entries are missing", ROW_LEFT_OUT, int(missing.sum())),
        ]
        return inside, absent, made
    fill = column.fill
    if fill is None and not column.missing:
        middle = column.low + (column.high - column.low) / 2.0
        fill = math.floor(middle) if column.integer and math.floor(middle) >= column.low else middle
        rule = "taken for the middle of the bounds"
        made.append(Adjustment(column.name, "entries are missing", rule, int(missing.sum())))
        inside[absent] = float(fill)
    else:
        rule = "taken for missing"
        inside[absent] = np.nan  # what the encoder takes for missing, or replaces by `fill`
    made.append(Adjustment(column.name, "entries are no number", rule, wrong))
    return inside, absent, made


def _categorical(series: pd.Series[Any], column: Categorical) -> _Made:
    texts = texts_of(series)
    codes, values = pd.factorize(texts)
    known = {text: _declared(text, column) for text in values}
    missing = codes < 0
    undeclared = np.array([known[text] is None for text in values] + [False], dtype=bool)[codes]
    needed = column.role in _NEEDED
    for_missing = _stand_in(column, (MISSING_CATEGORY, column.fill, OTHER_CATEGORY), needed)
    for_undeclared = _stand_in(column, (OTHER_CATEGORY, MISSING_CATEGORY, column.fill), needed)
    spelled = np.empty(len(values) + 1, dtype=object)
    spelled[: len(values)] = [
        for_undeclared if known[text] is None else known[text] for text in values
    ]
    spelled[-1] = for_missing
    rule, count = _rule(for_undeclared), int(undeclared.sum())
    made = [Adjustment(column.name, "categories are undeclared", rule, count)]
    if for_missing is None or for_missing not in (MISSING_CATEGORY, column.fill):
        rule, count = _rule(for_missing), int(missing.sum())
        made.append(Adjustment(column.name, "entries are missing", rule, count))
    bad = (missing & (for_missing is None)) | (undeclared & (for_undeclared is None))
    return spelled[codes], bad, made


def _declared(text: str, column: Categorical) -> str | None:
    """Return the declared spelling of an entry: 01 and TRUE are found as 1 and True."""
    spellings = [text]
    if text.lower() in ("true", "false"):
        spellings.append(text.capitalize())
    try:
        number = float(text) if len(text) < 30 else math.nan
    except ValueError:
        number = math.nan
    if number.is_integer():
        spellings.append(str(int(number)))
    return next((one for one in spellings if one in column.categories), None)


def _stand_in(
    column: Categorical, choices: Sequence[float | str | None], needed: bool
) -> str | None:
    """Return the first of these that is declared, or else the first category, if one may be."""
    for choice in choices[:1] if needed else choices:
        if choice is not None and str(choice) in column.categories:
            return str(choice)
    return None if needed else column.categories[0]


def _rule(stand_in: str | None) -> str:
    return ROW_LEFT_OUT if stand_in is None else f"taken for {stand_in!r}"


def describe_briefly(adjustments: Sequence[Adjustment]) -> str:
    """Return one line about all adjustments; an empty text where there are none."""
    if not adjustments:
        return ""
    rows = sum(one.count for one in adjustments if one.rule == ROW_LEFT_OUT)
    values = sum(one.count for one in adjustments) - rows
    return (
        f"rows contradict the schema: {values} values replaced, rows left out for {rows} entries; "
        "see `bench data check`"
    )


def clipped_by(adjustments: Iterable[Adjustment]) -> Counter[str]:
    """Return how many values were clipped, by column."""
    return Counter({one.column: one.count for one in adjustments if one.problem == OUTSIDE})
