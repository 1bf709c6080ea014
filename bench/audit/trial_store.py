"""Trials of one audit on disk: a file a batch as it ends, one file of all when it is over.

    <run>/audits/<key>/batches/*.parquet   written under another name and renamed: never half a one
                       trials.parquet      all trials in order, once the audit is over
                       ledger.json         of the first trial
                       audit.json          the row of the results

Nothing is pickled; an interrupted audit reads the batches and goes on.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.audit.trials import Stage, Trial, TrialId
from bench.errors import StoreError

_SCHEMA = pa.schema(
    [
        ("stage", pa.string()),
        ("canary", pa.int32()),
        ("number", pa.int32()),
        ("canaries", pa.int32()),
        ("scores", pa.list_(pa.float64())),
        ("planted", pa.list_(pa.float64())),
        ("features", pa.list_(pa.float32())),
        ("claimed", pa.float64()),
        ("proven", pa.float64()),
        ("ledger", pa.string()),
        ("seconds", pa.float64()),
        ("document", pa.string()),
    ]
)


@final
class TrialStore:
    """Trials of one audit, by their identity."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._batches = folder / "batches"
        self._trials: dict[TrialId, Trial] = {}
        for path in [folder / "trials.parquet", *sorted(self._batches.glob("*.parquet"))]:
            if path.is_file():
                self._trials |= {trial.id: trial for trial in _read(path)}

    def __len__(self) -> int:
        return len(self._trials)

    def missing(self, wanted: Iterable[TrialId]) -> list[TrialId]:
        """Those that have not been run."""
        return [trial for trial in wanted if trial not in self._trials]

    def get(self, wanted: Iterable[TrialId]) -> list[Trial]:
        """These trials, in this order."""
        return [self._trials[trial] for trial in wanted]

    def all(self) -> list[Trial]:
        """Every trial, in order."""
        return [self._trials[trial] for trial in sorted(self._trials)]

    def add(self, trials: Sequence[Trial]) -> None:
        """Keep a batch."""
        self._batches.mkdir(parents=True, exist_ok=True)
        name = hashlib.sha256("".join(trial.id.tag for trial in trials).encode()).hexdigest()[:16]
        write_table(_table(trials), self._batches / f"{name}.parquet")
        self._trials |= {trial.id: trial for trial in trials}

    def finish(self) -> None:
        """One file instead of the batches; the seconds of a trial are no part of its result."""
        table = _table(self.all())
        zeros = pa.array(np.zeros(len(table)))
        table = table.set_column(table.schema.get_field_index("seconds"), "seconds", zeros)
        write_table(table, self.folder / "trials.parquet")
        shutil.rmtree(self._batches, ignore_errors=True)


def write_table(table: pa.Table, path: Path) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        pq.write_table(table, draft)
        draft.replace(path)
    except OSError as problem:
        draft.unlink(missing_ok=True)
        raise StoreError(
            f"{path}: cannot be written ({problem.strerror or problem}); make room and run the "
            "same command again: what has finished is kept"
        ) from None


def write_text(text: str, path: Path) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def _table(trials: Sequence[Trial]) -> pa.Table:
    return pa.Table.from_pydict(
        {
            "stage": [trial.id.stage.value for trial in trials],
            "canary": [trial.id.canary for trial in trials],
            "number": [trial.id.number for trial in trials],
            "canaries": [len(trial.scores) for trial in trials],
            "scores": [trial.scores.reshape(-1) for trial in trials],
            "planted": [trial.planted for trial in trials],
            "features": [trial.features for trial in trials],
            "claimed": [trial.claimed for trial in trials],
            "proven": [trial.proven for trial in trials],
            "ledger": [trial.ledger for trial in trials],
            "seconds": [trial.seconds for trial in trials],
            "document": [trial.document for trial in trials],
        },
        schema=_SCHEMA,
    )


def _read(path: Path) -> list[Trial]:
    try:
        table = pq.read_table(path, schema=_SCHEMA)
    except (OSError, pa.ArrowInvalid) as problem:
        raise StoreError(
            f"{path}: not a table of trials ({problem}); remove it and run the audit again"
        ) from None
    columns = {name: table.column(name) for name in table.column_names}
    plain = {
        name: columns[name].to_pylist()
        for name in ("stage", "canary", "number", "canaries", "claimed", "proven")
    }
    plain |= {name: columns[name].to_pylist() for name in ("ledger", "seconds", "document")}
    # Lists one at a time, each straight from Arrow: a Python float a number would take minutes.
    lists = {
        name: [item.values.to_numpy(zero_copy_only=False) for item in columns[name]]
        for name in ("scores", "planted", "features")
    }
    return [
        Trial(
            TrialId(Stage(plain["stage"][row]), plain["canary"][row], plain["number"][row]),
            lists["scores"][row].reshape(plain["canaries"][row], -1),
            lists["planted"][row],
            lists["features"][row],
            plain["claimed"][row],
            plain["proven"][row],
            plain["ledger"][row],
            plain["seconds"][row],
            plain["document"][row],
        )
        for row in range(len(table))
    ]
