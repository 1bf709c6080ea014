"""The command line as a new user meets it."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bench.cli.main import main
from bench.results.journal import read_journal


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "lpdpc"], "did you mean ldpdc"),
        (["--datasets", "digitz"], "did you mean digits"),
        (["--grid", "huge"], "built-in grids are"),
        (["--grid", "absent.toml"], "cannot be read"),
        (["--eps", "0"], "epsilon 0 is not"),
        (["--eps", "-1"], "epsilon -1 is not"),
        (["--eps", "one"], "not a number"),
        (["--ipc", "0"], "IPC 0 is not"),
        (["--ipc", "many"], "not a whole number"),
        (["--seeds", "x"], "not a whole number"),
        (["--data-dir", "/nonexistent"], "not a folder"),
        (["--cpus", "0"], "0 is not in the range"),
    ],
)
def test_bad_input_is_one_clear_line_exit_code_2_and_nothing_written(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    result = bench("run", "--out", str(out), *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert (
        len([line for line in result.stderr.splitlines() if "rror" in line or "bench:" in line])
        == 1
    )
    assert not out.exists()


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ("datasets = [", "not valid TOML"),
        ("datasets = ['digits']\nmethods = ['real']\nmetrics = ['auroq']", "did you mean auroc"),
        ("datasets = ['digits']\nmethods = ['real']\nepsilon = [-3]", "epsilon -3"),
        ("datasets = ['digits']\nmethods = ['real']\nsplit = 'half'", "unknown split preset"),
    ],
)
def test_a_malformed_grid_is_refused_before_anything_is_written(
    grid: str, message: str, tmp_path: Path
) -> None:
    file, out = tmp_path / "mine.toml", tmp_path / "run"
    file.write_text(grid)
    result = bench("run", "--grid", str(file), "--out", str(out))
    assert result.exit_code == 2 and message in result.stderr
    assert not out.exists()


def test_an_unreadable_data_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    def refuse(path: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    result = bench("run", "--data-dir", str(tmp_path), "--out", str(tmp_path / "run"))
    assert result.exit_code == 2 and "not readable (Permission denied)" in result.stderr


def test_a_folder_that_is_not_a_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    result = bench("run", "--grid", "smoke", "--out", str(tmp_path))
    assert result.exit_code == 2 and "not a run directory" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_dry_run_prints_cells_and_count_and_writes_nothing(tmp_path: Path) -> None:
    result = bench("run", "--grid", "smoke", "--dry-run", "--out", str(tmp_path / "run"))
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[-1] == f"{len(lines) - 1} cells"
    assert "ldpdc on gbsg2 ipc=50 eps=1 seed=0" in lines
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", ["methods", "datasets", "metrics"])
def test_lists(kind: str) -> None:
    result = bench("list", kind, "--json")
    assert result.exit_code == 0
    rows = json.loads(result.output)
    assert rows and all(row["name"] for row in rows)
    table = bench("list", kind)
    assert all(row["name"] in table.output for row in rows)
    assert max(map(len, table.output.splitlines())) < 260


@pytest.mark.parametrize("columns", [80, 100, 160, 300])
@pytest.mark.parametrize("kind", ["methods", "datasets", "metrics"])
def test_lists_are_no_wider_than_the_terminal(
    kind: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = bench("list", kind).stdout.splitlines()
    assert max(map(len, lines)) <= columns
    row = json.loads(bench("list", kind, "--json").stdout)[0]
    told = " ".join(lines)
    if kind != "metrics":
        assert all(head in told for head in row), "what is left out is named"


def test_one_plugin_is_listed_with_its_full_text() -> None:
    (row,) = json.loads(bench("list", "metrics", "ks", "--json").output)
    assert " ".join(bench("list", "metrics", "ks").output.split()).count(row["definition"]) == 1
    assert row["definition"] not in bench("list", "metrics").output
    assert "did you mean ks" in bench("list", "metrics", "kss").stderr


def test_one_cell_is_not_plural() -> None:
    arguments = ("--methods", "real", "--datasets", "digits", "--dry-run")
    assert bench("run", *arguments).output.splitlines()[-1] == "1 cell"


def test_leaderboard_and_ui_of_an_empty_folder_are_refused(tmp_path: Path) -> None:
    assert bench("leaderboard", str(tmp_path), "-o", str(tmp_path / "site")).exit_code == 2
    result = bench("ui", str(tmp_path))
    assert result.exit_code == 2 and "mlflow.db" in result.stderr


def test_help_needs_no_heavy_import() -> None:
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom bench.cli.main import main\n"
        "assert CliRunner().invoke(main, ['--help']).exit_code == 0\n"
        "heavy = {'torch', 'ray', 'mlflow', 'numpy', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    started = time.process_time()
    subprocess.run([sys.executable, "-c", code], check=True)
    assert time.process_time() - started < 60  # a hang, not a speed claim


def test_a_cluster_that_does_not_answer_is_reported_at_once(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody answers
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        options = ["--datasets", "gbsg2", "--methods", "real", "--metrics", "ks", "--no-mlflow"]
        where = ["--out", str(tmp_path / "run"), "--ray-address", address]
        result = CliRunner().invoke(main, ["run", "--grid", "smoke", *options, *where])
    assert result.exit_code == 2
    assert f"the Ray cluster cannot be reached (no answer at {address}" in result.output


def test_a_ray_that_does_not_start_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    def too_slow(**_: object) -> None:
        raise Exception("The current node timed out during startup.\nA long story follows.")

    monkeypatch.setattr(ray, "init", too_slow)
    options = ["--datasets", "gbsg2", "--methods", "real", "--metrics", "ks", "--no-mlflow"]
    result = CliRunner().invoke(
        main, ["run", "--grid", "smoke", *options, "--out", str(tmp_path / "run")]
    )
    assert result.exit_code == 2
    assert "Ray did not start on this machine: The current node timed out" in result.output
    assert "try again" in result.output and "Traceback" not in result.output


def test_a_full_disk_is_reported_and_the_run_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing dataset fails its cells without Ray: only the writing is tested."""
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    out = tmp_path / "run"
    grid = tmp_path / "grid.toml"
    grid.write_text('datasets = ["adult"]\nmethods = ["real", "marginals"]\nipc = [5]\n')
    command = ["run", "--grid", str(grid), "--out", str(out), "--eps", "1", "--no-mlflow"]
    sync = os.fsync
    written: list[int] = []

    def full(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("journal.jsonl"):
            if written:
                os.ftruncate(descriptor, written[0] + 15)  # as far as the disk allowed
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written.append(os.fstat(descriptor).st_size)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    failed = CliRunner().invoke(main, command)
    assert failed.exit_code == 2
    assert "No space left on device" in failed.output
    assert "what has finished is kept" in failed.output
    assert '"ended": "interrupted"' in (out / "progress.json").read_text()
    monkeypatch.setattr(os, "fsync", sync)
    again = CliRunner().invoke(main, command)
    assert again.exit_code == 1 and "2 cells: 2 error" in again.output
    assert len(read_journal(out / "journal.jsonl")) == 2
