"""A run directory is logged to MLflow later, and once."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bench.cli.runs import sync as command
from bench.engine.cell import failed_row
from bench.errors import StoreError
from bench.results.records import Cell, Outcome, Status, Variant
from bench.results.run_directory import RunStore

CELL = Cell(
    Variant("marginals", "marginals"), Variant("toy", "toy"), 10, False, 1.0, 1e-5, 0, "default", 0
)


def sync(*arguments: object, catch: bool = True) -> Result:
    texts = [str(argument) for argument in arguments]
    return CliRunner().invoke(command, texts, catch_exceptions=catch)


def stored(directory: Path, *keys: str) -> Path:
    with RunStore(directory) as store:
        store.write_manifest({"grid": "g"})
        for key in keys:
            store.record(Outcome(failed_row(CELL, key, None, Status.OK, "")), None)
    return directory


def logged(uri: str) -> list[str]:
    """Keys of all runs; an empty one for a parent."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    runs = client.search_runs([one.experiment_id for one in client.search_experiments()])
    return sorted(run.data.tags.get("bench.key", "") for run in runs)


def test_a_second_sync_logs_only_new_cells(tmp_path: Path) -> None:
    run = stored(tmp_path / "run", "a", "b")
    uri = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    result = sync(run, "--mlflow-uri", uri)
    assert result.exit_code == 0 and "2 cells of" in result.output
    assert logged(uri) == ["", "a", "b"]
    stored(run, "c")
    assert sync(run, "--mlflow-uri", uri).exit_code == 0
    assert logged(uri) == ["", "a", "b", "c"]
    assert not (run / "mlflow.db").exists()


def test_a_store_that_cannot_be_reached_is_an_error(tmp_path: Path) -> None:
    run = stored(tmp_path / "run", "a")
    (tmp_path / "file").write_text("")
    result = sync(run, "--mlflow-uri", f"sqlite:///{tmp_path / 'file'}/not-a-folder.db")
    assert result.exit_code == 1 and "MLflow logging stopped" in result.stderr


def test_an_active_run_is_refused(tmp_path: Path) -> None:
    run = stored(tmp_path / "run", "a")
    with RunStore(run), pytest.raises(StoreError, match="wait for its end"):
        sync(run, catch=False)
    with pytest.raises(StoreError, match="not a run directory"):
        sync(tmp_path / "nothing", catch=False)
    assert not (tmp_path / "nothing").exists()
