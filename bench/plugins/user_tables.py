"""A user's own table as a dataset: a TOML file in the data folder, written by `bench data add`.

Kinds, bounds, categories and counts in that file are read off the rows at first. As long as it says
`inferred = true` this is charged as non-private access; a person who has checked them against a
data dictionary sets it to false.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

import pandas as pd

from bench.data.encoder import MISSING_CATEGORY, category_codes, coerce_columns, spelled
from bench.data.files import data_folder, open_data, read_csv, user_table_files
from bench.data.schema import Categorical, Numeric, Schema, read_toml
from bench.errors import DataError, SchemaError
from bench.plugins.source import DatasetSource

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

_CHUNK = 200_000
_MOST_CATEGORIES = 50
"""Text with more distinct values is no category: names, notes, identifiers."""
_MOST_CODES = 10
"""Whole numbers with so few distinct values are taken for codes."""


@dataclass(frozen=True)
class OwnTable(DatasetSource):
    """A user's own table; `own_table_class` gives it its name."""

    toml: ClassVar[Path]

    def toml_path(self) -> Path:
        return self.toml

    def load(self) -> pd.DataFrame:
        table = read_toml(self.toml)
        schema = self.declare().schema
        frame = read_own(Path(table["file"]), [column.name for column in schema], table)
        frame = coerce_columns(frame, schema)
        if not table.get("clip", False):
            refuse_outside(frame, schema, self.toml)
        return frame


def own_table_class(name: str, path: Path) -> type[DatasetSource]:
    """Make the plugin class of one own table."""
    return final(type("OwnTable", (OwnTable,), {"name": name, "toml": path}))


def read_own(path: Path, columns: list[str], table: dict[str, Any]) -> pd.DataFrame:
    """Read the declared columns; one row per patient where a patient column is named."""
    patient = table.get("patient", "")
    wanted = [*columns, *([patient] if patient and patient not in columns else [])]
    if path.suffix == ".parquet":
        with _parquet(path) as file:
            frame = pd.DataFrame(file.read(columns=wanted).to_pandas())
    else:
        frame = read_csv(
            path,
            table.get("member") or None,
            separator=table.get("separator", ","),
            columns=wanted,
            usecols=wanted,
        )
    if patient:
        _refuse_missing(frame[patient])
        frame = frame.drop_duplicates(patient)
    return frame[columns].reset_index(drop=True)


def _refuse_missing(patients: pd.Series[Any]) -> None:
    """Refuse rows without a patient: which of them is kept would depend on other patients' rows."""
    missing = int(patients.isna().sum())
    if missing:
        raise DataError(
            f"column {patients.name!r}: {missing} rows name no patient, so that one row per "
            "patient cannot be kept; fill them in or remove these rows from the file"
        )


@contextmanager
def _parquet(path: Path) -> Iterator[ParquetFile]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        yield pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as problem:
        raise DataError(f"{path}: not a readable Parquet file ({problem})") from None


def refuse_outside(frame: pd.DataFrame, schema: Schema, where: Path) -> None:
    """Refuse values outside the declared bounds or categories."""
    for column in schema:
        if isinstance(column, Numeric):
            values = frame[column.name]
            outside = int(((values < column.low) | (values > column.high)).sum())
            if outside:
                raise DataError(
                    f"column {column.name!r}: {outside} values lie outside the declared bounds "
                    f"[{column.low:g}, {column.high:g}]; widen them in {where}, or set `clip = "
                    "true` there"
                )
        elif isinstance(column, Categorical):
            try:
                category_codes(frame[column.name].dropna(), column)
            except SchemaError as problem:
                raise DataError(f"{problem} (declared in {where})") from None


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
    clip: bool = False


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
    values: Counter[str] = field(default_factory=Counter)
    """Distinct values, as long as they are few."""

    def add(self, series: pd.Series[Any]) -> None:
        self.rows += len(series)
        self.missing += int(series.isna().sum())
        present = series.dropna()
        if self.numeric and not present.empty:
            numbers = pd.to_numeric(present, errors="coerce")
            self.numeric = bool(numbers.notna().all())
            if self.numeric:
                self.low = min(self.low, float(numbers.min()))
                self.high = max(self.high, float(numbers.max()))
                self.whole = self.whole and bool((numbers % 1 == 0).all())
        if len(self.values) <= _MOST_CATEGORIES:
            self.values.update(Counter(spelled(present).tolist()))

    @property
    def categories(self) -> list[str]:
        return sorted(self.values, key=_natural)


def add_table(request: NewTable, taken: Collection[str]) -> Path:
    """Write the proposed schema of a user's table; the file itself stays where it is.

    `taken` are the names of all datasets, which the table must not have.
    """
    name, user_tables = request.name, user_table_files()
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise DataError(f"name {name!r}: use small letters, digits and dashes")
    if name in user_tables:
        raise DataError(f"{user_tables[name]} exists; remove it or give another --name")
    if name in taken:
        raise DataError(f"{name!r} is the name of a built-in dataset; give another --name")
    if bool(request.target) == bool(request.time and request.event):
        raise DataError("name the outcome: --target COLUMN, or --time COLUMN with --event COLUMN")
    if not request.file.is_file():
        raise DataError(f"{request.file}: no such file")
    columns, rows, by_class, by_site = _summarise(request)
    text = _toml(request, columns, rows, by_class, by_site)
    path = data_folder() / "own" / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    try:
        own_table_class(name, path)().declare()
    except Exception:
        path.unlink()
        raise
    return path


def _summarise(
    request: NewTable,
) -> tuple[dict[str, _ColumnSummary], int, Counter[str], Counter[tuple[str, str]]]:
    label = request.target or request.event
    special = [name for name in (label, request.time, request.site, request.patient) if name]
    columns: dict[str, _ColumnSummary] = {}
    by_class: Counter[str] = Counter()
    by_site: Counter[tuple[str, str]] = Counter()
    seen: set[Any] = set()
    rows = 0
    for chunk in _chunks(request, special):
        if request.patient:
            _refuse_missing(chunk[request.patient])
            first = ~chunk[request.patient].duplicated() & ~chunk[request.patient].isin(seen)
            chunk = chunk[first]
            seen.update(chunk[request.patient])
        rows += len(chunk)
        labels = spelled(chunk[label])
        if labels.isna().any():
            raise DataError(f"column {label!r}: {int(labels.isna().sum())} rows have no outcome")
        by_class.update(Counter(labels.tolist()))
        if request.site:
            sites = spelled(chunk[request.site]).fillna(MISSING_CATEGORY)
            by_site.update(zip(sites, labels, strict=True))
        for name in chunk.columns:
            if name != request.patient:
                columns.setdefault(name, _ColumnSummary()).add(chunk[name])
    _refuse(request, columns, by_class)
    return columns, rows, by_class, by_site


def _chunks(request: NewTable, needed: Sequence[str]) -> Iterator[pd.DataFrame]:
    """Yield the file in pieces, so that millions of rows are never held twice."""
    path = request.file
    if path.suffix == ".parquet":
        with _parquet(path) as table:
            absent = [name for name in needed if name not in table.schema_arrow.names]
            if absent:
                raise DataError(f"{path}: no column {absent[0]!r}")
            for batch in table.iter_batches(_CHUNK):
                yield batch.to_pandas()
        return
    member = _member_name(path)
    # The first rows go through the checks of every loader; the rest is read in pieces.
    read_csv(path, member, separator=request.separator, columns=needed, nrows=5)
    with open_data(path, member) as file:
        try:
            yield from pd.read_csv(
                file, sep=request.separator, chunksize=_CHUNK, skipinitialspace=True
            )
        except UnicodeDecodeError as problem:
            raise DataError(f"{path}: not UTF-8 text (byte {problem.start})") from None
        except pd.errors.ParserError as problem:
            raise DataError(f"{path}: not a regular table ({str(problem).strip()})") from None


def _member_name(path: Path) -> str:
    if path.suffix == ".zip":
        import zipfile

        try:
            with zipfile.ZipFile(path) as archive:
                inside = [name for name in archive.namelist() if name.endswith((".csv", ".tsv"))]
        except (zipfile.BadZipFile, OSError) as problem:
            raise DataError(f"{path}: truncated or damaged ({problem})") from None
        if len(inside) != 1:
            raise DataError(f"{path}: expected one CSV file inside, it holds {len(inside)}")
        return Path(inside[0]).name
    return path.name.removesuffix(".gz")


def _refuse(request: NewTable, columns: dict[str, _ColumnSummary], by_class: Counter[str]) -> None:
    for name, summary in columns.items():
        if summary.missing == summary.rows:
            raise DataError(f"column {name!r}: every entry is missing; drop it from the file")
    if len(by_class) < 2:
        only = next(iter(by_class), "nothing")
        raise DataError(f"the outcome has one class only ({only}); nothing can be learned")
    if request.event:
        if set(by_class) != {"0", "1"}:
            strange = sorted(set(by_class) - {"0", "1"})[:3]
            raise DataError(f"column {request.event!r}: events must be 0 or 1, found {strange}")
        time = columns[request.time]
        if not time.numeric or time.missing:
            raise DataError(f"column {request.time!r}: times must be numbers, none missing")
        if time.low < 0:
            raise DataError(f"column {request.time!r}: negative times (smallest {time.low:g})")
    elif len(by_class) > _MOST_CATEGORIES:
        raise DataError(
            f"column {request.target!r}: {len(by_class)} distinct outcomes; a continuous target is "
            "not supported"
        )


def _toml(
    request: NewTable,
    columns: dict[str, _ColumnSummary],
    rows: int,
    by_class: Counter[str],
    by_site: Counter[tuple[str, str]],
) -> str:
    classes = sorted(by_class, key=_natural)
    member = "" if request.file.suffix == ".parquet" else _member_name(request.file)
    lines = [
        f"# Proposed by `bench data add` from {rows} rows. Kinds, bounds, categories and counts",
        "# were read off the rows: non-private access, charged to every release as such. Check",
        "# them against your data dictionary, widen bounds to what is possible rather than what",
        "# occurred, and then set inferred = false.",
        "inferred = true",
        f"title = {_text(request.name)}",
        f'task = "{"survival" if request.event else "classification"}"',
        f"file = {_text(str(request.file.resolve()))}",
        f"member = {_text(member)}",
        f"separator = {_text(request.separator)}",
        f"patient = {_text(request.patient)}",
        f"clip = {str(request.clip).lower()}  # true cuts values to the bounds instead of refusing",
        'licence = "your own"',
        'citation = "none"',
        f"source = {_text(request.file.name)}",
        f'unit = "{"patient" if request.patient else "row"}"',
        "quasi_identifiers = []  # columns an attacker may know, for attacks that need them",
        "sensitive = []  # columns that must not be inferred",
        "",
        "[counts]",
        f"by_class = {[by_class[name] for name in classes]}",
    ]
    if request.site:
        lines.append("[counts.by_site_class]")
        for site in sorted({site for site, _ in by_site}):
            lines.append(f"{_text(site)} = {[by_site[site, name] for name in classes]}")
    label = request.target or request.event
    for name, summary in columns.items():
        role = {label: "event" if request.event else "target", request.time: "time"}.get(name, "")
        if name == request.site:
            role = "site"
        block = _column(name, summary, role, classes if name == label else None)
        lines += block
    return "\n".join(lines) + "\n"


def _column(name: str, summary: _ColumnSummary, role: str, classes: list[str] | None) -> list[str]:
    categories = classes or summary.categories
    few = len(summary.values) <= _MOST_CODES
    lines = ["", f"[columns.{_text(name)}]"]
    if role:
        lines.append(f'role = "{role}"')
    as_category = classes is not None or role == "site" or not summary.numeric or (
        few and summary.whole and role != "time" and len(summary.values) >= 2
    )  # fmt: skip
    if as_category:
        if len(summary.values) > _MOST_CATEGORIES:
            return [
                "",
                f"# left out: column {name!r} has more than {_MOST_CATEGORIES} distinct texts",
            ]
        if summary.missing:
            categories = [*categories, MISSING_CATEGORY]
        if len(categories) < 2:
            return ["", f"# left out: column {name!r} is constant"]
        return [*lines, 'kind = "categorical"', f"categories = {json.dumps(categories)}"]
    if summary.low == summary.high:
        return ["", f"# left out: column {name!r} is constant"]
    low, high = _rounded(summary.low, summary.high)
    lines += ['kind = "numeric"', f"low = {0.0 if role == 'time' else low!r}", f"high = {high!r}"]
    if summary.whole:
        lines.append("integer = true")
    if summary.missing:
        lines.append(f"fill = {(low + high) / 2!r}  # {summary.missing} missing: middle of bounds")
    return lines


def _rounded(low: float, high: float) -> tuple[float, float]:
    """Return bounds a little wider than seen, at round numbers."""
    step = 10.0 ** math.floor(math.log10(high - low)) / 2
    return math.floor(low / step) * step, math.ceil(high / step) * step


def _natural(text: str) -> tuple[int, float, str]:
    """Sort key: numbers by size, then texts by letter."""
    try:
        return 0, float(text), text
    except ValueError:
        return 1, 0.0, text


def _text(value: str) -> str:
    """Return a TOML basic string: JSON's escapes are TOML's."""
    return json.dumps(value)
