"""Whole runs through Ray, in separate processes or by the public function."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

import bench
from bench.cli.main import main
from tests.support.installed import install_plugin
from tests.support.one_ray import one_ray

BENCH = [sys.executable, "-m", "bench"]

GRID = """
datasets = ["breast-cancer", "gbsg2"]
methods = ["real", "marginals", "ldpdc"]
ipc = [20]
epsilon = [1.0, 10.0]
metrics = ["ks", "auroc", "c-index/cox"]
"""


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(GRID)
    return path


def run(*arguments: object, code: int = 0) -> str:
    """Run a command in this process, which has imported everything; return what it said."""
    result = CliRunner().invoke(main, list(map(str, arguments)))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout


def cells(directory: Path) -> pd.DataFrame:
    return pd.read_parquet(directory / "cells.parquet").set_index("key").sort_index()


def logged(directory: Path) -> list[dict[str, str]]:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{directory / 'mlflow.db'}")
    runs = client.search_runs([e.experiment_id for e in client.search_experiments()])
    return [run.data.tags for run in runs if "mlflow.parentRunId" in run.data.tags]


@pytest.fixture(scope="module")
def ray() -> Iterator[None]:
    """One Ray of two CPUs for the runs of this process."""
    with one_ray(2):
        yield


@pytest.fixture(scope="module")
def calm(ray: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on two CPUs that nothing disturbed: a test that changes it takes a copy."""
    folder = tmp_path_factory.mktemp("calm")
    (folder / "small.toml").write_text(GRID)
    run("run", "--grid", folder / "small.toml", "--out", folder / "run", "--cpus", 2, "--no-mlflow")
    return folder / "run"


@dataclass(frozen=True)
class Resumed:
    """A run on one CPU whose driver was killed, and which was resumed by another on two."""

    out: Path
    grid: Path
    before: list[dict[str, str]]
    """Rows of the cells that had ended by then."""
    said: str


@pytest.fixture(scope="module")
def resumed(ray: None, tmp_path_factory: pytest.TempPathFactory) -> Resumed:
    folder = tmp_path_factory.mktemp("killed")
    out, grid = folder / "run", folder / "small.toml"
    grid.write_text(GRID)
    command = [*BENCH, "run", "--grid", str(grid), "--out", str(out), "--cpus", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        for line in driver.stdout:
            journal = out / "journal.jsonl"
            if line.startswith("ok") and journal.read_bytes().count(b"\n") >= 3:
                os.kill(driver.pid, signal.SIGKILL)
                break
        driver.wait()
    assert driver.returncode == -signal.SIGKILL
    before = [json.loads(line)["cell"] for line in (out / "journal.jsonl").open()]
    said = run("run", "--grid", grid, "--out", out)
    return Resumed(out, grid, before, said)


def test_one_and_two_cpus_one_and_two_drivers_give_the_same_bytes(
    calm: Path, resumed: Resumed
) -> None:
    names = sorted(path.name for path in (calm / "releases").iterdir())
    assert len(names) == 10
    assert names == sorted(path.name for path in (resumed.out / "releases").iterdir())
    for name in names:
        one, two = (side / "releases" / name for side in (calm, resumed.out))
        files = sorted(path.name for path in one.iterdir())
        # Rows without a proven epsilon (those of `real`) are not stored: their digest is.
        assert len({"encoded.parquet", "rows.json"} & set(files)) == 1
        assert files == sorted(path.name for path in two.iterdir())
        for file in files:
            assert (one / file).read_bytes() == (two / file).read_bytes(), f"{name}/{file}"
    scores = [
        pd.read_parquet(side / "scores.parquet").sort_values(["key", "metric"], ignore_index=True)
        for side in (calm, resumed.out)
    ]
    pd.testing.assert_frame_equal(*scores)


def test_a_killed_driver_loses_nothing_and_repeats_nothing(resumed: Resumed) -> None:
    out, before = resumed.out, resumed.before
    assert 3 <= len(before) < 10
    assert f"{len(before)} already done" in resumed.said
    after = cells(out)
    assert len(after) == 10 and (after["status"] == "ok").all()
    lines = [json.loads(line)["cell"]["key"] for line in (out / "journal.jsonl").open()]
    assert len(lines) == len(set(lines)) == 10
    for row in before:
        assert after.loc[row["key"], "finished_at"] == row["finished_at"]
    keys = [tags["bench.key"] for tags in logged(out) if "bench.key" in tags]
    assert sorted(keys) == sorted(after.index)

    assert "10 already done" in run("run", "--grid", resumed.grid, "--out", out)
    pd.testing.assert_frame_equal(cells(out), after)


@pytest.mark.slow
def test_failing_cells_never_stop_the_run_and_show_in_the_exit_code(tmp_path: Path) -> None:
    environment = install_plugin(tmp_path / "packages")
    grid = tmp_path / "faults.toml"
    grid.write_text(
        'datasets = ["gbsg2"]\nipc = [10]\nepsilon = [1]\nmetrics = ["ks"]\n'
        'methods = ["marginals", {name = "misbehaves", label = "raises"},\n'
        '  {name = "misbehaves", label = "exits", parameters = {how = "exit"}},\n'
        '  {name = "misbehaves", label = "skips", parameters = {how = "skip"}}]\n'
    )
    out = tmp_path / "run"
    command = [*BENCH, "run", "--grid", str(grid), "--out", str(out)]

    def started(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *options], capture_output=True, text=True, check=False, env=environment
        )

    result = started()
    assert result.returncode == 1, result.stderr
    rows = cells(out).set_index("label")
    assert rows["status"].to_dict() == {
        "marginals": "ok", "raises": "error", "exits": "error", "skips": "skipped",
    }  # fmt: skip
    # The text of the exception could hold rows: the table names its type and place.
    assert rows.loc["raises", "reason"].startswith("ValueError at misbehaves_plugin.py:")
    assert "something broke" not in rows.loc["raises", "reason"]
    assert "os._exit(3)" in rows.loc["exits", "reason"]
    assert rows.loc["skips", "reason"] == "not for this task"
    assert {tags["status"] for tags in logged(out)} == {"ok", "error", "skipped"}

    # Failures are not cached: asked again, they are tried again; the rest is not.
    assert "2 already done" in started().stdout
    assert started("--methods", "marginals,skips").returncode == 0


@pytest.mark.slow
def test_new_metrics_score_stored_releases_without_refitting(
    ray: None, grid: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    options = ("--grid", grid, "--out", out, "--datasets", "gbsg2", "--methods", "ldpdc")
    run("run", *options, "--no-mlflow")
    before = cells(out)
    grid.write_text(GRID.replace('"ks", ', '"ks", "dcr", '))
    run("run", *options, "--no-mlflow")
    after = cells(out)
    assert after["fit_seconds"].equals(before["fit_seconds"])
    scores = pd.read_parquet(out / "scores.parquet")
    assert scores.loc[scores["metric"].str.startswith("dcr"), "key"].nunique() == len(after)


def test_stored_releases_are_scored_by_further_metrics_alone(
    calm: Path, grid: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    shutil.copytree(calm, out)
    before = cells(out)
    old = pd.read_parquet(out / "scores.parquet").set_index(["key", "metric"])["value"]
    assert "10 cells" in run("score", out, "--metrics", "dcr/gap", "--no-mlflow")
    after = cells(out)
    assert after["fit_seconds"].equals(before["fit_seconds"])
    scores = pd.read_parquet(out / "scores.parquet").set_index(["key", "metric"])["value"]
    assert {"ks", "dcr/gap", "dcr/median"} <= set(scores.index.get_level_values("metric"))
    assert scores[old.index].equals(old)
    for key, tasks in after["task"].items():
        headline = "auroc" if tasks == "classification" else "c-index/cox"
        assert {"ks", "dcr", headline} <= set(json.loads(after.loc[key, "metrics"]))
    assert "10 already done" in run("score", out, "--metrics", "ks,dcr", "--no-mlflow")
    # What was scored beside the grid's metrics stays when the grid is run again.
    run("run", "--grid", grid, "--out", out, "--no-mlflow")
    assert len(pd.read_parquet(out / "scores.parquet")) == len(scores)


def test_a_lost_cell_with_secure_noise_stays_charged_and_tracking_that_is_down_stops_nothing(
    ray: None, grid: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    options = ("--grid", grid, "--out", out, "--datasets", "gbsg2", "--eps", "1", "--secure-noise")
    options = (*options, "--methods", "ldpdc")
    down = f"sqlite:///{grid}/a-file-is-not-a-folder.db"
    assert "MLflow logging stopped" in run("run", *options, "--mlflow-uri", down)
    (key,) = cells(out).index
    assert cells(out).loc[key, "status"] == "ok" and not cells(out).loc[key, "study_only"]
    # As if the driver had died after starting the cell and before storing it.
    (out / "journal.jsonl").write_text("")
    run("run", *options, "--no-mlflow", code=1)
    assert "charged and did not finish" in cells(out).loc[key, "reason"]


def test_a_notebook_runs_a_grid_and_loads_its_results(ray: None, tmp_path: Path) -> None:
    grid = bench.Grid(
        "tiny", (bench.Variant("gbsg2", "gbsg2"),), (bench.Variant("marginals", "marginals"),),
        ipc=(5,), epsilon=(1.0,), metrics=("ks",),
    )  # fmt: skip
    summary = bench.run(grid, tmp_path / "run")
    assert summary.counts == {"ok": 1} and summary.failed == 0
    found = bench.load_results(summary.directory)
    assert found.cells["verdict"].tolist() == ["sound"] and "ks" in set(found.scores["metric"])
    again = bench.run(grid, tmp_path / "run")
    assert again.cached == 1 and again.keys == summary.keys


def test_cells_without_a_dataset_are_refused_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    path = tmp_path / "closed.toml"
    path.write_text('datasets = ["nis"]\nmethods = ["real"]\nmetrics = ["ks"]\n')
    for _ in range(2):
        summary = bench.run(path, tmp_path / "run")  # Ray is not started for it
        ((row, _),) = summary.results()
        assert row.status == "error" and row.reason.startswith("dataset nis:")
        assert (summary.failed, summary.cached) == (1, 0)
