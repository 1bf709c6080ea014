"""Logs cells to MLflow. No other module imports MLflow.

A run directory has one parent run and one nested run per cell, identified by the cell's key:
logging is idempotent, so a resumed run logs only what is missing. A separate thread logs, fed with
keys only, so that a slow server does not delay the cells. Into the database of the run directory it
logs all cells that wait in one transaction (`own_database`), elsewhere by MLflow's interface. If
tracking fails the run continues; the run directory is authoritative, and `bench sync` logs later
what is missing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import itertools
import os
import queue
import re
import shlex
import sqlite3
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, final
from urllib.parse import unquote, urlparse

from bench.errors import StoreError
from bench.leaderboard.dossier.cell import cell_report
from bench.leaderboard.tables.details import CellFiles
from bench.plugins.description import Descriptions, Identity
from bench.results import private_rows
from bench.results.opening import link_or_copy, open_file, read_text
from bench.results.reading import read_descriptions
from bench.results.records import CellRow, Outcome, Status
from bench.results.run_directory import RunningCell, RunStore
from bench.results.writing import (
    OWNER_FOLDER,
    OWNER_ONLY,
    make_folder,
    replacing,
    write_atomically,
)
from bench.tracking.fields import (
    VIEW,
    defaults_of,
    markdown,
    metrics_of,
    parameters_of,
    run_name,
    tags_of,
    valid_name,
    view,
)
from bench.tracking.own_database import NewRun, OwnDatabase

if TYPE_CHECKING:
    from mlflow import MlflowClient

_ENDED = {Status.OK.value: "FINISHED", Status.SKIPPED.value: "FINISHED"}

_IDENTITY = "tracking.id"
_LEDGER = "ledger.json"
_ABOUT = "release.json"
_ROWS = ("synthetic.parquet", "encoded.parquet")
_CHARTS = "charts"
"""Folder of artifacts with pictures."""

_PARAMETERS_AT_ONCE = 100
_METRICS_AT_ONCE = 800
"""MLflow accepts 100 parameters and 1000 items of all kinds in one call."""

_END_SECONDS = 60.0
"""A server delays the end of a run by so much, and no more."""
_STALL_SECONDS = 120.0
"""Logging that waits for its store for so long without a single cell is given up."""
_LOOK_SECONDS = 0.2
_AT_ONCE = 50
"""Cells that are logged in one transaction, and are in memory together."""
_GATHER_SECONDS = 1.0
"""Time for others to end after a cell, to be logged with it."""


@final
class Tracker:
    """Mirrors a run directory into MLflow."""

    def __init__(
        self,
        store: RunStore,
        uri: str | None,
        say: Callable[[str], None],
        checked: Mapping[str, CellRow] | None = None,
        figures: Callable[[], Iterable[tuple[str, bytes]]] | None = None,
    ) -> None:
        """Log a run directory; `checked` has rows, by key, that are logged instead of its own.

        `figures` returns name and content of the charts over all results, which the parent run gets
        at the end.
        """
        self._store = store
        self._checked = checked or {}
        self._figures = figures
        self._uri = uri or default_uri(store.directory)
        # Without a server, MLflow would put artifacts into the current folder.
        self._local = self._uri.startswith("sqlite:")
        self._say = say
        self._client: MlflowClient | None = None
        self._broken = False
        self._breaking = threading.Lock()
        self._failed = 0
        self._progress = time.monotonic()
        self._drawing = False
        """True once all cells are logged: charts over many cells take their time."""
        self._experiment = ""
        self._parent = ""
        self._manifest: Mapping[str, Any] = {}
        self._defaults: Mapping[str, Mapping[str, object]] = {}
        """Hyperparameters of the methods of the run, with their defaults."""
        self._open: frozenset[Identity] = frozenset()
        """Datasets that anybody may have."""
        self._known: dict[str, tuple[str, str]] = {}
        self._database: OwnDatabase | None = None
        """The database of the run directory; None for any other store."""
        # None ends the thread. The queue holds keys only: a slow server does not fill the memory.
        self._keys: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        # A daemon: a driver that fails must not wait for a server before it can report that.
        self._thread = threading.Thread(target=self._work, name="tracking", daemon=True)

    def planned(self, total: int, cached: int, notices: Sequence[str]) -> None:
        """Start to log, first what an earlier, killed driver did not log."""
        # Not in the thread: simultaneous imports in two threads can deadlock, and the run is about
        # to import Ray.
        self._guarded(_import_quietly)
        self._thread.start()

    def finished(self, outcome: Outcome, store: RunStore) -> None:
        """Queue one cell for logging."""
        if not self._broken:
            self._keys.put(outcome.row.key)

    def running(self, cells: Sequence[RunningCell]) -> None:
        """Leave cells alone that have not ended."""

    def close(self, failed: int, *, patient: bool = False) -> None:
        """Log the queued cells, and end the parent run.

        A server gets a minute for all of it; a `patient` caller, or a database on this disk, as
        long as cells are being logged. Timeouts of requests do not bound that: a server that sends
        a byte now and then never exceeds them.
        """
        if not self._thread.is_alive():
            return
        self._failed = failed
        self._keys.put(None)
        closed = time.monotonic()
        bounded = not (patient or self._local)
        while self._thread.is_alive() and not self._broken:
            self._thread.join(_LOOK_SECONDS)
            now = time.monotonic()
            if bounded and now - closed > _END_SECONDS:
                self._give_up(f"not done {_END_SECONDS:g} s after the end of the run")
            elif not self._drawing and now - max(closed, self._progress) > _STALL_SECONDS:
                self._give_up(f"nothing was logged for {_STALL_SECONDS:g} s")

    def _work(self) -> None:
        self._guarded(self._start)
        for keys in self._batches():
            self._guarded(self._log_keys, keys)
        self._guarded(self._end)
        self._guarded(self._draw)
        if self._database is not None:
            self._database.close()

    def _batches(self) -> Iterator[Sequence[str]]:
        """Return the keys of all cells, as many at once as are waiting; first the stored ones."""
        stored = iter(self._store.finished)
        while keys := list(itertools.islice(stored, _AT_ONCE)):
            yield keys
        while (key := self._keys.get()) is not None:
            keys, until = [key], time.monotonic() + _GATHER_SECONDS
            while len(keys) < _AT_ONCE:
                try:
                    key = self._keys.get(timeout=max(0.0, until - time.monotonic()))
                except queue.Empty:
                    break
                if key is None:
                    yield keys
                    return
                keys.append(key)
            yield keys

    def _guarded(self, action: Callable[..., None], *arguments: Any) -> None:
        if self._broken:
            return
        try:
            action(*arguments)
        except Exception as problem:
            # Results are safe in the run directory, whatever a tracking server does.
            self._give_up(next(iter(str(problem).splitlines()), "") or repr(problem))
        self._progress = time.monotonic()

    def _give_up(self, reason: str) -> None:
        """Stop logging, and say once what to do."""
        with self._breaking:
            if self._broken:
                return
            self._broken = True
        sync = ["bench", "sync", str(self._store.directory)]
        if self._uri != default_uri(self._store.directory):
            sync += ["--mlflow-uri", _without_password(self._uri)]
        self._say(
            f"MLflow logging stopped ({_without_password(reason)[:300]}); results are kept in "
            f"the run directory; to log them later: `{shlex.join(sync)}`"
        )

    # The parent run -------------------------------------------------------------------------------

    def _start(self) -> None:
        client = _client(self._uri, unsynced=self._uri == default_uri(self._store.directory))
        self._manifest = self._read_manifest()
        described = self._read_descriptions()
        self._defaults = defaults_of(described)
        datasets = () if described is None else described.datasets
        self._open = frozenset(dataset.identity for dataset in datasets if dataset.open)
        name = f"bench {self._manifest.get('grid', '')}".strip()
        experiment = client.get_experiment_by_name(name)
        if experiment is not None:
            self._experiment = experiment.experiment_id
        else:
            root = (self._store.directory / "mlartifacts").resolve().as_uri()
            self._experiment = client.create_experiment(
                name,
                artifact_location=root if self._local else None,
                # Otherwise the interface asks for the kind of experiment.
                tags={"mlflow.experimentKind": "custom_model_development", **view()},
            )
        self._parent = self._find_parent(client)
        for run in _search(
            client, self._experiment, f"tags.`mlflow.parentRunId` = '{self._parent}'"
        ):
            self._progress = time.monotonic()
            tags = run.data.tags
            if "bench.key" in tags:
                self._known[tags["bench.key"]] = (run.info.run_id, tags["bench.finished_at"])
            else:
                # Incomplete, since an earlier driver was killed: its cell is logged again.
                client.delete_run(run.info.run_id)
        self._client = client
        self._database = self._own_database()

    def _own_database(self) -> OwnDatabase | None:
        if self._uri != default_uri(self._store.directory):
            return None
        database = OwnDatabase(self._store.directory / "mlflow.db", self._experiment)
        if database.known:
            return database
        database.close()
        return None

    def _read_manifest(self) -> Mapping[str, Any]:
        return self._store.manifest()

    def _read_descriptions(self) -> Descriptions | None:
        try:
            return read_descriptions(self._store.directory)
        except StoreError as problem:
            # The next `bench run` writes it again; the hyperparameters of the grid are known.
            self._say(f"MLflow: defaults of hyperparameters are not logged: {problem}")
            return None

    def _find_parent(self, client: MlflowClient) -> str:
        identity = _identity(self._store.directory)
        for run in _search(client, self._experiment, f"tags.`bench.run` = '{identity}'"):
            client.update_run(run.info.run_id, status="RUNNING")
            return str(run.info.run_id)
        started = str(self._manifest.get("started_at", ""))
        run = client.create_run(
            self._experiment,
            start_time=_milliseconds(started) if started else None,
            run_name=f"{self._manifest.get('grid')} {started}",
            tags={
                "bench.run": identity,
                "bench.directory": str(self._store.directory.resolve()),
                "mlflow.note.content": self._description("The run is active."),
                **_source(),
            },
        )
        return str(run.info.run_id)

    def _end(self) -> None:
        client = self._client
        if client is None:
            return
        numbers = Counter(self._store.journal.statuses.values())
        counts = ", ".join(f"{numbers[s.value]} {s.value}" for s in Status if numbers[s.value])
        text = self._description(f"Cells in the run directory: {counts or 'none'}.")
        client.set_tag(self._parent, "mlflow.note.content", text)
        # The true duration, also where the run is logged on another day.
        facts, end = self._read_manifest(), None
        if "started_at" in facts and "wall_seconds" in facts:
            end = _milliseconds(facts["started_at"]) + int(1000 * facts["wall_seconds"])
        client.set_terminated(self._parent, "FAILED" if self._failed else "FINISHED", end)

    def _draw(self) -> None:
        """Attach the charts over all results to the parent run."""
        client = self._client
        if client is None or self._figures is None or not self._store.journal.statuses:
            return
        self._drawing = True
        files = {f"{_CHARTS}/{name}": content for name, content in self._figures()}
        uri = client.get_run(self._parent).info.artifact_uri
        self._put(client, self._parent, uri, files)

    def _description(self, state: str) -> str:
        facts, directory = self._manifest, self._store.directory.resolve()
        axes = "\n".join(
            f"| {markdown(axis)} | {markdown(_listed(facts[axis]))} |"
            for axis in ("datasets", "methods", "ipc", "epsilon", "delta", "seeds", "split")
            if axis in facts
        )
        return (
            f"Grid **{markdown(facts.get('grid', ''))}** of dp-release-bench: one nested run per "
            f"cell. {state}\n\n| axis | values |\n|---|---|\n{axes}\n\n"
            f"Run directory on {markdown(facts.get('host', 'the driver'))}: `{directory}`. "
            "`cells.parquet` has one row per cell, `scores.parquet` one per score, `releases/` the "
            f"synthetic rows. `bench status {directory}` shows the state of the run, `bench "
            f"leaderboard {directory} -o site` writes its leaderboard; its charts are artifacts "
            f"of this run, in `{_CHARTS}/`.\n\n"
            "Columns to compare: `utility`, `eps_proven` and the other metrics without a prefix; "
            "all scores are in `utility/...`, `fidelity/...`, `privacy/...`, `cost/...`. Tags "
            "`verdict` and `status`; hyperparameters `parameter/...`. An infinite epsilon is a "
            "tag, not a metric."
        )

    # A cell ---------------------------------------------------------------------------------------

    def _log_keys(self, keys: Sequence[str]) -> None:
        outcomes = [found for key in dict.fromkeys(keys) if (found := self._unlogged(key))]
        if self._database is not None:
            self._log_at_once(self._database, outcomes)
            return
        for outcome in outcomes:
            self._log(outcome)
            self._progress = time.monotonic()

    def _unlogged(self, key: str) -> Outcome | None:
        """Return what a cell gave; None where it is logged already."""
        try:
            outcome = self._store.journal.outcome(key)
        except KeyError:
            return None  # it is being recorded again: its key will be queued again
        row = self._checked.get(key, outcome.row)
        earlier = self._known.get(key)
        done = earlier is not None and earlier[1] == row.finished_at
        return None if done else dataclasses.replace(outcome, row=row)

    def _log_at_once(self, database: OwnDatabase, outcomes: Sequence[Outcome]) -> None:
        """Log cells in one transaction: an interrupted one leaves no run behind."""
        client, root = self._client, database.artifact_root()
        assert client is not None
        runs = []
        for outcome in outcomes:
            run_id = uuid.uuid4().hex
            place = f"{root.rstrip('/')}/{run_id}/artifacts"
            self._attach(client, run_id, place, outcome)
            logged = _Logged.of(outcome, self._defaults)
            runs.append(
                NewRun(
                    run_id=run_id,
                    name=logged.name,
                    status=logged.status,
                    start=logged.start,
                    end=logged.end,
                    artifacts=place,
                    tags={**self._tags(outcome.row), **_complete(outcome.row)},
                    parameters=logged.parameters,
                    metrics=logged.metrics,
                )
            )
        database.add(runs)
        for outcome, run in zip(outcomes, runs, strict=True):
            self._replaced(client, outcome.row, run.run_id)

    def _log(self, outcome: Outcome) -> None:
        """Log a cell by MLflow's interface."""
        from mlflow.entities import Metric, Param, RunTag

        row, client = outcome.row, self._client
        assert client is not None
        logged = _Logged.of(outcome, self._defaults)
        run = client.create_run(
            self._experiment,
            start_time=logged.start,
            run_name=logged.name,
            tags=self._tags(row),
        )
        run_id = run.info.run_id
        self._attach(client, run_id, run.info.artifact_uri, outcome)
        metrics = [Metric(name, value, logged.end, 0) for name, value in logged.metrics.items()]
        params = [Param(name, value) for name, value in logged.parameters.items()]
        while len(metrics) > _METRICS_AT_ONCE or len(params) > _PARAMETERS_AT_ONCE:
            client.log_batch(run_id, metrics[:_METRICS_AT_ONCE], params[:_PARAMETERS_AT_ONCE])
            metrics, params = metrics[_METRICS_AT_ONCE:], params[_PARAMETERS_AT_ONCE:]
        # MLflow writes the tags of a batch last (SqlAlchemyStore.log_batch): an interrupted run has
        # no key and is not taken for complete.
        complete = [RunTag(name, value) for name, value in _complete(row).items()]
        client.log_batch(run_id, metrics, params, complete)
        client.set_terminated(run_id, logged.status, logged.end)
        self._replaced(client, row, run_id)

    def _tags(self, row: CellRow) -> dict[str, str]:
        return {"mlflow.parentRunId": self._parent, **tags_of(row), **_source()}

    def _replaced(self, client: MlflowClient, row: CellRow, run_id: str) -> None:
        """Take note of the run of a cell, and remove that of its earlier result."""
        earlier = self._known.get(row.key)
        if earlier is not None:
            client.delete_run(earlier[0])
        self._known[row.key] = (run_id, row.finished_at)

    def _attach(self, client: MlflowClient, run_id: str, uri: str, outcome: Outcome) -> None:
        """Attach the page of the cell and its release; the rows only to a store on this disk.

        A server has other readers than the run directory. Where no epsilon is proven, neither rows
        nor what the method notes about them are copied anywhere.
        """
        row, key = outcome.row, outcome.row.key
        proven = private_rows.may_travel(row)
        about = (_LEDGER, _ABOUT) if proven else (_LEDGER,)
        files = {"report.html": cell_report(row, outcome.scores, outcome.audit, outcome.timings)}
        content = {name: text.encode() for name, text in files.items()} | self._chart(row)
        self._put(client, run_id, uri, content, key, about, _ROWS if self._local and proven else ())

    def _chart(self, row: CellRow) -> dict[str, bytes]:
        """Return the chart of a cell.

        It is computed from real rows: on a server, which has other readers, only where anybody may
        have them.
        """
        opened = (row.dataset_name or row.dataset, row.dataset_parameters) in self._open
        if row.status != Status.OK.value or not (self._local or opened):
            return {}
        if not (self._store.directory / "details" / row.key).is_dir():
            return {}
        # Charts need libraries that a driver without details does without.
        from bench.leaderboard.charts.gallery import cell_file

        drawn = cell_file(CellFiles(self._store.directory, row.key), row.task)
        self._progress = time.monotonic()
        return {} if drawn is None else {f"{_CHARTS}/{drawn[0]}": drawn[1]}

    def _put(
        self,
        client: MlflowClient,
        run_id: str,
        uri: str,
        content: Mapping[str, bytes],
        key: str = "",
        names: Sequence[str] = (),
        rows: Sequence[str] = (),
    ) -> None:
        """Store artifacts of a run: new files, and files of the release of a cell.

        Released `rows` go to a store on this disk only.
        """
        place = urlparse(uri)
        if place.scheme in ("", "file"):
            # On this disk the release is linked, not copied, and no call is needed.
            folder = Path(unquote(place.path))
            self._check_place(folder)
            self._make_folders(folder)
            self._fill(folder, content, key, (*names, *rows))
            return
        with tempfile.TemporaryDirectory(prefix="bench-tracking-") as scratch:
            self._fill(Path(scratch), content, key, names)
            client.log_artifacts(run_id, scratch)

    def _make_folders(self, folder: Path) -> None:
        """Create a folder of artifacts; inside the run directory for its owner only."""
        inside = folder.is_relative_to(self._store.directory.resolve())
        for place in reversed([folder, *folder.parents]):
            if not place.exists():
                place.mkdir(mode=OWNER_FOLDER if inside else 0o777, exist_ok=True)

    def _check_place(self, folder: Path) -> None:
        """Refuse a database of the run directory that would have files written elsewhere.

        Its experiments say where; the database may be a stranger's, or was moved with its run.
        """
        root = (self._store.directory / "mlartifacts").resolve()
        own = self._uri == default_uri(self._store.directory)
        if own and not folder.resolve().is_relative_to(root):
            raise StoreError(
                "mlflow.db would keep files outside of this run directory: it comes from elsewhere "
                "or was moved; remove mlflow.db and mlartifacts, and log again"
            )

    def _fill(
        self, folder: Path, content: Mapping[str, bytes], key: str, names: Sequence[str]
    ) -> None:
        """Put files, and those of a release, into a folder; no link is followed.

        On this disk files of a release are linked, not copied: they are never written to again.
        """
        for name, data in content.items():
            if "/" in name:
                make_folder((folder / name).parent)
            # They can be written again: syncing them takes as long as all the rest.
            with replacing(folder / name, synced=False) as file:
                file.write(data)
        for name in names:
            stored = open_file(self._store.directory, "releases", key, name)
            if stored is not None:
                with stored:
                    make_folder(folder / "release")
                    link_or_copy(stored, folder / "release" / name)


@final
@dataclasses.dataclass(frozen=True)
class _Logged:
    """What is logged of a cell, by whichever way."""

    name: str
    status: str
    start: int
    end: int
    parameters: Mapping[str, str]
    metrics: Mapping[str, float]

    @classmethod
    def of(cls, outcome: Outcome, defaults: Mapping[str, Mapping[str, object]]) -> _Logged:
        row, end = outcome.row, _milliseconds(outcome.row.finished_at)
        seconds = (row.fit_seconds or 0.0) + (row.score_seconds or 0.0)
        values = metrics_of(row, outcome.scores, outcome.audit, outcome.timings)
        return cls(
            name=run_name(row),
            status=_ENDED.get(row.status, "FAILED"),
            start=end - int(seconds * 1000),
            end=end,
            # Two names may become one.
            parameters={
                valid_name(name): value for name, value in parameters_of(row, defaults).items()
            },
            metrics={valid_name(name): value for name, value in values.items()},
        )


def _complete(row: CellRow) -> dict[str, str]:
    """Return the tags that say that all of a cell is logged."""
    return {"bench.finished_at": row.finished_at, "bench.key": row.key}


def default_uri(directory: Path) -> str:
    """Return the URI of the sqlite store inside a run directory."""
    return f"sqlite:///{(directory / 'mlflow.db').resolve()}"


def ui_command(directory: Path, port: int) -> tuple[list[str], dict[str, str]]:
    """Return command and environment that show a run directory in the MLflow interface."""
    command = [sys.executable, "-m", "mlflow", "ui"]
    command += ["--backend-store-uri", default_uri(directory)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    return command, {**os.environ, **quiet}


def ui_address(directory: Path, port: int) -> str:
    """Return the address of the table of all cells of a run directory."""
    file = open_file(directory, "mlflow.db")
    if file is None:
        raise StoreError(
            f"{directory} holds no mlflow.db; run a grid into it first (without --no-mlflow)"
        )
    file.close()
    # Read without MLflow, whose import takes seconds.
    try:
        with contextlib.closing(sqlite3.connect(directory / "mlflow.db")) as database:
            newest = database.execute(
                "SELECT experiment_id FROM experiments WHERE name LIKE 'bench%' "
                "ORDER BY last_update_time DESC LIMIT 1"
            ).fetchone()
    except sqlite3.Error as problem:
        raise StoreError(f"{directory / 'mlflow.db'}: not MLflow's database ({problem})") from None
    page = f"/#/experiments/{newest[0]}/runs?workflowType=machine_learning" if newest else ""
    return f"http://127.0.0.1:{port}{page}{f'&viewStateShareKey={VIEW}' if newest else ''}"


# MLflow -------------------------------------------------------------------------------------------


def _import_quietly() -> None:
    # Telemetry would leave the machine; a server that is down must not delay the end of a run.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    import logging
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mlflow
        import mlflow.store.tracking.sqlalchemy_store  # noqa: F401 (else imported by the thread)

    # After the import, which sets levels too: creating the tables is of no interest to a user.
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)


def _client(uri: str, unsynced: bool = False) -> MlflowClient:
    from mlflow import MlflowClient
    from sqlalchemy import Engine, event

    if unsynced and not event.contains(Engine, "connect", _turn_sync_off):
        # Five syncs per cell would take as long as all the rest. After a power failure `bench sync`
        # restores the database from the journal, which is synced.
        event.listen(Engine, "connect", _turn_sync_off)
    path = Path(unquote(uri.removeprefix("sqlite:///").split("?")[0]))
    if uri.startswith("sqlite:///") and not path.exists():
        _create_database(path)
    return MlflowClient(tracking_uri=uri)


def _create_database(path: Path) -> None:
    """Create a sqlite database atomically: of two processes that create one, one would crash."""
    from mlflow import MlflowClient

    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        MlflowClient(tracking_uri=f"sqlite:///{new.resolve()}").search_experiments(max_results=1)
        new.chmod(OWNER_ONLY)
        with new.open("rb") as file:
            os.fsync(file.fileno())
        # If another process was first, its database is complete.
        with contextlib.suppress(FileExistsError):
            os.link(new, path)
    finally:
        new.unlink(missing_ok=True)


def _turn_sync_off(connection: Any, _: Any) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


def _search(client: MlflowClient, experiment: str, query: str) -> Iterator[Any]:
    token = None
    while True:
        page = client.search_runs([experiment], query, max_results=1000, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _identity(directory: Path) -> str:
    """Return the identity of a run directory on a server that many machines log to."""
    text = read_text(directory, _IDENTITY)
    if text is None:
        text = uuid.uuid4().hex
        write_atomically(directory / _IDENTITY, text.encode())
    identity = text.strip()
    if re.fullmatch("[0-9a-f]{32}", identity) is None:
        # It becomes a part of a query.
        raise StoreError(f"{_IDENTITY} is not one that bench wrote; remove it, and log again")
    return identity


def _source() -> dict[str, str]:
    return {"mlflow.source.name": "bench", "mlflow.source.type": "LOCAL"}


def _milliseconds(moment: str) -> int:
    return int(datetime.datetime.fromisoformat(moment).timestamp() * 1000)


def _listed(value: object) -> str:
    items = value if isinstance(value, list) else [value]
    return ", ".join("full" if item is None else str(item) for item in items)


def _without_password(text: str) -> str:
    return re.sub(r"(?<=://)[^/@\s]+(?=@)", "***", text)
