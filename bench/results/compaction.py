"""Compacts the journal of a run to its tables, while the run is going and when it ends.

The first compaction of a process reads the whole journal. Later ones read the lines that were
added since, and copy the rest from the tables that this process wrote before, a group of rows at a
time: neither time nor memory grow with the lines that were compacted already, apart from copying.

Every table holds the place in the journal up to which it was compacted (`Mark`). All of them
appear one after the other, `cells.parquet` last; a reader that meets tables with different marks,
since a compaction was going on or was cut short, knows it. What is missing is in the journal.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, final

from bench.results.journal import Journal, Mark
from bench.results.opening import open_file, parse_object
from bench.results.records import (
    AuditRow,
    CellRow,
    Outcome,
    ScoreRow,
    TimingRow,
    arrow_schema,
    to_table,
)
from bench.results.writing import replacing, write_table, writing

if TYPE_CHECKING:
    import pyarrow as pa

CELLS: Final = "cells.parquet"
SCORES: Final = "scores.parquet"
TIMINGS: Final = "timings.parquet"
AUDITS: Final = "audits.parquet"

# The first one appears last: a table of cells that is newer than the journal means that the others
# are as well.
TABLES: Final = ((CELLS, CellRow), (SCORES, ScoreRow), (TIMINGS, TimingRow))

_MARK = b"bench.journal"
_CHUNK = 500
"""Cells of the journal that are held in memory at once."""
_GROUP = 50_000
"""Rows of a table that are written as one group, and held in memory until then."""
_EVERY_SECONDS = 60.0
_SHARE = 30.0
"""A compaction is followed by at least so many times the time that it took."""


@final
class Compaction:
    """Keeps the tables of a run directory up to date with its journal; one writer at a time."""

    def __init__(self, directory: Path, journal: Journal) -> None:
        self._directory = directory
        self._journal = journal
        self._written: Mark | None = None
        """How far the tables go that this process has written; None before the first time."""
        self._files: tuple[tuple[int, int, int], ...] = ()
        self._next = time.monotonic() + _EVERY_SECONDS

    def now_and_then(self) -> None:
        """Compact once a minute, or less often where that would take more than a thirtieth."""
        if time.monotonic() >= self._next:
            self.compact()

    def compact(self) -> None:
        """Bring the tables up to date."""
        started = time.monotonic()
        mark = self._journal.mark()
        with writing(self._directory):
            if self._written is not None and self._untouched():
                if mark != self._written:
                    self._write(mark, self._written.end)
            else:
                # Not taken from tables that somebody else wrote: those may be wrong, or a trap.
                self._write(mark, None)
        took = time.monotonic() - started
        self._next = time.monotonic() + max(_EVERY_SECONDS, _SHARE * took)

    def _untouched(self) -> bool:
        return self._identities() == self._files

    def _identities(self) -> tuple[tuple[int, int, int], ...]:
        return tuple(_identity(self._directory / name) for name, _ in TABLES)

    def _write(self, mark: Mark, start: int | None) -> None:
        """Write all tables; with a `start`, older rows are copied from the tables."""
        import pyarrow as pa
        import pyarrow.compute as pc

        added = self._journal.outcomes(start or 0)
        fresh = None if start is None else self._journal.keys_since(start)
        with ExitStack() as stack:
            outputs = [
                _Output(
                    stack.enter_context(replacing(self._directory / name)),
                    arrow_schema(kind).with_metadata({_MARK: _written_mark(mark)}),
                )
                for name, kind in TABLES
            ]
            if fresh is not None:
                for output, (name, _) in zip(outputs, TABLES, strict=True):
                    for table in _groups(self._directory, name):
                        gone = pc.is_in(table.column("key"), pa.array(fresh, pa.string()))
                        output.add(table.filter(pc.invert(gone)))
            for tables in _tables(added):
                for output, table in zip(outputs, tables, strict=True):
                    output.add(table)
            for output in outputs:
                output.close()
            self._write_audits(mark)
        self._files = self._identities()
        self._written = mark

    def _write_audits(self, mark: Mark) -> None:
        audits = [one.audit for one in self._journal.audits() if one.audit is not None]
        if audits or (self._directory / AUDITS).is_file():
            table = to_table(audits, AuditRow)
            marked = table.replace_schema_metadata({_MARK: _written_mark(mark)})
            write_table(self._directory / AUDITS, marked, synced=True)


@final
class _Output:
    """A table that is written in groups of rows, whatever the size of what it is given."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self._schema = schema
        self._writer = pq.ParquetWriter(file, schema)
        self._waiting: list[pa.Table] = []

    def add(self, table: pa.Table) -> None:
        self._waiting.append(table)
        if sum(map(len, self._waiting)) >= _GROUP:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if any(map(len, self._waiting)):
            whole = pa.concat_tables([table.cast(self._schema) for table in self._waiting])
            self._writer.write_table(whole, row_group_size=_GROUP)
        self._waiting.clear()

    def close(self) -> None:
        """Write what is left, and the end of the file."""
        self._flush()
        self._writer.close()


def _tables(outcomes: Iterable[Outcome]) -> Iterator[tuple[pa.Table, ...]]:
    remaining = iter(outcomes)
    while batch := list(itertools.islice(remaining, _CHUNK)):
        yield tables_of(batch)


def tables_of(outcomes: Iterable[Outcome]) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Return cells, scores and timings as Arrow tables, in the order of `TABLES`."""
    outcomes = list(outcomes)
    return (
        to_table([one.row for one in outcomes], CellRow),
        to_table([score for one in outcomes for score in one.scores], ScoreRow),
        to_table([timing for one in outcomes for timing in one.timings], TimingRow),
    )


def _groups(directory: Path, name: str) -> Iterator[pa.Table]:
    import pyarrow.parquet as pq

    file = open_file(directory, name)
    if file is not None:
        with file:
            parquet = pq.ParquetFile(file)
            for number in range(parquet.num_row_groups):
                yield parquet.read_row_group(number, use_threads=False)


def _identity(path: Path) -> tuple[int, int, int]:
    try:
        found = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return (0, 0, 0)
    return found.st_ino, found.st_size, found.st_mtime_ns


def _written_mark(mark: Mark) -> bytes:
    return json.dumps({"end": mark.end, "digest": mark.digest}).encode()


def mark_of(schema: pa.Schema) -> Mark | None:
    """Return how far a table goes, by what its file says; None for one of an earlier version."""
    text = (schema.metadata or {}).get(_MARK)
    document = None if text is None else parse_object(text)
    if document is None:
        return None
    end, digest = document.get("end"), document.get("digest")
    if not isinstance(end, int) or isinstance(end, bool) or not isinstance(digest, str):
        return None
    return Mark(end, digest)
