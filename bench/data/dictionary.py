"""Data dictionaries: what a table's owner knows about its columns without looking at the rows.

A CSV file has one line per column:

    column,kind,low,high,categories,missing,description,source
    age,integer,0,120,,no,age at admission in years,codebook p. 3
    bmi,number,10,80,,yes,body mass index,codebook p. 4
    sex,category,,,f|m,no,,
    grade,ordinal,,,1|2|3|4,no,,

A TOML file says the same under `[columns.NAME]`, with a list for `categories` and true or false for
`missing`; the keys of a dataset's TOML file are understood too. `bench data add --propose FILE`
writes such a file from the rows to begin with. Its lines say so in `source`, and count as read off
the rows until a person has written there where the facts come from.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from bench.data.encoder import MISSING_CATEGORY
from bench.data.provenance import facts_of
from bench.data.schema import Column, parse_toml, read_text_file
from bench.errors import DataError, shortened

PROPOSED = "proposed from the rows"
"""What a proposed line says in `source`; a line that says so is not a dictionary's."""

_FIELDS = ("column", "kind", "low", "high", "categories", "missing", "description", "source")
_KINDS: Mapping[str, str] = {
    **dict.fromkeys(("number", "numeric", "float", "real", "continuous"), "number"),
    **dict.fromkeys(("integer", "int", "whole", "count"), "integer"),
    **dict.fromkeys(("category", "categorical", "binary", "nominal", "text"), "category"),
    **dict.fromkeys(("ordinal", "ordered"), "ordinal"),
}
_SEPARATOR = re.compile(r"(?<!\\)\|")
"""A bar in a category is written with a backslash before it."""
_YES = ("yes", "true", "1", "y")
_NO = ("", "no", "false", "0", "n")


@final
@dataclass(frozen=True)
class DictionaryEntry:
    """What a dictionary says about one column."""

    name: str
    kind: str
    """`number`, `integer`, `category` or `ordinal`."""
    low: float = 0.0
    high: float = 0.0
    categories: tuple[str, ...] = ()
    missing: bool = False
    description: str = ""
    source: str = ""

    @property
    def numeric(self) -> bool:
        """True for a column of numbers."""
        return self.kind in ("number", "integer")

    @property
    def proposed(self) -> bool:
        """True where the line still says that it was proposed from the rows."""
        return self.source.strip().lower().startswith((PROPOSED, "inferred"))


@final
@dataclass(frozen=True)
class Dictionary:
    """A dictionary that was read."""

    file: str = ""
    sha256: str = ""
    entries: Mapping[str, DictionaryEntry] = field(default_factory=dict)


def read_dictionary(path: Path) -> Dictionary:
    """Read a CSV or TOML file; what is wrong is said with file and line or column."""
    text = read_text_file(path)
    toml = path.suffix.lower() == ".toml"
    entries = list(_toml_entries(path, text) if toml else _csv_entries(path, text))
    if not entries:
        raise DataError(f"{path}: describes no column; one line per column is needed")
    by_name: dict[str, DictionaryEntry] = {}
    for entry in entries:
        if entry.name in by_name:
            raise DataError(f"{path}: the column {entry.name!r} is described twice")
        by_name[entry.name] = entry
    return Dictionary(path.name, hashlib.sha256(text.encode()).hexdigest(), by_name)


def _csv_entries(path: Path, text: str) -> Iterable[DictionaryEntry]:
    lines = csv.reader(io.StringIO(text.removeprefix("\ufeff")), skipinitialspace=True)
    try:
        header = [name.strip().lower() for name in next(lines, [])]
        unknown = sorted(set(header) - {*_FIELDS, "integer", "ordered", ""})
        if "column" not in header or "kind" not in header or unknown:
            wrong = f"unknown: {', '.join(unknown)}" if unknown else "`column` or `kind` is absent"
            raise DataError(
                f"{path}: the first line must name the columns {', '.join(_FIELDS)} (the first "
                f"two are required); {wrong}"
            )
        for number, cells in enumerate(lines, start=2):
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) > len(header):
                raise DataError(
                    f"{path}, line {number}: {len(cells)} entries for {len(header)} columns; put "
                    "an entry with a comma into quotes"
                )
            table = {name: cell.strip() for name, cell in zip(header, cells, strict=False)}
            listed = _SEPARATOR.split(table.get("categories", ""))
            listed = [part.replace("\\|", "|").strip() for part in listed]
            entry = {**table, "categories": [part for part in listed if part]}
            yield _entry(f"{path}, line {number}", table.get("column", ""), entry)
    except csv.Error as problem:
        raise DataError(f"{path}: not a regular CSV file ({problem})") from None


def _toml_entries(path: Path, text: str) -> Iterable[DictionaryEntry]:
    columns = parse_toml(text, str(path)).get("columns")
    if not isinstance(columns, dict):
        raise DataError(f"{path}: needs a table [columns.NAME] for every column")
    for name, table in columns.items():
        if not isinstance(table, dict):
            raise DataError(f"{path}: columns.{name} must be a table, got {shortened(table)}")
        yield _entry(f"{path}, column {name!r}", name, table)


def _entry(where: str, name: str, table: Mapping[str, Any]) -> DictionaryEntry:
    if not name:
        raise DataError(f"{where}: the name of the column is empty")
    kind = _KINDS.get(str(table.get("kind", "")).strip().lower())
    if kind is None:
        raise DataError(
            f"{where}: kind {shortened(table.get('kind', ''))} is not one of number, integer, "
            "category, ordinal"
        )
    if kind == "number" and _truth(where, "integer", table):
        kind = "integer"
    if kind == "category" and _truth(where, "ordered", table):
        kind = "ordinal"
    description, source = (str(table.get(key, "")) for key in ("description", "source"))
    missing = _truth(where, "missing", table)
    if kind in ("number", "integer"):
        low, high = (_bound(where, key, table) for key in ("low", "high"))
        if not low < high:
            raise DataError(f"{where}: low {low:g} must be below high {high:g}")
        return DictionaryEntry(name, kind, low, high, (), missing, description, source)
    listed = table.get("categories", [])
    if not isinstance(listed, list):
        raise DataError(f"{where}: categories must be a list, got {shortened(listed)}")
    categories = [str(one) for one in listed if str(one) != MISSING_CATEGORY]
    missing = missing or len(categories) < len(listed)
    if len(categories) < 2 - missing or len(set(categories)) < len(categories):
        raise DataError(
            f"{where}: needs two or more different categories, separated by | in a CSV file; a "
            "column that never varies can be left out by --drop-column"
        )
    return DictionaryEntry(name, kind, 0.0, 0.0, tuple(categories), missing, description, source)


def _bound(where: str, key: str, table: Mapping[str, Any]) -> float:
    value = table.get(key, "")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        raise DataError(f"{where}: {key} must be a finite number, got {shortened(value)}")
    return number


def _truth(where: str, key: str, table: Mapping[str, Any]) -> bool:
    value = str(table.get(key, "")).strip().lower()
    if value not in (*_YES, *_NO):
        raise DataError(f"{where}: {key} must be yes or no, got {shortened(value)}")
    return value in _YES


def proposal_text(columns: Sequence[Column], sources: Mapping[str, str]) -> str:
    """Return a CSV dictionary of these columns; `sources` are those that are on record."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_FIELDS)
    for column in columns:
        facts = facts_of(column)
        listed = [one for one in facts.get("categories", []) if one != MISSING_CATEGORY]
        missing = facts.get("missing", len(listed) < len(facts.get("categories", [])))
        writer.writerow(
            [
                *(column.name, facts["kind"]),
                *(f"{facts[key]:.15g}" if key in facts else "" for key in ("low", "high")),
                *(
                    "|".join(one.replace("|", "\\|") for one in listed),
                    "yes" if missing else "no",
                    column.description,
                ),
                sources.get(column.name) or PROPOSED,
            ]
        )
    return text.getvalue()
