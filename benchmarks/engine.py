"""Overhead of the engine per cell, beside a bare Ray task in the same run.

1. Overhead: 2,000 cells that release two rows of zeros and are scored by one cheap metric, with
   storing and MLflow. Time of a cell beyond its own fit and score, against a bare Ray task that
   does nothing. Goal: under 25 ms. Of that, the driver's processor time with and without MLflow,
   which other work on the machine disturbs less.
2. Memory of the driver with 2,000 and with 20,000 cells (without MLflow). Goal: constant.
3. Parallel efficiency: cells of 5 s on one CPU and on two. Goal: 0.9 or more.

    python benchmarks/engine.py            # 1 and 3, some minutes
    python benchmarks/engine.py --memory   # 2, half an hour
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GOAL_MS = 25.0
GOAL_EFFICIENCY = 0.9

PLUGINS = """
import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bench import Method, Release, Rows


@dataclass(frozen=True)
class Zeros(Method):
    name: ClassVar[str] = "zeros"
    title: ClassVar[str] = "Zeros after some seconds"
    uses_budget: ClassVar[bool] = False
    seconds: float = 0.0

    def synthesize(self, private, spec, rng):
        end = time.process_time() + self.seconds
        while time.process_time() < end:
            pass
        return Release(Rows(np.zeros((2, private.width), dtype=np.float32), np.array([0, 1])))
"""

DRIVER = """
import json, resource, sys, time
from pathlib import Path
from bench.engine.options import RunOptions
from bench.engine.grid import load_grid
from bench.cluster.driver import run_grid
from bench.tracking.tracker import Tracker

grid, out, cpus, tracking = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "yes"
trackers = []

class Clock:
    first = last = 0.0
    count = 0
    def planned(self, total, cached, notices): pass
    def running(self, cells): pass
    def finished(self, outcome, store):
        # The first cell of each worker starts it, and is left out.
        self.last = time.perf_counter()
        self.count += 1
        if self.count == cpus:
            self.first = self.last

clock = Clock()

def observers(store):
    if tracking:
        trackers.append(Tracker(store, None, print))
    return [*trackers, clock]

started = time.process_time()
summary = run_grid(load_grid(grid), RunOptions(out, cpus=cpus), observers)
for tracker in trackers:
    tracker.close(summary.failed)
end = time.perf_counter()
# A cell that failed has neither; how many did is told, and ends the benchmark.
computing = [(row.fit_seconds or 0) + (row.score_seconds or 0) for row, _ in summary.results()]
print(json.dumps({
    "cells": len(computing), "failed": summary.failed, "computing": sum(computing),
    "seconds": clock.last - clock.first,
    "with_tracking": end - clock.first,
    "driver": time.process_time() - started,
    "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
}))
"""

BARE = """
import sys, time, logging, os
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
import ray
ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level=logging.ERROR)
task = ray.remote(num_cpus=1, max_retries=0)(lambda: None)
ray.get([task.remote() for _ in range(20)])
start = time.perf_counter()
waiting, left = [], int(sys.argv[1])
while left or waiting:
    while left and len(waiting) < 4:
        waiting.append(task.remote()); left -= 1
    done, waiting = ray.wait(waiting)
    ray.get(done)
print((time.perf_counter() - start) / int(sys.argv[1]))
"""


def environment(folder: Path) -> dict[str, str]:
    information = folder / "zeros-1.0.dist-info"
    information.mkdir(parents=True)
    (folder / "zeros_plugin.py").write_text(PLUGINS)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: zeros\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[bench.methods]\nzeros = zeros_plugin:Zeros\n")
    quiet = {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    return {**os.environ, **quiet}


def name_of(cells: int, seconds: float, cpus: int, tracking: bool) -> str:
    """Return the name of the run directory, and of its grid file without the ending."""
    return f"{cells}-{seconds:g}-{cpus}-{tracking:d}"


def run(
    folder: Path, cells: int, seconds: float, cpus: int, tracking: bool, known: dict[str, str]
) -> dict[str, float]:
    name = name_of(cells, seconds, cpus, tracking)
    grid = folder / f"{name}.toml"
    grid.write_text(
        f'datasets = ["gbsg2"]\nipc = [1]\nseeds = {list(range(cells))}\nmetrics = ["ks"]\n'
        f'methods = [{{name = "zeros", parameters = {{seconds = {seconds}}}}}]\n'
    )
    arguments = [str(grid), str(folder / name), str(cpus), "yes" if tracking else "no"]
    result: dict[str, float] = json.loads(last_line(DRIVER, *arguments, known=known))
    if result["failed"]:
        raise SystemExit(f"{result['failed']} of {cells} cells failed:\n{reasons(folder / name)}")
    return result


def last_line(program: str, *arguments: str, known: dict[str, str]) -> str:
    """Run a program and return its last line; where it fails, end with all that it printed."""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=known, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.splitlines()[-1]


def reasons(directory: Path) -> str:
    """Return the statuses and reasons of the cells of a run directory that failed."""
    lines = [json.loads(line) for line in (directory / "journal.jsonl").read_text().splitlines()]
    cells = [line.get("cell", {}) for line in lines]
    return "\n".join(
        f"{row['status']}: {row['reason']}" for row in cells if row.get("status", "ok") != "ok"
    )


def plain_efficiency() -> float:
    """Return the efficiency of the machine itself: one busy process against two at once."""
    spin = "import time; end = time.process_time() + 5\nwhile time.process_time() < end: pass"
    seconds = []
    for count in (1, 2):
        start = time.perf_counter()
        running = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(count)]
        for process in running:
            process.wait()
        seconds.append(time.perf_counter() - start)
    return seconds[0] / seconds[1]


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        known = environment(folder / "packages")
        if "--memory" in sys.argv:
            few, many = (run(folder, n, 0.0, 2, False, known)["peak_mb"] for n in (2_000, 20_000))
            print(f"driver's peak memory: {few:.0f} MB for 2,000 cells, {many:.0f} MB for 20,000")
            print(f"  {(many - few) / 18_000 * 1024:.1f} KB more per cell")
            return
        start = time.perf_counter()
        task = 1000 * float(last_line(BARE, "2000", known=known))
        result = run(folder, 2_000, 0.0, 2, True, known)
        computing = result["computing"] / 2 / result["cells"] * 1000
        stored = result["seconds"] / result["cells"] * 1000
        tracked = result["with_tracking"] / result["cells"] * 1000
        print(f"a bare Ray task: {task:.2f} ms")
        print(f"a cell: {tracked:.1f} ms with MLflow, {stored:.1f} ms until stored")
        print(f"  of which its own fit and score on two CPUs: {computing:.1f} ms")
        over = tracked - computing
        verdict = "met" if over < GOAL_MS else "NOT met"
        print(
            f"overhead: {over:.1f} ms, {over / task:.0f} bare tasks; goal {GOAL_MS:g} ms: {verdict}"
        )
        without = run(folder, 2_000, 0.0, 2, False, known)
        with_mlflow, alone = (1000 * one["driver"] / one["cells"] for one in (result, without))
        print(
            f"processor time of the driver: {with_mlflow:.1f} ms a cell with MLflow, {alone:.1f} "
            f"ms without: {with_mlflow - alone:.1f} ms for MLflow"
        )
        one, two = (run(folder, 8, 5.0, cpus, False, known) for cpus in (1, 2))
        efficiency = (one["seconds"] / 7) / (two["seconds"] / 6) / 2
        verdict = "met" if efficiency >= GOAL_EFFICIENCY else "NOT met"
        print(f"parallel efficiency of 5 s cells on two CPUs: {efficiency:.3f}: {verdict}")
        print(f"  of two plain processes in the same run: {plain_efficiency():.3f}")
        print(f"({time.perf_counter() - start:.0f} s)")


if __name__ == "__main__":
    main()
