"""`bench data get` from package registries, and `bench run` without data: fake clients only."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import io
import json
import os
import sys
import tarfile
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from bench.cli.main import main
from bench.data.files import DataFile, Member, Obtain, Package
from bench.engine.grid import load_grid
from bench.errors import DataError
from bench.plugins import data_files
from bench.plugins.source import FileSource

CONTENT = b"age,sex\n50,female\n" * 500


def archive() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo("package/rows.csv")
        entry.size = len(CONTENT)
        tar.addfile(entry, io.BytesIO(CONTENT))
    return gzip.compress(buffer.getvalue(), mtime=0)


ARCHIVE = archive()


@dataclass(frozen=True)
class Packaged(FileSource):
    """A dataset of one file, inside an npm package."""

    name: ClassVar[str] = "packaged"

    def read(self, paths: Mapping[str, Path]) -> pd.DataFrame:
        return pd.read_csv(paths["rows.csv"])

    def obtain(self) -> Obtain:
        return Obtain(
            publisher="a publisher",
            agreement="none",
            page="https://example.org",
            how="by hand",
            folder="packaged",
            files=(DataFile("rows.csv", hashlib.sha256(CONTENT).hexdigest()),),
            packages=(
                Package(
                    registry="npm",
                    package="tables",
                    version="1.0",
                    archive="tables-1.0.tgz",
                    sha256=hashlib.sha256(ARCHIVE).hexdigest(),
                    size=len(ARCHIVE),
                    licence="MIT",
                    members=(Member("rows.csv", "package/rows.csv"),),
                ),
            ),
        )


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that installs a client which writes these bytes, or fails with these words."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("BENCH_DATA", raising=False)
    monkeypatch.setattr(data_files.registry, "build_source", lambda name: Packaged())

    def install(body: bytes = b"", says: str = "") -> Path:
        (tmp_path / "body").write_bytes(body)
        copy = f"shutil.copy({str(tmp_path / 'body')!r}, 'tables-1.0.tgz')"
        act = f"sys.exit({says!r})" if says else copy
        client = programs / "npm"
        client.write_text(f"#!{sys.executable}\nimport shutil, sys\n{act}\n")
        client.chmod(0o755)
        return tmp_path / "new" / "data"

    return install


def test_a_file_comes_into_a_folder_that_was_not_there(machine) -> None:
    folder = machine(ARCHIVE)
    result = bench("data", "get", "packaged", "--data-dir", str(folder))
    assert result.exit_code == 0, result.output
    place = folder / "packaged"
    assert result.stdout == f"packaged is in {place}\n"
    assert (place / "rows.csv").read_bytes() == CONTENT
    assert sorted(path.name for path in place.iterdir()) == ["provenance.json", "rows.csv"]
    record = json.loads((place / "provenance.json").read_text())["rows.csv"]
    assert record["archive_sha256"] == hashlib.sha256(ARCHIVE).hexdigest()


@pytest.mark.parametrize("removed", [False, True])
def test_two_processes_do_not_write_the_same_partial_files(
    machine, monkeypatch: pytest.MonkeyPatch, removed: bool
) -> None:
    # The other process fetches the file, or gives up and removes the empty folder.
    folder = machine(ARCHIVE if removed else b"", "" if removed else "must not be called")
    monkeypatch.setenv("BENCH_DATA", str(folder))
    place = folder / "packaged"
    place.mkdir(parents=True)
    waits = threading.Event()

    def flock(descriptor: int, operation: int) -> None:
        waits.set()
        fcntl.flock(descriptor, operation)

    monkeypatch.setattr(data_files, "fcntl", SimpleNamespace(flock=flock, LOCK_EX=fcntl.LOCK_EX))
    held = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        with ThreadPoolExecutor(1) as pool:
            result = pool.submit(data_files.get_dataset, "packaged", lambda *_: None)
            assert waits.wait(60)
            if removed:
                place.rmdir()
            else:
                (place / "rows.csv").write_bytes(CONTENT)
            os.close(held)
            held = -1
            assert result.result(60) == place
    finally:
        if held >= 0:
            os.close(held)
    assert (place / "rows.csv").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("body", "says", "expected"),
    [
        (ARCHIVE + b"x", "", "is not the archive that was examined (SHA-256 "),
        (ARCHIVE[:-5], "", "tables-1.0.tgz is truncated: "),
        (b"", "npm error network ENOTFOUND", "the registry cannot be reached (offline?)"),
        (b"", "npm error 500 Internal Server Error.", "npm failed: npm error 500 Internal"),
        (None, "", "npm, the client of the registry npm, is not on this machine; install it"),
    ],
)
def test_what_goes_wrong_is_one_line_with_the_other_ways_and_nothing_is_kept(
    machine, tmp_path: Path, body: bytes | None, says: str, expected: str
) -> None:
    folder = machine(body or b"", says)
    if body is None:
        (tmp_path / "bin" / "npm").unlink()
    result = bench("data", "get", "packaged", "--data-dir", str(folder))
    assert result.exit_code == 2 and result.stdout == ""
    (line,) = [text for text in result.stderr.splitlines() if text.strip()]
    assert line.startswith("bench: packaged: ") and expected in line
    assert line.endswith(
        f"; other ways: put rows.csv from a publisher (https://example.org) into {folder}/packaged"
    )
    assert list(folder.iterdir()) == []


def test_a_grid_gets_all_that_can_be_fetched_and_names_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def get(name: str, show: object, *, publisher: bool) -> Path:
        asked.append(name)
        if name == "nafld":
            raise DataError("nafld: out of order")
        return tmp_path / name

    monkeypatch.setattr(data_files, "get_dataset", get)
    result = bench("data", "get", "--grid", "full", "--data-dir", str(tmp_path))
    assert result.exit_code == 2  # one failed; the others were not held up
    assert {"adult", "census-income-kdd", "nafld", "support2", "mnist", "cifar10"} <= set(asked)
    assert not {"breast-cancer", "gbsg2", "diabetes130", "curial-sim"} & set(asked)
    assert "bench: nafld: out of order" in result.stderr
    assert "diabetes130: cannot be fetched: needs diabetes130/diabetic_data.csv" in result.stderr
    assert f"cifar10 is in {tmp_path / 'cifar10'}" in result.stdout


def test_a_dry_run_names_what_is_missing_and_how_to_get_it(tmp_path: Path) -> None:
    result = bench("run", "--grid", "full", "--dry-run", "--data-dir", str(tmp_path))
    assert result.exit_code == 0
    count = len(load_grid("full").cells())
    assert result.stdout.splitlines()[-1] == f"{count} cells"
    lines = result.stderr.splitlines()
    (nafld,) = [line for line in lines if line.startswith("nafld ")]
    assert nafld.endswith("cells): skipped: not obtained, run bench data get nafld")
    (closed,) = [line for line in lines if line.startswith("diabetes130 ")]
    assert closed.endswith("skipped: not obtained, see bench data list for how to obtain it")
    assert lines[-1] == "all of them that can be fetched: bench data get --grid full"


def test_a_run_without_any_data_says_so_and_does_not_start(tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = bench("run", "--grid", "real-data", "--data-dir", str(tmp_path), "--out", str(out))
    assert result.exit_code == 2 and not out.exists()
    assert "adult: skipped: not obtained, run bench data get adult" in result.stderr
    assert "bench data get --grid real-data" in result.stderr
