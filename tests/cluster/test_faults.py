"""Plugins that misbehave in every way we know: each costs itself alone, and is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.support.installed import install_plugin

FAULTS = {
    "raise": ("error", "ValueError: something broke"),
    "exit": ("error", "os._exit(3)"),
    "leave": ("error", "sys.exit(enough)"),
    "skip": ("skipped", "not for this task"),
    "crash": ("error", "Segmentation fault"),
    "leak": ("out-of-memory", "MB of memory; the limit is 1,500 MB"),
    "file": ("error", "File too large"),
    "files": ("error", "MB of temporary files; the limit is 40 MB"),
    "nothing": ("error", "returned a NoneType, not a Release"),
    "nan": ("error", "2 rows hold NaN"),
}
HANGS = ("loop", "child", "lock")
GOOD = ("marginals", "ldpdc", "real")


def processes_of(marker: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if marker in line and folder.name != str(os.getpid()):
            found.append(line)
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    folder = tmp_path_factory.mktemp("faults")
    entries = [
        f'{{name = "misbehaves", label = "{how}", parameters = {{how = "{how}"}}}}'
        for how in FAULTS
    ] + [f'{{name = "hangs", label = "{how}", parameters = {{how = "{how}"}}}}' for how in HANGS]
    methods = ", ".join([*entries, *(f'"{name}"' for name in GOOD)])
    (folder / "faults.toml").write_text(
        f'datasets = ["gbsg2"]\nipc = [10]\nepsilon = [1]\nmetrics = ["ks"]\n'
        f"methods = [{methods}]\n"
    )
    command = [sys.executable, "-m", "bench", "run", "--grid", str(folder / "faults.toml")]
    command += ["--out", str(folder / "run"), "--memory-limit", "1500", "--disk-limit", "40"]
    result = subprocess.run(
        command, capture_output=True, text=True, env=install_plugin(folder / "packages"),
        timeout=300, check=False,
    )  # fmt: skip
    return result, folder / "run"


@pytest.fixture(scope="module")
def rows(run: tuple[subprocess.CompletedProcess[str], Path]) -> pd.DataFrame:
    assert run[0].returncode == 1, run[0].stderr
    return pd.read_parquet(run[1] / "cells.parquet").set_index("label")


@pytest.mark.parametrize("label", GOOD)
def test_every_other_cell_is_ok(rows: pd.DataFrame, label: str) -> None:
    assert rows.loc[label, "status"] == "ok"


@pytest.mark.parametrize("how", FAULTS)
def test_every_fault_is_named(rows: pd.DataFrame, how: str) -> None:
    status, reason = FAULTS[how]
    assert rows.loc[how, "status"] == status
    assert reason in rows.loc[how, "reason"]
    if status != "skipped":
        assert f"about to {how}" in rows.loc[how, "log_tail"], "the last lines of its log"


@pytest.mark.parametrize("how", HANGS)
def test_a_cell_that_hangs_is_stopped(rows: pd.DataFrame, how: str) -> None:
    assert rows.loc[how, "status"] == "timeout"
    assert rows.loc[how, "reason"] == "still running after 3 seconds"
    assert f"hanging in a {how}" in rows.loc[how, "log_tail"]
    assert not processes_of("while True: pass"), "the child of a killed worker is left behind"


def test_nothing_is_tried_twice(run: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    assert "started again" not in run[0].stdout
    lines = [json.loads(line) for line in (run[1] / "journal.jsonl").open()]
    assert len(lines) == len(FAULTS) + len(HANGS) + len(GOOD)


def test_faults_show_in_mlflow(run: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{run[1] / 'mlflow.db'}")
    logged = client.search_runs([e.experiment_id for e in client.search_experiments()])
    found = {one.data.params["label"]: one.data.tags["status"] for one in logged if one.data.params}
    assert {how: found[how] for how in FAULTS} == {how: FAULTS[how][0] for how in FAULTS}
    assert {found[how] for how in HANGS} == {"timeout"}
