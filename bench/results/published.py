"""Published results: a run directory that is reduced to its tables, so that it fits a repository.

    run.json          version, dates, and one entry per publishing: machine, commit, what was added
    cells.parquet     as in a run directory, audits among them, as are
    scores.parquet    headline metrics and those that are shown, with intervals
    timings.parquet   phases, not single metrics
    audits.parquet
    ledgers.parquet   the ledgers behind all proven epsilons, each distinct one once
    about.json        descriptions of methods and datasets
    LOG.md            written from all of this

All that reads run directories reads it: the leaderboard checks every proven epsilon against its
ledger. There are no releases, no details, no logs, no notes of methods and no ledgers of methods
without a proof: whatever could hold a value of a row stays in the run directory.
"""

from __future__ import annotations

import datetime
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from bench.errors import StoreError, shortened
from bench.plugins.description import FILE as ABOUT
from bench.plugins.description import Descriptions, dataset_identity
from bench.plugins.metric import HEADLINES
from bench.results import private_rows
from bench.results.compaction import AUDITS, CELLS, SCORES, TIMINGS
from bench.results.integrity import LEDGER, Ledgers
from bench.results.ledger_table import FILE as LEDGERS
from bench.results.ledger_table import digest_of_text, ledger_table, read_ledgers
from bench.results.opening import modified, parse_object
from bench.results.reading import (
    FORMAT_VERSION,
    check_run,
    read_audits,
    read_descriptions,
    read_tables,
)
from bench.results.records import (
    AuditRow,
    CellRow,
    Outcome,
    Record,
    ScoreRow,
    Status,
    TimingRow,
    arrow_schema,
    log_name,
    stored_object,
)
from bench.results.writing import FOR_ALL, write_atomically, writing

if TYPE_CHECKING:
    import pandas as pd

LOG: Final = "LOG.md"
FILES: Final = ("run.json", CELLS, SCORES, TIMINGS, AUDITS, LEDGERS, ABOUT, LOG)

LARGEST = 10_000_000
"""Bytes of all files of a version: it is part of a repository and of a package."""

_ENTRY = "published"
_KEPT_HASHES = (LEDGER, "encoded.parquet", private_rows.SUMMARY)
"""Files whose digests are kept: the ledger is found by it, the rows are compared by it."""
_SECONDS = 3
"""Decimals of times, which nobody can measure better."""

IDENTITY: Final = (
    *("method", "parameters", "dataset_name", "dataset_parameters", "ipc", "full_size"),
    *("eps_target", "delta", "seed", "split", "split_seed", "private_counts", "study_only"),
    "attack",
)
"""Columns of what was asked for: of two cells that agree in them, one is published."""

_DOCUMENTS = ("parameters", "dataset_parameters", "notes", "versions", "metrics")
"""Columns of `cells.parquet` that hold JSON objects."""

_RANKS = {Status.OK.value: 0, Status.SKIPPED.value: 1}


@final
@dataclass(frozen=True)
class Slice:
    """One publishing of a run: what it added, and where that was computed."""

    date: str
    run: str
    grid: str
    machine: str
    cpu: str
    memory_gb: float | None
    python: str
    commit: str
    dirty: bool
    """True where the checkout had changes that are in no commit."""
    environment_hash: str
    added: int
    replaced: int
    statuses: Mapping[str, int]
    first_finished: str
    last_finished: str
    core_hours: float
    untimed: int
    """Cells whose processor time is not known."""
    left_out: tuple[str, ...] = ()
    """What the grid leaves out, in words."""


@final
@dataclass(frozen=True)
class SignOff:
    """The author of a method has confirmed what the maintainers have computed of it."""

    method: str
    source_hash: str
    """It holds for this code only."""
    by: str
    date: str


@final
@dataclass(frozen=True)
class Version:
    """What `run.json` says about published results."""

    version: str
    started: str
    """The day of the first publishing."""
    updated: str
    slices: tuple[Slice, ...] = ()
    signed: tuple[SignOff, ...] = ()

    @property
    def core_hours(self) -> float:
        """Processor time of all publishings, also of cells that were replaced since."""
        return sum(one.core_hours for one in self.slices)


@final
@dataclass
class Compact:
    """Compact results in memory."""

    cells: pd.DataFrame
    scores: pd.DataFrame
    timings: pd.DataFrame
    audits: pd.DataFrame
    ledgers: dict[str, str]
    """Texts by digest."""
    about: Descriptions

    def only(self, keys: Sequence[str]) -> Compact:
        """Return the results of these cells."""
        wanted = set(keys)

        def of(frame: pd.DataFrame) -> pd.DataFrame:
            return frame[frame["key"].isin(wanted)].reset_index(drop=True)

        cells = of(self.cells)
        digests = {digest for _, digest in _ledger_digests(cells)}
        return Compact(
            cells=cells,
            scores=of(self.scores),
            timings=of(self.timings),
            audits=of(self.audits),
            ledgers={one: text for one, text in self.ledgers.items() if one in digests},
            about=_described(self.about, cells),
        )


# Reading ------------------------------------------------------------------------------------------


def compact(directory: Path) -> Compact:
    """Return the finished cells of a run directory, or of published results, in compact form."""
    manifest = check_run(directory)
    tables = read_tables(directory)
    _check_texts(directory, tables.cells)
    found = [outcome for outcome in read_audits(directory) if outcome.audit is not None]
    cells = _cells(tables.cells)
    scores = tables.scores
    headline = scores["metric"].isin(set(HEADLINES.values()))
    timings = tables.timings[tables.timings["metric"] == ""]
    seconds = ["wall_seconds", "processor_seconds", "reference_seconds"]
    ledgers = (
        dict(read_ledgers(directory)) if _ENTRY in manifest else _ledgers(directory, tables.cells)
    )
    about = read_descriptions(directory) or Descriptions()
    return Compact(
        cells=cells,
        scores=scores[scores["shown"] | headline].reset_index(drop=True),
        timings=timings.assign(**{name: timings[name].round(_SECONDS) for name in seconds}),
        audits=_audit_frame(found),
        ledgers=ledgers,
        about=_described(about, cells),
    )


def _check_texts(directory: Path, cells: pd.DataFrame) -> None:
    """Refuse cells with texts that no version has written.

    They are checked here, once: whatever takes the rows parses these texts without asking again.
    """
    path = directory / CELLS
    for name in (*_DOCUMENTS, "finished_at"):
        for text in cells[name].unique():
            try:
                if name == "finished_at":
                    _time(text)
                else:
                    stored_object(name, text)
            except ValueError as problem:
                raise StoreError(
                    f"{path}: column {name} holds {shortened(text)} ({problem}); it was not "
                    "written by bench"
                ) from None
    doubled = cells.loc[cells["key"].duplicated(), "key"]
    if len(doubled):
        raise StoreError(
            f"{path}: column key holds {shortened(doubled.iloc[0])} twice; it was not written by "
            "bench"
        )


def _cells(cells: pd.DataFrame) -> pd.DataFrame:
    cells = cells.reset_index(drop=True)
    reasons = [
        reason.removesuffix(f"; see {log_name(key)}")
        for key, reason in zip(cells["key"], cells["reason"], strict=True)
    ]
    names = cells["dataset_name"].where(cells["dataset_name"] != "", cells["dataset"])
    measured = ("fit_seconds", "score_seconds", "peak_memory_mb")
    return cells.assign(
        reason=reasons,
        log_tail="",
        notes="{}",
        dataset_name=names,
        release_hashes=[_kept_hashes(text) for text in cells["release_hashes"]],
        **{column: cells[column].map(_sorted) for column in ("parameters", "dataset_parameters")},
        **{name: cells[name].astype(float).round(_SECONDS) for name in measured},
    )


def _sorted(text: str) -> str:
    found = parse_object(text)
    return text if found is None else json.dumps(found, sort_keys=True)


def _kept_hashes(text: str) -> str:
    recorded = parse_object(text or "{}") or {}
    return json.dumps({name: recorded[name] for name in _KEPT_HASHES if name in recorded})


def _ledgers(directory: Path, cells: pd.DataFrame) -> dict[str, str]:
    """Return the ledgers of all releases with a proven epsilon.

    Other ledgers prove nothing, and their texts come from methods that have read rows.
    """
    proven = cells["eps_proven"].astype(float) < float("inf")
    reading = Ledgers()
    texts = {}
    released = cells[proven & (cells["attack"] == "")]
    for key, hashes in zip(released["key"], released["release_hashes"], strict=True):
        text = reading.text(directory, key, hashes)
        if text is not None:
            texts[digest_of_text(text)] = text
    return texts


def _audit_frame(audits: Sequence[Outcome]) -> pd.DataFrame:
    import pandas as pd

    columns = [item.name for item in fields(AuditRow)]
    return pd.DataFrame([asdict(one.audit) for one in audits if one.audit], columns=columns)


def _ledger_digests(cells: pd.DataFrame) -> Iterator[tuple[str, str]]:
    for key, text in zip(cells["key"], cells["release_hashes"], strict=True):
        recorded = (parse_object(text or "{}") or {}).get(LEDGER)
        if isinstance(recorded, list) and len(recorded) == 2:
            yield key, str(recorded[1])


def _described(about: Descriptions, cells: pd.DataFrame) -> Descriptions:
    """Return the descriptions of what has cells: a run may describe a table of its user."""
    identities = {
        dataset_identity(*values)
        for values in cells[["dataset_name", "dataset", "dataset_parameters"]].itertuples(
            index=False, name=None
        )
    }
    methods = set(cells["method"])
    return Descriptions(
        tuple(one for one in about.methods if one.name in methods),
        tuple(one for one in about.datasets if one.identity in identities),
    )


def version_of(directory: Path) -> Version | None:
    """Return what published results say about themselves; None for another run directory."""
    entry = check_run(directory).get(_ENTRY)
    if entry is None:
        return None
    try:
        slices = tuple(
            Slice(**{**one, "left_out": tuple(one.get("left_out", ()))}) for one in entry["slices"]
        )
        signed = tuple(SignOff(**one) for one in entry.get("signed", ()))
        name, started, updated = (str(entry[key]) for key in ("version", "started", "updated"))
        return Version(name, started, updated, slices, signed)
    except (KeyError, TypeError) as problem:
        raise StoreError(
            f"{directory / 'run.json'}: its entry {_ENTRY!r} cannot be read ({problem}); written "
            "by another version?"
        ) from None


def check_published(directory: Path) -> Version:
    """Return the version of published results; refuse any other directory."""
    version = version_of(directory)
    if version is None:
        raise StoreError(
            f"{directory} holds no published results; `bench publish` writes them, and "
            "`bench leaderboard` shows other run directories"
        )
    return version


def rows_of(directory: Path) -> dict[str, CellRow]:
    """Return the published cells by key."""
    check_published(directory)
    columns = [item.name for item in fields(CellRow)]
    cells = read_tables(directory).cells[columns]
    _check_texts(directory, cells)
    plain = cells.astype(object).where(cells.notna(), None)
    lines = ({str(name): line[name] for name in line} for line in plain.to_dict("records"))
    return {line["key"]: CellRow(**line) for line in lines}


# Joining ------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Joined:
    """Two compact results put together."""

    results: Compact
    added: tuple[str, ...]
    """Keys of cells for which nothing was published."""
    replaced: tuple[str, ...]
    """Keys of cells that replace a published one."""


def join(old: Compact | None, new: Compact) -> Joined:
    """Put the cells of `new` beside or in the place of those of `old`.

    Under one key a cell that ended well stays, whatever a later attempt did; otherwise the cell
    that finished later counts. Joining the same results again changes nothing.
    """
    import pandas as pd

    if old is None:
        return Joined(_newest(new), tuple(_newest(new).cells["key"]), ())
    old, new = _newest(old), _newest(new)
    before = dict(_by_identity(old.cells))
    added, replaced, gone = [], [], set()
    for identity, row in _by_identity(new.cells):
        there = before.get(identity)
        if there is None:
            added.append(row["key"])
        elif _better(row, there):
            replaced.append(row["key"])
            gone.add(there["key"])
    kept = old.only([key for key in old.cells["key"] if key not in gone])
    taken = new.only([*added, *replaced])

    def both(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
        if first.empty or second.empty:
            return second if first.empty else first
        return pd.concat([first, second], ignore_index=True)

    results = Compact(
        both(kept.cells, taken.cells),
        both(kept.scores, taken.scores),
        both(kept.timings, taken.timings),
        both(kept.audits, taken.audits),
        {**kept.ledgers, **taken.ledgers},
        kept.about.joined(taken.about),
    )
    return Joined(results, tuple(added), tuple(replaced))


def _newest(results: Compact) -> Compact:
    """Return one cell per identity."""
    best: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for identity, row in _by_identity(results.cells):
        there = best.get(identity)
        if there is None or _better(row, there):
            best[identity] = row
    if len(best) == len(results.cells):
        return results
    return results.only([row["key"] for row in best.values()])


def _by_identity(cells: pd.DataFrame) -> Iterator[tuple[tuple[Any, ...], Mapping[str, Any]]]:
    columns = cells[[*IDENTITY, "key", "status", "finished_at", "metrics_hash"]]
    for row in columns.astype(object).where(columns.notna(), None).to_dict("records"):
        yield tuple(row[name] for name in IDENTITY), {str(name): row[name] for name in row}


def _better(row: Mapping[str, Any], there: Mapping[str, Any]) -> bool:
    """Return whether a cell replaces the one that is there."""
    if row["key"] == there["key"]:
        mine, theirs = (_RANKS.get(one["status"], 2) for one in (row, there))
        if mine != theirs:
            return mine < theirs
    return _time(row["finished_at"]) > _time(there["finished_at"])


def _time(text: str) -> datetime.datetime:
    found = datetime.datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)


def core_hours(results: Compact, keys: Sequence[str]) -> tuple[float, int]:
    """Return the processor time of cells in hours, and for how many it is not known.

    Of a cell without timings (an audit, an earlier version) the seconds of its row count.
    """
    cells = results.cells[results.cells["key"].isin(set(keys))]
    timed = results.timings[results.timings["key"].isin(set(cells["key"]))]
    others = cells[~cells["key"].isin(set(timed["key"]))]
    wall = others[["fit_seconds", "score_seconds"]].astype(float).sum(axis=1, min_count=1)
    seconds = float(timed["processor_seconds"].sum()) + float(wall.sum())
    return seconds / 3600, int(wall.isna().sum())


def statuses(cells: pd.DataFrame) -> dict[str, int]:
    """Return the number of cells by status, in the order of `Status`."""
    counts = Counter(cells["status"])
    return {status.value: counts[status.value] for status in Status if counts[status.value]}


# Writing ------------------------------------------------------------------------------------------


def write(target: Path, results: Compact, version: Version, log: str) -> int:
    """Write published results; return the bytes of all files.

    Nothing is replaced where they would be too large. `cells.parquet` comes last but for the
    manifest, so that a write that was cut short is repeated by the same command.
    """
    order = ["method", "dataset", "ipc", "eps_target", "seed", "attack", "key"]
    cells = results.cells.sort_values(order, kind="stable", na_position="first")
    contents = {
        LEDGERS: _packed(ledger_table(results.ledgers.values())),
        ABOUT: results.about.to_json().encode(),
        SCORES: _packed_frame(results.scores.sort_values(["metric", "key"]), ScoreRow),
        TIMINGS: _packed_frame(results.timings.sort_values(["phase", "key"]), TimingRow),
        AUDITS: _packed_frame(results.audits.sort_values("key"), AuditRow),
        CELLS: _packed_frame(cells, CellRow),
        LOG: log.encode(),
        "run.json": (json.dumps(_manifest(version), indent=1) + "\n").encode(),
    }
    size = sum(map(len, contents.values()))
    if size > LARGEST:
        raise StoreError(
            f"{target}: would take {size / 1e6:.1f} MB, and a version has at most "
            f"{LARGEST / 1e6:.0f} MB; begin a new version, or publish fewer cells"
        )
    with writing(target):
        target.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            place = target / name
            if modified(target, name) is None or place.read_bytes() != content:
                write_atomically(place, content, FOR_ALL)
    return size


def _manifest(version: Version) -> dict[str, Any]:
    grids = dict.fromkeys(one.grid for one in version.slices)
    return {
        "format_version": FORMAT_VERSION,
        "grid": " + ".join(grids),
        "started_at": version.started,
        _ENTRY: asdict(version),
    }


def _packed_frame(frame: pd.DataFrame, record: Record) -> bytes:
    import pyarrow as pa

    schema = arrow_schema(record)
    return _packed(pa.Table.from_pandas(frame[schema.names], schema, preserve_index=False))


def _packed(table: Any) -> bytes:
    """Return a table as small as Parquet can be: bytes of one place of all doubles lie together."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = table.replace_schema_metadata(None)
    doubles = [field.name for field in table.schema if pa.types.is_floating(field.type)]
    packed = io.BytesIO()
    pq.write_table(
        table,
        packed,
        compression="zstd",
        compression_level=19,
        use_dictionary=[name for name in table.schema.names if name not in doubles],
        use_byte_stream_split=doubles,
        write_page_checksum=True,
    )
    return packed.getvalue()
