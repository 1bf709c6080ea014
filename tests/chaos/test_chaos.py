"""Workers, a machine and the driver are killed at random until a grid of 300 cells is done.

No cell may be lost or computed twice, and every byte equals that of an undisturbed run. Failures
are injected after a random number of finished cells; BENCH_CHAOS_SEED changes their sequence.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytestmark = pytest.mark.chaos

BENCH = [sys.executable, "-m", "bench"]
CELLS = 300
GRID = """
datasets = ["gbsg2", "breast-cancer"]
methods = ["marginals", "subset", "ldpdc"]
ipc = [2, 5]
epsilon = [1.0, 10.0]
seeds = [SEEDS]
metrics = ["ks"]
"""
FILES = ("synthetic.parquet", "encoded.parquet", "ledger.json", "release.json")


def grid_file(folder: Path) -> Path:
    # marginals and ldpdc: 2 x 2 x 2 cells per seed each; subset: 2 x 2 per seed. 15 seeds: 300.
    text = GRID.replace("SEEDS", ", ".join(map(str, range(15))))
    path = folder / "chaos.toml"
    path.write_text(text)
    return path


def descendants(pid: int) -> list[int]:
    pids = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                pids += [child, *descendants(child)]
    return pids


def workers(cluster: Any) -> list[int]:
    """Return the processes that run cells, or could, on all machines."""
    pids = []
    for node in cluster.list_all_nodes():
        for kind, processes in node.all_processes.items():
            if kind == "raylet":
                for pid in descendants(processes[0].process.pid):
                    with contextlib.suppress(OSError):
                        if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::"):
                            pids.append(pid)
    return pids


def test_three_hundred_cells_survive_all_failures(tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    grid = grid_file(tmp_path)
    undisturbed, out = tmp_path / "undisturbed", tmp_path / "chaos"
    subprocess.run(
        [*BENCH, "run", "--grid", str(grid), "--out", str(undisturbed), "--no-mlflow"],
        check=True, capture_output=True,
    )  # fmt: skip
    rng = np.random.default_rng(int(os.environ.get("BENCH_CHAOS_SEED", "0")))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    second = cluster.add_node(num_cpus=1)
    failures: collections.Counter[str] = collections.Counter()
    command = [*BENCH, "run", "--grid", str(grid), "--out", str(out), "--no-mlflow"]
    command += ["--ray-address", cluster.address]
    targets = ["worker", "driver", "machine"] * 3
    try:
        drivers = 0
        while drivers < 60:
            drivers += 1
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
                assert driver.stdout is not None
                left = int(rng.integers(5, 30))
                for line in driver.stdout:
                    left -= line.startswith("ok")
                    if left > 0 or not targets:
                        continue
                    left = int(rng.integers(5, 30))
                    target = targets.pop(int(rng.integers(len(targets))))
                    failures[target] += 1
                    if target == "worker":
                        victims = workers(cluster)
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(int(rng.choice(victims)), signal.SIGKILL)
                    elif target == "machine":
                        cluster.remove_node(second, allow_graceful=False)
                        second = cluster.add_node(num_cpus=1)
                    else:
                        os.kill(driver.pid, signal.SIGKILL)
                        break
                driver.wait()
            if driver.returncode == 0:
                break
        assert driver.returncode == 0, f"not done after {drivers} drivers"
    finally:
        cluster.shutdown()
    assert not targets, f"the run ended before all failures were injected: {failures}"
    print(f"\n{dict(failures)} over {drivers} drivers")

    keys = [json.loads(line)["cell"]["key"] for line in (out / "journal.jsonl").open()]
    assert len(keys) == len(set(keys)) == CELLS, "every cell exactly once"
    cells, expected = (pd.read_parquet(side / "cells.parquet") for side in (out, undisturbed))
    assert set(cells["key"]) == set(expected["key"]) and (cells["status"] == "ok").all()
    for key in keys:
        for name in FILES:
            one, two = (side / "releases" / key / name for side in (out, undisturbed))
            assert one.read_bytes() == two.read_bytes(), f"{key}/{name}"
    scores = [
        pd.read_parquet(side / "scores.parquet").sort_values(["key", "metric"], ignore_index=True)
        for side in (out, undisturbed)
    ]
    pd.testing.assert_frame_equal(*scores)
