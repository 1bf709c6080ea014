"""Small run directories of open data, as they are published."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from bench.engine import keys
from bench.engine.about import write_descriptions
from bench.engine.cell import failed_row, run_cell
from bench.engine.grid import Grid
from bench.plugins import registry
from bench.plugins.source import build_dataset
from bench.results.records import Cell, Outcome, Status, Variant
from bench.results.run_directory import RunStore

TABLE = Variant("gbsg2", "gbsg2")
DATASET = build_dataset(registry.build_source("gbsg2"))
METRICS = ("ks", "c-index/cox")


def cell_of(method: str = "marginals", seed: int = 0, epsilon: float | None = 1.0) -> Cell:
    """Return a small cell."""
    return Cell(
        Variant(method, method), TABLE, 5, False, epsilon, 1e-5, seed, "default", 0,
    )  # fmt: skip


@cache
def finished(method: str = "marginals", seed: int = 0, epsilon: float | None = 1.0) -> Outcome:
    """Compute a cell, once."""
    cell = cell_of(method, seed, epsilon)
    return run_cell(cell, keys.cell_key(cell, DATASET.fingerprint), DATASET, METRICS)


def failed(outcome: Outcome, status: Status = Status.ERROR) -> Outcome:
    """Return the cell as one that ended badly."""
    cell = outcome.row.cell
    return Outcome(failed_row(cell, outcome.row.key, DATASET, status, "it did not converge"))


def changed(outcome: Outcome, **columns: object) -> Outcome:
    """Return an outcome whose row says something else."""
    key = str(columns.get("key", outcome.row.key))
    return replace(
        outcome,
        row=replace(outcome.row, **columns),  # type: ignore[arg-type]
        scores=tuple(replace(score, key=key) for score in outcome.scores),
        timings=tuple(replace(one, key=key) for one in outcome.timings),
    )


def run_of(directory: Path, *outcomes: Outcome, **facts: object) -> Path:
    """Write a run directory with these cells, whose checkout had no changes."""
    grid = Grid(
        name="small",
        datasets=(TABLE,),
        methods=tuple(dict.fromkeys(outcome.row.cell.method for outcome in outcomes)),
        epsilon=(1.0,),
        seeds=(0,),
    )
    with RunStore(directory) as store:
        known = {"grid": "small", "commit": "c0ffee" * 6, "dirty": False, "cpu": "a processor"}
        store.write_manifest({**known, **facts})
        write_descriptions(directory, grid.methods, grid.datasets)
        for outcome in outcomes:
            store.record(outcome, DATASET.encoder)
        store.compact()
    return directory
