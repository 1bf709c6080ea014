"""The run directory: results as they arrive, tables when asked, nothing half-written.

    run.json          what was run, with which versions
    journal.jsonl     the authoritative record: one line per finished cell, synced as it ends
    progress.json     how far the run is, for `bench status`
    cells.parquet     compacted from the journal every minute and at the end, as are
    scores.parquet
    timings.parquet   what each step of each cell took
    releases/<key>/   synthetic.parquet (in units), encoded.parquet (as models train on it),
                      ledger.json, release.json; without a proven epsilon rows.json and no rows
    non-private-rows/<key>/   rows without a proven epsilon, where the user asked to keep them
    details/<key>/    tables for plots and paired tests
    audits.parquet    numbers of audits, where there are any; their cells are in cells.parquet
    audits/<key>/     trials.parquet, ledger.json (of the first trial); batches/ while it runs
    charges.jsonl     cells with secure noise that were started: a lost one stays charged
    logs/<key>.log    what a failed cell printed, and its exception: internal, never copied
    quarantine.jsonl  lines of the journal that were not those of cells

Everything can be read by the owner only, and all of it goes through `bench.results.writing`. A
release or an audit is written under another name, synced and renamed before its line enters the
journal, so a line never points to half of one, also after a power cut; a torn last line is cut off.
Nothing here is ever unpickled.
"""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, final

import pandas as pd
import pyarrow as pa

from bench.data.encoder import Encoder
from bench.errors import InputError, StoreError
from bench.plugins.release import Claim, Federation, Release, Rows
from bench.privacy.ledger import Ledger
from bench.results import encoded, private_rows
from bench.results.compaction import Compaction
from bench.results.encoded import encoded_table
from bench.results.integrity import Stated, changed_files, release_hashes
from bench.results.journal import Finished, Journal, cut_charges, plain, unplain
from bench.results.opening import names_in, open_lock, read_object, read_text, survey
from bench.results.parquet_files import columns_in, read_parquet
from bench.results.private_rows import RowsSummary
from bench.results.reading import FORMAT_VERSION, check_run, read_charges, refuse_old_audits
from bench.results.records import Cell, CellRow, Outcome, log_name
from bench.results.timings import Stopwatch, added_to
from bench.results.writing import (
    OWNER_FOLDER,
    append,
    append_to,
    create,
    make_folder,
    replacing,
    sync_files,
    sync_folder,
    write_atomically,
    write_table,
    write_together,
    writing,
)

_FIRST = frozenset({"lock", ".run.json.part"})
"""What is in a run directory before it is one."""

_EVERY_SECONDS = 2.0
"""Time between two writings of `progress.json`."""


@final
class RunStore:
    """A run directory, held by one writer at a time."""

    def __init__(self, directory: Path, *, keep_private_rows: bool = False) -> None:
        """Name a run directory; rows without a proven epsilon are stored only where it is asked."""
        self.directory = directory
        self._keep_private_rows = keep_private_rows
        self._lock: IO[bytes] | None = None
        self._journal: Journal | None = None
        self._compaction: Compaction | None = None
        self._synced: set[str] = set()
        self.finished: MutableMapping[str, Finished] = {}
        """Cells that have ended, by key; read from the journal one at a time."""

    @classmethod
    def existing(cls, directory: Path) -> RunStore:
        """Return a run directory that is there already; nothing is created."""
        check_run(directory)
        return cls(directory)

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _open(self) -> None:
        directory = self.directory
        manifest = directory / "run.json"
        if directory.is_dir():
            refuse_old_audits(directory)
        try:
            # What a run leaves that could not write anything else.
            others = directory.is_dir() and {path.name for path in directory.iterdir()} - _FIRST
            if others and not manifest.exists():
                raise StoreError(
                    f"{directory} is not empty and not a run directory; give --out another folder"
                )
            _make_with_parents(directory)
            # Also one that existed: tables hold times and events of test rows.
            directory.chmod(OWNER_FOLDER)
            self._lock = open_lock(directory)
        except OSError as problem:
            raise StoreError(
                f"{directory}: cannot be used as a run directory ({problem.strerror or problem})"
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise StoreError(
                f"{directory} is in use by another `bench run`; wait for it or use another --out"
            ) from None
        # From here on files are written, which must not end elsewhere.
        _remove(survey(directory))
        if manifest.exists():
            check_run(directory)
        else:
            self.write_manifest({})
        with writing(directory):
            self.finished = self._journal = Journal(directory / "journal.jsonl", write=True)
            self._compaction = Compaction(directory, self._journal)
            cut_charges(directory / "charges.jsonl")

    @property
    def notices(self) -> tuple[str, ...]:
        """What was wrong with the directory when it was opened, in words."""
        return () if self._journal is None else self._journal.notices

    def check_there(self) -> None:
        """Refuse to continue in a directory that was removed or replaced meanwhile.

        The open journal of a removed directory would still take every line, for nobody to read.
        """
        if self._lock is None:
            raise StoreError("the run directory is not open")
        with writing(self.directory):
            there = os.stat(self.directory / "lock")
        if not os.path.samestat(there, os.fstat(self._lock.fileno())):
            raise StoreError(
                f"{self.directory}: it was removed or replaced meanwhile; results go nowhere. Put "
                "it back or name another, then run the same command again"
            )

    def close(self) -> None:
        """Release the directory to other writers."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def manifest(self) -> Mapping[str, Any]:
        """Return what `run.json` says about the run."""
        if not (self.directory / "run.json").exists():
            return {}
        return _read_json(self.directory, "run.json")

    def write_manifest(self, facts: Mapping[str, Any]) -> None:
        """Describe the run; earlier facts stay where they are not given anew.

        Cells of a checkout with uncommitted changes stay in the directory, also where a later run
        finds all of them computed: so does `dirty`.
        """
        path = self.directory / "run.json"
        before = self.manifest()
        document = {**before, **facts, "format_version": FORMAT_VERSION}
        if before.get("dirty") and len(self.finished):
            document["dirty"] = True
        document.pop("form", None)  # the name of the format version in earlier directories
        with writing(path):
            write_atomically(path, json.dumps(document, indent=1).encode())

    def record(self, outcome: Outcome, encoder: Encoder | None) -> Outcome:
        """Keep the outcome of a cell; return it as it is kept.

        The reason of a failure then names its log. Nothing else of the log enters the row: it is
        stored beside the tables, for the owner of the directory only.
        """
        if self._journal is None:
            raise StoreError("the run directory is not open")
        key = outcome.row.key
        self.check_there()
        watch = Stopwatch()
        with writing(self.directory):
            if outcome.fitted and outcome.release is not None and encoder is not None:
                proven = private_rows.may_travel(outcome.row)
                self._write_release(key, outcome.release, encoder, outcome.ledger, proven)
                hashes = release_hashes(self.directory, key)
                outcome = replace(outcome, row=replace(outcome.row, release_hashes=hashes))
            if outcome.details is not None:
                self._write_details(key, outcome.details)
            self._write_log(key, outcome.log)
        if outcome.log.strip():
            reason = f"{outcome.row.reason}; see {log_name(key)}"
            outcome = replace(outcome, row=replace(outcome.row, reason=reason))
        if outcome.timings and (outcome.fitted or outcome.details is not None):
            # Of a cell that was computed: not of one that is copied from another directory.
            outcome = replace(outcome, timings=added_to(outcome.timings, watch.lap(key, "write")))
        self._journal.record(outcome)
        return outcome

    def _room(self, kind: str) -> Path:
        """Return the folder of all releases, details or logs, which is created."""
        folder = self.directory / kind
        make_folder(folder)
        if kind not in self._synced:
            # Once, also where it was there: whoever created it may have been killed before this.
            sync_folder(self.directory)
            self._synced.add(kind)
        return folder

    def _write_log(self, key: str, log: str) -> None:
        """Keep what a failed cell said; one that went well has none any more."""
        path = self.directory / log_name(key)
        if log.strip():
            self._room(path.parent.name)
            with replacing(path) as file:
                file.write(log.encode(errors="backslashreplace"))
        else:
            path.unlink(missing_ok=True)

    def charge(self, key: str, identity: str = "") -> None:
        """Note that a cell with secure noise has been started: from now on it is charged.

        `identity` is `keys.charge_identity`: it outlives a change of the method's source.
        """
        path = self.directory / "charges.jsonl"
        self.check_there()
        with writing(path):
            with append_to(path) as file:
                line = {"key": key, "identity": identity} if identity else {"key": key}
                append(file, json.dumps(line).encode() + b"\n")
            if path.name not in self._synced:
                sync_folder(self.directory)
                self._synced.add(path.name)

    def charged(self) -> set[str]:
        """Return keys and identities of cells with secure noise that were started."""
        charges = read_charges(self.directory)
        return {text for charge in charges for text in (charge.key, charge.identity) if text}

    @property
    def journal(self) -> Journal:
        """The journal; read-only once the directory is closed."""
        if isinstance(self.finished, Journal):
            return self.finished
        return Journal(self.directory / "journal.jsonl")

    def compact(self) -> None:
        """Write the tables from everything finished so far."""
        self._tables().compact()

    def compact_now_and_then(self) -> None:
        """Do so once a minute: for a run that is going, and is read meanwhile."""
        self._tables().now_and_then()

    def _tables(self) -> Compaction:
        if self._compaction is None:
            self._compaction = Compaction(self.directory, self.journal)
        return self._compaction

    def all(self) -> Iterator[Finished]:
        """Return everything finished so far, read through once."""
        return self._journal.all() if self._journal is not None else iter(self.finished.values())

    # Releases -----------------------------------------------------------------------------------

    def release_directory(self, key: str) -> Path:
        """Return the folder of the release of a cell."""
        return self.directory / "releases" / key

    def private_rows_directory(self, key: str) -> Path:
        """Return the folder of rows without a proven epsilon that the user asked to keep."""
        return self.directory / private_rows.FOLDER / key

    def _write_release(
        self, key: str, release: Release, encoder: Encoder, ledger: str, proven: bool
    ) -> None:
        self._fill_folder(
            "releases",
            key,
            lambda folder: self._fill_release(folder, release, encoder, ledger, proven),
        )
        rows = release.rows
        if rows is not None and not proven and self._keep_private_rows:
            names = (private_rows.SYNTHETIC, private_rows.ENCODED)
            self._fill_folder(
                private_rows.FOLDER, key, lambda folder: _write_rows(folder, names, rows, encoder)
            )
        else:
            # Of an earlier fit of the same cell: they are not the rows of this release.
            shutil.rmtree(self.private_rows_directory(key), ignore_errors=True)

    def _fill_folder(self, kind: str, key: str, fill: Callable[[Path], None]) -> None:
        """Fill a folder of a cell under another name, and put it in its place when it is whole."""
        final_place = self.directory / kind / key
        temporary = self._room(kind) / f".{key}.part"
        shutil.rmtree(temporary, ignore_errors=True)
        make_folder(temporary)
        try:
            fill(temporary)
            sync_files(temporary)
            shutil.rmtree(final_place, ignore_errors=True)
            temporary.replace(final_place)
            sync_folder(final_place.parent)
        except BaseException:
            # On a full disk, half of a release would be in the way of all that comes.
            shutil.rmtree(temporary, ignore_errors=True)
            raise

    def _fill_release(
        self, folder: Path, release: Release, encoder: Encoder, ledger: str, proven: bool
    ) -> None:
        def write(name: str, content: str) -> None:
            with create(folder / name) as file:
                file.write(content.encode())

        rows = release.rows
        if rows is not None and proven:
            _write_rows(folder, ("synthetic.parquet", encoded.FILE), rows, encoder)
        elif rows is not None:
            columns = list(encoder.decode(rows.values[:1], rows.labels[:1]).columns)
            write(private_rows.SUMMARY, RowsSummary.of(rows, columns).to_json())
        if release.ledger is not None:
            # Proven where the release was judged: methods are imported in this process.
            write("ledger.json", ledger or release.ledger.to_json())
        about = {
            "claim": None if release.claim is None else plain(asdict(release.claim)),
            "notes": plain(dict(release.notes)),
            "result": "rows" if rows is not None else "model",
            "federation": None if release.federation is None else release.federation.to_record(),
        }
        write("release.json", json.dumps(about, indent=1))

    def read_release(self, key: str, encoder: Encoder) -> Release | None:
        """Return a stored release of rows, or None where it is missing, torn or a model.

        The rows of a release without a proven epsilon are not stored unless the user asked for it.
        """
        place = ("releases", key)
        try:
            about = _read_json(self.directory, *place, "release.json")
            ledger = Ledger.from_json(_read_text(self.directory, *place, "ledger.json"))
            summary = private_rows.read_summary(self.directory, key)
            table = read_parquet(self.directory, *_encoded_place(key, summary))
            if table is None:
                return None
            rows = encoded.rows_of(table, encoder)
            if summary is not None and private_rows.digest(rows) != summary.sha256:
                return None
        except InputError:
            return None
        try:
            claim = None if about["claim"] is None else Claim(**unplain(about["claim"]))
            federation = about.get("federation")
            return Release(
                rows,
                claim=claim,
                notes=unplain(about["notes"]),
                ledger=ledger,
                federation=None if federation is None else Federation.from_record(federation),
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            return None  # facts that no version has written

    def release_intact(self, key: str) -> bool:
        """Return True when the files of a release are whole, and those that were recorded."""
        if self.problem_of_release(key):
            return False
        found = self.finished.get(key)
        # Without a line there is nothing to compare with; nobody refers to them either.
        return found is None or not changed_files(self.directory, Stated.of(found[0]))

    def problem_of_release(self, key: str) -> str:
        """Return why a release cannot be read; empty where its files are whole."""
        place = ("releases", key)
        try:
            about = _read_json(self.directory, *place, "release.json")
            _read_json(self.directory, *place, "ledger.json")
            summary = private_rows.read_summary(self.directory, key)
            if about.get("result") != "rows":
                names: tuple[tuple[str, ...], ...] = ()
            elif summary is None:
                names = ((*place, encoded.FILE), (*place, "synthetic.parquet"))
            elif names_in(self.directory, private_rows.FOLDER, key):
                kept = (private_rows.FOLDER, key)
                names = ((*kept, private_rows.ENCODED), (*kept, private_rows.SYNTHETIC))
            else:
                names = ()
            for parts in names:
                if not columns_in(self.directory, *parts):
                    return f"{parts[-1]} is missing"
        except StoreError as problem:
            return str(problem)
        return ""

    def rows_not_stored(self, key: str) -> str:
        """Return the digest of released rows that are not stored; empty where they are, or none."""
        summary = private_rows.read_summary(self.directory, key)
        if summary is None or names_in(self.directory, private_rows.FOLDER, key):
            return ""
        return summary.sha256

    # Audits -------------------------------------------------------------------------------------

    def audit_directory(self, key: str) -> Path:
        """Return the folder of the trials of an audit."""
        return self.directory / "audits" / key

    def audit_intact(self, key: str) -> bool:
        """Return True when the files of an audit are whole (footer and JSON are read)."""
        return self.problem_of_audit(key) == ""

    def problem_of_audit(self, key: str) -> str:
        """Return why the files of an audit cannot be read; empty where they are whole."""
        try:
            _read_json(self.directory, "audits", key, "ledger.json")
            if not columns_in(self.directory, "audits", key, "trials.parquet"):
                return "trials.parquet is missing"
        except StoreError as problem:
            return str(problem)
        return ""

    def intact(self, row: CellRow) -> bool:
        """Return True when the files of a cell that has ended well are whole, and its own."""
        if self.problem_of(row):
            return False
        return bool(row.attack) or not changed_files(self.directory, Stated.of(row))

    def problem_of(self, row: CellRow) -> str:
        """Return why the files of a cell cannot be read; empty where they are whole."""
        return self.problem_of_audit(row.key) if row.attack else self.problem_of_release(row.key)

    def _write_details(self, key: str, details: Mapping[str, pd.DataFrame]) -> None:
        directory = self._room("details") / key
        make_folder(directory)
        tables = {
            f"{name}.parquet": pa.Table.from_pandas(frame, preserve_index=False)
            for name, frame in details.items()
        }
        # With checksums a reader can distinguish overwritten numbers from what was measured.
        write_together(directory, tables, write_page_checksum=True)
        sync_folder(directory.parent)


def _make_with_parents(directory: Path) -> None:
    """Create the run directory for its owner only; folders above it as the user's mask says."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.parent.mkdir(parents=True, exist_ok=True)
    make_folder(directory)
    for path in missing:
        sync_folder(path.parent)


def _remove(parts: Sequence[Path]) -> None:
    """Remove what a killed run or a power cut has left half-written; the directory is locked."""
    for path in parts:
        with writing(path):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def _write_rows(folder: Path, names: tuple[str, str], rows: Rows, encoder: Encoder) -> None:
    """Write rows in units and as models train on them, under these two names."""
    decoded = encoder.decode(rows.values, rows.labels)
    write_table(folder / names[0], pa.Table.from_pandas(decoded))
    write_table(folder / names[1], encoded_table(rows, encoder))


def _encoded_place(key: str, summary: RowsSummary | None) -> tuple[str, ...]:
    """Return where the encoded rows of a release are, if they are stored."""
    if summary is None:
        return ("releases", key, encoded.FILE)
    return (private_rows.FOLDER, key, private_rows.ENCODED)


def _read_json(directory: Path, *parts: str) -> dict[str, Any]:
    document = read_object(directory, *parts)
    if document is None:
        raise StoreError(f"{directory.joinpath(*parts)}: cannot be read as a JSON object")
    return document


def _read_text(directory: Path, *parts: str) -> str:
    text = read_text(directory, *parts)
    if text is None:
        raise StoreError(f"{directory.joinpath(*parts)}: is missing")
    return text


@final
@dataclass(frozen=True)
class RunningCell:
    """A cell that is being computed."""

    key: str
    cell: Cell
    phase: str = ""
    """What it does: fit, prove, score with the metric, trials; empty if that is not known."""


@final
class Progress:
    """Keeps `progress.json` in the run directory up to date."""

    def __init__(self, store: RunStore, total: int, cached: int, seconds: float = 0.0) -> None:
        """Begin with a run that started so many seconds ago."""
        self._store = store
        self._path = store.directory / "progress.json"
        self._facts: dict[str, Any] = {
            "total": total,
            "cached": cached,
            "started_at": _now(seconds),
            "pid": os.getpid(),
            "host": platform.node(),
            "ended": None,
        }
        self._since: dict[str, str] = {}
        self._written = 0.0
        self._write([])

    def running(self, cells: Sequence[RunningCell]) -> None:
        """Say which cells are in flight; written every few seconds."""
        self._since = {one.key: self._since.get(one.key) or _now() for one in cells}
        if time.monotonic() - self._written >= _EVERY_SECONDS:
            self._write(cells)

    def end(self, how: str) -> None:
        """Say that the run is over: `finished` or `interrupted`."""
        self._facts["ended"] = how
        self._write([])

    def _write(self, cells: Sequence[RunningCell]) -> None:
        running = [
            {
                "key": one.key,
                "cell": one.cell.describe(),
                "phase": one.phase,
                "since": self._since[one.key],
            }
            for one in cells
        ]
        document = {**self._facts, "running": running}
        self._store.check_there()
        with writing(self._path):
            write_atomically(self._path, json.dumps(document, indent=1).encode())
        self._written = time.monotonic()


def _now(ago: float = 0.0) -> str:
    now = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=ago)
    return now.isoformat(timespec="seconds")
