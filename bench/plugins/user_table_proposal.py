"""`bench data add`: looks through a user's file once and proposes a schema for it."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import pandas as pd

from bench.data.encoder import spelled
from bench.data.files import open_data, read_csv
from bench.data.folder import data_folder
from bench.errors import DataError
from bench.plugins.registry import dataset_names, own_tables
from bench.plugins.user_tables import MISSING, own_table_class

_CHUNK = 200_000
_CATEGORIES_AT_MOST = 50
"""Text with more distinct values is no category: names, notes, identifiers."""
_CODES_AT_MOST = 10
"""Whole numbers with so few distinct values are taken for codes."""


@final
@dataclass(frozen=True)
class Request:
    """What the user said about the file."""

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
class _Summary:
    """One pass over a column."""

    numeric: bool = True
    missing: int = 0
    rows: int = 0
    low: float = math.inf
    high: float = -math.inf
    whole: bool = True
    values: Counter[str] = field(default_factory=Counter)
    """Distinct values, as long as they are few."""

    def see(self, series: pd.Series[Any]) -> None:
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
        if len(self.values) <= _CATEGORIES_AT_MOST:
            self.values.update(Counter(spelled(present).tolist()))

    @property
    def categories(self) -> list[str]:
        return sorted(self.values, key=_natural)


def add_table(request: Request) -> Path:
    """Write the proposed schema of a user's table; the file itself stays where it is."""
    name = request.name
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise DataError(f"name {name!r}: use small letters, digits and dashes")
    if name in own_tables():
        raise DataError(f"{own_tables()[name]} exists; remove it or give another --name")
    if name in dataset_names():
        raise DataError(f"{name!r} is the name of a built-in dataset; give another --name")
    if bool(request.target) == bool(request.time and request.event):
        raise DataError("name the outcome: --target COLUMN, or --time COLUMN with --event COLUMN")
    if not request.file.is_file():
        raise DataError(f"{request.file}: no such file")
    columns, rows, by_class, by_site = _look(request)
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


def _look(
    request: Request,
) -> tuple[dict[str, _Summary], int, Counter[str], Counter[tuple[str, str]]]:
    label = request.target or request.event
    special = [name for name in (label, request.time, request.site, request.patient) if name]
    columns: dict[str, _Summary] = {}
    by_class: Counter[str] = Counter()
    by_site: Counter[tuple[str, str]] = Counter()
    seen: set[Any] = set()
    rows = 0
    for chunk in _chunks(request, special):
        if request.patient:
            first = ~chunk[request.patient].duplicated() & ~chunk[request.patient].isin(seen)
            chunk = chunk[first]
            seen.update(chunk[request.patient])
        rows += len(chunk)
        labels = spelled(chunk[label])
        if labels.isna().any():
            raise DataError(f"column {label!r}: {int(labels.isna().sum())} rows have no outcome")
        by_class.update(Counter(labels.tolist()))
        if request.site:
            sites = spelled(chunk[request.site]).fillna(MISSING)
            by_site.update(zip(sites, labels, strict=True))
        for name in chunk.columns:
            if name != request.patient:
                columns.setdefault(name, _Summary()).see(chunk[name])
    _refuse(request, columns, by_class)
    return columns, rows, by_class, by_site


def _chunks(request: Request, needed: Sequence[str]) -> Iterator[pd.DataFrame]:
    """The file in pieces, so that millions of rows are never held twice."""
    path = request.file
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            file = pq.ParquetFile(path)
        except (pa.ArrowInvalid, OSError) as problem:
            raise DataError(f"{path}: not a readable Parquet file ({problem})") from None
        absent = [name for name in needed if name not in file.schema_arrow.names]
        if absent:
            raise DataError(f"{path}: no column {absent[0]!r}")
        for batch in file.iter_batches(_CHUNK):
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
            raise DataError(f"{path}: expected one CSV file inside, found {len(inside)}")
        return Path(inside[0]).name
    return path.name.removesuffix(".gz")


def _refuse(request: Request, columns: dict[str, _Summary], by_class: Counter[str]) -> None:
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
    elif len(by_class) > _CATEGORIES_AT_MOST:
        raise DataError(
            f"column {request.target!r}: {len(by_class)} distinct outcomes; a continuous target is "
            "not supported"
        )


def _toml(
    request: Request,
    columns: dict[str, _Summary],
    rows: int,
    by_class: Counter[str],
    by_site: Counter[tuple[str, str]],
) -> str:
    classes = sorted(by_class, key=_natural)
    member = "" if request.file.suffix == ".parquet" else _member_name(request.file)
    lines = [
        f"# Proposed by `bench data add` from {rows} rows. Kinds, bounds, categories and counts",
        "# were read off the rows: a look without noise, charged to every release as such. Check",
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


def _column(name: str, summary: _Summary, role: str, classes: list[str] | None) -> list[str]:
    categories = classes or summary.categories
    few = len(summary.values) <= _CODES_AT_MOST
    lines = ["", f"[columns.{_text(name)}]"]
    if role:
        lines.append(f'role = "{role}"')
    as_category = classes is not None or role == "site" or not summary.numeric or (
        few and summary.whole and role != "time" and len(summary.values) >= 2
    )  # fmt: skip
    if as_category:
        if len(summary.values) > _CATEGORIES_AT_MOST:
            return [
                "",
                f"# left out: column {name!r} has more than {_CATEGORIES_AT_MOST} distinct texts",
            ]
        if summary.missing:
            categories = [*categories, MISSING]
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
    """Bounds a little wider than seen, at round numbers."""
    step = 10.0 ** math.floor(math.log10(high - low)) / 2
    return math.floor(low / step) * step, math.ceil(high / step) * step


def _natural(text: str) -> tuple[int, float, str]:
    """Numbers by size, then texts by letter."""
    try:
        return 0, float(text), text
    except ValueError:
        return 1, 0.0, text


def _text(value: str) -> str:
    """A TOML basic string: JSON's escapes are TOML's."""
    return json.dumps(value)
