"""Runs that are logged to MLflow, without computing anything."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.engine.cell import blank_row
from bench.results.records import Cell, Outcome, ScoreRow, Variant
from bench.results.run_directory import RunStore
from bench.tracking import tracker as tracking
from bench.tracking.tracker import Tracker

CELL = Cell(
    method=Variant("ldpdc", "ldpdc(clip=1.0)", (("clip", 1.0),)),
    dataset=Variant("gbsg2", "gbsg2"),
    ipc=50,
    full_size=False,
    epsilon=1.0,
    delta=1e-5,
    seed=3,
    split="default",
    split_seed=0,
)


def outcome(key: str, finished_at: str = "2026-01-02T03:04:05+00:00", **changes: object) -> Outcome:
    row = dataclasses.replace(
        blank_row(CELL, key, None),
        status="ok",
        verdict="sound",
        verdict_reason="epsilon 0.9 *at* most",
        eps_proven=0.9,
        fit_seconds=2.0,
        finished_at=finished_at,
    )
    score = ScoreRow(key, "auroc", 0.8, 0.7, 0.9, "higher", "utility", "")
    absent = ScoreRow(key, "ks", None, None, None, "lower", "fidelity", "no rows")
    return Outcome(dataclasses.replace(row, **changes), (score, absent))  # type: ignore[arg-type]


@contextlib.contextmanager
def opened(directory: Path) -> Iterator[RunStore]:
    with RunStore(directory) as store:
        store.write_manifest({"grid": "small", "datasets": ["gbsg2"], "methods": ["ldpdc"]})
        yield store


@contextlib.contextmanager
def tracked(directory: Path, uri: str | None = None) -> Iterator[tuple[RunStore, Tracker, Any]]:
    """A run: cells that are recorded inside are logged when it ends."""
    said: list[str] = []
    with opened(directory) as store:
        tracker = Tracker(store, uri, said.append)
        tracker.planned(0, 0, ())
        yield store, tracker, said
    tracker.close(0)


def keep(store: RunStore, tracker: Tracker, *outcomes: Outcome) -> None:
    for item in outcomes:
        store.record(item, None)
        tracker.finished(item, store)


def client(uri: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri)


def runs(uri: str) -> list[Any]:
    found = client(uri)
    return list(found.search_runs([e.experiment_id for e in found.search_experiments()]))


def cells(uri: str) -> dict[str, Any]:
    """Logged cells by key; fails on doubles and on runs without a key."""
    found = [run for run in runs(uri) if "mlflow.parentRunId" in run.data.tags]
    by_key = {run.data.tags["bench.key"]: run for run in found}
    assert len(by_key) == len(found)
    return by_key


def new_database(folder: Path) -> Path:
    """An empty database: making one takes seconds, copying it nothing."""
    path = folder / "mlflow.db"
    tracking._import_quietly()
    tracking._create_database(path)
    return path
