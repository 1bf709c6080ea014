"""Does `bench run --dry-run --estimate` say what a grid costs? Checked on a slice of `full`.

Cells are drawn at random from the grid, without those whose timings the estimate is based on and
without methods whose own environment is not built here. They are run on one CPU with one thread
each; what they took (processor time of all phases, from `timings.parquet`) is compared with the
projection of the same cells. Goal: within 25%.

    python benchmarks/estimate.py                                    # 20 cells, a few minutes
    python benchmarks/estimate.py --cells 200 --out runs/slice       # the whole check, half an hour
    python benchmarks/estimate.py --cells 200 --out runs/slice --timings runs/timings

The first two check the shipped table, the last one that of another run. A second call with the same
`--out` continues, or compares only.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

GOAL = 0.25


def run_slice(cells: list, out: Path) -> None:
    from bench.cluster.driver import carry_out
    from bench.engine.grid import load_grid
    from bench.engine.options import RunOptions, manifest
    from bench.engine.plan import load_dataset, plan_cells
    from bench.plugins import registry
    from bench.results.run_directory import RunStore

    grid = load_grid("full")
    metrics = registry.select_metrics(grid.metrics)
    options = RunOptions(out, cpus=1, tracking=False)
    with RunStore(out) as store:
        store.write_manifest(manifest(grid, metrics))
        used = dict.fromkeys(cell.dataset for cell in cells)
        datasets = {entry: load_dataset(entry, grid.split, grid.split_seed) for entry in used}
        plan = plan_cells(cells, datasets, store, metrics)
        carry_out(plan, datasets, store, options, lambda store: (), time.perf_counter(), print)


def drawn(count: int, seed: int, known: set) -> list:
    """Return cells of `full`, drawn at random."""
    from bench.engine.grid import load_grid
    from bench.environments import overlays
    from bench.plugins import registry

    def here(name: str) -> bool:
        environment = registry.method_class(name).environment
        return environment is None or overlays.inside(environment)

    cells = [
        cell
        for cell in load_grid("full").cells()
        if here(cell.method.name) and _identity(cell) not in known
    ]
    order = np.random.default_rng(seed).permutation(len(cells))[:count]
    return [cells[number] for number in sorted(order)]


def _identity(cell) -> tuple:
    return cell.method.label, cell.dataset.label, cell.ipc_text, cell.epsilon, cell.seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="run directory of the slice [a temporary one]")
    parser.add_argument("--timings", type=Path, action="append", default=[])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        check(asked, asked.out or Path(scratch) / "slice")


def check(asked: argparse.Namespace, out: Path) -> None:
    """Run the slice, and compare."""
    from bench.results.reading import open_journal, read_tables

    known = {_identity(row.cell) for place in asked.timings for row, _ in open_journal(place).all()}
    cells = drawn(asked.cells, asked.seed, known)
    run_slice(cells, out)

    from bench.engine.estimate import project, stored_timings

    timings = read_tables(out).timings
    phases = timings[timings["metric"] == ""]
    measured = float(phases["processor_seconds"].sum())
    projection = project(cells, (), stored_timings(asked.timings, shipped_too=not asked.timings))
    ratio = projection.seconds / measured
    verdict = "met" if abs(ratio - 1) <= GOAL else "NOT met"
    print(f"{len(cells)} cells of `full`: measured {measured:,.0f} s of processor time")
    print(
        f"  projected {projection.seconds:,.0f} s ({projection.low:,.0f} to "
        f"{projection.high:,.0f}): ratio {ratio:.3f}; goal within {GOAL:.0%}: {verdict}"
    )
    fit = phases[phases["phase"].isin(["fit", "prove"])]["processor_seconds"].sum()
    print(f"  of which fits: measured {fit:,.0f} s, projected {projection.fit_seconds:,.0f} s")


if __name__ == "__main__":
    main()
