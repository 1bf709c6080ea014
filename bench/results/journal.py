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
from bench.results.records import AuditRow, CellRow, Outcome, ScoreRow, from_values

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
        if path.exists():
            self._scan()
        if write:
            self._file = path.open("ab")

    def _scan(self) -> None:
        place = 0
        with self._path.open("rb") as file:
            for line in file:
                document = _document(line)
                # A damaged line is passed over: its cell counts as not done and is done again.
                if isinstance(document, dict) and "cell" in document:
                    row = document["cell"]
                    self._places[row["key"]] = place
                    self._statuses[row["key"]] = row["status"]
                    if row.get("attack"):
                        self._audits.add(row["key"])
                place += len(line)

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
        with self._path.open("rb") as file:
            file.seek(self._places[key])
            return _outcome(json.loads(file.readline()))

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
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            for place in sorted(self._places.values()):
                file.seek(place)
                outcome = _outcome(json.loads(file.readline()))
                yield outcome.row, outcome.scores


def read_journal(path: Path) -> dict[str, Finished]:
    """Return everything at once; for a run that fits into memory."""
    return {row.key: (row, scores) for row, scores in Journal(path).all()}


def cut_torn_line(path: Path) -> None:
    """Cut off what a killed process left of its last line: it was never acted upon."""
    if not path.exists():
        return
    with path.open("r+b") as file:
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
    except ValueError:
        return None


def _outcome(document: Mapping[str, Any]) -> Outcome:
    try:
        scores = tuple(from_values(ScoreRow, unplain(score)) for score in document["scores"])
        audit = document.get("audit")
        return Outcome(
            from_values(CellRow, unplain(document["cell"])),
            scores,
            audit=None if audit is None else from_values(AuditRow, unplain(audit)),
        )
    except KeyError as missing:
        raise StoreError(f"journal line lacks {missing}: written by another version?") from None


def plain(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return values for JSON, which has no infinity: it is spelled."""
    return {
        name: "Infinity" if isinstance(value, float) and math.isinf(value) else value
        for name, value in record.items()
    }


def unplain(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return values that `plain` has spelled."""
    return {name: math.inf if value == "Infinity" else value for name, value in record.items()}
