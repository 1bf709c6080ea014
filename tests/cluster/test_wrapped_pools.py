"""A wrapped library that uses `multiprocessing.Pool`: one that is stuck costs its own cell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd

PLUGIN = """
import multiprocessing
import time
from dataclasses import dataclass
from typing import ClassVar

from bench import DataFrameMethod, Resources


@dataclass(frozen=True)
class Pools(DataFrameMethod):
    name: ClassVar[str] = "pools"
    title: ClassVar[str] = "Counts in a pool"
    package: ClassVar[str] = "pools"

    def fit(self, frame, request):
        for _ in range(10):
            with multiprocessing.get_context("fork").Pool(2) as pool:
                assert pool.map(abs, [-1, -2]) == [1, 2]
        return lambda rows: frame.sample(rows, replace=True)


@dataclass(frozen=True)
class Stuck(DataFrameMethod):
    name: ClassVar[str] = "stuck"
    title: ClassVar[str] = "Waits for a pool that never answers"
    package: ClassVar[str] = "pools"
    resources: ClassVar[Resources] = Resources(minutes=0.1)

    def fit(self, frame, request):
        with multiprocessing.get_context("fork").Pool(2) as pool:
            pool.map(time.sleep, [10**6] * 2)
"""


def install(folder: Path) -> dict[str, str]:
    information = folder / "pools-1.0.dist-info"
    information.mkdir(parents=True)
    (folder / "pools_plugin.py").write_text(PLUGIN)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: pools\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[bench.methods]\npools = pools_plugin:Pools\nstuck = pools_plugin:Stuck\n"
    )
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_a_stuck_pool_is_one_timeout_and_the_other_cells_finish(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "run", "--grid", "smoke", "--methods"]
    command += ["stuck,pools,marginals", "--datasets", "gbsg2", "--ipc", "5", "--eps", "1"]
    command += ["--metrics", "ks", "--out", str(tmp_path / "run"), "--cpus", "1", "--no-mlflow"]
    done = subprocess.run(
        command,
        env=install(tmp_path / "packages"),
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    rows = pd.read_parquet(tmp_path / "run" / "cells.parquet").set_index("label")
    assert rows["status"].to_dict() == {"stuck": "timeout", "pools": "ok", "marginals": "ok"}
    assert "still running after 6 seconds" in rows.loc["stuck", "reason"]
    assert rows.loc["pools", "verdict"] == "unproven"
    assert rows.loc["pools", "claim_source"] == "pools 1.0"
