"""Overhead of a separate environment per cell, against the same method without one, in one run.

Both methods sleep briefly and release zeros, on one CPU. The cells without an environment come
first, so the time of each kind is the time between the ends of its cells: the first isolated cell
starts its interpreter (goal: less than 5 s more), later ones reuse it (goal: less than 0.5 s more).
They sleep because Ray, by default, ends workers that are idle for a second. The environment has no
requirements; the imports of a method there take additional time.

    python benchmarks/isolation.py
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

CELLS = 10
FIRST, LATER = 5.0, 0.5
METHODS = ("open", "secluded")

PLUGINS = """
import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bench import Environment, Method, Release, Rows


def zeros(private, spec):
    time.sleep(1.5)
    labels = np.repeat([0, 1], spec.ipc)
    return Release(Rows(np.zeros((len(labels), private.width)), labels))


@dataclass(frozen=True)
class Open(Method):
    name: ClassVar[str] = "open"
    title: ClassVar[str] = "Zeros"

    def synthesize(self, private, spec, rng):
        return zeros(private, spec)


@dataclass(frozen=True)
class Secluded(Method):
    name: ClassVar[str] = "secluded"
    title: ClassVar[str] = "Zeros from a separate environment"
    environment: ClassVar[Environment] = Environment("bare", (), ())

    def synthesize(self, private, spec, rng):
        return zeros(private, spec)
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        _install(Path(scratch))
        ended = _run(Path(scratch))
    times = {kind: [when for method, when in ended if method == kind] for kind in METHODS}
    # The first of all cells also starts the main worker.
    plain = _each(times["open"])
    # Two cells are in flight: both fits come before both scorings, so cells end in pairs.
    first = times["secluded"][1] - times["open"][-1] - 2 * plain
    later = _each(times["secluded"][1:])
    print(f"{CELLS} cells of each kind on one CPU, seconds per cell:")
    print(f"  without an environment {plain:.3f}")
    print(f"  isolated, first: {first:.2f} more (goal: below {FIRST:g})")
    print(f"  isolated, later {later:.3f}: {later - plain:.3f} more (goal: below {LATER:g})")


def _each(times: Sequence[float]) -> float:
    return (times[-1] - times[0]) / (len(times) - 1)


def _install(scratch: Path) -> None:
    """Install the two methods as a package that this process and Ray's workers find."""
    folder = scratch / "packages"
    information = folder / "zeros-1.0.dist-info"
    information.mkdir(parents=True)
    (folder / "zeros_plugins.py").write_text(PLUGINS)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: zeros\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[bench.methods]\nopen = zeros_plugins:Open\nsecluded = zeros_plugins:Secluded\n"
    )
    sys.path.append(str(folder))
    os.environ["PYTHONPATH"] = str(folder)
    os.environ["BENCH_ENVIRONMENTS"] = str(scratch / "environments")


def _run(scratch: Path) -> list[tuple[str, float]]:
    """Run the grid; return method and time of the end of every cell, in order."""
    from bench.cluster.driver import run_grid
    from bench.engine.grid import load_grid
    from bench.engine.options import RunOptions
    from bench.results.records import Outcome
    from bench.results.run_directory import RunningCell, RunStore

    ended: list[tuple[str, float]] = []

    class Clock:
        def planned(self, total: int, cached: int, notices: Sequence[str]) -> None:
            return

        def running(self, cells: Sequence[RunningCell]) -> None:
            return

        def finished(self, outcome: Outcome, store: RunStore) -> None:
            if outcome.row.status != "ok":
                raise SystemExit(f"a cell failed: {outcome.row.reason}")
            ended.append((outcome.row.method, time.perf_counter()))

    grid = scratch / "grid.toml"
    grid.write_text(
        'datasets = ["gbsg2"]\nmethods = ["open", "secluded"]\nipc = [10]\nepsilon = [1]\n'
        f'metrics = ["ks"]\nseeds = {list(range(CELLS))}\n'
    )
    options = RunOptions(out=scratch / "run", cpus=1, tracking=False)
    run_grid(load_grid(str(grid)), options, lambda store: [Clock()])
    return ended


if __name__ == "__main__":
    main()
