"""The one writer: what the operating system refuses is one line, and nothing half-written stays."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from bench.cli.main import main
from bench.errors import StoreError
from bench.leaderboard.templates import rendering
from bench.leaderboard.templates.rendering import Page
from bench.results import writing
from bench.results.journal import read_journal
from bench.results.records import Outcome
from bench.results.run_directory import Progress, RunStore
from tests.support.tracked_runs import outcome


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def masked(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def test_files_appear_whole_and_for_the_owner_only(tmp_path: Path) -> None:
    with masked(0):
        writing.write_atomically(tmp_path / "a", b"one")
        writing.make_folder(tmp_path / "b")
        with writing.append_to(tmp_path / "c") as file:
            file.write(b"x")
        writing.write_table(tmp_path / "d", pa.table({"a": [1]}))
        writing.write_atomically(tmp_path / "e", b"site", writing.FOR_ALL)
    assert [mode(tmp_path / name) for name in "abcde"] == [0o600, 0o700, 0o600, 0o600, 0o666]
    (tmp_path / "a").chmod(0o644)  # of an earlier version
    with writing.append_to(tmp_path / "a") as file:
        file.write(b" two")
    assert mode(tmp_path / "a") == 0o600 and (tmp_path / "a").read_bytes() == b"one two"


def test_half_of_a_file_is_never_seen(tmp_path: Path) -> None:
    path = tmp_path / "a"
    writing.write_atomically(path, b"old")
    with pytest.raises(ZeroDivisionError), writing.replacing(path) as file:
        file.write(bytes([1 // 0]))
    assert path.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["a"]


def test_links_are_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "outside")
    for opened in (writing.append_to, writing.create):
        with pytest.raises(OSError, match="symbolic links"):
            opened(tmp_path / "link")
    assert (tmp_path / "outside").read_text() == "precious"


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EROFS, "make the file system writable"),
        (errno.EACCES, "make the folder writable"),
        (errno.ENOENT, "was removed meanwhile"),
        (errno.EIO, "check the disk"),
    ],
)
def test_errors_of_the_system_are_one_line(number: int, advice: str) -> None:
    with pytest.raises(StoreError) as caught, writing.writing(Path("runs/x")):
        raise OSError(number, os.strerror(number), "runs/x/.progress.json.part")
    text = str(caught.value)
    assert text.startswith(f"runs/x: cannot be written ({os.strerror(number)}); ")
    assert advice in text and text.endswith("what has finished is kept") and "\n" not in text


# A run directory --------------------------------------------------------------------------------


def failing(monkeypatch: pytest.MonkeyPatch, part: str, number: int, after: int = 0) -> list[str]:
    """Let the operating system refuse to open files whose path holds this; returns the paths."""
    opened, met = os.open, []

    def refuse(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if part in str(path) and flags & (os.O_WRONLY | os.O_RDWR):
            met.append(str(path))
            if len(met) > after:
                raise OSError(number, os.strerror(number), str(path))
        return opened(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    return met


COMMAND = ["run", "--eps", "1", "--no-mlflow"]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A run of two cells whose dataset is missing: they fail without Ray."""
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    grid = tmp_path / "grid.toml"
    grid.write_text('datasets = ["adult"]\nmethods = ["real", "marginals"]\nipc = [5]\n')
    return [*COMMAND, "--grid", str(grid), "--out", str(tmp_path / "run")]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize(
    ("part", "after"),
    [
        ("run.json", 0),
        ("run.json", 2),
        ("about.json", 0),
        ("journal.jsonl", 0),
        ("progress.json", 0),
        ("progress.json", 1),
        ("cells.parquet", 0),
        ("scores.parquet", 0),
    ],
)
def test_a_run_that_cannot_write_says_so_in_one_line_and_resumes(
    part: str,
    after: int,
    number: int,
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as broken:
        met = failing(broken, part, number, after)
        failed = CliRunner().invoke(main, command)
    assert len(met) > after, "the fault was met"
    assert failed.exit_code == 2, failed.output
    assert failed.exception is None or isinstance(failed.exception, SystemExit)
    told = [line for line in failed.output.splitlines() if line.startswith("bench: ")]
    assert len(told) == 1 and os.strerror(number) in told[0]
    again = CliRunner().invoke(main, command)
    assert again.exit_code == 1 and "2 cells: 2 error" in again.output, again.output
    assert len(read_journal(tmp_path / "run" / "journal.jsonl")) == 2
    assert not list((tmp_path / "run").rglob("*.part"))


def test_a_directory_that_is_removed_in_the_middle_ends_the_run_politely(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = RunStore.record

    def removed(store: RunStore, outcome: Outcome, encoder: Any) -> Outcome:
        shutil.rmtree(store.directory, ignore_errors=True)
        return record(store, outcome, encoder)

    with monkeypatch.context() as broken:
        broken.setattr(RunStore, "record", removed)
        failed = CliRunner().invoke(main, command)
    assert failed.exit_code == 2 and "Traceback" not in failed.output
    assert "its folder is missing, or was removed meanwhile" in failed.output
    assert not (tmp_path / "run").exists(), "no empty one in its place"
    assert CliRunner().invoke(main, command).exit_code == 1


def test_a_directory_that_is_replaced_gets_no_results(tmp_path: Path) -> None:
    """The open journal of a removed directory would take every line, for nobody to read."""
    with RunStore(tmp_path / "run") as store:
        progress = Progress(store, 1, 0)
        shutil.rmtree(tmp_path / "run")
        RunStore(tmp_path / "run").__enter__().close()
        for write in (
            lambda: store.record(outcome("a"), None),
            lambda: store.charge("a"),
            lambda: progress.end("finished"),
        ):
            with pytest.raises(StoreError, match="removed or replaced meanwhile"):
                write()


def test_everything_in_a_run_directory_is_for_the_owner_only(tmp_path: Path) -> None:
    with masked(0):
        (tmp_path / "run").mkdir()
        with RunStore(tmp_path / "run") as store:
            failed = outcome("a", status="error")
            store.record(Outcome(failed.row, log="what it said"), None)
            store.charge("b")
            store.compact()
            Progress(store, 1, 0).end("finished")
    paths = [tmp_path / "run", *(tmp_path / "run").rglob("*")]
    assert {"logs", "a.log", "charges.jsonl", "cells.parquet"} <= {path.name for path in paths}
    assert [path for path in paths if mode(path) & 0o077] == []


# Sites ------------------------------------------------------------------------------------------


def test_a_site_on_a_full_disk_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = [Page(f"{number}.html", b"page") for number in range(5)]
    failing(monkeypatch, ".html", errno.ENOSPC, after=3)
    with pytest.raises(StoreError, match=r"No space left on device\); free some space, or give -o"):
        rendering.write(tmp_path / "site", pages)
    assert list((tmp_path / "site").iterdir()) == []


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = shutil.which("mount")
    done = mount and subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)],
        capture_output=True, check=False,
    )  # fmt: skip
    if not done or done.returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_is_really_full(small: Path) -> None:
    with pytest.raises(StoreError, match="No space left on device"):
        rendering.write(
            small / "site", [Page("a.html", bytes(10_000)), Page("b.html", bytes(10**6))]
        )
    assert list((small / "site").iterdir()) == []
    with RunStore(small / "run") as store:
        kept: list[str] = []

        def fill() -> None:
            while len(kept) < 1000:
                store.record(outcome(f"k{len(kept)}"), None)
                kept.append(f"k{len(kept)}")

        with pytest.raises(StoreError, match=r"No space left .* what has finished is kept"):
            fill()
    assert kept
    assert set(read_journal(small / "run" / "journal.jsonl")) == set(kept)
    with RunStore(small / "run") as store:
        assert set(store.finished) == set(kept) and store.notices == ()
