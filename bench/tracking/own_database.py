"""Adds runs to the MLflow database of a run directory, many cells in one transaction.

MLflow's own interface takes several transactions and hundreds of statements for one run: some
50 ms of processor time for a cell with a hundred scores, most of it to find out that a new run has
no earlier values. The database of a run directory has one writer, which adds new runs only; the
rows are inserted as `SqlAlchemyStore` would leave them. Its tables must have the columns that are
known here; a database of another version of MLflow is left to MLflow's interface.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

_WAIT_SECONDS = 30.0
"""Time for a reader, such as MLflow's interface in a browser, to let go of the database."""

_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "runs": (
        *("run_uuid", "name", "source_type", "source_name", "entry_point_name", "user_id"),
        *("status", "start_time", "end_time", "source_version", "lifecycle_stage"),
        *("artifact_uri", "experiment_id", "deleted_time"),
    ),
    "params": ("key", "value", "run_uuid"),
    "metrics": ("key", "value", "timestamp", "run_uuid", "step", "is_nan"),
    "latest_metrics": ("key", "value", "timestamp", "step", "is_nan", "run_uuid"),
    "tags": ("key", "value", "run_uuid"),
}

_LONGEST_PARAMETER = 6000
"""MLflow cuts longer ones."""


@final
@dataclass(frozen=True)
class NewRun:
    """A run that has ended, with all that is logged of it."""

    run_id: str
    name: str
    status: str
    start: int
    end: int
    """Both in milliseconds."""
    artifacts: str
    """URI of the folder of its artifacts."""
    tags: Mapping[str, str]
    parameters: Mapping[str, str]
    metrics: Mapping[str, float]


@final
class OwnDatabase:
    """The database of a run directory, opened by its one writer."""

    def __init__(self, path: Path, experiment: str) -> None:
        """Open the database; `experiment` is the id of the one that runs are added to."""
        self._experiment = int(experiment)
        self._connection = sqlite3.connect(path, timeout=_WAIT_SECONDS, check_same_thread=False)
        # Restored from the journal after a power failure, as all of the database.
        self._connection.execute("PRAGMA synchronous = OFF")

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    @property
    def known(self) -> bool:
        """True where the tables are those that are known here."""
        return all(self._fits(table, names) for table, names in _COLUMNS.items())

    def _fits(self, table: str, names: tuple[str, ...]) -> bool:
        found = self._connection.execute(f"PRAGMA table_info({table})").fetchall()
        columns = {name for _, name, *_ in found}
        needed = {name for _, name, _, not_null, default, _ in found if not_null and not default}
        return set(names) <= columns and needed <= set(names)

    def artifact_root(self) -> str:
        """Return the URI of the folder for artifacts of the experiment."""
        query = "SELECT artifact_location FROM experiments WHERE experiment_id = ?"
        (location,) = self._connection.execute(query, (self._experiment,)).fetchone()
        return str(location)

    def add(self, runs: Iterable[NewRun]) -> None:
        """Add runs, all of them or none."""
        rows: dict[str, list[tuple[object, ...]]] = {table: [] for table in _COLUMNS}
        for run in runs:
            self._fill(rows, run)
        with contextlib.closing(self._connection.cursor()) as cursor, self._connection:
            for table, names in _COLUMNS.items():
                places = ", ".join("?" * len(names))
                listed = ", ".join(f'"{name}"' for name in names)
                cursor.executemany(f"INSERT INTO {table} ({listed}) VALUES ({places})", rows[table])

    def _fill(self, rows: Mapping[str, list[tuple[object, ...]]], run: NewRun) -> None:
        key = run.run_id
        rows["runs"].append(
            (
                *(key, run.name, "UNKNOWN", "", "", "unknown"),
                *(run.status, run.start, run.end, "", "active"),
                *(run.artifacts, self._experiment, None),
            )
        )
        tags = {**run.tags, "mlflow.runName": run.name}
        rows["tags"] += [(name, value, key) for name, value in tags.items()]
        rows["params"] += [
            (name, value[:_LONGEST_PARAMETER], key) for name, value in run.parameters.items()
        ]
        for name, number in run.metrics.items():
            rows["metrics"].append((name, number, run.end, key, 0, False))
            rows["latest_metrics"].append((name, number, run.end, 0, False, key))
