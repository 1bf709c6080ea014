"""Reads run directories without writing to them: one that is being run, or a stranger's.

All that reads a run directory does it here: status, merge, verify, compare, dossiers, the
leaderboard. (Opening a `RunStore` takes the lock and cuts a torn line off; here nothing is
changed.) Files are opened by `opening`, which follows no links. What is read is checked: tables
must have the columns of the result schema, and lines of the journal its types.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from bench.errors import StoreError
from bench.results.compaction import AUDITS, CELLS, TABLES, TIMINGS, mark_of, tables_of
from bench.results.journal import Finished, Journal, Mark, json_lines, whole_lines
from bench.results.opening import (
    LARGEST_JOURNAL,
    check_key,
    is_plain_name,
    lines_of,
    modified,
    names_in,
    open_file,
    parse_object,
    read_bytes,
    read_text,
)
from bench.results.parquet_files import columns_in, parquet_file, read_parquet
from bench.results.records import (
    PHASES,
    AuditRow,
    CellRow,
    Outcome,
    Record,
    Status,
    TimingRow,
    arrow_schema,
    required,
    to_table,
)

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from bench.plugins.description import Descriptions

FORMAT_VERSION = 1
"""Format version of run directories, written to `run.json`."""

_HINT = "give a directory that `bench run --out` wrote, or run `bench run` there again to repair it"
_CHUNK = 500
_LARGEST_ABOUT = 16 << 20
"""Bytes of `about.json`: descriptions of all plugins and their columns have less than 2 MB."""

_BEFORE_CELL = b'{"cell": '
"""How a line of the journal begins."""
_DECODER = json.JSONDecoder()


def check_run(directory: Path) -> Mapping[str, Any]:
    """Return what `run.json` says; refuse what is no run directory of this format."""
    path = directory / "run.json"
    text = read_text(directory, path.name)
    if text is None:
        raise StoreError(
            f"{directory} is not a run directory; `bench run --out {directory}` makes one"
        )
    manifest = parse_object(text)
    if manifest is None:
        raise StoreError(f"{path}: cannot be read as a JSON object; is it a run directory?")
    # Directories of earlier versions call it `form`.
    version = manifest.get("format_version", manifest.get("form"))
    if version != FORMAT_VERSION:
        raise StoreError(
            f"{path}: format version {version!r}, this version reads format version "
            f"{FORMAT_VERSION}"
        )
    return manifest


def open_journal(directory: Path) -> Journal:
    """Return the finished cells; a line that is just being written does not count yet."""
    return Journal(directory / "journal.jsonl")


def read_descriptions(directory: Path) -> Descriptions | None:
    """Return what a run says about its methods and datasets; None where it says nothing."""
    from bench.plugins.description import FILE, parse_descriptions

    text = read_text(directory, FILE, most=_LARGEST_ABOUT)
    return None if text is None else parse_descriptions(text)


def cells_in(path: Path, place: int = 0) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Return cells line by line with their places, without scores; None for a damaged line.

    A line that is just being written is not there yet. Scores are nearly all of a journal: passing
    over them unread makes this ten times faster than `Journal`, for what is asked often.
    """
    file = open_file(path.parent, path.name, most=LARGEST_JOURNAL)
    if file is None:
        return
    with file:
        file.seek(place)
        for line in lines_of(file, path):
            if not line.endswith(b"\n"):
                return
            cell = _cell_in(line)
            if cell is not None:
                check_key(cell["key"], path)
            yield place, cell
            place += len(line)


def _cell_in(line: bytes) -> dict[str, Any] | None:
    try:
        if line.startswith(_BEFORE_CELL) and line.endswith(b"]}\n"):
            cell, _ = _DECODER.raw_decode(line.decode(), len(_BEFORE_CELL))
        else:
            cell = json.loads(line)["cell"]
        good = isinstance(cell["key"], str) and isinstance(cell["status"], str)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return cell if good else None


def finished_of(journal: Journal, key: str) -> Finished:
    """Return one cell, with scores that are checked to be those of the cell."""
    row, scores = journal[key]
    if any(score.key != key for score in scores):
        raise StoreError(f"the journal's line of cell {key} holds scores of another cell")
    return row, scores


@final
@dataclass(frozen=True)
class Charge:
    """A cell with secure noise that was started: from then on its budget is spent."""

    key: str
    identity: str
    """`keys.charge_identity`, which outlives a change of the code; empty in old directories."""


def read_charges(directory: Path) -> tuple[Charge, ...]:
    """Return all charges; a torn last line was never acted upon."""
    path = directory / "charges.jsonl"
    content = read_bytes(directory, path.name)
    if content is None:
        return ()
    content = content[: whole_lines(content)]
    lines, whole = json_lines(content)
    charges = [
        Charge(line["key"], line.get("identity", ""))
        for line in lines
        if isinstance(line, dict)
        and is_plain_name(line.get("key"))
        and isinstance(line.get("identity", ""), str)
    ]
    if whole < len(content) or len(charges) < len(lines):
        raise StoreError(f"{path}: a line in the middle is damaged; charges may be lost")
    return tuple(charges)


def charged_keys(directory: Path) -> set[str]:
    """Return the keys of cells with secure noise that were started."""
    return {charge.key for charge in read_charges(directory)}


def in_use(directory: Path) -> bool:
    """Return True while a driver holds the directory. The lock is tried and let go at once."""
    with _shared_lock(directory) as free:
        return not free


@contextlib.contextmanager
def held(directory: Path) -> Iterator[None]:
    """Keep drivers out of a directory that is being read; other readers may come in."""
    with _shared_lock(directory) as free:
        if not free:
            raise StoreError(
                f"{directory} is in use by another `bench run`; wait for its end, or interrupt it"
            )
        yield


@contextlib.contextmanager
def _shared_lock(directory: Path) -> Iterator[bool]:
    """Hold the lock, shared: readers do not take each other for a driver. False where one runs."""
    file = open_file(directory, "lock")
    if file is None:
        yield True
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            free = False
        else:
            free = True
        yield free


# Tables -------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class RunTables:
    """The results of a run directory as pandas tables, with the columns of the result schema."""

    directory: Path
    cells: pd.DataFrame
    """One row per cell that was to be released: `bench.results.records.CellRow`."""
    scores: pd.DataFrame
    """One row per cell and metric: `ScoreRow`."""
    audits: pd.DataFrame
    """One row per audit: `CellRow` and `AuditRow` together, with the trials that were counted."""
    timings: pd.DataFrame
    """One row per cell and step: `TimingRow`. None for cells of earlier versions."""


def load_results(directory: str | Path) -> RunTables:
    """Return the results of a run directory, also of one that is still being run."""
    directory = Path(directory)
    tables = read_tables(directory)
    cells = tables.cells
    audits = _frame(to_table(_finished_audits(directory), AuditRow))
    released = cells["attack"] == ""
    attacked = cells[~released].drop(columns="trials").merge(audits, on="key", how="left")
    return RunTables(
        directory,
        cells[released].reset_index(drop=True),
        tables.scores,
        attacked,
        tables.timings,
    )


def _finished_audits(directory: Path) -> list[AuditRow]:
    return [outcome.audit for outcome in read_audits(directory) if outcome.audit is not None]


@final
@dataclass(frozen=True)
class Tables:
    """Cells (audits among them), scores and timings of a run directory, as stored."""

    cells: pd.DataFrame
    scores: pd.DataFrame
    timings: pd.DataFrame


_TRIES = 3
"""Readings of tables that a compaction replaces meanwhile, before the journal is read instead."""


def read_tables(directory: Path) -> Tables:
    """Return the tables as far as the journal goes, also of a run that is going.

    A run compacts its journal every minute: the lines after that are read and added. Tables that do
    not say how far they go count where they are newer than the journal.
    """
    for _ in range(_TRIES):
        found = _compacted(directory)
        if found is not None:
            break
    else:
        if _compiled(directory) or modified(directory, "journal.jsonl") is None:
            found = tuple(
                read_table(directory, name, record)
                for name, record in TABLES
                if name != TIMINGS or modified(directory, name) is not None
            )
        else:
            check_run(directory)
            found = _from_journal(open_journal(directory))
    cells, scores, *rest = found
    timings = rest[0] if rest else _frame(to_table([], TimingRow))
    check_values(directory, cells, scores)
    _check_timings(directory, timings)
    return Tables(cells, scores, timings)


def _compacted(directory: Path) -> tuple[pd.DataFrame, ...] | None:
    """Return the tables with what the journal has besides; None where they do not fit together."""
    import pandas as pd

    tail = tail_of(directory)
    if tail is None:
        return None
    tables = tuple(read_table(directory, name, record) for name, record in TABLES)
    again = tail_of(directory)
    if again is None or again[0] != tail[0]:
        return None  # another compaction came between
    _, journal = tail
    if not len(journal):
        return tables
    added = _from_journal(journal)
    return tuple(
        pd.concat([table[~table["key"].isin(set(journal))], more], ignore_index=True)
        for table, more in zip(tables, added, strict=True)
    )


def tail_of(directory: Path) -> tuple[Mark, Journal] | None:
    """Return how far the tables of a directory go, and the journal from there on.

    None where they do not say, say different things, or were made from another journal.
    """
    marks = set(_marks(directory))
    mark = marks.pop()
    path = directory / "journal.jsonl"
    if marks or mark is None or modified(directory, path.name) is None or not mark.fits(path):
        return None
    check_run(directory)
    return mark, Journal(path, start=mark.end)


def _marks(directory: Path) -> list[Mark | None]:
    """Return how far each table goes."""
    names = [name for name, _ in TABLES]
    if modified(directory, AUDITS) is not None:
        names.append(AUDITS)
    return [_mark_in(directory, name) for name in names]


def _mark_in(directory: Path, name: str) -> Mark | None:
    file = open_file(directory, name)
    if file is None:
        return None
    with file:
        try:
            return mark_of(parquet_file(file, directory / name).schema_arrow)
        except StoreError:
            return None  # said where it is read


def _from_journal(journal: Journal) -> tuple[pd.DataFrame, ...]:
    import pyarrow as pa

    parts = [tables_of([])]
    remaining = journal.outcomes()
    while batch := list(itertools.islice(remaining, _CHUNK)):
        parts.append(tables_of(batch))
    return tuple(_frame(pa.concat_tables(tables)) for tables in zip(*parts, strict=True))


def _check_timings(directory: Path, timings: pd.DataFrame) -> None:
    """Refuse times that no version has written."""
    numbers = timings[["wall_seconds", "processor_seconds", "reference_seconds"]].to_numpy()
    strange = ~timings["phase"].isin(PHASES)
    if strange.any() or not ((numbers >= 0) & (numbers < math.inf)).all():
        raise StoreError(
            f"{directory / TIMINGS}: a phase that is not known, or a time that is not a number of "
            f"seconds (written by another version?); {_HINT}"
        )


def _frame(table: pa.Table) -> pd.DataFrame:
    import pandas as pd
    import pyarrow as pa

    # Whole numbers may be absent: as floating-point numbers they would be shown as 50.0.
    frame: pd.DataFrame = table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    return frame


def read_table(directory: Path, name: str, record: Record) -> pd.DataFrame:
    """Return a result table; refuse what does not have the columns and types of the record."""
    path = directory / name
    if not directory.is_dir():
        raise StoreError(f"{directory}: no such directory; {_HINT}")
    table = _columns(directory, name, record, _HINT)
    if table is None:
        raise StoreError(f"{directory}: holds no {name}, so it is not a run directory; {_HINT}")
    never_empty = [item.name for item in fields(record) if not str(item.type).endswith("| None")]
    empty = [column for column in never_empty if table.column(column).null_count]
    if empty:
        raise StoreError(f"{path}: empty values in {', '.join(empty)}; {_HINT}")
    return _frame(table)


def _columns(directory: Path, name: str, record: Record, hint: str) -> pa.Table | None:
    """The columns of a record; others stay unread, since a later version may write more.

    None where there is no such file.
    """
    import pyarrow as pa

    path = directory / name
    try:
        found = columns_in(directory, name)
        known = [item.name for item in fields(record) if item.name in found]
        table = read_parquet(directory, name, columns=known) if found else None
    except StoreError as problem:
        raise StoreError(f"{problem}; {hint}") from None
    if table is None:
        return None
    schema = arrow_schema(record)
    problems = []
    for item, column in zip(fields(record), schema, strict=True):
        positions = table.schema.get_all_field_indices(column.name)
        if not positions and not required(item):
            values = pa.array([item.default] * len(table), column.type)
            table = table.append_column(column, values)
        elif len(positions) != 1:
            problems.append(f"column {column.name} is {'doubled' if positions else 'missing'}")
        else:
            kind = table.schema.field(positions[0]).type
            text = pa.types.is_string(column.type) and pa.types.is_large_string(kind)
            if kind != column.type and not text:
                problems.append(f"column {column.name} is {kind}, expected {column.type}")
    if problems:
        raise StoreError(f"{path}: {'; '.join(problems)} (written by another version?); {hint}")
    return table.select(schema.names).cast(schema)


def check_values(directory: Path, cells: pd.DataFrame, scores: pd.DataFrame) -> None:
    """Refuse tables whose values no version has written."""
    from bench.plugins.metric import Direction

    for frame, name, column, known in (
        (cells, "cells.parquet", "status", [status.value for status in Status]),
        (scores, "scores.parquet", "direction", [direction.value for direction in Direction]),
    ):
        strange = frame.loc[~frame[column].isin(known), column]
        if len(strange):
            raise StoreError(
                f"{directory / name}: {column} {strange.iloc[0]!r}, expected one of "
                f"{', '.join(known)} (written by another version?); {_HINT}"
            )
    targets = cells["eps_target"].dropna()
    if ((targets <= 0) | (targets == math.inf)).any():
        raise StoreError(
            f"{directory / 'cells.parquet'}: eps_target holds a number that is not positive and "
            f"finite; {_HINT}"
        )
    doubled = scores[scores.duplicated(["key", "metric"])]
    if len(doubled):
        row = doubled.iloc[0]
        raise StoreError(
            f"{directory / 'scores.parquet'}: two values of {row['metric']!r} for the cell "
            f"{row['key']!r}; {_HINT}"
        )


# Audits -------------------------------------------------------------------------------------------

_AGAIN = "remove it, and run `bench audit` again into a new --out"


def read_audits(directory: Path) -> tuple[Outcome, ...]:
    """Return all audits of a run directory, finished or failed, by method, dataset and epsilon.

    They are read from the journal, or from the tables where those are newer, or are all that a copy
    for others holds.
    """
    refuse_old_audits(directory)
    tail = tail_of(directory)
    if tail is not None and not tail[1].lost_audits:
        stored = _audits_in_tables(directory)
        audits = [one for one in stored if one.row.key not in tail[1]] + list(tail[1].audits())
    elif _compiled(directory):
        audits = _audits_in_tables(directory)
    elif modified(directory, "journal.jsonl") is not None:
        journal = open_journal(directory)
        if journal.lost_audits:
            raise StoreError(f"{journal.lost_audits[0]}; {_AGAIN}")
        audits = list(journal.audits())
    else:
        audits = []
    for outcome in audits:
        _check_audit(directory, outcome)

    def order(outcome: Outcome) -> tuple[str, str, float, str]:
        row = outcome.row
        return (row.label, row.dataset, row.eps_target or 0.0, row.attack)

    return tuple(sorted(audits, key=order))


def refuse_old_audits(directory: Path) -> None:
    """Refuse audits of earlier versions, which were no cells."""
    old = None
    for key in names_in(directory, "audits"):
        if "audit.json" in names_in(directory, "audits", key):
            old = directory / "audits" / key / "audit.json"
    # What is no table at all is refused where it is read.
    with contextlib.suppress(StoreError):
        if "method" in columns_in(directory, AUDITS):
            old = old or directory / AUDITS
    if old is not None:
        raise StoreError(f"{old}: written by an earlier version, which is not read; {_AGAIN}")


def _compiled(directory: Path) -> bool:
    """True where the tables hold all that the journal does, as far as they can tell."""
    journal, table = modified(directory, "journal.jsonl"), modified(directory, CELLS)
    if journal is not None and len(set(marks := _marks(directory))) > 1 and None not in marks:
        # A compaction was cut short. Times of files decide nothing: two may be equal.
        return False
    return table is not None and (journal is None or table >= journal)


def _audits_in_tables(directory: Path) -> list[Outcome]:
    import pyarrow.compute as pc

    path = directory / AUDITS
    by_key: dict[str, AuditRow] = {}
    numbers = _columns(directory, AUDITS, AuditRow, _AGAIN)
    if numbers is not None:
        lines = numbers.to_pylist()
        by_key = {str(line["key"]): AuditRow(**line) for line in lines}
    cells = _columns(directory, "cells.parquet", CellRow, _HINT)
    if cells is None:
        raise StoreError(f"{directory}: holds no cells.parquet; {_HINT}")
    attacked = cells.filter(pc.not_equal(cells.column("attack"), "")).to_pylist()
    rows = [CellRow(**line) for line in attacked]
    if lost := sorted(set(by_key) - {row.key for row in rows}):
        raise StoreError(f"{path}: audit {lost[0][:60]} has no row in cells.parquet; {_AGAIN}")
    return [Outcome(row, audit=by_key.get(row.key)) for row in rows]


def _check_audit(directory: Path, outcome: Outcome) -> None:
    row, audit = outcome.row, outcome.audit
    try:
        check_key(row.key, directory)
        if not isinstance(json.loads(row.parameters), dict):
            raise ValueError("parameters are no JSON object")
        if (audit is None) == (row.status == Status.OK.value):
            raise ValueError(f"it ended as {row.status}, and has numbers: {audit is not None}")
        if audit is None:
            return
        if audit.key != row.key:
            raise ValueError("its numbers are of another audit")
        for item in fields(AuditRow):
            value = getattr(audit, item.name)
            if value is None and not str(item.type).endswith("| None"):
                raise ValueError(f"an empty value in {item.name}")
        to_table([audit], AuditRow)  # refuses values of a wrong type
        for name in ("p_claim", "p_proof", "replicated_p_claim", "replicated_p_proof"):
            if not 0.0 <= getattr(audit, name) <= 1.0:
                raise ValueError(f"{name} {getattr(audit, name)} is no probability")
    except (ValueError, TypeError) as problem:
        raise StoreError(
            f"{directory}: audit {str(row.key)[:60]} is not one that this version can read "
            f"({problem}); {_AGAIN}"
        ) from None
