"""The journal of a run: one line per finished cell, appended and synced; the last line counts.

Only the place of each cell's last line is kept in memory. A grid of 100,000 cells has gigabytes of
scores, which are read when they are asked for.

A line that is not that of a cell costs its own cell and nothing else. Readers pass over it and say
so; the writer moves it to `quarantine.jsonl`, so that no later command meets it again.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
import os
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass
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
    read_bytes,
    too_long,
)
from bench.results.records import (
    DIRECTIONS,
    SPELLED,
    AuditRow,
    CellRow,
    Outcome,
    ScoreRow,
    TimingRow,
    check_outcome,
    check_timing,
    columns_of,
    from_values,
    seconds_of,
)
from bench.results.writing import append, append_to, replacing, sync_folder, writing

Finished = tuple[CellRow, tuple[ScoreRow, ...]]

QUARANTINE = "quarantine.jsonl"

_NAMED = 5


@final
class Journal(MutableMapping[str, Finished]):
    """Finished cells by key, read from the file one at a time.

    Setting a key appends a line. Deleting one forgets it for this process: the file keeps it.
    """

    def __init__(self, path: Path, *, write: bool = False, start: int = 0) -> None:
        """Open a journal; one that is only read may be read from the start of a line on."""
        self._path = path
        self._start = start
        self._places: dict[str, int] = {}
        self._statuses: dict[str, str] = {}
        self._audits: set[str] = set()
        self._file: IO[bytes] | None = None
        self.notices: tuple[str, ...] = ()
        """Lines that are not those of cells, in words: they were passed over, or moved away."""
        self.lost_audits: tuple[str, ...] = ()
        """Those among them that seem to be audits: what they refute must not be passed over."""
        if write:
            cut_torn_line(path)
        bad = self._scan()
        if write:
            if bad:
                self._quarantine(bad)
            self._file = append_to(path)
            # Once, also where it was there: whoever created it may have been killed before this.
            sync_folder(path.parent)

    def _open(self) -> IO[bytes] | None:
        return open_file(self._path.parent, self._path.name, most=LARGEST_JOURNAL)

    def _scan(self) -> list[tuple[int, bytes]]:
        """Find the last line of each cell; return lines that are not those of cells."""
        self._places.clear()
        self._statuses.clear()
        self._audits.clear()
        place, number = self._start, 0
        bad: list[tuple[int, bytes]] = []
        notices: list[str] = []
        audits: list[str] = []
        file = self._open()
        if file is None:
            return bad
        with file:
            file.seek(place)
            for line in lines_of(file, self._path):
                number += 1
                if not line.endswith(b"\n"):
                    break  # it is just being written
                try:
                    row = _checked(line)
                except (
                    ValueError,
                    TypeError,
                    AttributeError,
                    LookupError,
                    RecursionError,
                    StoreError,
                ) as why:
                    # Its cell counts as not done and is done again.
                    bad.append((place, line))
                    notices.append(f"line {number} is not that of a cell ({_short(why)})")
                    if b'"audit": ' in line:
                        audits.append(notices[-1])
                else:
                    # The key becomes a part of paths: one that leads elsewhere is no accident.
                    check_key(row.key, self._path)
                    self._note(row, place)
                place += len(line)
        self.notices = _listed(self._path, notices)
        self.lost_audits = _listed(self._path, audits)
        return bad

    def _note(self, row: CellRow, place: int) -> None:
        self._places[row.key] = place
        self._statuses[row.key] = row.status
        if row.attack:
            self._audits.add(row.key)

    def _quarantine(self, bad: Sequence[tuple[int, bytes]]) -> None:
        """Move lines away: kept for whoever wants to look at them, but out of every reader's way.

        They are copied first, so that a crash between the two steps loses none.
        """
        kept = self._path.with_name(QUARANTINE)
        with writing(kept), append_to(kept) as file:
            append(file, b"".join(line for _, line in bad))
            sync_folder(kept.parent)
        places = {place for place, _ in bad}
        old = self._open()
        if old is None:
            raise StoreError(f"{self._path}: is gone")
        with writing(self._path), old, replacing(self._path) as new:
            place = 0
            for line in lines_of(old, self._path):
                if place not in places:
                    new.write(line)
                place += len(line)
        said = self.notices
        self._scan()
        self.notices = tuple(f"{text}; moved to {QUARANTINE}" for text in said)

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
        if outcome.timings:
            document["timings"] = [_packed(timing) for timing in outcome.timings]
        try:
            check_outcome(outcome)
        except ValueError as problem:
            # A line that no reader accepts would be moved away by the next run.
            raise StoreError(f"cell {key}: its row cannot be stored ({problem})") from None
        line = json.dumps(document)
        with writing(self._path):
            place = append(self._file, line.encode() + b"\n")
        # A cell that is asked for again moves to the end, where its line is.
        self._places.pop(key, None)
        self._note(row, place)

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
        return ((outcome.row, outcome.scores) for outcome in self.outcomes())

    def outcomes(self, start: int = 0) -> Iterator[Outcome]:
        """Return all that the lines hold, in the order of the file, from this place on."""
        file = self._open()
        if file is None:
            return
        with file:
            for place in sorted(place for place in self._places.values() if place >= start):
                yield self._outcome_at(file, place)

    def keys_since(self, start: int) -> list[str]:
        """Return the keys of cells whose lines were added from this place on."""
        return [key for key, place in self._places.items() if place >= start]

    def mark(self) -> Mark:
        """Return how far the file goes now: to the end of its last whole line."""
        file = self._open()
        if file is None:
            return Mark(0, "")
        with file:
            end = os.fstat(file.fileno()).st_size
            return Mark(end, _digest_before(file, end))


_MARKED = 4096


@final
@dataclass(frozen=True)
class Mark:
    """A place in a journal, up to which tables hold what its lines do."""

    end: int
    digest: str
    """Of the bytes before the place: in a journal that was written anew they are others."""

    def fits(self, path: Path) -> bool:
        """Return True where a journal still goes at least that far, with the same lines before."""
        file = open_file(path.parent, path.name, most=LARGEST_JOURNAL)
        if file is None:
            return self.end == 0
        with file:
            long_enough = 0 <= self.end <= os.fstat(file.fileno()).st_size
            return long_enough and _digest_before(file, self.end) == self.digest


def _digest_before(file: IO[bytes], end: int) -> str:
    start = max(0, end - _MARKED)
    file.seek(start)
    return hashlib.sha256(file.read(end - start)).hexdigest() if end else ""


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


def whole_lines(content: bytes) -> int:
    """Return how many bytes whole lines take.

    A last line with zeros is none: after a power cut, blocks that were not yet written are zeros,
    and nobody has acted upon a line whose sync has not returned.
    """
    end = content.rfind(b"\n") + 1
    start = content.rfind(b"\n", 0, max(0, end - 1)) + 1
    return start if b"\0" in content[start:end] else end


def cut_charges(path: Path) -> None:
    """Cut off what a killed process or a power cut left of the last line of charges."""
    content = read_bytes(path.parent, path.name)  # refuses one that is too large to be read whole
    if content is None or (whole := whole_lines(content)) == len(content):
        return
    with os.fdopen(open_to_write(path, os.O_RDWR), "r+b") as file:
        file.truncate(whole)


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
        scores = tuple(from_values(ScoreRow, score) for score in document["scores"])
        audit = document.get("audit")
        numbers = None if audit is None else from_values(AuditRow, audit)
        timings = tuple(_unpacked(row.key, item) for item in _timings_in(document))
    except KeyError as missing:
        raise StoreError(f"a line lacks {missing}: written by another version?") from None
    except UnicodeEncodeError:
        raise StoreError("a line is damaged (lone surrogates)") from None
    except (TypeError, ValueError) as problem:
        raise StoreError(f"a line is damaged ({problem})") from None
    return Outcome(row, scores, audit=numbers, timings=timings)


def _packed(timing: TimingRow) -> list[Any]:
    """A timing without its key, in microseconds' precision: there are dozens in a line."""
    return [timing.phase, timing.metric, *(round(value, 6) for value in seconds_of(timing))]


def _timings_in(document: Mapping[str, Any]) -> list[Any]:
    """The timings of a line, checked; earlier versions wrote none."""
    listed = document.get("timings", [])
    if type(listed) is not list:
        raise ValueError("timings are no list")
    for item in listed:
        if type(item) is not list or tuple(map(type, item)) not in _TIMING_TYPES:
            raise ValueError("a timing has other values than a phase, a metric and three times")
        check_timing(*item)
    if len({(item[0], item[1]) for item in listed}) < len(listed):
        raise ValueError("it holds two timings of one step")
    return listed


_TIMING_TYPES = {(str, str, *kinds) for kinds in itertools.product((float, int), repeat=3)}
"""JSON of another writer may have a whole number of seconds."""


def _unpacked(key: str, item: Sequence[Any]) -> TimingRow:
    phase, metric, *seconds = item
    metric.encode()  # lone surrogates
    return TimingRow(key, phase, metric, *map(float, seconds))


def _checked(line: bytes) -> CellRow:
    """Return the row of a line; raise where a line is not that of a cell.

    Scores are nearly all of a journal: those that look as they were written are not rebuilt.
    """
    document = json.loads(line)
    surrogates = b"\\ud" in line or b"\\uD" in line
    if not surrogates and _as_written(document):
        document = {**document, "scores": []}
    outcome = _outcome(document)
    check_outcome(outcome)
    return outcome.row


def _as_written(document: Mapping[str, Any]) -> bool:
    """True for scores that surely pass `check_outcome`; others are looked at one by one."""
    key, scores = document["cell"]["key"], document["scores"]
    return (
        type(scores) is list
        and all(
            type(score) is dict
            and tuple(score) == _SCORE_NAMES
            and _good_types(tuple(map(type, score.values())))
            and score["key"] == key
            and score["direction"] in DIRECTIONS
            for score in scores
        )
        and len({score["metric"] for score in scores}) == len(scores)
    )


_SCORE_NAMES = tuple(name for name, _, _ in columns_of(ScoreRow))


@functools.lru_cache(maxsize=256)
def _good_types(types: tuple[type, ...]) -> bool:
    return all(
        found is kind or (found is type(None) and optional)
        for found, (_, kind, optional) in zip(types, columns_of(ScoreRow), strict=True)
    )


def plain(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return values for JSON, which has no infinity: it is spelled."""
    return {
        name: _spelled(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in record.items()
    }


def _spelled(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def unplain(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return values that `plain` has spelled."""
    return {
        name: SPELLED.get(value, value) if isinstance(value, str) else value
        for name, value in record.items()
    }


def _short(problem: Exception) -> str:
    """The first words of a problem with a line; of its values, ours are shown only."""
    if isinstance(problem, UnicodeEncodeError):
        return "lone surrogates"
    if isinstance(problem, json.JSONDecodeError):
        return "not JSON"
    return f"{problem}"[:120] if type(problem) in (ValueError, StoreError) else "no such record"


def _listed(path: Path, notices: Sequence[str]) -> tuple[str, ...]:
    more = len(notices) - _NAMED
    listed = [f"{path}: {text}" for text in notices[:_NAMED]]
    return tuple([*listed, f"{path}: {more} more such lines"] if more > 0 else listed)
