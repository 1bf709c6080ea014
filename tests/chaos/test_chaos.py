"""All that can happen to a run, until a grid of 300 cells is done.

Workers, a machine and the driver are killed, the disk becomes full, and the run directory is moved
away or deleted, each after a random number of finished cells (BENCH_CHAOS_SEED: another sequence).
No cell may be lost or computed twice, and every byte equals that of an undisturbed run. A driver
that cannot write says so in one line and ends with exit code 2; the same command resumes once there
is space, or the directory is back. (One that was deleted is begun anew.)

The run directory is on a small file system, which is filled. Where none can be mounted, the running
driver gets a limit on the size of its files, which the journal then exceeds.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
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
                        name = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
                        # With one of its agents a machine is lost, and with the head the cluster.
                        if name.startswith(b"ray::") and not name.endswith(b"Agent"):
                            pids.append(pid)
    return pids


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system, or a folder where none can be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48m,mode=700", "tmpfs", str(folder)],
        capture_output=True, check=False,
    )  # fmt: skip
    yield folder
    if not mounted.returncode:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, driver: int, out: Path) -> str:
    """Leave no room for anything; return how."""
    if not os.path.ismount(disk):
        size = (out / "journal.jsonl").stat().st_size
        resource.prlimit(driver, resource.RLIMIT_FSIZE, (size, size))
        return "File too large"
    with (disk / "filler").open("wb", buffering=0) as filler:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while filler.write(bytes(size)):
                    pass
    return "No space left on device"


def harm(target: str, disk: Path, driver: int, out: Path) -> str:
    """Do something to the run directory; return what the driver must say about it."""
    if target == "full disk":
        return fill(disk, driver, out)
    if target == "moved folder":
        out.rename(out.with_name("away"))
    else:
        # Files may appear while it is deleted: then it is tried again.
        while out.exists():
            shutil.rmtree(out, ignore_errors=True)
    return "was removed meanwhile"


def repair(disk: Path, out: Path) -> None:
    (disk / "filler").unlink(missing_ok=True)
    away = out.with_name("away")
    if away.exists():
        assert not out.exists(), "no empty directory in the place of one that is gone"
        away.rename(out)


def test_three_hundred_cells_survive_all_failures(tmp_path: Path, disk: Path) -> None:
    from ray.cluster_utils import Cluster

    grid = grid_file(tmp_path)
    undisturbed, out = tmp_path / "undisturbed", disk / "chaos"
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
    targets = [*(["worker", "driver", "machine"] * 3), *(["full disk", "moved folder"] * 2)]
    # First, so that not too much is computed twice.
    order = ["deleted folder", *map(str, rng.permutation(targets))]
    computed = 0
    try:
        drivers = 0
        while drivers < 60:
            drivers += 1
            said, expected = "", ""
            with subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            ) as driver:
                assert driver.stdout is not None
                left = int(rng.integers(5, 25))
                for line in driver.stdout:
                    said += line
                    computed += line.startswith("ok")
                    left -= line.startswith("ok")
                    if left > 0 or not order or expected:
                        continue
                    left = int(rng.integers(5, 25))
                    target = order.pop(0)
                    failures[target] += 1
                    if target == "worker":
                        victims = workers(cluster)
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(int(rng.choice(victims)), signal.SIGKILL)
                    elif target == "machine":
                        cluster.remove_node(second, allow_graceful=False)
                        second = cluster.add_node(num_cpus=1)
                    elif target == "driver":
                        os.kill(driver.pid, signal.SIGKILL)
                        break
                    else:
                        expected = harm(target, disk, driver.pid, out)
                driver.wait()
            assert "Traceback" not in said, said
            if expected:
                assert driver.returncode == 2, said
                (told,) = [text for text in said.splitlines() if text.startswith("bench: ")]
                assert expected in told
                repair(disk, out)
            elif driver.returncode == 0:
                break
            else:
                assert driver.returncode == -signal.SIGKILL, said
        assert driver.returncode == 0, f"not done after {drivers} drivers: {said}"
    finally:
        cluster.shutdown()
    assert not order, f"the run ended before all failures were injected: {failures}"
    how = "a small file system" if os.path.ismount(disk) else "a limit on the size of files"
    print(f"\n{dict(failures)} over {drivers} drivers, {computed} cells computed; disk: {how}")

    keys = [json.loads(line)["cell"]["key"] for line in (out / "journal.jsonl").open()]
    assert len(keys) == len(set(keys)) == CELLS, "every cell exactly once"
    cells, expected_cells = (pd.read_parquet(side / "cells.parquet") for side in (out, undisturbed))
    assert set(cells["key"]) == set(expected_cells["key"]) and (cells["status"] == "ok").all()
    for room in ("releases", "details"):
        one, two = (
            {
                str(path.relative_to(side)): path.read_bytes()
                for path in (side / room).rglob("*")
                if path.is_file()
            }
            for side in (out, undisturbed)
        )
        assert set(one) == set(two) and len(one) >= CELLS, room
        assert [name for name in one if one[name] != two[name]] == []
    assert not (out / "quarantine.jsonl").exists()
    scores = [
        pd.read_parquet(side / "scores.parquet").sort_values(["key", "metric"], ignore_index=True)
        for side in (out, undisturbed)
    ]
    pd.testing.assert_frame_equal(*scores)
