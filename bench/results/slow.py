"""Where the time of a run went: its slowest metrics, methods and cells, for `bench status --slow`.

Processor time, of all threads of a cell: on a busy machine wall time says little.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from bench.errors import printable
from bench.results.reading import check_run, read_tables
from bench.results.records import PHASES, CellRow

if TYPE_CHECKING:
    import pandas as pd

_LISTED = 10


@final
@dataclass(frozen=True)
class Spent:
    """Processor time of some steps that have a name in common."""

    name: str
    cells: int
    seconds: float
    mean: float
    """Per cell that has the step."""
    most: float
    slowest: str
    """The cell that took most."""
    share: float
    """Of the processor time of all cells."""


@final
@dataclass(frozen=True)
class Slow:
    """Where the time of a run went; each list has the slowest first."""

    directory: str
    cells: int
    """Cells with timings."""
    without: int
    """Cells that ended without: of an earlier version, or stopped from outside."""
    seconds: float
    wall_seconds: float
    phases: tuple[Spent, ...]
    metrics: tuple[Spent, ...]
    methods: tuple[Spent, ...]
    """By what fitting and proving took."""
    slowest: tuple[Spent, ...]
    """Cells."""

    def to_json(self) -> str:
        """Return JSON."""
        return json.dumps(asdict(self), indent=1)


def read_slow(directory: Path) -> Slow:
    """Read a run directory, whoever is writing to it."""
    check_run(directory)
    tables = read_tables(directory)
    cells, timings = tables.cells, tables.timings
    described = {row.key: row.cell.describe() for row in _rows(cells)}
    labels = dict(zip(cells["key"], cells["label"], strict=True))
    timings = timings[timings["key"].isin(described)]
    whole = timings[timings["metric"] == ""]
    total = float(whole["processor_seconds"].sum())
    metrics = timings[timings["metric"] != ""]
    fits = whole[whole["phase"].isin(["fit", "prove"])]
    timed = whole["key"].nunique()

    def spent(frame: pd.DataFrame, by: Iterable[str]) -> tuple[Spent, ...]:
        return _spent(frame.assign(name=list(by)), described, total)

    slowest = spent(whole, whole["key"])[:_LISTED]
    phases = {one.name: one for one in spent(whole, whole["phase"])}
    return Slow(
        directory=str(directory),
        cells=timed,
        without=len(cells) - timed,
        seconds=total,
        wall_seconds=float(whole["wall_seconds"].sum()),
        phases=tuple(phases[name] for name in PHASES if name in phases),
        metrics=spent(metrics, metrics["metric"]),
        methods=spent(fits, fits["key"].map(labels)),
        slowest=tuple(replace(one, name=f"{described[one.name]} ({one.name})") for one in slowest),
    )


def _rows(cells: pd.DataFrame) -> list[CellRow]:
    import pandas as pd

    rows = []
    for line in cells.itertuples(index=False, name=None):
        given = zip(cells.columns, line, strict=True)
        values: dict[str, Any] = {name: None if pd.isna(v) else v for name, v in given}
        rows.append(CellRow(**values))
    return rows


def _spent(frame: pd.DataFrame, described: dict[str, str], total: float) -> tuple[Spent, ...]:
    found = []
    for name, group in frame.groupby("name", sort=False):
        per_cell = group.groupby("key")["processor_seconds"].sum()
        seconds = float(per_cell.sum())
        found.append(
            Spent(
                name=str(name),
                cells=len(per_cell),
                seconds=seconds,
                mean=seconds / len(per_cell),
                most=float(per_cell.max()),
                slowest=described[str(per_cell.idxmax())],
                share=seconds / total if total else 0.0,
            )
        )
    return tuple(sorted(found, key=lambda one: -one.seconds))


def to_text(slow: Slow) -> str:
    """Return text for a terminal."""
    lines = [f"{slow.directory}: {_seconds(slow.seconds)} of processor time in {slow.cells} cells"]
    lines[0] += f", {_seconds(slow.wall_seconds)} of wall time"
    if slow.without:
        many = "1 cell" if slow.without == 1 else f"{slow.without} cells"
        lines.append(f"  {many} without timings: not counted")
    if not slow.cells:
        lines.append("  no cell has timings: they are recorded by `bench run` of this version")
        return printable("\n".join(lines))
    for title, group in (
        ("phases", slow.phases),
        ("metrics", slow.metrics),
        ("methods, by their fits", slow.methods),
    ):
        lines += ["", f"{title:<30}    total  share  per cell     most  in"]
        for one in group[:_LISTED]:
            lines.append(
                f"  {one.name:<28} {one.seconds:7.1f} s  {one.share:4.0%} {one.mean:7.2f} s "
                f"{one.most:6.1f} s  {one.slowest}"
            )
        if len(group) > _LISTED:
            lines.append(f"  and {len(group) - _LISTED} more (--json lists all)")
    lines += ["", "cells"]
    lines += [f"  {one.seconds:8.1f} s  {one.name}" for one in slow.slowest]
    return printable("\n".join(lines))


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 600 else f"{seconds / 3600:.2f} h"
