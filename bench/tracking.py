"""Logs cells to MLflow. The only module that knows MLflow.

One parent run a run directory, one nested run a cell, found again by its key: logging is
idempotent, so a resumed run catches up without doubles. If tracking fails the run goes on; the
run directory is the truth.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from bench.cell import Outcome
from bench.core.result import CellRow, ScoreRow, Status
from bench.store import RunStore

if TYPE_CHECKING:
    from mlflow import MlflowClient

_PARAMETERS = (
    "method",
    "label",
    "parameters",
    "dataset",
    "task",
    "ipc",
    "full_size",
    "eps_target",
    "delta",
    "seed",
    "split",
    "split_seed",
    "unit",
    "adjacency",
    "private_counts",
)
_TAGS = (
    "status",
    "reason",
    "verdict",
    "verdict_reason",
    "accountant",
    "claim_source",
    "study_only",
    "warnings",
    "fingerprint",
    "source_hash",
)
_COSTS = ("fit_seconds", "score_seconds", "peak_memory_mb", "rows_released")
_EPSILONS = ("target", "claimed", "proven", "audited")


@final
class Tracker:
    """Mirrors a run directory into MLflow."""

    def __init__(self, store: RunStore, uri: str | None, say: Callable[[str], None]) -> None:
        self._store = store
        self._uri = uri or default_uri(store.directory)
        # Without a server, MLflow would put artifacts below whatever folder we are called from.
        self._local = self._uri.startswith("sqlite:")
        self._say = say
        self._client: MlflowClient | None = None
        self._experiment = ""
        self._parent = ""
        self._known: dict[str, tuple[str, str]] = {}

    def planned(self, total: int, cached: int, notices: Sequence[str]) -> None:
        """Open the store and catch up with cells that an earlier, killed driver did not log."""
        self._guarded(self._start)
        for row, scores in self._store.all():
            self._guarded(self._log, row, scores)

    def finished(self, outcome: Outcome, store: RunStore) -> None:
        """Log one cell."""
        self._guarded(self._log, outcome.row, outcome.scores)

    def close(self, failed: int) -> None:
        """End the parent run."""
        self._guarded(self._end, failed)

    def _guarded(self, action: Callable[..., None], *arguments: Any) -> None:
        if self._client is None and action != self._start:
            return
        try:
            action(*arguments)
        except Exception as problem:
            # Whatever a tracking server does, results are safe in the run directory.
            self._client = None
            first = str(problem).splitlines()[0] if str(problem) else repr(problem)
            self._say(f"MLflow logging stopped ({first}); results are kept in the run directory")

    def _start(self) -> None:
        client = _client(self._uri)
        manifest = json.loads((self._store.directory / "run.json").read_text(encoding="utf-8"))
        name = f"bench {manifest.get('grid', '')}".strip()
        experiment = client.get_experiment_by_name(name)
        if experiment is not None:
            self._experiment = experiment.experiment_id
        elif self._local:
            root = (self._store.directory / "mlartifacts").resolve().as_uri()
            self._experiment = client.create_experiment(name, artifact_location=root)
        else:
            self._experiment = client.create_experiment(name)
        self._parent = self._find_parent(client, manifest)
        self._known = {
            run.data.tags["bench.key"]: (run.info.run_id, run.data.tags["bench.finished_at"])
            for run in _search(client, self._experiment, f"tags.`bench.parent` = '{self._parent}'")
        }
        self._client = client

    def _find_parent(self, client: MlflowClient, manifest: Mapping[str, Any]) -> str:
        directory = str(self._store.directory.resolve())
        query = f"tags.`bench.directory` = '{directory}'"
        for run in _search(client, self._experiment, query):
            client.update_run(run.info.run_id, status="RUNNING")
            return str(run.info.run_id)
        description = (
            f"Grid {manifest.get('grid')}: {len(manifest.get('datasets', []))} datasets, "
            f"{len(manifest.get('methods', []))} methods. One nested run a cell."
        )
        run = client.create_run(
            self._experiment,
            run_name=f"{manifest.get('grid')} {manifest.get('started_at', '')}",
            tags={"bench.directory": directory, "mlflow.note.content": description},
        )
        return str(run.info.run_id)

    def _log(self, row: CellRow, scores: tuple[ScoreRow, ...]) -> None:
        from mlflow.entities import Metric, Param, RunTag

        client = self._client
        if client is None:
            return
        earlier = self._known.get(row.key)
        if earlier is not None and earlier[1] == row.finished_at:
            return
        finished = datetime.datetime.fromisoformat(row.finished_at)
        end = int(finished.timestamp() * 1000)
        seconds = (row.fit_seconds or 0.0) + (row.score_seconds or 0.0)
        run = client.create_run(
            self._experiment,
            start_time=end - int(seconds * 1000),
            run_name=_run_name(row),
            tags={"mlflow.parentRunId": self._parent},
        )
        run_id = run.info.run_id
        values = {**_epsilons(row), **_costs(row), **_metrics(scores)}
        client.log_batch(
            run_id,
            metrics=[Metric(name, value, end, 0) for name, value in values.items()],
            params=[Param(name, str(getattr(row, name))) for name in _PARAMETERS],
            tags=[RunTag(name, str(getattr(row, name))[:5000]) for name in _TAGS]
            + [RunTag("eps_proven", "" if row.eps_proven is None else f"{row.eps_proven:.6g}")],
        )
        release = self._store.release_directory(row.key)
        if release.is_dir():
            client.log_artifacts(run_id, str(release), "release")
        ended = {Status.OK.value: "FINISHED", Status.SKIPPED.value: "FINISHED"}
        # The key goes in last: a run that was cut off before this line is not taken for whole.
        client.log_batch(
            run_id,
            tags=[
                RunTag("bench.key", row.key),
                RunTag("bench.finished_at", row.finished_at),
                RunTag("bench.parent", self._parent),
            ],
        )
        client.set_terminated(run_id, ended.get(row.status, "FAILED"), end)
        if earlier is not None:
            client.delete_run(earlier[0])
        self._known[row.key] = (run_id, row.finished_at)

    def _end(self, failed: int) -> None:
        if self._client is not None:
            self._client.set_terminated(self._parent, "FAILED" if failed else "FINISHED")


def default_uri(directory: Path) -> str:
    """The sqlite store inside a run directory."""
    return f"sqlite:///{(directory / 'mlflow.db').resolve()}"


def ui_command(directory: Path, port: int) -> tuple[list[str], dict[str, str]]:
    """Command and environment that show a run directory in the MLflow interface, on loopback."""
    command = [sys.executable, "-m", "mlflow", "ui"]
    command += ["--backend-store-uri", default_uri(directory)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    return command, {**os.environ, **quiet}


def _client(uri: str) -> MlflowClient:
    # Telemetry would leave the machine; a server that is down must not hold the run for minutes.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    import logging

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mlflow import MlflowClient

    # After the import, which sets levels of its own: creating the tables is not news to a user.
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return MlflowClient(tracking_uri=uri)


def _search(client: MlflowClient, experiment: str, query: str) -> list[Any]:
    found: list[Any] = []
    token = None
    while True:
        page = client.search_runs([experiment], query, max_results=1000, page_token=token)
        found += page
        token = page.token
        if not token:
            return found


def _run_name(row: CellRow) -> str:
    size = "full" if row.full_size else ("" if row.ipc is None else f"ipc {row.ipc}")
    spend = "" if row.eps_target is None else f"eps {row.eps_target:g}"
    return " ".join(filter(None, (row.label, row.dataset, size, spend, f"seed {row.seed}")))


def _epsilons(row: CellRow) -> dict[str, float]:
    """The finite ones: an infinite epsilon is a tag, since MLflow would store a huge number."""
    values = {f"epsilon/{name}": getattr(row, f"eps_{name}") for name in _EPSILONS}
    return {name: v for name, v in values.items() if v is not None and math.isfinite(v)}


def _costs(row: CellRow) -> dict[str, float]:
    values = {f"cost/{name}": getattr(row, name) for name in _COSTS}
    return {name: float(value) for name, value in values.items() if value is not None}


def _metrics(scores: tuple[ScoreRow, ...]) -> dict[str, float]:
    values: dict[str, float] = {}
    for score in scores:
        base = f"{score.family}/{score.metric}"
        for suffix, value in (("", score.value), ("/low", score.low), ("/high", score.high)):
            if value is not None and math.isfinite(value):
                values[base + suffix] = value
    return values
