"""A stranger's run directory is safe to read: every attack ends with one line and exit code 2."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from tests.support.strangers import KEY, bench, content, honest, rename_cell, within

READERS: tuple[tuple[str, ...], ...] = (
    ("run", "--grid", "smoke", "--no-mlflow", "--out", "RUN"),
    ("status", "RUN"),
    ("score", "RUN", "--no-mlflow"),
    ("sync", "RUN"),
    ("verify", "RUN", "--sample", "0"),
    ("merge", "RUN", "-o", "MERGED"),
    ("compare", "RUN"),
    ("audit", "--table", "RUN"),
    ("dossier", "RUN", KEY, "-o", "DOSSIER"),
)
"""Commands that read the journal."""


@pytest.fixture(autouse=True)
def _no_test_hangs() -> Iterator[None]:
    with within(60):
        yield


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return honest(tmp_path / "inside" / "runs" / "run")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """What belongs to the user: it must neither be read nor changed."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text("precious\n")
    return folder


def called(command: tuple[str, ...], run: Path) -> Result:
    places = {"RUN": run, "MERGED": run.parent / "merged", "DOSSIER": run.parent / "dossier.html"}
    return bench(*(places.get(word, word) for word in command))


def refused(result: Result, said: str) -> None:
    """One line, exit code 2, no traceback."""
    assert result.exit_code == 2, (result.output, result.exception)
    assert isinstance(result.exception, SystemExit)
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("bench: ") and said in lines[0], result.output


def words(command: tuple[str, ...]) -> str:
    return command[0]


def test_an_honest_directory_is_read(run: Path) -> None:
    for command in READERS[1:3]:
        assert called(command, run).exit_code == 0
    assert called(("verify", "RUN", "--sample", "0"), run).exit_code == 0


# Keys that lead out of the directory --------------------------------------------------------------


@pytest.mark.parametrize("command", READERS, ids=words)
@pytest.mark.parametrize("key", ["../../secret", "..", "", "/etc", "a/b", "a\n", ".hidden"])
def test_a_key_is_a_plain_name(command: tuple[str, ...], key: str, run: Path) -> None:
    rename_cell(run, key)
    (run / "cells.parquet").unlink()
    refused(called(command, run), "is not a plain name")


def test_sync_copies_no_outside_file(run: Path) -> None:
    secret = run.parent / "secret"
    secret.mkdir()
    (secret / "ledger.json").write_text("precious")
    rename_cell(run, "../../secret")
    refused(bench("sync", run), "is not a plain name")
    assert not (run / "mlartifacts").exists()


def test_score_writes_nothing_outside(run: Path, tmp_path: Path) -> None:
    victim = run.parent / "victim"
    shutil.copytree(run / "releases" / KEY, victim)
    rename_cell(run, "../../victim")
    before = content(tmp_path)
    refused(bench("score", run, "--no-mlflow"), "is not a plain name")
    assert content(tmp_path) == before


# Links ----------------------------------------------------------------------------------------


def linked(path: Path, target: Path) -> None:
    """A link in the place of a file or folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


WRITERS = (READERS[0], READERS[2], READERS[3])


@pytest.mark.parametrize("command", WRITERS, ids=words)
@pytest.mark.parametrize(
    "name",
    [
        *("run.json", "journal.jsonl", "lock", "charges.jsonl", "progress.json", "about.json"),
        *("cells.parquet", ".cells.parquet.part", ".run.json.part", "tracking.id", "mlflow.db"),
        *("releases", "details", "mlartifacts", f"details/{KEY}", f"releases/{KEY}"),
        *(f"releases/{KEY}/ledger.json", f"details/{KEY}/.km.part", "audits/abc/batches"),
    ],
)
def test_a_command_that_writes_follows_no_link(
    command: tuple[str, ...], name: str, run: Path, outside: Path, tmp_path: Path
) -> None:
    linked(run / name, outside if "." not in Path(name).name[1:] else outside / "secret.txt")
    before = content(tmp_path)
    refused(called(command, run), "symbolic link, which is not followed")
    after = content(tmp_path)
    after.pop("inside/runs/run/lock", None), before.pop("inside/runs/run/lock", None)
    assert after == before


def test_a_dangling_link_creates_nothing(run: Path, outside: Path) -> None:
    linked(run / "lock", outside / "new")
    for command in WRITERS:
        refused(called(command, run), "symbolic link, which is not followed")
    assert not (outside / "new").exists()


@pytest.mark.parametrize("command", READERS, ids=words)
@pytest.mark.parametrize("name", ["journal.jsonl", "run.json"])
def test_a_linked_file_is_not_read(
    command: tuple[str, ...], name: str, run: Path, outside: Path
) -> None:
    shutil.copy(run / name, outside / "copy")
    linked(run / name, outside / "copy")
    (run / "cells.parquet").unlink()
    if command[0] == "audit" and name == "run.json":
        pytest.skip("audits are read without it")
    refused(called(command, run), "symbolic link, which is not followed")


@pytest.mark.parametrize(
    "command", [("verify", "RUN"), ("merge", "RUN", "-o", "MERGED")], ids=words
)
@pytest.mark.parametrize("name", ["releases", f"releases/{KEY}", f"releases/{KEY}/ledger.json"])
def test_linked_releases_are_not_taken_for_the_runs_own(
    command: tuple[str, ...], name: str, run: Path, outside: Path
) -> None:
    elsewhere = outside / "copy"
    shutil.move(run / name, elsewhere)
    (run / name).symlink_to(elsewhere)
    refused(called(command, run), "symbolic link, which is not followed")
    assert not (run.parent / "merged").exists()


def test_a_linked_ledger_is_not_logged(run: Path, outside: Path) -> None:
    linked(run / "releases" / KEY / "ledger.json", outside / "secret.txt")
    refused(bench("sync", run), "symbolic link, which is not followed")
    assert not (run / "mlartifacts").exists() and not (run / "mlflow.db").exists()


def test_a_linked_journal_is_not_cut(run: Path, outside: Path) -> None:
    (outside / "secret.txt").write_text("no line ends here")
    linked(run / "journal.jsonl", outside / "secret.txt")
    refused(bench("sync", run), "symbolic link, which is not followed")
    assert (outside / "secret.txt").read_text() == "no line ends here"


def test_details_behind_a_link_are_not_compared(run: Path, outside: Path) -> None:
    linked(run / "details", outside)
    shutil.copytree(run, other := run.parent / "other", symlinks=True)
    refused(bench("merge", run, other, "-o", run.parent / "merged"), "symbolic link")


# What is no file ------------------------------------------------------------------------------


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(here)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("command", READERS, ids=words)
@pytest.mark.parametrize("kind", [_fifo, _socket, _endless, _folder])
def test_a_journal_that_is_no_file_hangs_nobody(
    command: tuple[str, ...], kind: Callable[[Path], None], run: Path
) -> None:
    (run / "journal.jsonl").unlink()
    (run / "cells.parquet").unlink()
    kind(run / "journal.jsonl")
    with within(10):
        result = called(command, run)
    said = {_fifo: "a FIFO", _socket: "a socket", _endless: "a symbolic link"}.get(kind, "a folder")
    refused(result, f"is {said}")


@pytest.mark.parametrize("name", ["cells.parquet", "scores.parquet", "audits.parquet"])
@pytest.mark.parametrize("kind", [_fifo, _endless])
def test_a_table_that_is_no_file_hangs_no_leaderboard(
    kind: Callable[[Path], None], name: str, run: Path
) -> None:
    (run / name).unlink(missing_ok=True)
    kind(run / name)
    with within(10):
        refused(bench("leaderboard", run, "-o", run.parent / "site"), name)


@pytest.mark.parametrize("name", ["run.json", "progress.json", "lock", "charges.jsonl"])
def test_a_fifo_beside_the_journal_hangs_nobody(name: str, run: Path) -> None:
    (run / name).unlink(missing_ok=True)
    _fifo(run / name)
    for command in READERS[:6]:
        reads = name != "charges.jsonl" or command[0] != "status"
        with within(10):
            result = called(command, run)
        if reads and (name != "progress.json" or command[0] in ("run", "score", "sync", "status")):
            refused(result, "a FIFO")


def test_a_line_without_an_end_fills_no_memory(run: Path) -> None:
    with (run / "journal.jsonl").open("r+b") as file:
        file.truncate(1 << 33)  # zeros that take no disk
    (run / "cells.parquet").unlink()
    for command in READERS[1:]:
        with within(10):
            refused(called(command, run), "has a line of more than")


def test_a_document_that_is_too_large_is_not_read(run: Path) -> None:
    with (run / "run.json").open("r+b") as file:
        file.truncate(1 << 33)
    refused(bench("status", run), "more than such a file can have")


# Grids ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["../../escaped", "/tmp/escaped", "..", ".hidden", "a/b", "a\\\\b", "-o", "", "a\\u0007"],
)
def test_a_grid_cannot_name_a_folder_elsewhere(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "a" / "b" / "c"
    home.mkdir(parents=True)
    monkeypatch.chdir(home)
    text = f'name = "{name}"\ndatasets = ["breast-cancer"]\nmethods = ["marginals"]\n'
    (home / "grid.toml").write_text(f"{text}ipc = [5]\nepsilon = [1.0]\n")
    refused(bench("run", "--grid", "grid.toml", "--no-mlflow"), "must be a plain file name")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["grid.toml"]


# MLflow's database ----------------------------------------------------------------------------


def test_a_database_cannot_send_files_elsewhere(run: Path, outside: Path) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{run / 'mlflow.db'}")
    client.create_experiment("bench toy", artifact_location=outside.as_uri())
    before = content(outside)
    result = bench("sync", run)
    assert result.exit_code == 1 and "outside of this run directory" in result.stderr
    assert content(outside) == before


def test_the_interface_opens_no_linked_database(run: Path, outside: Path) -> None:
    linked(run / "mlflow.db", outside / "secret.txt")
    refused(bench("ui", run), "symbolic link, which is not followed")
    (run / "mlflow.db").unlink()
    (run / "mlflow.db").write_text("no database, but long enough to be looked at as one")
    refused(bench("ui", run), "not MLflow's database")


def test_the_identity_of_a_run_cannot_change_a_query(run: Path) -> None:
    (run / "tracking.id").write_text("x' OR '1' = '1")
    result = bench("sync", run)
    assert result.exit_code == 1 and "tracking.id is not one that bench wrote" in result.stderr
