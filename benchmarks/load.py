"""A run of 20,000 trivial cells: memory and overhead of the driver, size of what it leaves, and
seconds and memory of the commands that read it.

Each cell releases two rows of zeros and is scored by one cheap metric; nothing is logged to MLflow.
A tenth of the cells is run first, so that whatever grows with the number of cells shows in the
same run: its memory and its seconds per cell are the alternative that the whole run is compared
with. `bench status`, the same command again (which finds everything done) and `bench leaderboard`
are then timed on both directories. Commands are compared by processor time, which other work on
the machine does not disturb; the seconds of a cell are those between two results, on two CPUs.

    OMP_NUM_THREADS=1 python benchmarks/load.py [cells] [folder to keep the run directories in]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import engine

CELLS = 20_000

MEASURED = """
import json, resource, subprocess, sys, time
started = time.perf_counter()
done = subprocess.run(sys.argv[1:], capture_output=True, text=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
if done.returncode:
    sys.exit(done.stdout + done.stderr)
print(json.dumps({
    "seconds": time.perf_counter() - started,
    "processor": used.ru_utime + used.ru_stime,
    "megabytes": used.ru_maxrss / 1024,
}))
"""


@dataclass(frozen=True)
class Command:
    """What a command took."""

    seconds: float
    processor: float
    megabytes: float


def measured(environment: dict[str, str], *arguments: str) -> Command:
    """Run `bench` with these arguments in a process of its own, and measure it."""
    command = [sys.executable, "-c", MEASURED, sys.executable, "-m", "bench", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return Command(**json.loads(done.stdout))


def size(path: Path) -> float:
    """Return the megabytes of a file or folder."""
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    return sum(one.stat().st_size for one in files) / 1e6


def report(folder: Path, cells: int, environment: dict[str, str]) -> dict[str, Any]:
    """Run that many cells, print all about them, and return the numbers."""
    result = engine.run(folder, cells, 0.0, 2, False, environment)
    name = engine.name_of(cells, 0.0, 2, False)
    directory, grid = folder / name, folder / f"{name}.toml"
    computing = result["computing"] / 2 / cells * 1000
    stored = result["seconds"] / cells * 1000
    print(f"{cells:,} cells")
    print(
        f"  a cell: {stored:.1f} ms until stored, of which its own fit and score on two CPUs "
        f"{computing:.1f} ms: {stored - computing:.1f} ms overhead"
    )
    print(f"  driver: {result['peak_mb']:.0f} MB")
    journal, releases = size(directory / "journal.jsonl"), size(directory / "releases")
    print(
        f"  journal {journal:.1f} MB ({journal / cells * 1e6:,.0f} bytes per cell), tables "
        f"{size(directory / 'cells.parquet') + size(directory / 'scores.parquet'):.1f} MB, "
        f"releases {releases:.1f} MB"
    )
    again = ["run", "--grid", str(grid), "--out", str(directory), "--no-mlflow"]
    commands = {
        "bench status": ["status", str(directory)],
        "bench run, again": again,
        "bench leaderboard": ["leaderboard", str(directory), "-o", str(folder / f"site{cells}")],
    }
    numbers = {
        "cells": cells,
        "stored_ms": stored,
        "computing_ms": computing,
        "overhead": stored - computing,
        "driver": result["peak_mb"],
        "driver_ms": 1000 * result["driver"] / cells,
        "journal": journal,
        "tables": size(directory / "cells.parquet") + size(directory / "scores.parquet"),
        "releases": releases,
        "commands": {},
    }
    for name, arguments in commands.items():
        one = measured(environment, *arguments)
        print(
            f"  {name}: {one.seconds:.1f} s ({one.processor:.1f} s of processor), "
            f"{one.megabytes:.0f} MB",
            flush=True,
        )
        numbers["commands"][name] = asdict(one)
    return numbers


def main() -> None:
    """Print what a tenth of the cells and all of them take."""
    cells = int(sys.argv[1]) if len(sys.argv) > 1 else CELLS
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        environment = engine.environment(folder / "packages")
        few, many = (report(folder, count, environment) for count in (cells // 10, cells))
    print(f"ten times the cells take {many['driver'] / few['driver']:.2f} times the memory,")
    print(f"  {many['overhead'] / few['overhead']:.2f} times the overhead per cell,")
    for name in ("bench status", "bench run, again", "bench leaderboard"):
        ratio = many["commands"][name]["processor"] / few["commands"][name]["processor"]
        print(f"  {ratio:.1f} times the processor time of {name}")


if __name__ == "__main__":
    main()
