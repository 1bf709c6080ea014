"""What it costs to keep the tables of a large run up to date while it is going.

A journal of 20,000 cells with 100 scores and 45 timings each is compacted; then 100 cells are added
and it is compacted again, by reading the lines that were added and by reading all of them (as every
compaction did before). Processor time and the peak of memory, in one run.

    python benchmarks/compaction.py [CELLS]

Goal: a compaction takes less than a thirtieth of the time between two of them, and memory does not
grow with the number of cells.
"""

from __future__ import annotations

import dataclasses
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

ADDED = 100
SCORES = 100
METRICS = 40


def outcome(key: str):
    from bench.engine.cell import blank_row
    from bench.results.records import Cell, Outcome, ScoreRow, TimingRow, Variant

    cell = Cell(
        Variant("marginals", "marginals"), Variant("gbsg2", "gbsg2"), 50, False, 1.0, 1e-5, 0,
        "default", 0,
    )  # fmt: skip
    row = dataclasses.replace(
        blank_row(cell, key, None), status="ok", finished_at="2026-01-02T03:04:05+00:00"
    )
    scores = tuple(
        ScoreRow(key, f"family/metric-{n}", n / 7, n / 8, n / 6, "higher", "utility", "")
        for n in range(SCORES)
    )
    phases = [TimingRow(key, name, "", 1.0, 1.0) for name in ("load", "fit", "prove", "write")]
    metrics = [TimingRow(key, "score", f"metric-{n}", n / 7, n / 8) for n in range(METRICS)]
    whole = TimingRow(key, "score", "", 20.0, 20.0)
    return Outcome(row, scores, timings=(*phases, whole, *metrics))


def lines(first: int, count: int) -> bytes:
    """Lines of cells: written at once, since 20,000 syncs measure the disk."""
    from bench.results.journal import Journal

    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "journal.jsonl", write=True)
        journal.record(outcome("key0"))
        journal.close()
        line = (Path(folder) / "journal.jsonl").read_bytes()
    assert json.loads(line)
    return b"".join(line.replace(b"key0", b"key%d" % n) for n in range(first, first + count))


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    from bench.results.compaction import Compaction
    from bench.results.journal import Journal

    cells = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        path = directory / "journal.jsonl"
        with path.open("wb") as file:
            for first in range(0, cells, 500):
                file.write(lines(first, min(500, cells - first)))
        journal = Journal(path, write=True)
        print(f"{cells:,} cells: journal {path.stat().st_size / 2**20:,.0f} MB, {peak():.0f} MB")
        compaction = Compaction(directory, journal)
        start = time.process_time()
        compaction.compact()
        whole = time.process_time() - start
        print(f"all lines read: {whole:.1f} s of processor time, peak of memory {peak():.0f} MB")
        for n in range(cells, cells + ADDED):
            journal.record(outcome(f"key{n}"))
        start, wall = time.process_time(), time.perf_counter()
        compaction.compact()
        added = time.process_time() - start
        wall = time.perf_counter() - wall
        print(
            f"{ADDED} cells added: {added:.2f} s ({wall:.2f} s wall), peak {peak():.0f} MB; "
            f"{whole / added:.0f} times less than reading all lines"
        )
        share = added / max(60.0, 30.0 * wall)
        print(f"share of one CPU at one compaction a minute, or a thirtieth: {share:.1%}")


if __name__ == "__main__":
    main()
