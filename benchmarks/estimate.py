"""Does `bench run --dry-run --estimate` say what a grid costs? Checked on a slice of `full`.

Cells are drawn at random from the grid, without those whose timings the estimate is based on and
without methods whose own environment is not built here. They are run on one CPU with one thread
each; what they took (processor time of all phases, from `timings.parquet`) is compared with the
projection of the same cells. Goal: within 25%.

    python benchmarks/estimate.py                                    # 20 cells, a few minutes
    python benchmarks/estimate.py --cells 200 --out runs/slice       # the whole check, half an hour
    python benchmarks/estimate.py --cells 200 --out runs/slice --timings runs/timings

    python benchmarks/estimate.py --of runs/core                     # runs nothing: seconds

The first two check the shipped table, the third one that of another run. A second call with the
same `--out` continues, or compares only. The last one compares the cells of any run directory that
have ended, with the metrics of that run, and names the methods whose fits differ most; with
`--halves` each half of these cells, drawn at random, is projected from the timings of the other;
with `--refresh` the timings of its fits replace those of the shipped table, method and dataset by
method and dataset. Scores stay: those of a run with some metrics say nothing about the others.
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
    parser.add_argument("--of", type=Path, help="a run directory whose cells are compared")
    parser.add_argument(
        "--refresh", action="store_true", help="with --of: put its fits into the shipped table"
    )
    parser.add_argument("--halves", action="store_true", help="with --of: predict half by half")
    asked = parser.parse_args()
    if asked.of is not None:
        compare(asked)
        return
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
    fit = float(phases[phases["phase"].isin(["fit", "prove"])]["processor_seconds"].sum())
    tell(f"{len(cells)} cells of `full`", measured, fit, projection)


def tell(which: str, measured: float, fit: float, projection) -> None:
    ratio = projection.seconds / measured
    verdict = "met" if abs(ratio - 1) <= GOAL else "NOT met"
    print(f"{which}: measured {measured:,.0f} s of processor time")
    print(
        f"  projected {projection.seconds:,.0f} s ({projection.low:,.0f} to "
        f"{projection.high:,.0f}): ratio {ratio:.3f}; goal within {GOAL:.0%}: {verdict}"
    )
    print(f"  of which fits: measured {fit:,.0f} s, projected {projection.fit_seconds:,.0f} s")


def compare(asked: argparse.Namespace) -> None:
    """Compare the projection with what the cells of a run have taken."""
    import json
    import shutil
    from collections import Counter

    from bench.engine.estimate import project, stored_timings
    from bench.results.reading import open_journal, read_tables
    from bench.results.run_directory import RunStore

    with tempfile.TemporaryDirectory() as scratch:
        # A copy of the journal: the run may be going on, and its tables are as old as a minute.
        copy = Path(scratch) / "run"
        copy.mkdir()
        for name in ("run.json", "journal.jsonl"):
            shutil.copy(asked.of / name, copy / name)
        with RunStore.existing(copy) as store:
            store.compact()
        metrics = tuple(json.loads((copy / "run.json").read_text())["metrics"])
        cells = {row.key: row.cell for row, _ in open_journal(copy).all() if row.status == "ok"}
        timings = read_tables(copy).timings
        phases = timings[(timings["metric"] == "") & timings["key"].isin(cells)]
        fitting = phases[phases["phase"].isin(["fit", "prove"])]
        took = phases["processor_seconds"].sum()
        fits = fitting["processor_seconds"].sum()
        if asked.refresh:
            refresh(copy)
        if not asked.halves:
            known = stored_timings(asked.timings, shipped_too=not asked.timings)
            projection = project([*cells.values()], metrics, known)
            tell(f"{len(cells)} cells of {asked.of.name}", took, fits, projection)
            basis = Counter()
            for pair in projection.pairs:
                basis.update(pair.basis)
            print("  cells by basis:", dict(basis))
            by_method = Counter()
            for key, seconds in fitting.groupby("key")["processor_seconds"].sum().items():
                by_method[cells[key].method.label] += seconds
            told = Counter()
            for pair in projection.pairs:
                told[pair.method] += pair.fit_seconds
            apart = sorted(told, key=lambda name: -abs(told[name] - by_method[name]))
            for name in apart[:10]:
                print(
                    f"    {name}: measured {by_method[name]:,.1f} s, projected {told[name]:,.1f} s"
                )
            return
        keys = np.random.default_rng(asked.seed).permutation(sorted(cells))
        total, fit_seconds, low, high = 0.0, 0.0, 0.0, 0.0
        for number in (0, 1):
            half, other = set(keys[number::2]), set(keys[1 - number :: 2])
            place = Path(scratch) / f"half{number}"
            place.mkdir()
            lines = (copy / "journal.jsonl").read_text().splitlines(keepends=True)
            kept = [one for one in lines if json.loads(one)["cell"]["key"] in other]
            (place / "journal.jsonl").write_text("".join(kept))
            shutil.copy(copy / "run.json", place / "run.json")
            with RunStore.existing(place) as store:
                store.compact()
            projection = project([cells[key] for key in half], metrics, stored_timings([place]))
            total += projection.seconds
            fit_seconds += projection.fit_seconds
            low, high = low + projection.low, high + projection.high
        print(f"each half of {len(cells)} cells from the other: measured {took:,.0f} s")
        print(f"  projected {total:,.0f} s ({low:,.0f} to {high:,.0f}): ratio {total / took:.3f}")
        print(f"  of which fits: measured {fits:,.0f} s, projected {fit_seconds:,.0f} s")


def refresh(run: Path) -> None:
    from bench.engine import timing_table

    def subject(line) -> tuple[str, str]:
        return line.method, line.dataset

    fits = [line for line in timing_table.lines_of(run) if line.kind in ("fit", "skip")]
    known = {subject(line) for line in fits}
    kept = [line for line in timing_table.shipped() if subject(line) not in known]
    lines = sorted(kept + fits, key=lambda line: timing_table.KINDS.index(line.kind))
    cells = sum(line.cells for line in lines if line.kind in ("fit", "skip"))
    processor = timing_table.shipped_origin().partition(" of ")[2]
    text = timing_table.to_text(lines, f"{cells} cells on one thread of {processor}")
    path = Path(timing_table.__file__).parent / timing_table.FILE
    path.write_text(text)
    print(f"{path}: fits of {len(known)} methods on datasets replaced")


if __name__ == "__main__":
    main()
