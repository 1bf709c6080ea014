"""The journal of a run: one line per finished cell, appended and synced; the last line counts.

Only the place of each cell's last line is kept in memory. A grid of 100,000 cells has gigabytes of
scores, which are read when they are asked for.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, final

from bench.errors import StoreError
from bench.results.opening import (
    LARGEST_JOURNAL,
    LONGEST_LINE,
    check_key,
    lines_of,
    open_file,
    open_to_write,
    too_long,
)
from bench.results.records import (
    INFINITIES,
    AuditRow,
    CellRow,
    Outcome,
    ScoreRow,
    check_objects,
    from_values,
)

Finished = tuple[CellRow, tuple[ScoreRow, ...]]


@final
class Journal(MutableMapping[str, Finished]):
    """Finished cells by key, read from the file one at a time.

    Setting a key appends a line. Deleting one forgets it for this process: the file keeps it.
    """

    def __init__(self, path: Path, *, write: bool = False) -> None:
        self._path = path
        self._places: dict[str, int] = {}
        self._statuses: dict[str, str] = {}
        self._audits: set[str] = set()
        self._file: IO[bytes] | None = None
        if write:
            cut_torn_line(path)
        self._scan()
        if write:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
            self._file = os.fdopen(open_to_write(path, flags), "ab")

    def _open(self) -> IO[bytes] | None:
        return open_file(self._path.parent, self._path.name, most=LARGEST_JOURNAL)

    def _scan(self) -> None:
        file = self._open()
        if file is None:
            return
        place = 0
        with file:
            for line in lines_of(file, self._path):
                document = _document(line)
                # A damaged line is passed over: its cell counts as not done and is done again.
                if isinstance(document, dict) and "cell" in document:
                    self._remember(document["cell"], place)
                place += len(line)

    def _remember(self, cell: object, place: int) -> None:
        key = cell.get("key") if isinstance(cell, dict) else None
        status = cell.get("status") if isinstance(cell, dict) else None
        if not isinstance(cell, dict) or not isinstance(key, str) or not isinstance(status, str):
            raise StoreError(
                f"{self._path}: a line is not that of a cell (it has no key or status); the "
                "directory was not written by bench"
            )
        # The key becomes a part of paths.
        check_key(key, self._path)
        self._places[key] = place
        self._statuses[key] = status
        if cell.get("attack"):
            self._audits.add(key)

    @property
    def statuses(self) -> Mapping[str, str]:
        """Status of each cell, by key."""
        return self._statuses

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __getitem__(self, key: str) -> Finished:
        outcome = self.outcome(key)
        return outcome.row, outcome.scores

    def outcome(self, key: str) -> Outcome:
        """Return all that the line of a cell holds."""
        place = self._places[key]
        file = self._open()
        if file is None:
            raise StoreError(f"{self._path}: is gone")
        with file:
            return self._outcome_at(file, place)

    def _outcome_at(self, file: IO[bytes], place: int) -> Outcome:
        file.seek(place)
        document = _document(file.readline(LONGEST_LINE))
        if not isinstance(document, dict):
            raise StoreError(f"{self._path}: a line was changed while it was read")
        try:
            return _outcome(document)
        except StoreError as problem:
            raise StoreError(
                f"{self._path}: {problem}; remove the line, and `bench run` makes its cell again"
            ) from None

    def audits(self) -> Iterator[Outcome]:
        """Return all audits, finished or failed, in the order in which they were recorded."""
        return (self.outcome(key) for key in self if key in self._audits)

    def __setitem__(self, key: str, finished: Finished) -> None:
        self.record(Outcome(*finished))

    def record(self, outcome: Outcome) -> None:
        """Append the line of a cell: its row, the numbers of an audit, its scores."""
        if self._file is None:
            raise StoreError("the run directory is not open")
        row, key = outcome.row, outcome.row.key
        document: dict[str, Any] = {"cell": plain(asdict(row))}
        if outcome.audit is not None:
            document["audit"] = plain(asdict(outcome.audit))
        document["scores"] = [plain(asdict(score)) for score in outcome.scores]
        line = json.dumps(document)
        place = self._file.seek(0, os.SEEK_END)
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        # A cell that is asked for again moves to the end, where its line is.
        self._places.pop(key, None)
        self._places[key] = place
        self._statuses[key] = row.status
        if row.attack:
            self._audits.add(key)

    def __delitem__(self, key: str) -> None:
        del self._places[key]
        del self._statuses[key]
        self._audits.discard(key)

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self._places))

    def __len__(self) -> int:
        return len(self._places)

    def all(self) -> Iterator[Finished]:
        """Return every finished cell in the order of the file, which is read through once."""
        file = self._open()
        if file is None:
            return
        with file:
            for place in sorted(self._places.values()):
                outcome = self._outcome_at(file, place)
                yield outcome.row, outcome.scores


def read_journal(path: Path) -> dict[str, Finished]:
    """Return everything at once; for a run that fits into memory."""
    return {row.key: (row, scores) for row, scores in Journal(path).all()}


def cut_torn_line(path: Path) -> None:
    """Cut off what a killed process left of its last line: it was never acted upon."""
    try:
        descriptor = open_to_write(path, os.O_RDWR)
    except FileNotFoundError:
        return
    with os.fdopen(descriptor, "r+b") as file:
        end = file.seek(0, os.SEEK_END)
        start = end
        while start > 0:
            size = min(1 << 16, start)
            file.seek(start - size)
            newline = file.read(size).rfind(b"\n")
            if newline >= 0:
                whole = start - size + newline + 1
                if whole < end:
                    file.truncate(whole)
                return
            start -= size
            if end - start > LONGEST_LINE:
                raise too_long(path)
        file.truncate(0)


def json_lines(content: bytes) -> tuple[list[Any], int]:
    """Return whole lines as JSON, and how many bytes they take."""
    documents, whole = [], 0
    for line in content.splitlines(keepends=True):
        document = _document(line)
        if document is None:
            break
        documents.append(document)
        whole += len(line)
    return documents, whole


def _document(line: bytes) -> Any | None:
    """A whole line as JSON; None for a torn one."""
    if not line.endswith(b"\n"):
        return None
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _outcome(document: Mapping[str, Any]) -> Outcome:
    """Return what a line holds; every value is checked to be one that its column can hold."""
    try:
        row = from_values(CellRow, document["cell"])
        check_objects(row)
        scores = tuple(from_values(ScoreRow, score) for score in document["scores"])
        audit = document.get("audit")
        numbers = None if audit is None else from_values(AuditRow, audit)
    except KeyError as missing:
        raise StoreError(f"a line lacks {missing}: written by another version?") from None
    except (TypeError, ValueError) as problem:
        raise StoreError(f"a line is damaged ({problem})") from None
    return Outcome(row, scores, audit=numbers)


def plain(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return values for JSON, which has no infinity: it is spelled."""
    spelled = {math.inf: "Infinity", -math.inf: "-Infinity"}
    return {
        name: spelled.get(value, value) if isinstance(value, float) else value
        for name, value in record.items()
    }


def unplain(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return values that `plain` has spelled."""
    return {
        name: INFINITIES.get(value, value) if isinstance(value, str) else value
        for name, value in record.items()
    }
