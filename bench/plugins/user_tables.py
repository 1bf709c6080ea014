"""A user's own table as a dataset: a TOML file in the data folder, written by `bench data add`.

Kinds, bounds and categories in that file are read off the rows, which is charged as non-private
access, unless a data dictionary states them (`--dictionary`) or a person confirms them (`bench data
confirm`). `bench.data.provenance` keeps the sources on record beside the file.

`bench data add` is the look of the data owner at the own file: it refuses what is wrong with it, by
column and row. A run must not fail because of a row: there, `bench.data.conform` has a public rule
for every entry.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import math
import os
import re
import shlex
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import pandas as pd

from bench.data.conform import (
    ROW_LEFT_OUT,
    Adjustment,
    Conformed,
    conform,
    merged,
    numbers_of,
    texts_of,
    usable_rows,
)
from bench.data.dataset import Declaration, declaration_from_table
from bench.data.dictionary import Dictionary, DictionaryEntry, proposal_text
from bench.data.encoder import MISSING_CATEGORY
from bench.data.files import data_folder, user_table_files
from bench.data.identifiers import looks_like_identifier
from bench.data.own_files import TableFile, column_names, is_pandas_index, pieces, table_file
from bench.data.provenance import (
    SchemaSources,
    Source,
    SourceRecord,
    confirmations,
    declared_text,
    facts_of,
    read_sources,
    record_sources,
    today,
)
from bench.data.schema import Column, Role, Schema, parse_toml, read_toml, schema_from_table
from bench.errors import DataError, InputError, SchemaError, shortened
from bench.plugins.source import DatasetSource

_MOST_CATEGORIES = 50
"""Text with more distinct values is no category: names, notes, identifiers."""
_MOST_CODES = 10
"""Whole numbers with so few distinct values are taken for codes."""
_LONGEST_CATEGORY = 200
_LARGEST_NUMBER = 1e100
_SMALLEST_SPAN = 1e-100
"""Numbers are scaled by the span of their column: beyond these, doubles overflow or underflow."""


@dataclass(frozen=True)
class OwnTable(DatasetSource):
    """A user's own table; `own_table_class` gives it its name."""

    toml: ClassVar[Path]

    def toml_path(self) -> Path:
        return self.toml

    def declare(self) -> Declaration:
        """Return the public facts of the file, which its owner may have edited."""
        where = str(self.toml)
        table = read_toml(self.toml)
        _check_kinds(table, where)
        try:
            declaration = declaration_from_table(table, where)
        except InputError as problem:
            raise SchemaError(_at(where, str(problem))) from None
        except (TypeError, ValueError, AttributeError, LookupError) as problem:
            raise SchemaError(
                f"{where}: a value is not of the kind that its key needs ({problem}); compare with "
                "a file that `bench data add` writes"
            ) from None
        _check_counts(declaration, where)
        return self._with_sources(declaration)

    def sources(self) -> SchemaSources:
        """Return what is on record about the sources of bounds and categories."""
        return read_sources(self.toml)

    def _with_sources(self, declaration: Declaration) -> Declaration:
        """Return the declaration with the source of every column, as it is on record.

        `inferred`, a key that earlier versions wrote and let a person change, has no effect.
        """
        recorded = self.sources()
        found = {column.name: recorded.of(column) for column in declaration.schema}
        columns = tuple(
            replace(column, source=found[column.name].text) for column in declaration.schema
        )
        inferred = not all(source.public for source in found.values())
        schema = replace(declaration.schema, columns=columns, inferred=inferred)
        return replace(declaration, schema=schema)

    def load(self) -> pd.DataFrame:
        return self.load_conformed().frame

    def load_conformed(self) -> Conformed:
        """Read the declared columns, by public rules; one row per patient where patients are named.

        `clip`, a key that earlier versions wrote, has no effect: values are always clipped.
        """
        table = read_toml(self.toml)
        schema = self.declare().schema
        columns = [column.name for column in schema]
        patient = _text_of(table, "patient", self.toml)
        kept = [*columns, *_further(columns, _text_of(table, "id", self.toml))]
        file = table_file(
            Path(_text_of(table, "file", self.toml)),
            _text_of(table, "member", self.toml),
            _text_of(table, "separator", self.toml, ","),
        )
        patients = _Patients(patient)
        frames: list[pd.DataFrame] = []
        adjustments: list[Adjustment] = []
        for piece in pieces(file, [*kept, *_further(kept, patient)]):
            usable = usable_rows(patients.identified(piece), schema)
            conformed = conform(patients.first_rows(usable.frame)[kept], schema)
            frames.append(conformed.frame)
            adjustments += patients.adjustments(piece)
            adjustments += [*usable.adjustments, *conformed.adjustments]
        whole = pd.concat(frames).reset_index(drop=True)
        return Conformed(whole, merged(adjustments))


def own_table_class(name: str, path: Path) -> type[DatasetSource]:
    """Make the plugin class of one own table."""
    return final(type("OwnTable", (OwnTable,), {"name": name, "toml": path}))


def _further(columns: Collection[str], name: str) -> list[str]:
    return [name] if name and name not in columns else []


def _text_of(table: Mapping[str, Any], key: str, where: Path, default: str = "") -> str:
    value = table.get(key, default)
    if not isinstance(value, str) or (key == "file" and not value):
        raise SchemaError(f"{where}: {key} must be a text, got {shortened(value)}")
    return value


def _at(where: str, problem: str) -> str:
    return problem if problem.startswith(where) else f"{where}: {problem}"


_KINDS: Mapping[str, type] = {
    "title": str,
    "task": str,
    "licence": str,
    "citation": str,
    "source": str,
    "unit": str,
    "id": str,
    "columns": dict,
    "counts": dict,
    "quasi_identifiers": list,
    "sensitive": list,
    "rules": list,
}


def _check_kinds(table: Mapping[str, Any], where: str) -> None:
    """Refuse a key whose value is of another kind than those that `bench data add` writes."""
    counts = table.get("counts", {})
    sites = counts.get("by_site_class", {}) if isinstance(counts, dict) else {}
    values = [(key, table[key], kind) for key, kind in _KINDS.items() if key in table]
    if isinstance(counts, dict):
        values += [("counts.by_class", counts.get("by_class", []), list)]
        values += [("counts.by_site_class", sites, dict)]
    if isinstance(sites, dict):
        values += [(f"counts.by_site_class.{site}", row, list) for site, row in sites.items()]
    words = {"str": "text", "dict": "table"}
    for key, value, kind in values:
        if not isinstance(value, kind):
            word = words.get(kind.__name__, kind.__name__)
            raise SchemaError(f"{where}: {key} must be a {word}, got {shortened(value)}")


def _check_counts(declaration: Declaration, where: str) -> None:
    classes, site = declaration.schema.classes, declaration.schema.site
    rows: list[tuple[str, tuple[Any, ...]]] = [("by_class", declaration.by_class)]
    rows += [(f"by_site_class.{name}", row) for name, row in declaration.by_site_class.items()]
    for key, row in rows:
        # The file may hold anything; a truth value is a whole number to Python.
        whole = all(type(count) is int for count in row)
        if not whole or len(row) != len(classes) or min(row) < 0 or max(row) >= 2**53:
            raise SchemaError(
                f"{where}: counts.{key} must be a list of {len(classes)} numbers of rows, one for "
                f"each of the classes {', '.join(classes)}"
            )
    if not sum(declaration.by_class):
        raise SchemaError(f"{where}: counts.by_class declares no rows")
    if not declaration.by_site_class:
        return
    if site is None or set(declaration.by_site_class) != set(site.categories):
        raise SchemaError(
            f"{where}: counts.by_site_class must have one row for each category of the site column"
        )
    totals = tuple(map(sum, zip(*declaration.by_site_class.values(), strict=True)))
    if totals != tuple(declaration.by_class):
        raise SchemaError(f"{where}: counts.by_site_class must add up to counts.by_class")


# The sources of a schema --------------------------------------------------------------------------


def own_table(name: str) -> OwnTable:
    """Return a user's own table by name."""
    files = user_table_files()
    if name not in files:
        known = f"; yours: {', '.join(files)}" if files else ""
        raise DataError(
            f"{shortened(name)} is no table of yours{known}. `bench data add` makes one from a file"
        )
    source = own_table_class(name, files[name])()
    assert isinstance(source, OwnTable)
    return source


def confirm_columns(name: str, columns: Collection[str], by: str, because: str) -> tuple[str, ...]:
    """Record that a person stands for the present declaration of these columns.

    Without names: of all that no dictionary or person stands for yet.
    """
    source = own_table(name)
    schema, recorded = source.declare().schema, source.sources()
    chosen = [schema[one] for one in columns]
    chosen = chosen or [column for column in schema if not recorded.of(column).public]
    if not chosen:
        raise DataError(
            f"{name}: every bound and category list has a source already; name a --column to "
            "confirm it nevertheless"
        )
    record_sources(source.toml, confirmations(chosen, by, because))
    return tuple(f"{column.name}: {declared_text(column)}" for column in chosen)


def schema_lines(name: str) -> list[str]:
    """Return the schema of a user's table in lines: what is declared, by which source."""
    source = own_table(name)
    schema, recorded = source.declare().schema, source.sources()
    lines = [str(source.toml)]
    for column in schema:
        found = recorded.of(column)
        public = "public" if found.public else "NOT PUBLIC"
        lines.append(f"  {column.name}: {declared_text(column)}; {public}: {found.text}")
    return lines


def write_dictionary(schema: Schema, recorded: SchemaSources, path: Path) -> None:
    """Write a schema as a CSV dictionary to correct, for its owner only."""
    # The sites are no feature, and the format says what an event is.
    columns = [one for one in schema if one.role not in (Role.EVENT, Role.SITE)]
    known = {one.name: found.text for one in columns if (found := recorded.of(one)).public}
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(proposal_text(columns, known))
    except OSError as problem:
        raise DataError(f"{path}: cannot be written ({problem.strerror})") from None


@final
class _Patients:
    """Keeps one row per patient: the first of those that are in the table.

    Which row that is depends on this patient's rows alone. A row without an id could belong to
    anybody, and several to one person, whom a guarantee for one patient would not cover: such rows
    are left out.
    """

    def __init__(self, column: str) -> None:
        self._column = column
        self._seen: set[str] = set()

    def _ids(self, frame: pd.DataFrame) -> pd.Series[Any]:
        return pd.Series(texts_of(frame[self._column]), index=frame.index, dtype=object)

    def identified(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the rows that have an id."""
        return frame[self._ids(frame).notna()] if self._column else frame

    def adjustments(self, frame: pd.DataFrame) -> list[Adjustment]:
        """Return what `identified` leaves out."""
        if not self._column:
            return []
        absent = len(frame) - len(self.identified(frame))
        return [Adjustment(self._column, "entries are missing", ROW_LEFT_OUT, absent)]

    def first_rows(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of patients that were in no earlier piece, one of each."""
        if not self._column:
            return frame
        ids = self._ids(frame)
        frame = frame[~ids.duplicated() & ~ids.isin(self._seen)]
        self._seen.update(ids)
        return frame


# The proposal of a schema ---------------------------------------------------------------------


@final
@dataclass(frozen=True)
class NewTable:
    """What the user says about the file in `bench data add`."""

    file: Path
    name: str
    target: str = ""
    time: str = ""
    event: str = ""
    site: str = ""
    patient: str = ""
    separator: str = ","
    keep: tuple[str, ...] = ()
    """Columns that are kept although they look like identifiers."""
    drop: tuple[str, ...] = ()
    """Columns that are left out."""
    dictionary: Dictionary = field(default_factory=Dictionary)

    @property
    def label(self) -> str:
        """Name of the column that is predicted, or of the event."""
        return self.target or self.event

    @property
    def special(self) -> list[str]:
        """Names of the columns that have another role than a feature."""
        return [name for name in (self.label, self.time, self.site, self.patient) if name]


@final
@dataclass(frozen=True)
class AddedTable:
    """A proposed schema, and what its author should know about it."""

    toml: Path
    remarks: tuple[str, ...]
    inferred: tuple[str, ...]
    """Columns whose declaration was read off the rows."""


@final
@dataclass
class _ColumnSummary:
    """What one pass over a column found."""

    numeric: bool = True
    missing: int = 0
    rows: int = 0
    low: float = math.inf
    high: float = -math.inf
    whole: bool = True
    beyond: int = 0
    """The first row with an infinite or enormous number; 0 where there is none."""
    not_number: int = 0
    """The first row with a text that is no number; 0 where there is none."""
    numbers: int = 0
    """Numbers in the pieces up to that row."""
    negative: int = 0
    """The first row with a negative number; 0 where there is none."""
    values: Counter[str] = field(default_factory=Counter)
    """Distinct values, as long as they are few."""
    decimal: bool = False
    """Whether a number is written with a decimal point."""
    seen: set[str] | None = field(default_factory=set)
    """All values, as long as none has occurred twice; None from then on."""

    def add(self, series: pd.Series[Any]) -> None:
        """Add a piece of the column; its index has the row numbers."""
        self.rows += len(series)
        present = series.dropna()
        self.missing += len(series) - len(present)
        if self.numeric and not present.empty:
            self._add_numbers(present)
        if len(self.values) <= _MOST_CATEGORIES:
            self.values.update(Counter(texts_of(present).tolist()))
        if self.seen is not None:
            texts = texts_of(present).tolist()
            before = len(self.seen)
            self.seen.update(texts)
            self.seen = self.seen if len(self.seen) == before + len(texts) else None

    def _add_numbers(self, present: pd.Series[Any]) -> None:
        numbers = numbers_of(present)
        self.not_number = self.not_number or _first(present, np.isnan(numbers))
        self.numbers += int(np.count_nonzero(~np.isnan(numbers)))
        self.numeric = not self.not_number
        if not self.numeric:
            return
        self.decimal = self.decimal or _with_decimals(present)
        self.beyond = self.beyond or _first(present, np.abs(numbers) > _LARGEST_NUMBER)
        self.negative = self.negative or _first(present, numbers < 0)
        if not self.beyond:
            self.low = min(self.low, float(numbers.min()))
            self.high = max(self.high, float(numbers.max()))
            self.whole = self.whole and bool((numbers % 1 == 0).all())

    @property
    def few(self) -> bool:
        """True when the values can be categories."""
        return len(self.values) <= _MOST_CATEGORIES and all(map(_is_category, self.values))

    @property
    def categories(self) -> list[str]:
        """Distinct values in their natural order."""
        return sorted(self.values, key=_natural)

    def identifies(self, name: str) -> str:
        """Return why the column looks like an identifier; an empty text where it does not."""
        kind = "text" if not self.numeric else "whole" if self.whole else "decimal"
        return looks_like_identifier(name, different=len(self.seen or ()), kind=kind)


def _with_decimals(present: pd.Series[Any]) -> bool:
    if present.dtype != object:
        return bool(pd.api.types.is_float_dtype(present.dtype))
    return any(isinstance(entry, float) or "." in str(entry) for entry in present)


def _first(series: pd.Series[Any], where: np.ndarray[Any, np.dtype[np.bool_]]) -> int:
    return int(series.index[int(where.argmax())]) if where.any() else 0


def _is_category(text: str) -> bool:
    return 0 < len(text) <= _LONGEST_CATEGORY and text.isprintable()


@final
@dataclass
class _Summary:
    """What one pass over the file found."""

    request: NewTable
    left_out: list[str]
    """Columns that are an index of pandas."""
    columns: dict[str, _ColumnSummary] = field(default_factory=dict)
    rows: int = 0
    by_class: Counter[str] = field(default_factory=Counter)
    by_site: Counter[tuple[str, str]] = field(default_factory=Counter)
    without: Counter[str] = field(default_factory=Counter)
    """Rows that lack an entry of this column, and are not in the table."""


def _write_for_owner(path: Path, text: str) -> None:
    """Write a file with counts and categories, which its owner alone can read."""
    content = text.encode()
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.parent.chmod(0o700)  # one that an earlier version has made
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


@final
@dataclass(frozen=True)
class TableProposal:
    """The schema of a table before anything is written."""

    request: NewTable
    text: str
    """Content of the TOML file."""
    inferred: str
    """The same, as the rows alone propose it."""
    remarks: tuple[str, ...]
    described: tuple[str, ...]
    """Columns that the dictionary states."""

    @property
    def declaration(self) -> Declaration:
        """The public facts that would be declared."""
        return declaration_from_table(parse_toml(self.text, self.request.name), self.request.name)

    @property
    def not_public(self) -> tuple[str, ...]:
        """Columns whose declaration was read off the rows."""
        entries = self.request.dictionary.entries
        stated = {name for name in self.described if not entries[name].proposed}
        schema = self.declaration.schema
        return tuple(
            one.name for one in schema if one.name not in stated and one.role is not Role.EVENT
        )


def propose_table(request: NewTable, taken: Collection[str]) -> TableProposal:
    """Read a user's table once and propose its schema; nothing is written.

    `taken` are the names of all datasets, which the table must not have.
    """
    name, user_tables = request.name, user_table_files()
    file = table_file(request.file, separator=request.separator)
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,99}", name):
        raise DataError(f"name {shortened(name)}: use up to 100 small letters, digits and dashes")
    if name in user_tables:
        raise DataError(f"{user_tables[name]} exists; remove it or give another --name")
    if name in taken:
        raise DataError(f"{name!r} is the name of a built-in dataset; give another --name")
    if bool(request.target) == bool(request.time and request.event):
        raise DataError("name the outcome: --target COLUMN, or --time COLUMN with --event COLUMN")
    if request.target and (request.time or request.event):
        raise DataError("--target is for classification, --time and --event are for survival")
    if len(set(request.special)) < len(request.special):
        raise DataError(f"one column has two roles among {', '.join(request.special)}")
    _check_named(request, file)
    summary = _summarise(request, file)
    text, remarks, described = _toml(request, file, summary)
    inferred = text
    if described:
        # Without a usable column the rows propose nothing, and the dictionary stands alone.
        with contextlib.suppress(DataError):
            inferred, _, _ = _toml(replace(request, dictionary=Dictionary()), file, summary)
    return TableProposal(request, text, inferred, tuple(remarks), tuple(described))


def add_table(request: NewTable, taken: Collection[str]) -> AddedTable:
    """Write the proposed schema of a user's table; the file itself stays where it is."""
    return write_table_schema(propose_table(request, taken))


def write_table_schema(proposal: TableProposal) -> AddedTable:
    """Write a proposed schema, and the sources of its bounds and categories."""
    request = proposal.request
    path = data_folder() / "own" / f"{request.name}.toml"
    try:
        _write_for_owner(path, proposal.text)
    except UnicodeEncodeError:
        raise DataError(f"{request.file}: the path is not UTF-8; rename the file") from None
    except OSError as problem:
        raise DataError(f"{path}: cannot be written ({problem.strerror})") from None
    source = own_table_class(request.name, path)()
    try:
        declared = source.declare()
        _record(path, declared, proposal.inferred, request.dictionary, proposal.described)
    except Exception:
        path.unlink()
        raise
    recorded = read_sources(path)
    not_public = [column.name for column in declared.schema if not recorded.of(column).public]
    return AddedTable(path, proposal.remarks, tuple(not_public))


def table_of_file(file: Path) -> OwnTable | None:
    """Return the user's table whose rows are in this file; None where it was not added yet."""
    for name, toml in user_table_files().items():
        if read_toml(toml).get("file") == str(file.resolve()):
            return own_table(name)
    return None


def check_same(source: OwnTable, request: NewTable) -> None:
    """Refuse options that contradict how a table was added before."""
    table, schema = read_toml(source.toml), source.declare().schema
    asked = {"--target": request.target, "--time": request.time, "--event": request.event}
    given = {"--patient": str(table.get("patient", ""))}
    given["--target" if not schema.time else "--event"] = schema.label.name
    if schema.time is not None:
        given["--time"] = schema.time.name
    for option, value in {**asked, "--patient": request.patient}.items():
        if value and value != given.get(option, ""):
            raise DataError(
                f"{request.file} was added before, as {source.name!r}, with other options than "
                f"{option} {value}; leave the option out, or remove {source.toml} to begin anew"
            )
    columns = {column.name: column for column in schema}
    wrong = [f"--drop-column {name}" for name in request.drop if name in columns]
    wrong += [f"--keep-column {name}" for name in request.keep if name not in columns]
    if wrong:
        raise DataError(
            f"{request.file} was added before, as {source.name!r}, not by {wrong[0]}; leave the "
            f"option out, or remove {source.toml} to begin anew"
        )
    entries = [one for name, one in request.dictionary.entries.items() if name in columns]
    other = [one.name for one in entries if not _says(one, columns[one.name])]
    if other:
        raise DataError(
            f"{request.file} was added before, as {source.name!r}, and {request.dictionary.file} "
            f"differs from its schema in {', '.join(other[:10])}; leave --dictionary out, or "
            f"remove {source.toml} to read the dictionary anew"
        )


def _says(entry: DictionaryEntry, column: Column) -> bool:
    """Return whether a dictionary's entry declares what a column does."""
    facts = facts_of(column)
    if column.role is Role.EVENT:
        return True
    if entry.kind != facts["kind"]:
        return False
    if entry.numeric:
        bounds = (entry.low, entry.high) == (facts["low"], facts["high"])
        return bounds and (column.role is not Role.FEATURE or entry.missing is facts["missing"])
    missing = [MISSING_CATEGORY] if entry.missing and column.role is Role.FEATURE else []
    return bool([*entry.categories, *missing] == facts["categories"])


def _record(
    path: Path,
    declared: Declaration,
    inferred: str,
    dictionary: Dictionary,
    described: Collection[str],
) -> None:
    """Put the sources of a new table on record: first what the rows propose, then the dictionary.

    A table that was added before under this name leaves its records, which end nothing: they count
    only for the very facts that they are about.
    """
    proposed = schema_from_table(parse_toml(inferred, str(path)))
    names = {column.name for column in proposed}
    records = [
        SourceRecord(column.name, Source.INFERRED, facts_of(column), today()) for column in proposed
    ]
    for column in declared.schema:
        if column.name in described:
            entry = dictionary.entries[column.name]
            record = SourceRecord(
                column.name,
                Source.INFERRED if entry.proposed else Source.DICTIONARY,
                facts_of(column),
                today(),
                because="" if entry.proposed else entry.source,
                file=dictionary.file,
                sha256=dictionary.sha256,
            )
            records.append(record)
        elif column.name not in names:
            records.append(SourceRecord(column.name, Source.INFERRED, facts_of(column), today()))
    record_sources(path, records)


def _check_named(request: NewTable, file: TableFile) -> None:
    """Refuse options about columns that the file does not have, or that contradict each other."""
    present = column_names(file)
    for option, names in (("--keep-column", request.keep), ("--drop-column", request.drop)):
        for name in names:
            if name not in present:
                near = difflib.get_close_matches(name, present, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise DataError(f"{option} {name!r}: {request.file} has no such column{hint}")
    for name in request.drop:
        if name in request.special:
            raise DataError(f"--drop-column {name!r}: the column has another role in this table")
        if name in request.keep:
            raise DataError(f"column {name!r} is named by both --keep-column and --drop-column")
    known = [name for name in request.dictionary.entries if name in present]
    if request.dictionary.entries and not known:
        raise DataError(
            f"{request.dictionary.file}: describes no column of {request.file}; names must be "
            "spelled as in its header"
        )


def _summarise(request: NewTable, file: TableFile) -> _Summary:
    names = column_names(file)
    index = [name for name in names if is_pandas_index(name) and name not in request.special]
    wanted = [name for name in names if name not in index and name not in request.drop]
    wanted += [name for name in request.special if name not in wanted]  # absent: said by `pieces`
    summary = _Summary(request, [name or "(without a name)" for name in index])
    patients = _Patients(request.patient)
    needed = [name for name in (request.patient, request.label, request.time) if name]
    for piece in pieces(file, wanted):
        for name in needed:
            present = piece[name].notna()
            summary.without[name] += int((~present).sum())
            piece = piece[present]
        _add_piece(summary, patients.first_rows(piece))
    _refuse(summary)
    return summary


def _add_piece(summary: _Summary, piece: pd.DataFrame) -> None:
    request = summary.request
    summary.rows += len(piece)
    labels = texts_of(piece[request.label])
    summary.by_class.update(labels.tolist())
    if request.event and set(summary.by_class) - {"0", "1"}:
        wrong = _first(piece[request.event], ~np.isin(labels.astype(str), ["0", "1"]))
        raise _problem(request, request.event, "events must be 0 or 1", wrong)
    if len(summary.by_class) > _MOST_CATEGORIES:
        raise _problem(
            request,
            request.label,
            f"more than {_MOST_CATEGORIES} distinct outcomes; a continuous target is not supported",
        )
    if request.site:
        sites = [
            MISSING_CATEGORY if site is None else site for site in texts_of(piece[request.site])
        ]
        summary.by_site.update(zip(sites, labels, strict=True))
        if len({site for site, _ in summary.by_site}) > _MOST_CATEGORIES:
            raise _problem(
                request,
                request.site,
                f"more than {_MOST_CATEGORIES} sites; group them into regions, or leave out --site",
            )
    for name in piece.columns:
        if name != request.patient:
            summary.columns.setdefault(name, _ColumnSummary()).add(piece[name])


def _problem(request: NewTable, column: str, problem: str, row: int = 0) -> DataError:
    """Return an error that names file, column and row; the entry itself is private."""
    place = f", row {row}" if row else ""
    return DataError(f"{request.file}: column {column!r}{place}: {problem}")


def _refuse(summary: _Summary) -> None:
    request = summary.request
    if not summary.rows:
        lacking = ", ".join(f"{count} without {name!r}" for name, count in summary.without.items())
        raise DataError(f"{request.file}: no row can be used ({lacking})")
    for name, column in summary.columns.items():
        if column.missing == column.rows:
            raise _problem(request, name, "every entry is missing; drop it from the file")
        if column.numeric and column.beyond:
            limit = f"larger than {_LARGEST_NUMBER:g}"
            raise _problem(
                request,
                name,
                f"a number is infinite or {limit}; correct it, or leave the entry empty",
                column.beyond,
            )
        if column.numeric and 0 < column.high - column.low < _SMALLEST_SPAN:
            raise _problem(
                request,
                name,
                f"all numbers lie within {_SMALLEST_SPAN:g} of each other; use another unit",
            )
    if len(summary.by_class) < 2:
        raise _problem(
            request, request.label, "the outcome has one class only; nothing can be learned"
        )
    for name in (request.label, request.site):
        if name and not summary.columns[name].few:
            raise _problem(
                request,
                name,
                f"a category is empty, longer than {_LONGEST_CATEGORY} characters, or has line "
                "breaks or control characters",
            )
    if request.time:
        time = summary.columns[request.time]
        if not time.numeric:
            raise _problem(request, request.time, "times must be numbers", time.not_number)
        if time.negative:
            raise _problem(request, request.time, "negative times", time.negative)
        if time.low == time.high:
            raise _problem(request, request.time, "all times are equal; nothing can be learned")


def _toml(
    request: NewTable, file: TableFile, summary: _Summary
) -> tuple[str, list[str], list[str]]:
    """Return the content of the TOML file, remarks, and the columns that the dictionary states."""
    entries = request.dictionary.entries
    classes = sorted(summary.by_class, key=_natural)
    if request.label in entries and not entries[request.label].numeric:
        classes = list(entries[request.label].categories)
    lines = [
        f"# Written by `bench data add` from {summary.rows} rows. The file of sources beside this",
        "# one records which bounds and categories were read off the rows: non-private access,",
        "# charged to every release as such. Check them against your data dictionary, widen bounds",
        "# to what is possible rather than what occurred, then run `bench data confirm`. Values",
        "# that contradict this file are clipped or replaced by public rules in a run; `bench data",
        "# check` counts them.",
        f"title = {_text(request.name)}",
        f'task = "{"survival" if request.event else "classification"}"',
        f"file = {_text(str(request.file.resolve()))}",
        f"member = {_text(file.member)}",
        f"separator = {_text(file.separator)}",
        f"patient = {_text(request.patient)}",
        'licence = "your own"',
        'citation = "none"',
        f"source = {_text(request.file.name)}",
        f'unit = "{"patient" if request.patient else "row"}"',
        "quasi_identifiers = []  # columns an attacker may know, for attacks that need them",
        "sensitive = []  # columns that must not be inferred",
        "",
        "[counts]",
        f"by_class = {[summary.by_class[name] for name in classes]}",
    ]
    if request.site:
        lines.append("[counts.by_site_class]")
        for site in sorted({site for site, _ in summary.by_site}):
            lines.append(f"{_text(site)} = {[summary.by_site[site, name] for name in classes]}")
    remarks = [
        f"left out: column {name!r}, the index of a pandas table" for name in summary.left_out
    ]
    remarks += [f"left out: column {name!r}, as asked" for name in request.drop]
    features = 0
    described: list[str] = []
    for name, column in summary.columns.items():
        role = {request.label: "event" if request.event else "target", request.time: "time"}.get(
            name, "site" if name == request.site else ""
        )
        identifies = "" if role else column.identifies(name)
        # Which columns a dictionary's table has must not follow from its rows: for those that it
        # states, the name alone decides.
        stated = name in entries and "by its name" not in identifies
        if identifies and name not in request.keep and not stated:
            remarks.append(
                f"left out: column {name!r} looks like an identifier ({identifies}); if it does "
                f"not identify a person, keep it by --keep-column {shlex.quote(name)}"
            )
            continue
        if identifies:
            remarks.append(
                f"warning: column {name!r} looks like an identifier ({identifies}) and is kept; "
                f"--drop-column {shlex.quote(name)} leaves it out"
            )
        entry = None if role in ("event", "site") else entries.get(name)
        reason = "" if role or entry is not None else _unusable(column)
        if reason:
            remarks.append(f"left out: column {name!r} {reason}")
            continue
        features += not role
        if entry is None:
            lines += _column(name, column, role, classes if name == request.label else None)
        else:
            lines += _described(request, entry, column, role)
            described.append(name)
            remarks += _contradictions(entry, column)
        if column.numeric and column.whole and column.decimal:
            lines.append("decimal = true  # whole numbers, written as 1.0")
    if not features:
        why = f" ({'; '.join(remarks)})" if remarks else ""
        raise DataError(f"{request.file}: no column can be used as a feature{why}")
    remarks += [
        f"left out: {count} rows without an entry in {name!r}"
        for name, count in summary.without.items()
        if count
    ]
    remarks += [
        f"not in the table: column {name!r} of {request.dictionary.file}"
        for name in entries
        if name not in summary.columns and name not in request.drop and name != request.patient
    ]
    text = "\n".join([*lines, "", *(f"# {remark}" for remark in remarks)]) + "\n"
    return text, remarks, described


def _described(
    request: NewTable, entry: DictionaryEntry, column: _ColumnSummary, role: str
) -> list[str]:
    """Return the lines of a column as the dictionary describes it."""
    lines = ["", f"[columns.{_text(entry.name)}]"]
    if role:
        lines.append(f'role = "{role}"')
    if role == "target" and entry.numeric:
        raise _problem(
            request,
            entry.name,
            f"the outcome needs kind category or ordinal in {request.dictionary.file}; a "
            "continuous target is not supported",
        )
    if role == "time" and (not entry.numeric or entry.low < 0):
        raise _problem(
            request,
            entry.name,
            f"times need kind number or integer and low >= 0 in {request.dictionary.file}",
        )
    if entry.description:
        lines.append(f"description = {_text(entry.description)}")
    if not entry.numeric:
        missing = [MISSING_CATEGORY] if entry.missing and not role else []
        listed = ", ".join(map(_text, [*entry.categories, *missing]))
        lines += ['kind = "categorical"', f"categories = [{listed}]"]
        return [*lines, "ordered = true"] if entry.kind == "ordinal" else lines
    if not column.numbers:
        raise _problem(
            request,
            entry.name,
            f"{request.dictionary.file} calls it {entry.kind}, but this entry is no number",
            column.not_number,
        )
    lines += ['kind = "numeric"', f"low = {entry.low!r}", f"high = {entry.high!r}"]
    lines += ["integer = true"] if entry.kind == "integer" else []
    return [*lines, "missing = true"] if entry.missing and not role else lines


def _contradictions(entry: DictionaryEntry, column: _ColumnSummary) -> list[str]:
    """Return what the owner should know where rows contradict the dictionary. Non-private."""
    found: list[str] = []
    if entry.numeric and not column.numeric:
        found.append(
            f"has entries that are no number, the first in row {column.not_number}: they count as "
            "missing"
        )
    if entry.numeric and column.numeric and (column.low < entry.low or column.high > entry.high):
        found.append("has values outside the bounds of the dictionary, which are clipped")
    if entry.kind == "integer" and column.numeric and not column.whole:
        found.append("has decimals, which are rounded: the dictionary calls it integer")
    if not entry.numeric and column.few:
        undeclared = len(set(column.values) - {*entry.categories, MISSING_CATEGORY})
        found += [f"has {undeclared} categories beyond the dictionary's"] if undeclared else []
    if column.missing and not entry.missing:
        found.append(
            f"lacks {column.missing} entries, and the dictionary does not say that it can: write "
            "missing = yes there to release missing values"
        )
    return [f"warning: column {entry.name!r} {text}" for text in found]


def _as_category(column: _ColumnSummary, role: str) -> bool:
    few_codes = 2 <= len(column.values) <= _MOST_CODES and column.whole
    return role in ("target", "event", "site") or not column.numeric or (few_codes and not role)


def _unusable(column: _ColumnSummary) -> str:
    """Return why a feature cannot be used; an empty text where it can."""
    if not _as_category(column, ""):
        return "is constant" if column.low == column.high else ""
    if len(column.values) > _MOST_CATEGORIES:
        hint = (
            f"; most are numbers, and row {column.not_number} is the first that is none: correct "
            "such entries, or state the column as a number by --dictionary"
            if column.numbers > _MOST_CATEGORIES and not column.numeric
            else ""
        )
        return f"has more than {_MOST_CATEGORIES} distinct texts{hint}"
    if not column.few:
        return "has texts that cannot be categories: empty, long or with control characters"
    return "is constant" if len({*column.values, *_missing(column)}) < 2 else ""


def _missing(column: _ColumnSummary) -> list[str]:
    return [MISSING_CATEGORY] if column.missing and MISSING_CATEGORY not in column.values else []


def _column(name: str, column: _ColumnSummary, role: str, classes: list[str] | None) -> list[str]:
    lines = ["", f"[columns.{_text(name)}]"]
    if role:
        lines.append(f'role = "{role}"')
    if _as_category(column, role):
        categories = classes or [*column.categories, *_missing(column)]
        listed = ", ".join(map(_text, categories))
        lines += ['kind = "categorical"', f"categories = [{listed}]"]
        # Codes such as 1 to 5 are in the order of their numbers; of texts no order is known.
        codes = not role and column.numeric and len(column.values) > 2
        return [*lines, "ordered = true"] if codes else lines
    low, high = _rounded(column.low, column.high)
    lines += ['kind = "numeric"', f"low = {0.0 if role == 'time' else low!r}", f"high = {high!r}"]
    if column.whole:
        lines.append("integer = true")
    if column.missing:
        lines.append(f"missing = true  # {column.missing} of {column.rows} rows")
    return lines


def _rounded(low: float, high: float) -> tuple[float, float]:
    """Return bounds a little wider than seen, at round numbers."""
    step = 10.0 ** math.floor(math.log10(high - low)) / 2
    wide = math.floor(low / step) * step, math.ceil(high / step) * step
    # Far from zero, a step can be lost in the rounding of doubles.
    return min(low, wide[0]), max(high, wide[1])


def _natural(text: str) -> tuple[int, float, str]:
    """Sort key: numbers by size, then texts by letter."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    return (1, 0.0, text) if math.isnan(number) else (0, number, text)


def _text(value: str) -> str:
    """Return a TOML basic string: JSON's escapes are TOML's, but for characters beyond 16 bits."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
