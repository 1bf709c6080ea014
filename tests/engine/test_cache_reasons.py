"""Why cells are run although some like them are stored; and what a key depends on."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from bench.engine import keys
from bench.engine.cache_reasons import Index, explain, summary, why_not_cached
from bench.engine.cell import failed_row, run_cell
from bench.plugins import registry
from bench.plugins.method import Environment
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
DONE = run_cell(CELL, KEY, DATASET, ("ks",))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with RunStore(tmp_path / "run") as store:
        yield store


def keep(store: RunStore, **facts: object) -> None:
    """The finished cell with another past: under another key, unless that is among the facts."""
    row: CellRow = replace(DONE.row, **{"key": "elsewhere", **facts})  # type: ignore[arg-type]
    store.record(replace(DONE, row=row), DATASET.encoder)


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
    assert why(store) == "method source changed (ldpdc)"


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


def test_a_library(store: RunStore) -> None:
    versions = {**json.loads(keys.versions()), "numpy": "1.26", "torch": "0.1"}
    keep(store, versions=json.dumps(versions))
    # ldpdc itself does not import torch.
    assert "torch" not in keys.method_libraries("ldpdc")
    assert why(store) == f"library changed: numpy 1.26 -> {np.__version__}"


def test_a_version_that_was_not_recorded_is_not_blamed(store: RunStore) -> None:
    keep(store, versions="{}")
    assert why(store).startswith("harness changed (kernel")


def test_metrics_and_releases(store: RunStore) -> None:
    keep(store, key=KEY)
    assert why(store, metrics=("dcr", "ks", "tvd")) == "metrics missing: dcr, tvd"
    many = ("a", "b", "c", "d", "e", "f", "g", "ks")
    assert why(store, metrics=many) == "metrics missing: a, b, c, d, e and 2 more"
    keep(store, key=KEY, metrics='{"ks": "older"}')
    assert why(store) == "metrics changed: ks"
    assert why(store, metrics=("dcr", "ks")) == "metrics missing: dcr; metrics changed: ks"
    keep(store, key=KEY, status="error", metrics=DONE.row.metrics)
    assert why(store) == "failed before (error)"
    (store.release_directory(KEY) / "encoded.parquet").write_bytes(b"torn")
    assert why(store) == "release damaged"


def test_several_changes_and_the_nearest_relative(store: RunStore) -> None:
    keep(store, key="a", source_hash="older", delta=1e-6)
    assert why(store) == "method source changed (ldpdc); settings changed (delta)"
    keep(store, key="b", delta=1e-6)
    assert why(store) == "settings changed (delta)"
    keep(store, key="c", source_hash="older")
    assert why(store) == "method source changed (ldpdc)"
    keep(store, key="d", source_hash="older", fingerprint="other")
    assert why(store) == "method source changed (ldpdc)"


def test_the_summary_counts_the_most_frequent_first() -> None:
    reasons = ["method source changed (ldpdc)", "never run", "never run"]
    assert summary(reasons) == ["2 cells: never run", "1 cell: method source changed (ldpdc)"]
    assert summary([]) == []


def test_one_call_for_a_plan(store: RunStore) -> None:
    planned = [(CELL, KEY), (replace(CELL, seed=1), "x"), (replace(CELL, seed=2), "y")]
    assert explain(planned, store, ("ks",)) == []  # a first run: there is nothing to explain
    keep(store, source_hash="older")
    assert explain(planned, store, ("ks",)) == [
        "2 cells: never run",
        "1 cell: method source changed (ldpdc)",
    ]


def test_a_stored_cell_costs_a_few_hundred_bytes(tmp_path: Path) -> None:
    cells = 2000
    with RunStore(tmp_path):
        pass
    with (tmp_path / "journal.jsonl").open("w") as file:
        for number in range(cells):
            row = asdict(replace(DONE.row, key=f"key{number}", seed=number))
            file.write(json.dumps({"cell": row, "scores": []}) + "\n")
    with RunStore(tmp_path) as store:
        tracemalloc.start()
        index = Index.of(store)
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert len(index.alike) == cells
    assert size / cells < 300


# What a key depends on ----------------------------------------------------------------------------


def test_libraries_are_those_of_the_method_and_its_shared_files() -> None:
    installed = json.loads(keys.versions())
    assert keys.method_libraries("marginals") == {"numpy": installed["numpy"]}
    # Its torch is imported by a shared file, inside a function.
    assert keys.method_libraries("dp-merf")["torch"] == installed["torch"]
    for name in registry.method_names():
        libraries = keys.method_libraries(name)
        assert {"numpy"} <= set(libraries) <= set(installed) - {"ray", "dp-release-bench"}


@pytest.mark.parametrize(
    "text, names",
    [
        ("import torch.nn as nn, scipy", {"torch", "scipy"}),
        ("def f():\n    from sklearn.linear_model import Ridge", {"sklearn"}),
        ("from . import torch", set()),
        ("'import torch'", set()),
    ],
)
def test_imports_are_read_from_the_source(tmp_path: Path, text: str, names: set[str]) -> None:
    path = tmp_path / "plugin.py"
    path.write_text(text)
    assert keys._imported(path) == names


def test_another_version_is_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_version(library: str, version: str) -> str:
        found = {**json.loads(versions), library: version}
        monkeypatch.setattr(keys, "versions", lambda: json.dumps(found))
        return keys.cell_key(CELL, "a")

    versions = keys.versions()
    key = keys.cell_key(CELL, "a")
    assert with_version("numpy", "99") != key
    assert with_version("xgboost-cpu", "99") == key
    assert with_version("ray", "99") == key


def test_what_an_environment_pins_is_not_taken_from_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = registry.method_class("gats")
    assert "scipy" in keys.method_libraries("gats")
    monkeypatch.setattr(kind, "environment", Environment("tiny", ("SciPy>=1,<2",), ()))
    assert "scipy" not in keys.method_libraries("gats")
