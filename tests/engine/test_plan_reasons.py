"""Why cells are run although some like them are stored."""

from __future__ import annotations

import functools
import json
import tracemalloc
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from bench.engine import keys
from bench.engine.cell import failed_row, run_cell
from bench.engine.plan import Index, explain, summary, why_not_cached
from bench.plugins.source import build_dataset
from bench.results.records import Cell, CellRow, Outcome, Status, Variant
from bench.results.run_directory import RunStore
from tests.support.tables import ToyTable

DATASET = build_dataset(ToyTable())
CELL = Cell(
    Variant("ldpdc", "ldpdc", (("group_size", 20.0),)), Variant("toy-table", "toy"), 10, False, 1.0,
    1e-5, 0, "default", 0,
)  # fmt: skip
KEY = keys.cell_key(CELL, DATASET.fingerprint)
CODE_CHANGED = "code changed (ldpdc, or a module that it imports)"


@functools.cache
def done() -> Outcome:
    return run_cell(CELL, KEY, DATASET, ("ks",))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with RunStore(tmp_path / "run") as store:
        yield store


def keep(store: RunStore, **facts: object) -> None:
    """The finished cell with another past: under another key, unless that is among the facts."""
    row: CellRow = replace(done().row, **{"key": "elsewhere", **facts})  # type: ignore[arg-type]
    scores = tuple(replace(score, key=row.key) for score in done().scores)
    timings = tuple(replace(timing, key=row.key) for timing in done().timings)
    store.record(replace(done(), row=row, scores=scores, timings=timings), DATASET.encoder)


def why(store: RunStore, cell: Cell = CELL, metrics: tuple[str, ...] = ("ks",)) -> str:
    key = keys.cell_key(cell, DATASET.fingerprint)
    return why_not_cached(cell, key, Index.of(store, metrics))


def test_never_run(store: RunStore) -> None:
    assert why(store) == "never run"
    keep(store)
    for other in (replace(CELL, seed=1), replace(CELL, ipc=11), replace(CELL, epsilon=2.0)):
        assert why(store, other) == "never run"


def test_failed_before(store: RunStore) -> None:
    store.record(Outcome(failed_row(CELL, KEY, DATASET, Status.TIMEOUT, "late")), None)
    assert why(store) == "failed before (timeout)"


def test_a_dataset_that_could_not_be_loaded(store: RunStore) -> None:
    store.record(Outcome(failed_row(CELL, "lost", None, Status.ERROR, "no such file")), None)
    assert why(store) == "failed before (error)"


def test_the_source_of_the_method(store: RunStore) -> None:
    keep(store, source_hash="older")
    assert why(store) == CODE_CHANGED


def test_the_parameters(store: RunStore) -> None:
    keep(store, parameters='{"group_size": 10.0, "old": 1}')
    assert why(store) == "parameters changed (ldpdc: group_size, old)"


def test_the_dataset(store: RunStore) -> None:
    keep(store, fingerprint="other")
    assert why(store) == "dataset changed (toy)"


def test_parameters_of_the_dataset(store: RunStore) -> None:
    keep(store, dataset_parameters='{"negatives": 5}')
    assert why(store) == "dataset changed (toy)"


def test_the_settings(store: RunStore) -> None:
    keep(store, delta=1e-6, split="paper", fingerprint="of the other split")
    assert why(store) == "settings changed (delta, split)"


def test_another_split_of_the_same_grid_is_no_change(store: RunStore) -> None:
    other = replace(CELL, split_seed=1)
    key = keys.cell_key(other, "of the other split")
    keep(store, key=KEY)
    assert explain([(other, key)], store, ("ks",), (0, 1)) == ["1 cell: never run"]
    # A grid of another split only has changed.
    assert explain([(other, key)], store, ("ks",), (1,)) == [
        "1 cell: settings changed (split_seed)"
    ]
    # What changed within the split is still found beside the other split.
    keep(store, key="b", split_seed=1, delta=1e-6, fingerprint="of the other split")
    assert explain([(other, key)], store, ("ks",), (0, 1)) == ["1 cell: settings changed (delta)"]


def test_a_library(store: RunStore) -> None:
    versions = {**json.loads(keys.versions()), "numpy": "1.26", "torch": "0.1"}
    keep(store, versions=json.dumps(versions))
    # ldpdc itself does not import torch.
    assert "torch" not in keys.method_libraries("ldpdc")
    assert why(store) == f"library changed: numpy 1.26 -> {np.__version__}"


def test_a_version_that_was_not_recorded_is_not_blamed(store: RunStore) -> None:
    keep(store, versions="{}")
    assert why(store).startswith("harness changed (format")


def test_metrics_and_releases(store: RunStore) -> None:
    keep(store, key=KEY)
    assert why(store, metrics=("dcr", "ks", "tvd")) == "metrics missing: dcr, tvd"
    many = ("a", "b", "c", "d", "e", "f", "g", "ks")
    assert why(store, metrics=many) == "metrics missing: a, b, c, d, e and 2 more"
    keep(store, key=KEY, metrics='{"ks": "older"}')
    assert why(store) == "metrics changed: ks"
    assert why(store, metrics=("dcr", "ks")) == "metrics missing: dcr; metrics changed: ks"
    keep(store, key=KEY, status="error", metrics=done().row.metrics)
    assert why(store) == "failed before (error)"
    (store.release_directory(KEY) / "encoded.parquet").write_bytes(b"torn")
    assert why(store) == "release damaged"


def test_several_changes_and_the_nearest_relative(store: RunStore) -> None:
    keep(store, key="a", source_hash="older", delta=1e-6)
    assert why(store) == f"{CODE_CHANGED}; settings changed (delta)"
    keep(store, key="b", delta=1e-6)
    assert why(store) == "settings changed (delta)"
    keep(store, key="c", source_hash="older")
    assert why(store) == CODE_CHANGED
    keep(store, key="d", source_hash="older", fingerprint="other")
    assert why(store) == CODE_CHANGED


def test_the_summary_counts_the_most_frequent_first() -> None:
    reasons = [CODE_CHANGED, "never run", "never run"]
    assert summary(reasons) == [
        "2 cells: never run",
        f"1 cell: {CODE_CHANGED}",
    ]
    assert summary([]) == []


def test_one_call_for_a_plan(store: RunStore) -> None:
    planned = [(CELL, KEY), (replace(CELL, seed=1), "x"), (replace(CELL, seed=2), "y")]
    assert explain(planned, store, ("ks",)) == []  # a first run: there is nothing to explain
    keep(store, source_hash="older")
    assert explain(planned, store, ("ks",)) == [
        "2 cells: never run",
        f"1 cell: {CODE_CHANGED}",
    ]


def test_a_stored_cell_costs_a_few_hundred_bytes(tmp_path: Path) -> None:
    cells = 2000
    with RunStore(tmp_path):
        pass
    with (tmp_path / "journal.jsonl").open("w") as file:
        for number in range(cells):
            row = asdict(replace(done().row, key=f"key{number}", seed=number))
            file.write(json.dumps({"cell": row, "scores": []}) + "\n")
    with RunStore(tmp_path) as store:
        tracemalloc.start()
        index = Index.of(store)
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert len(index.alike) == cells
    assert size / cells < 300
