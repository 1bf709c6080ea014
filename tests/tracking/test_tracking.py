"""Logging to MLflow, into a database on this disk."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.errors import StoreError
from bench.plugins.description import Descriptions, MethodDescription, ParameterDescription
from bench.results.records import CellRow, ScoreRow, TimingRow
from bench.tracking import tracker as tracking
from bench.tracking.fields import (
    HEADLINE_NAMES,
    metrics_of,
    parameters_of,
    run_name,
    tags_of,
    valid_name,
)
from bench.tracking.own_database import OwnDatabase
from bench.tracking.tracker import Tracker, default_uri, ui_address, ui_command
from tests.support.tracked_runs import (
    cells,
    client,
    keep,
    new_database,
    opened,
    outcome,
    runs,
    tracked,
)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database."""
    return new_database(tmp_path_factory.mktemp("empty"))


@pytest.fixture
def directory(tmp_path: Path, template: Path) -> Path:
    """A run directory whose database exists."""
    path = tmp_path / "run's"
    with opened(path):
        shutil.copy(template, path / "mlflow.db")
    return path


def test_a_cell_can_be_compared_sorted_and_read(directory: Path) -> None:
    release = directory / "releases" / "a"
    release.mkdir(parents=True)
    (release / "ledger.json").write_text("{}")
    (release / "synthetic.parquet").write_bytes(b"rows")
    with tracked(directory) as (store, tracker, said):
        keep(store, tracker, outcome("a", eps_claimed=math.inf))
    assert said == []
    run = cells(default_uri(directory))["a"]
    assert run.data.params["parameter/clip"] == "1.0"
    assert run.data.params["dataset"] == "gbsg2"
    assert run.data.metrics == {
        "ipc": 50, "grid/seed": 3, "eps_target": 1, "eps_proven": 0.9, "fit_seconds": 2,
        "utility/auroc": 0.8, "utility/auroc/low": 0.7, "utility/auroc/high": 0.9,
    }  # fmt: skip
    assert run.data.tags["verdict"] == "sound" and run.data.tags["status"] == "ok"
    assert run.data.tags["mlflow.note.content"].startswith(r"**sound**: epsilon 0.9 \*at\* most")
    assert run.info.status == "FINISHED"
    assert run.info.end_time - run.info.start_time == 2000
    files = Path(run.info.artifact_uri.removeprefix("file://").replace("%27", "'"))
    assert "ldpdc(clip=1.0) on gbsg2" in (files / "report.html").read_text()
    linked = files / "release" / "synthetic.parquet"
    assert linked.stat().st_ino == (release / "synthetic.parquet").stat().st_ino, "no copy"


def _artifacts(run: Any) -> Path:
    return Path(run.info.artifact_uri.removeprefix("file://").replace("%27", "'"))


def test_charts_are_artifacts(directory: Path) -> None:
    details = directory / "details" / "a"
    details.mkdir(parents=True)
    steps = {"time": [0.0, 1.0], "real": [1.0, 0.5], "released": [1.0, 0.4]}
    pq.write_table(pa.table(steps), details / "km.parquet")
    with opened(directory) as store:
        figures = [("pareto.svg", b"<svg/>"), ("pareto.json", b"{}")]
        said: list[str] = []
        tracker = Tracker(store, None, said.append, figures=lambda: figures)
        tracker.planned(0, 0, ())
        keep(store, tracker, outcome("a", task="survival"), outcome("b", task="survival"))
        keep(store, tracker, outcome("c", task="classification"))
        tracker.close(0)
    assert said == []
    logged = cells(default_uri(directory))
    (picture,) = (_artifacts(logged["a"]) / "charts").iterdir()
    assert picture.name == "survival.svg"
    assert "share without event" in picture.read_text()
    assert picture.stat().st_mode & 0o077 == 0, "drawn from private rows"
    for key in ("b", "c"):
        assert not (_artifacts(logged[key]) / "charts").exists()
    (parent,) = (run for run in runs(default_uri(directory)) if "bench.run" in run.data.tags)
    found = {path.name: path.read_bytes() for path in (_artifacts(parent) / "charts").iterdir()}
    assert found == dict(figures)


def test_charts_of_private_rows_do_not_reach_a_server(directory: Path) -> None:
    details = directory / "details" / "a"
    details.mkdir(parents=True)
    steps = {"time": [0.0, 1.0], "real": [1.0, 0.5], "released": [1.0, 0.4]}
    pq.write_table(pa.table(steps), details / "km.parquet")
    row = outcome("a", task="survival").row
    with opened(directory) as store:
        server = Tracker(store, "http://127.0.0.1:1", print)
        assert server._chart(row) == {}
        server._open = frozenset({("gbsg2", row.dataset_parameters)})
        assert list(server._chart(row)) == ["charts/survival.svg"]
        assert list(Tracker(store, None, print)._chart(row)) == ["charts/survival.svg"]


def test_charts_that_cannot_be_drawn_leave_the_cells_logged(directory: Path) -> None:
    def broken() -> Any:
        raise StoreError("no tables")

    with opened(directory) as store:
        said: list[str] = []
        tracker = Tracker(store, None, said.append, figures=broken)
        tracker.planned(0, 0, ())
        keep(store, tracker, outcome("a"))
        tracker.close(0)
    assert "a" in cells(default_uri(directory))
    (text,) = said
    assert "no tables" in text and "bench sync" in text


def test_the_parent_run_describes_the_grid_and_the_counts(directory: Path) -> None:
    with tracked(directory) as (store, tracker, _):
        facts = {"started_at": "2026-01-02T03:00:00+00:00", "wall_seconds": 90.0}
        store.write_manifest(facts)
        keep(store, tracker, outcome("a"), outcome("b", status="error", reason="no"))
        keep(store, tracker, outcome("c"))
    (parent,) = (run for run in runs(default_uri(directory)) if "bench.run" in run.data.tags)
    text = parent.data.tags["mlflow.note.content"]
    assert "Grid **small**" in text and "2 ok, 1 error" in text and str(directory) in text
    assert parent.info.status == "FINISHED"
    assert cells(default_uri(directory))["b"].info.status == "FAILED"
    experiment = client(default_uri(directory)).get_experiment(parent.info.experiment_id)
    view = json.loads(experiment.tags["mlflow.sharedViewState.bench"])
    assert "metrics.`utility`" in view["selectedColumns"]
    charts = view["compareRunCharts"]
    axes = {name for chart in charts for name in chart.get("selectedMetrics", ())}
    assert axes and axes <= set(HEADLINE_NAMES)
    (section,) = view["compareRunSections"]
    assert {chart["metricSectionId"] for chart in charts} == {section["uuid"]}
    assert ui_address(directory, 5001).startswith(
        f"http://127.0.0.1:5001/#/experiments/{parent.info.experiment_id}/runs?"
    )


def test_logging_again_adds_only_new_and_changed_cells(directory: Path) -> None:
    with tracked(directory) as (store, tracker, _):
        keep(store, tracker, outcome("a"), outcome("b"))
    before = cells(default_uri(directory))
    with tracked(directory):
        pass
    again = cells(default_uri(directory))
    assert {k: run.info.run_id for k, run in again.items()} == {
        k: run.info.run_id for k, run in before.items()
    }
    with tracked(directory) as (store, tracker, _):
        keep(store, tracker, outcome("b", "2026-01-03T00:00:00+00:00"), outcome("c"))
    after = cells(default_uri(directory))
    assert set(after) == {"a", "b", "c"}
    assert after["a"].info.run_id == before["a"].info.run_id
    assert after["b"].info.run_id != before["b"].info.run_id
    assert len([run for run in runs(default_uri(directory)) if "bench.run" in run.data.tags]) == 1


def cut_off(*_: object, **__: object) -> None:
    raise OSError("the cable was pulled")


def test_an_interrupted_log_is_not_taken_for_complete(
    directory: Path, template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    # A database elsewhere, which is written to by MLflow's interface, as a server is.
    uri = f"sqlite:///{shutil.copy(template, directory.parent / 'other.db')}"
    with monkeypatch.context() as broken:
        broken.setattr(MlflowClient, "log_batch", cut_off)
        with tracked(directory, uri) as (store, tracker, said):
            keep(store, tracker, outcome("a"), outcome("b"))
    (message,) = said
    assert "the cable was pulled" in message and "bench sync" in message
    nested = [run for run in runs(uri) if "mlflow.parentRunId" in run.data.tags]
    assert len(nested) == 1 and "bench.key" not in nested[0].data.tags
    with tracked(directory, uri) as (_, _, said):
        pass
    assert said == [] and set(cells(uri)) == {"a", "b"}


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("runs", "NEW.name LIKE 'ldpdc%'"),
        ("params", "NEW.key = 'dataset'"),
        ("metrics", "NEW.key = 'ipc'"),
        ("latest_metrics", "NEW.key = 'ipc'"),
        ("tags", "NEW.key = 'bench.key'"),
    ],
)
def test_an_interrupted_transaction_leaves_no_run(directory: Path, table: str, row: str) -> None:
    """The rows of a run are in several tables: whichever fails, none of them stays."""
    database = directory / "mlflow.db"
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute(
            f"CREATE TRIGGER broken BEFORE INSERT ON {table} WHEN {row} "
            "BEGIN SELECT RAISE(FAIL, 'the disk is gone'); END"
        )
    with tracked(directory) as (store, tracker, said):
        keep(store, tracker, outcome("a"), outcome("b"))
    (message,) = said
    assert "the disk is gone" in message and "bench sync" in message
    assert cells(default_uri(directory)) == {}
    with contextlib.closing(sqlite3.connect(database)) as connection:
        counts = [
            connection.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0]
            for name in ("params", "metrics", "latest_metrics")
        ]
        connection.execute("DROP TRIGGER broken")
    assert counts == [0, 0, 0]
    with tracked(directory) as (_, _, said):
        pass
    assert said == [] and set(cells(default_uri(directory))) == {"a", "b"}


def test_the_own_database_holds_what_the_interface_of_mlflow_would_write(
    directory: Path, template: Path
) -> None:
    """Compared with MLflow itself: what its client reads is the same, row by row."""
    described(directory)
    other = Path(shutil.copy(template, directory.parent / "other.db"))
    timings = (TimingRow("a", "fit", "", 2.0, 1.5), TimingRow("a", "score", "auroc", 1.0, 1.0))
    odd = outcome("b", status="error", reason="x" * 9000, parameters=json.dumps({"p": "y" * 9000}))
    for uri in (None, f"sqlite:///{other}"):
        with tracked(directory, uri) as (store, tracker, said):
            keep(store, tracker, dataclasses.replace(outcome("a"), timings=timings), odd)
        assert said == []
    own, through_mlflow = cells(default_uri(directory)), cells(f"sqlite:///{other}")

    def facts(run: Any) -> dict[str, Any]:
        found = {**run.to_dictionary()["info"], **run.to_dictionary()["data"]}
        found["tags"].pop("mlflow.parentRunId")
        return {k: v for k, v in found.items() if k not in ("run_id", "run_uuid", "artifact_uri")}

    assert set(own) == {"a", "b"}
    for key in own:
        assert facts(own[key]) == facts(through_mlflow[key])
    assert own["a"].data.metrics["cost/fit_processor"] == 1.5
    assert "cost/score_processor" not in own["a"].data.metrics, "only whole phases"
    place = own["a"].info.artifact_uri
    assert place.endswith(f"/{own['a'].info.run_id}/artifacts")
    histories = [
        client(uri).get_metric_history(run.info.run_id, "utility/auroc")
        for uri, run in (
            (default_uri(directory), own["a"]),
            (f"sqlite:///{other}", through_mlflow["a"]),
        )
    ]
    points = [[(p.value, p.timestamp, p.step) for p in history] for history in histories]
    assert points[0] == points[1] and len(points[0]) == 1
    # Whatever rows there are: every table, every column but the ids.
    for table in ("tags", "params", "metrics", "latest_metrics", "runs"):
        assert _rows(directory / "mlflow.db", table) == _rows(other, table), table


def _rows(database: Path, table: str) -> list[tuple[object, ...]]:
    """The rows of nested runs without their ids, sorted."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.row_factory = sqlite3.Row
        nested = "SELECT run_uuid FROM tags WHERE key = 'bench.key'"
        found = connection.execute(f"SELECT * FROM {table} WHERE run_uuid IN ({nested})")
        ids = ("run_uuid", "artifact_uri", "experiment_id")
        return sorted(
            tuple((name, row[name]) for name in sorted(row.keys()) if name not in ids)
            for row in found
            if row["key" if table != "runs" else "name"] != "mlflow.parentRunId"
        )


def test_a_database_of_an_unknown_version_is_left_to_mlflow(directory: Path) -> None:
    with contextlib.closing(sqlite3.connect(directory / "mlflow.db")) as connection:
        connection.execute("ALTER TABLE runs ADD COLUMN colour TEXT")
        assert OwnDatabase(directory / "mlflow.db", "0").known, "it may be empty"
        connection.execute("ALTER TABLE tags RENAME TO labels")
        connection.execute(
            "CREATE TABLE tags (key TEXT, value TEXT, run_uuid TEXT, who TEXT NOT NULL)"
        )
        assert not OwnDatabase(directory / "mlflow.db", "0").known
        connection.execute("DROP TABLE tags")
        connection.execute("CREATE TABLE tags (key TEXT, value TEXT)")
        assert not OwnDatabase(directory / "mlflow.db", "0").known


def test_cells_that_end_together_are_logged_together(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []
    add = OwnDatabase.add

    def counted(self: OwnDatabase, new: Any) -> None:
        listed = list(new)
        batches.append(len(listed))
        add(self, listed)

    monkeypatch.setattr(OwnDatabase, "add", counted)
    monkeypatch.setattr(tracking, "_GATHER_SECONDS", 60.0)
    with tracked(directory) as (store, tracker, said):
        for number in range(120):
            keep(store, tracker, outcome(f"k{number}"))
    assert said == [] and len(cells(default_uri(directory))) == 120
    # Some may have been stored when logging began; none waits for a minute at the end.
    assert sum(batches) == 120 and max(batches) <= 50 and len(batches) <= 6


def test_a_slow_server_does_not_delay_the_run(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    gate, real = threading.Event(), MlflowClient.create_run

    def slow(self: Any, *arguments: Any, **options: Any) -> Any:
        assert gate.wait(60)
        return real(self, *arguments, **options)

    monkeypatch.setattr(MlflowClient, "create_run", slow)
    with tracked(directory) as (store, tracker, said):
        for number in range(20):
            keep(store, tracker, outcome(f"k{number}"))
        # All cells are kept though nothing could be logged; the queue holds keys.
        assert len(store.finished) == 20
        assert all(isinstance(tracker._keys.get(), str) for _ in range(20))
        for number in range(20):
            tracker.finished(outcome(f"k{number}"), store)
        gate.set()
    assert said == [] and len(cells(default_uri(directory))) == 20


def test_more_numbers_than_fit_into_one_call(directory: Path) -> None:
    many = tuple(
        ScoreRow("a", f"m{i}", float(i), None, None, "higher", "utility", "") for i in range(1900)
    )
    given = json.dumps({f"p{i}": i for i in range(150)})
    with tracked(directory) as (store, tracker, said):
        item = outcome("a", parameters=given)
        keep(store, tracker, dataclasses.replace(item, scores=many))
    assert said == []
    run = cells(default_uri(directory))["a"]
    assert run.data.metrics["utility/m1899"] == 1899
    assert run.data.params["parameter/p149"] == "149"


@pytest.mark.slow
def test_two_processes_that_need_a_new_database_do_not_race(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/new/mlflow.db"
    code = (
        "import sys; from bench.tracking import tracker; tracker._import_quietly(); "
        "sys.stdin.readline(); print(len(tracker._client(sys.argv[1]).search_experiments()))"
    )
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code, uri], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    for process in both:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in both:
        said, problems = process.communicate(timeout=900)
        assert process.returncode == 0 and said == "1\n", problems
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["mlflow.db"]


def test_names_that_mlflow_refuses_are_changed() -> None:
    assert valid_name("utility/c-index/cox") == "utility/c-index/cox"
    assert valid_name("privacy/top@5 (%)") == "privacy/top_5 (_)".replace("(", "_").replace(
        ")", "_"
    )
    assert valid_name("a//b/../c") == "a/b/c"


def test_an_infinite_epsilon_is_a_tag_and_long_texts_are_truncated() -> None:
    row: CellRow = outcome("a", eps_proven=math.inf, reason="x" * 9000).row
    tags = tags_of(row)
    assert tags["eps_proven"] == "inf" and len(tags["reason"]) == 5000
    assert parameters_of(dataclasses.replace(row, ipc=None))["setting/ipc"] == ""


def test_the_name_of_a_run_starts_with_method_dataset_and_epsilon() -> None:
    row = outcome("a").row
    assert run_name(row) == "ldpdc(clip=1.0), gbsg2, eps 1, ipc 50, seed 3"
    real = dataclasses.replace(row, label="real", eps_target=None, ipc=None)
    assert run_name(real) == "real, gbsg2, no epsilon, seed 3"
    audit = dataclasses.replace(row, ipc=None, full_size=True, attack="worlds")
    assert run_name(audit).endswith("full size, seed 3, worlds audit")


def test_a_dozen_headlines_have_no_prefix_and_utility_is_the_first() -> None:
    """MLflow's comparison of runs opens with the first metric, and the table of a run with all."""
    names = ["auroc", "tvd", "discriminator/auc", "mia/auroc", "dcr/copies", "ks"]
    scores = [ScoreRow("a", name, 0.5, 0.4, 0.6, "higher", "privacy", "") for name in names]
    row = dataclasses.replace(
        outcome("a").row,
        **{"task": "classification", "eps_claimed": 1.0, "eps_audited": 0.1},
        peak_memory_mb=9.0,
    )
    logged = metrics_of(row, scores)
    plain = [name for name in logged if "/" not in name]
    assert plain == list(HEADLINE_NAMES) and len(plain) == 12
    assert logged["utility"] == logged["privacy/auroc"] and next(iter(logged)) == "utility"
    assert parameters_of(row)["utility_metric"] == "auroc"
    of_survival = metrics_of(dataclasses.replace(row, task="survival"), scores)
    assert "utility" not in of_survival, "the headline of a task, or none"


def test_a_comparison_opens_with_dataset_target_and_method() -> None:
    """MLflow takes the first three parameters that differ, by name (CompareRunView)."""
    row = outcome("a").row
    other = dataclasses.replace(
        row, method="gats", label="gats", dataset="wine", eps_target=3.0, ipc=10, delta=1e-6, seed=9
    )
    one, two = parameters_of(row), parameters_of(other)
    differing = sorted(name for name in {*one, *two} if one.get(name) != two.get(name))
    assert differing[:3] == ["dataset", "eps_target", "label"]


def described(directory: Path, default: str = "2.5") -> None:
    """Write what the run says about its method."""
    parameters = (ParameterDescription("clip", default), ParameterDescription("rounds", "[1, 2]"))
    method = MethodDescription("ldpdc", "a title", parameters=parameters)
    (directory / "about.json").write_text(Descriptions((method,), ()).to_json())


@pytest.mark.parametrize("own", [True, False])
def test_defaults_are_logged_beside_the_hyperparameters_of_the_grid(
    directory: Path, template: Path, own: bool
) -> None:
    described(directory)
    uri = None if own else f"sqlite:///{shutil.copy(template, directory.parent / 'other.db')}"
    with tracked(directory, uri) as (store, tracker, said):
        keep(store, tracker, outcome("a"))
    params = cells(uri or default_uri(directory))["a"].data.params
    assert said == []
    assert params["parameter/clip"] == "1.0", "the grid's"
    assert params["parameter/rounds"] == "[1, 2]", "the default"


def test_damaged_descriptions_cost_the_defaults_only(directory: Path) -> None:
    described(directory, default="not JSON")
    with tracked(directory) as (store, tracker, said):
        keep(store, tracker, outcome("a", parameters="{}"))
    assert cells(default_uri(directory))["a"].data.params["parameter/clip"] == "not JSON"
    (directory / "about.json").write_text("{")
    with tracked(directory) as (store, tracker, said):
        keep(store, tracker, outcome("b"))
    assert set(cells(default_uri(directory))) == {"a", "b"}
    (line,) = said
    assert line.startswith("MLflow: defaults of hyperparameters are not logged: about.json")


def test_passwords_are_not_repeated(tmp_path: Path) -> None:
    said: list[str] = []
    with opened(tmp_path / "run") as store:
        tracker = Tracker(store, "postgresql://me:secret@127.0.0.1:1/none", said.append)
        tracker.planned(0, 0, ())
        tracker.close(0)
    (message,) = said
    assert "secret" not in message
    assert "bench sync" in message and "--mlflow-uri" in message


def test_the_interface_is_shown_on_loopback_only(tmp_path: Path) -> None:
    command, environment = ui_command(tmp_path, 5001)
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert environment["MLFLOW_DISABLE_TELEMETRY"] == "true"
