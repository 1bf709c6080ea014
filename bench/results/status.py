"""How a run is going, or how it ended: read from its directory, which is left alone.

The journal says what has ended, `progress.json` what was planned and what is running. Either may
be missing or old; what cannot be known is None. "This run" is what ended since the last driver
started: what it found done already is `cached`.
"""

from __future__ import annotations

import datetime
import heapq
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, final

from bench.errors import printable
from bench.results.opening import read_object
from bench.results.reading import cells_in, check_run, in_use
from bench.results.records import Cell, Status, Variant

_GOOD = (Status.OK.value, Status.SKIPPED.value)
_SLOWEST = 5
_LOG_LINES = 12
_WINDOW = datetime.timedelta(minutes=15)
_FEW = 5
"""With fewer cells in the window, the rate is that of the whole run."""

_KEY = re.compile(r"\b(?:0x[0-9a-f]+|(?=[0-9a-f]*\d)[0-9a-f]{8,})\b", re.IGNORECASE)
_NUMBER = re.compile(r"(?<!\w)[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE)


@final
@dataclass(frozen=True)
class Ended:
    """A cell that has ended."""

    key: str
    cell: str
    status: str
    reason: str
    seconds: float
    finished_at: datetime.datetime | None


@final
@dataclass(frozen=True)
class Running:
    """A cell that is being computed."""

    key: str
    cell: str
    phase: str
    """What it did some seconds ago; empty if that is not known."""
    since: datetime.datetime | None


@final
@dataclass(frozen=True)
class ReasonGroup:
    """Cells that ended for the same reason, apart from the numbers and keys in it."""

    status: str
    reason: str
    cells: int
    example: Ended


@final
@dataclass(frozen=True)
class RunStatus:
    """State of a run directory at a moment."""

    directory: str
    state: str
    """running, finished, interrupted, died, or not running (of a run that left no progress)."""
    host: str | None
    pid: int | None
    started_at: datetime.datetime | None
    planned: int | None
    cached: int | None
    done: int
    """Cells that ended in this run."""
    left: int | None
    counts: Mapping[str, int]
    """Number of cells of this run, by status."""
    stored: Mapping[str, int]
    """Number of all cells in the directory, by status."""
    damaged_lines: int
    groups: tuple[ReasonGroup, ...]
    slowest: tuple[Ended, ...]
    running: tuple[Running, ...]
    per_minute: float | None
    expected_end: datetime.datetime | None
    last_ended: datetime.datetime | None
    last_failure: Ended | None
    last_log: tuple[str, ...]
    """The end of what the last failed cell wrote."""

    @property
    def failed(self) -> int:
        """Cells of this run that ended badly."""
        return sum(count for status, count in self.counts.items() if status not in _GOOD)

    def to_json(self) -> str:
        """Return JSON, with times in ISO format."""
        return json.dumps(
            {**asdict(self), "failed": self.failed},
            indent=1,
            default=lambda value: value.isoformat(timespec="seconds"),
        )


def read_status(directory: Path, now: datetime.datetime | None = None) -> RunStatus:
    """Read a run directory, whoever is writing to it."""
    check_run(directory)
    now = now or datetime.datetime.now(datetime.UTC)
    # The lock first: a run that ends while its journal is read is then called running, not dead.
    held = in_use(directory)
    progress = read_object(directory, "progress.json") or {}
    started = _time(progress.get("started_at"))
    journal = _Journal()
    journal.read(directory / "journal.jsonl", started)
    ended = list(journal.recent.values())
    counts = Counter(cell.status for cell in ended)
    planned, cached = _whole(progress.get("total")), _whole(progress.get("cached"))
    left = None if planned is None else max(0, planned - (cached or 0) - len(ended))
    state = _state(held, progress)
    last_ended = max((c.finished_at for c in ended if c.finished_at), default=None)
    until = now if held else last_ended
    rate = _rate([c.finished_at for c in ended if c.finished_at], started, until)
    failures = [cell for cell in ended if cell.status not in _GOOD]
    last = max(failures, key=_moment, default=None)
    return RunStatus(
        directory=str(directory),
        state=state,
        host=_text(progress.get("host")),
        pid=_whole(progress.get("pid")),
        started_at=started,
        planned=planned,
        cached=cached,
        done=len(ended),
        left=left,
        counts=dict(counts.most_common()),
        stored=dict(Counter(journal.statuses.values()).most_common()),
        damaged_lines=journal.damaged,
        groups=_groups(cell for cell in ended if cell.status != Status.OK.value),
        slowest=tuple(heapq.nlargest(_SLOWEST, ended, key=lambda cell: cell.seconds)),
        # The journal is written before the list of running cells is.
        running=tuple(
            one
            for one in (_running(progress.get("running")) if held else ())
            if one.key not in journal.recent
        ),
        per_minute=rate,
        expected_end=_expected(now, left, rate) if held else None,
        last_ended=last_ended,
        last_failure=last,
        last_log=() if last is None else journal.log(directory / "journal.jsonl", last.key),
    )


@final
class _Journal:
    """Result of one pass over the journal."""

    def __init__(self) -> None:
        self.recent: dict[str, Ended] = {}
        self.statuses: dict[str, str] = {}
        self.damaged = 0
        self._places: dict[str, int] = {}

    def read(self, path: Path, since: datetime.datetime | None) -> None:
        """Read what ended; the last line of a cell counts."""
        for place, cell in cells_in(path):
            if cell is None:
                self.damaged += 1
            else:
                self._take(cell, place, since)

    def _take(self, cell: Mapping[str, Any], place: int, since: datetime.datetime | None) -> None:
        ended = _ended(cell)
        self.statuses[ended.key] = ended.status
        if since is None or ended.finished_at is None or ended.finished_at >= since:
            self.recent[ended.key] = ended
            if ended.status not in _GOOD:
                self._places[ended.key] = place

    def log(self, path: Path, key: str) -> tuple[str, ...]:
        """Return the end of the log of a failed cell."""
        _, cell = next(cells_in(path, self._places[key]))
        cell = cell or {}
        return tuple((_text(cell.get("log_tail")) or "").strip().splitlines()[-_LOG_LINES:])


def _ended(cell: Mapping[str, Any]) -> Ended:
    described = Cell(
        method=Variant("", str(cell.get("label"))),
        dataset=Variant("", str(cell.get("dataset"))),
        ipc=_whole(cell.get("ipc")),
        full_size=cell.get("full_size") is True,
        epsilon=_number(cell.get("eps_target")),
        delta=0.0,
        seed=_whole(cell.get("seed")) or 0,
        split="",
        split_seed=0,
    )
    attack = _text(cell.get("attack"))
    audit = f" ({attack} audit, {_whole(cell.get('trials'))})" if attack else ""
    seconds = (_number(cell.get(name)) or 0.0 for name in ("fit_seconds", "score_seconds"))
    return Ended(
        key=cell["key"],
        cell=f"{described.describe()}{audit}",
        status=cell["status"],
        reason=_text(cell.get("reason")) or "",
        seconds=sum(seconds),
        finished_at=_time(cell.get("finished_at")),
    )


def _state(held: bool, progress: Mapping[str, Any]) -> str:
    if held:
        return "running"
    if not progress:
        return "not running"
    ended = progress.get("ended")
    return ended if ended in ("finished", "interrupted") else "died"


def _running(listed: object) -> Iterator[Running]:
    for item in listed if isinstance(listed, list) else ():
        if isinstance(item, dict):
            key, cell = _text(item.get("key")) or "", _text(item.get("cell")) or ""
            phase = _text(item.get("phase")) or ""
            yield Running(key, cell or key, phase, _time(item.get("since")))


def normalised(reason: str) -> str:
    """Return a reason without what differs between cells: keys become `<key>`, numbers `#`."""
    return _NUMBER.sub("#", _KEY.sub("<key>", reason.strip()))


def _groups(cells: Iterable[Ended]) -> tuple[ReasonGroup, ...]:
    """Largest first, failures before skipped cells."""
    groups: dict[tuple[str, str], ReasonGroup] = {}
    for cell in cells:
        place = (cell.status, normalised(cell.reason))
        known = groups.get(place) or ReasonGroup(*place, 0, cell)
        groups[place] = replace(known, cells=known.cells + 1)
    return tuple(sorted(groups.values(), key=lambda group: (group.status in _GOOD, -group.cells)))


def _rate(
    times: Sequence[datetime.datetime],
    started: datetime.datetime | None,
    until: datetime.datetime | None,
) -> float | None:
    """Cells per minute, lately."""
    if not times or until is None:
        return None
    first = started or min(times)
    start = max(first, until - _WINDOW)
    inside = sum(time > start for time in times)
    if inside < _FEW:
        start, inside = first, sum(time > first for time in times)
    minutes = (until - start).total_seconds() / 60
    return inside / minutes if inside and minutes > 0 else None


def _expected(
    now: datetime.datetime, left: int | None, per_minute: float | None
) -> datetime.datetime | None:
    if left is None or not per_minute:
        return None
    try:
        return now + datetime.timedelta(minutes=left / per_minute)
    except OverflowError:
        return None  # beyond the calendar


def _moment(cell: Ended) -> datetime.datetime:
    return cell.finished_at or datetime.datetime.min.replace(tzinfo=datetime.UTC)


def _time(value: object) -> datetime.datetime | None:
    try:
        moment = datetime.datetime.fromisoformat(str(value))
        # Beyond the first and the last year there is no time of another zone.
        return moment.replace(tzinfo=moment.tzinfo or datetime.UTC).astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        return None


def _whole(value: object) -> int | None:
    good = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    return value if good else None  # type: ignore[return-value]


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def to_text(status: RunStatus, now: datetime.datetime | None = None) -> str:
    """Return text for a terminal."""
    return printable("\n".join(_lines(status, now or datetime.datetime.now(datetime.UTC))))


def _lines(status: RunStatus, now: datetime.datetime) -> Iterator[str]:
    yield f"{status.directory}: {_state_words(status)}"
    if status.planned is None:
        yield f"  {status.done} cells ended; how many were planned is not known"
    else:
        yield (
            f"  {status.planned} cells planned: {status.cached or 0} already done, "
            f"{status.done} done in this run, {status.left} left"
        )
    if status.counts:
        yield f"  ended: {_counted(status.counts)}"
    if status.stored != status.counts:
        yield f"  in the directory: {_counted(status.stored) or 'no cells'}"
    if status.per_minute is not None:
        end = status.expected_end
        lately = " lately" if status.state == "running" else " in its last minutes"
        then = f"; expected end {_clock(end)} (in {_span(end - now)})" if end else ""
        yield f"  {status.per_minute:.3g} cells per minute{lately}{then}"
    elif status.state == "running":
        yield "  no cell has ended yet: no rate, no expected end"
    if status.damaged_lines:
        yield f"  {status.damaged_lines} damaged lines in the journal; their cells will run again"
    if status.running:
        yield "running:"
        for one in status.running:
            since = f", for {_span(now - one.since)}" if one.since else ""
            yield f"  {one.cell}{since}{f', in {one.phase}' if one.phase else ''}"
    for title, good in (("failures:", False), ("skipped:", True)):
        groups = [group for group in status.groups if (group.status in _GOOD) == good]
        if groups:
            yield title
        for group in groups:
            name = "" if good else f" {group.status}"
            yield f"  {group.cells} x{name}: {group.reason or 'no reason given'}"
            yield f"      e.g. {group.example.cell} ({group.example.key})"
    if status.slowest:
        yield "slowest:"
        for cell in status.slowest:
            yield f"  {cell.seconds:8.1f} s  {cell.cell} ({cell.key})"
    if status.last_failure is not None and status.last_log:
        yield f"last failure: {status.last_failure.cell} ({status.last_failure.key})"
        yield from (f"  | {line}" for line in status.last_log)


def _state_words(status: RunStatus) -> str:
    where = f" on {status.host}" if status.host else ""
    process = f", process {status.pid}" if status.pid is not None else ""
    since = f" since {_clock(status.started_at)}" if status.started_at else ""
    last = f", last cell {_clock(status.last_ended)}" if status.last_ended else ""
    words = {
        "running": f"running{where}{process}{since}",
        "finished": f"finished{last}",
        "interrupted": f"interrupted{last}; the same `bench run` resumes it",
        "died": f"died{where} without an end{last}; the same `bench run` resumes it",
    }
    return words.get(status.state, f"{status.state}{last}")


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{status} {count}" for status, count in counts.items())


def _clock(moment: datetime.datetime) -> str:
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def _span(length: datetime.timedelta) -> str:
    seconds = max(0, int(length.total_seconds()))
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 7200:
        return f"{seconds // 60} min"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"
