"""Logging to MLflow servers: one that drips, one that dies, and one with PostgreSQL."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.results.integrity import RELEASE_FILES
from bench.tracking import tracker as tracking
from tests.support.dripping import dripping
from tests.support.tracked_runs import cells, client, keep, new_database, opened, outcome, tracked

QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def server(store: str, artifacts: Path, port: int) -> Iterator[str]:
    """`mlflow server`, killed at the end with all its processes."""
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--workers", "1", "--backend-store-uri", store]
    command += ["--artifacts-destination", str(artifacts)]
    log = (artifacts.parent / "server.log").open("ab")
    process = subprocess.Popen(
        command, env={**os.environ, **QUIET}, stdout=log, stderr=log, start_new_session=True
    )
    address = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 120
        while True:
            assert process.poll() is None, Path(log.name).read_text()
            try:
                urllib.request.urlopen(f"{address}/health", timeout=5).close()
                break
            except OSError:
                assert time.monotonic() < deadline, Path(log.name).read_text()
                time.sleep(0.2)
        yield address
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()
        log.close()


class Server:
    """Stands for MLflow's client of a server: keeps what is sent."""

    def __init__(self) -> None:
        self.sent: dict[str, bytes] = {}

    def log_artifacts(self, run_id: str, folder: str) -> None:
        for path in Path(folder).rglob("*"):
            if path.is_file():
                self.sent[str(path.relative_to(folder))] = path.read_bytes()


@pytest.mark.parametrize("where", ["mlflow-artifacts:/1/a/artifacts", "s3://bucket/a", "file"])
def test_a_server_gets_no_rows(tmp_path: Path, where: str) -> None:
    """A server has other readers than the run directory: released rows stay here.

    Also one that keeps its artifacts in a folder of this disk, where its readers find them.
    """
    run = tmp_path / "run"
    uri = (tmp_path / "artifacts").as_uri() if where == "file" else where
    rows = b"PAR1 the rows of a release PAR1"
    with opened(run) as store:
        store.record(outcome("a"), None)
        (run / "releases" / "a").mkdir(parents=True)
        for name in RELEASE_FILES:
            (run / "releases" / "a" / name).write_bytes(rows if "parquet" in name else b"{}")
        tracker = tracking.Tracker(store, "http://127.0.0.1:1", lambda text: None)
        there = Server()
        tracker._attach(there, "a", uri, outcome("a"))  # type: ignore[arg-type]
    if where == "file":
        folder = tmp_path / "artifacts"
        there.log_artifacts("a", str(folder))
    assert set(there.sent) == {"report.html", "release/ledger.json", "release/release.json"}
    assert not any(rows in content for content in there.sent.values())


def test_the_database_of_a_run_directory_links_the_rows(tmp_path: Path) -> None:
    """The other half: without a server, whoever reads MLflow can read the run directory too."""
    run = tmp_path / "run"
    with opened(run) as store:
        store.record(outcome("a"), None)
        (run / "releases" / "a").mkdir(parents=True)
        (run / "releases" / "a" / "synthetic.parquet").write_bytes(b"rows")
        tracker = tracking.Tracker(store, None, lambda text: None)
        place = run / "mlartifacts" / "1" / "artifacts"
        tracker._attach(Server(), "a", place.as_uri(), outcome("a"))  # type: ignore[arg-type]
    assert (place / "release" / "synthetic.parquet").read_bytes() == b"rows"


def test_a_server_that_drips_does_not_hold_a_finished_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "_END_SECONDS", 2.0, raising=False)
    directory = tmp_path / "run"
    with dripping(pause=0.1, seconds=60) as uri:
        with tracked(directory, uri) as (store, tracker, said):
            keep(store, tracker, outcome("a"))
            ended = time.monotonic()
        assert time.monotonic() - ended < 30
    (message,) = said
    assert "not done 2 s after the end of the run" in message
    assert f"bench sync {directory} --mlflow-uri {uri}" in message


def test_a_sync_that_makes_no_progress_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "_STALL_SECONDS", 2.0, raising=False)
    said: list[str] = []
    with dripping(pause=0.1, seconds=60) as uri, opened(tmp_path / "run") as store:
        tracker = tracking.Tracker(store, uri, said.append)
        tracker.planned(0, 0, ())
        started = time.monotonic()
        tracker.close(0, patient=True)
        assert time.monotonic() - started < 30
    (message,) = said
    assert "nothing was logged for 2 s" in message and "bench sync" in message


@pytest.mark.slow
def test_the_command_ends_although_a_server_drips(tmp_path: Path) -> None:
    grid = tmp_path / "tiny.toml"
    grid.write_text('datasets = ["gbsg2"]\nmethods = ["real"]\nmetrics = ["ks"]\n')
    with dripping(pause=5.0, seconds=900) as uri:
        ended = subprocess.run(
            [sys.executable, "-m", "bench", "run", "--grid", str(grid),
             "--out", str(tmp_path / "run"), "--mlflow-uri", uri, "--cpus", "1"],
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("MLflow logging stopped") == 1


@pytest.mark.slow
def test_after_a_server_failure_the_missing_cells_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    directory, port = tmp_path / "run", free_port()
    store_uri, artifacts = f"sqlite:///{new_database(tmp_path)}", tmp_path / "artifacts"
    with opened(directory) as store:
        release = store.release_directory("a")
        release.mkdir(parents=True)
        (release / "ledger.json").write_text("{}")
        (release / "synthetic.parquet").write_bytes(b"rows")
    with server(store_uri, artifacts, port) as uri:
        with tracked(directory, uri) as (store, tracker, said):
            keep(store, tracker, outcome("a"), outcome("b"), outcome("c"))
        assert said == [] and set(cells(uri)) == {"a", "b", "c"}
        with tracked(directory, uri):
            pass
        logged = cells(uri)
        assert len(logged) == 3
        run = logged["a"]
        assert run.info.artifact_uri.startswith("mlflow-artifacts:")
        names = [file.path for file in client(uri).list_artifacts(run.info.run_id)]
        assert sorted(names) == ["release", "report.html"]
        inside = [file.path for file in client(uri).list_artifacts(run.info.run_id, "release")]
        assert inside == ["release/ledger.json"], "rows stay in the run directory"
    # Down before the run, and during it: the cells are kept, one message says what to do.
    with tracked(directory, uri) as (store, tracker, said):
        keep(store, tracker, outcome("d"), outcome("e"))
    (message,) = said
    assert f"bench sync {directory} --mlflow-uri {uri}" in message
    with server(store_uri, artifacts, port) as uri:
        assert set(cells(uri)) == {"a", "b", "c"}
        with tracked(directory, uri) as (_, _, said):
            pass
        assert said == [] and set(cells(uri)) == {"a", "b", "c", "d", "e"}


@pytest.fixture
def postgresql() -> Iterator[str]:
    """Start a PostgreSQL server on loopback; yields its address."""
    if importlib.util.find_spec("psycopg2") is None:
        pytest.skip("psycopg2 is not installed")
    if not (shutil.which("initdb") and shutil.which("pg_ctl")):
        pytest.skip("PostgreSQL (initdb, pg_ctl) is not on the path")
    # It refuses to run as root: then it runs as the user that its package created.
    root = os.geteuid() == 0
    if root and not (shutil.which("runuser") and _has_user("postgres")):
        pytest.skip("PostgreSQL refuses to run as root, and there is no user postgres")
    by = ["runuser", "-u", "postgres", "--"] if root else []
    with tempfile.TemporaryDirectory(prefix="bench-postgresql-") as folder:
        if root:
            shutil.chown(folder, "postgres")
        data, port = Path(folder) / "data", free_port()
        initdb = [*by, "initdb", "-D", data, "-U", "bench", "--auth=trust"]
        subprocess.run(initdb, check=True, cwd=folder, capture_output=True)
        options = f"-c listen_addresses=127.0.0.1 -c unix_socket_directories='' -p {port}"
        pg_ctl = [*by, "pg_ctl", "-D", data, "-o", options, "-l", Path(folder) / "log", "-w"]
        # No pipe: the server would keep it open.
        subprocess.run([*pg_ctl, "start"], check=True, cwd=folder, stdout=subprocess.DEVNULL)
        try:
            yield f"postgresql+psycopg2://bench@127.0.0.1:{port}/postgres"
        finally:
            stop = [*pg_ctl, "-m", "immediate", "stop"]
            subprocess.run(stop, check=True, cwd=folder, stdout=subprocess.DEVNULL)


def _has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


@pytest.mark.slow
def test_postgresql_behind_a_server(tmp_path: Path, postgresql: str) -> None:
    with server(postgresql, tmp_path / "artifacts", free_port()) as uri:
        with tracked(tmp_path / "run", uri) as (store, tracker, said):
            keep(store, tracker, outcome("a"), outcome("b"))
        with tracked(tmp_path / "run", uri):
            pass
        assert said == [] and set(cells(uri)) == {"a", "b"}
